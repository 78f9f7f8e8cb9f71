#!/usr/bin/env python3
"""Quantised checkpoints and their golden vectors for the engine's tests, both made by mlx-lm, on the CPU.

    pip install -r mlx-requirements.txt
    python3 mlx_goldens.py        # writes ../../tests/golden/mlx-*

A random checkpoint is written under the names of Hugging Face, read and renamed by mlx-lm as any other, quantised and saved by it, and read
again. Its logits are then computed with all floating-point tensors up-cast to f32: scales and biases too, so that an element is the same
number as in the engine. Without a Metal device mlx-lm takes its path of plain tensor operations.
"""
import json
import pathlib
import tempfile
import zlib

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model, quantize_model, save_config, save_model

from golden_files import GOLDEN, nothing_neutral

COMMON = {
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "model_type": "granitemoehybrid",
    "bos_token_id": 0,
    "eos_token_id": 0,
    "hidden_act": "silu",
    "mamba_chunk_size": 256,
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_proj_bias": False,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-4,
    "rope_theta": 500.0,
}
# A mixture of experts with tied embeddings: 4 bits in groups of 64, all but the router, for which mlx-lm itself takes 8 bits.
MOE = COMMON | {
    "attention_bias": False,
    "attention_multiplier": 0.3,
    "embedding_multiplier": 3.0,
    "hidden_size": 64,
    "intermediate_size": 64,
    "layer_types": ["mamba", "attention", "mamba"],
    "logits_scaling": 0.3,
    "mamba_d_head": 16,
    "mamba_d_state": 32,
    "mamba_n_groups": 2,
    "mamba_n_heads": 8,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "num_local_experts": 5,
    "position_embedding_type": "nope",
    "residual_multiplier": 0.7,
    "shared_intermediate_size": 128,
    "tie_word_embeddings": True,
    "time_step_limit": [0.001, 100.0],
    "vocab_size": 256,
}
# Dense, with a head of its own, rotary embedding and biases: 8 bits in groups of 32, of which 96 channels are no multiple of 64.
DENSE = MOE | {
    "attention_bias": True,
    "hidden_size": 96,
    "intermediate_size": 160,
    "layer_types": ["attention", "mamba"],
    "mamba_d_head": 24,
    "mamba_d_state": 16,
    "mamba_proj_bias": True,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "num_local_experts": 0,
    "position_embedding_type": "rope",
    "shared_intermediate_size": 160,
    "tie_word_embeddings": False,
    "time_step_limit": [0.05, 1.0],
}
# Each module its own way.
MIXED = MOE | {
    "hidden_size": 128,
    "layer_types": ["mamba", "attention"],
    "mamba_expand": 1,
    "num_hidden_layers": 2,
    "num_local_experts": 3,
    "shared_intermediate_size": 64,
    "tie_word_embeddings": False,
}


def mixed(path, _):
    for end, choice in (
        ("embed_tokens", {"group_size": 128, "bits": 8}),
        ("in_proj", {"group_size": 32, "bits": 4}),
        ("out_proj", {"group_size": 128, "bits": 4}),
        ("self_attn.k_proj", False),
        ("self_attn.q_proj", {"group_size": 64, "bits": 8}),
        ("switch_mlp.up_proj", {"group_size": 32, "bits": 8}),
        ("router.layer", False),
    ):
        if path.endswith(end):
            return choice
    return True


def shapes(c):
    hidden, shared, experts = c["hidden_size"], c["shared_intermediate_size"], c["num_local_experts"]
    inner, heads = c["mamba_n_heads"] * c["mamba_d_head"], c["mamba_n_heads"]
    conv = inner + 2 * c["mamba_n_groups"] * c["mamba_d_state"]
    head_dim = hidden // c["num_attention_heads"]
    yield "model.embed_tokens.weight", (c["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], hidden)
    for i, kind in enumerate(c["layer_types"]):
        p = f"model.layers.{i}"
        yield f"{p}.input_layernorm.weight", (hidden,)
        yield f"{p}.post_attention_layernorm.weight", (hidden,)
        if kind == "mamba":
            for part, out, ins in (("in_proj", inner + conv + heads, hidden), ("out_proj", hidden, inner)):
                yield f"{p}.mamba.{part}.weight", (out, ins)
                if c["mamba_proj_bias"]:
                    yield f"{p}.mamba.{part}.bias", (out,)
            yield f"{p}.mamba.conv1d.weight", (conv, 1, c["mamba_d_conv"])
            yield f"{p}.mamba.conv1d.bias", (conv,)
            yield f"{p}.mamba.norm.weight", (inner,)
            for part in ("A_log", "D", "dt_bias"):
                yield f"{p}.mamba.{part}", (heads,)
        else:
            kv = c["num_key_value_heads"] * head_dim
            for part, out, ins in (("q", hidden, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, hidden)):
                yield f"{p}.self_attn.{part}_proj.weight", (out, ins)
                if c["attention_bias"]:
                    yield f"{p}.self_attn.{part}_proj.bias", (out,)
        yield f"{p}.shared_mlp.input_linear.weight", (2 * shared, hidden)
        yield f"{p}.shared_mlp.output_linear.weight", (hidden, shared)
        if experts:
            width = c["intermediate_size"]
            yield f"{p}.block_sparse_moe.router.layer.weight", (experts, hidden)
            yield f"{p}.block_sparse_moe.input_linear.weight", (experts, 2 * width, hidden)
            yield f"{p}.block_sparse_moe.output_linear.weight", (experts, hidden, width)


def random_tensor(seed, name, shape):
    key = mx.random.key(zlib.crc32(f"{seed} {name}".encode()))
    r = mx.random.normal(shape, key=key)
    if name.endswith("A_log"):
        return r * 0.9 - 0.6
    return nothing_neutral(name, r)


def convert(name, config, seed, dtype, bits, group_size, predicate=None):
    out = GOLDEN / name
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder)
        (source / "config.json").write_text(json.dumps(config))
        tensors = {name: random_tensor(seed, name, shape).astype(dtype) for name, shape in shapes(config)}
        mx.save_safetensors(str(source / "model.safetensors"), tensors)
        model, loaded = load_model(source)
    model, quantised = quantize_model(model, loaded, group_size, bits, quant_predicate=predicate)
    if predicate:  # mlx-lm reads such entries and does not write them
        for path, module in model.named_modules():
            if hasattr(module, "to_quantized"):
                quantised["quantization"][path] = False
    save_model(out, model)
    save_config(quantised, out / "config.json")
    return out


def run(model, ids, cache=None):
    return model(mx.array([ids]), cache=cache)[0]


def golden(name, seed, vocabulary, prompt=60, forced=20, steps=40):
    model, _ = load_model(GOLDEN / name)
    model.update(tree_map(lambda p: p.astype(mx.float32) if mx.issubdtype(p.dtype, mx.floating) else p, model.parameters()))
    ids = mx.random.randint(1, vocabulary, (prompt + forced,), key=mx.random.key(seed)).tolist()
    prompt, forced = ids[:prompt], ids[prompt:]
    logits = run(model, prompt + forced[:-1])[len(prompt) - 1 :]

    cache = make_prompt_cache(model)
    rows = [run(model, prompt, cache)[-1]] + [run(model, [token], cache)[-1] for token in forced[:-1]]
    difference = mx.abs(mx.stack(rows) - logits).max().item()

    greedy, gaps, cache = [], [], make_prompt_cache(model)
    row = run(model, prompt, cache)[-1]
    for _ in range(steps):
        best = mx.sort(row)[-2:].tolist()
        greedy.append(row.argmax().item())
        gaps.append(best[1] - best[0])
        row = run(model, greedy[-1:], cache)[-1]

    facts = {
        "logits": "row i is the output after prompt_ids and the first i tokens of forced_ids; it predicts forced_ids[i]",
        "greedy": "greedy_ids continue prompt_ids and do not stop at end-of-text; greedy_gap is best minus second-best logit per step",
        "arithmetic": "mlx-lm 0.32.2, one forward pass, f32, CPU; scales and biases up-cast to f32",
        "largest_logit": mx.abs(logits).max().item(),
        "difference_of_cached_path": difference,
        "decided_greedy_steps": sum(gap >= 0.05 for gap in gaps),
    }
    print(name, json.dumps(facts, indent=2), flush=True)
    assert difference < 1e-4 and facts["decided_greedy_steps"] > steps // 2
    mx.save_safetensors(
        str(GOLDEN / f"{name}.safetensors"),
        {
            "prompt_ids": mx.array(prompt, dtype=mx.int64),
            "forced_ids": mx.array(forced, dtype=mx.int64),
            "logits": logits,
            "greedy_ids": mx.array(greedy, dtype=mx.int64),
            "greedy_gap": mx.array(gaps),
        },
    )
    (GOLDEN / f"{name}.json").write_text(json.dumps(facts, indent=2) + "\n")


def main():
    mx.set_default_device(mx.cpu)
    mx.disable_compile()
    for name, config, seed, dtype, bits, group_size, predicate in (
        ("mlx-4bit-moe", MOE, 1, mx.bfloat16, 4, 64, None),
        ("mlx-8bit-dense", DENSE, 2, mx.float16, 8, 32, None),
        ("mlx-mixed", MIXED, 3, mx.float16, 4, 64, mixed),
    ):
        convert(name, config, seed, dtype, bits, group_size, predicate)
        golden(name, seed, config["vocab_size"])


if __name__ == "__main__":
    main()
