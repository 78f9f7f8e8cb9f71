//! The shapes that must be right and fast, for the conformance list and for the benchmark.

/// Model, and its heads, head_dim, d_state and groups.
pub const MODELS: [(&str, [usize; 4]); 20] = [
    ("Granite-4.0-H tiny, 1b", [48, 64, 128, 1]),
    ("Granite-4.0-H 350m", [48, 32, 128, 1]),
    ("Granite-4.0-H micro", [64, 64, 128, 1]),
    ("Granite-4.0-H small", [128, 64, 128, 1]),
    ("Falcon-H1 90m", [24, 32, 64, 1]),
    ("Falcon-H1 0.5b", [24, 64, 128, 1]),
    ("Falcon-H1 1.5b", [48, 64, 256, 1]),
    ("Falcon-H1 3b", [32, 128, 256, 1]),
    ("Falcon-H1 7b", [24, 128, 256, 1]),
    ("Falcon-H1 34b", [32, 128, 256, 2]),
    ("PLaMo-2 1b", [32, 128, 64, 1]),
    ("PLaMo-2 8b", [64, 128, 64, 1]),
    ("Nemotron-H 8b", [128, 64, 128, 8]),
    ("Nemotron-H 56b", [256, 64, 256, 8]),
    ("Nemotron-Nano-9b-v2", [128, 80, 128, 8]),
    ("Nemotron-3-Nano-30B-A3B", [64, 64, 128, 8]),
    ("Nemotron, pruned", [128, 64, 96, 8]),
    ("Nemotron-Nano, pruned", [112, 80, 96, 8]),
    ("Codestral-Mamba", [128, 64, 128, 8]),
    ("Bamba", [128, 64, 128, 1]),
];
