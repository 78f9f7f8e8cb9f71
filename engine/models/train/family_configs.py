"""The configurations that families.py makes goldens from. Together the two of a family switch everything on and off.

Each with the dtype of its weights and with the changes that a test on it has to notice.
"""
import torch


def to_one(config, *fields):
    """Each field with 1.0 in place of its multiplier, those that are lists one entry at a time."""
    changes = {}
    for field in fields:
        value = config[field]
        if not isinstance(value, list):
            changes[field] = {field: 1.0}
            continue
        for i in range(len(value)):
            changes[f"{field}[{i}]"] = {field: value[:i] + [1.0] + value[i + 1 :]}
    return changes


FALCON_MULTIPLIERS = (
    "attention_in_multiplier",
    "attention_out_multiplier",
    "embedding_multiplier",
    "key_multiplier",
    "lm_head_multiplier",
    "mlp_multipliers",
    "ssm_in_multiplier",
    "ssm_multipliers",
    "ssm_out_multiplier",
)
# No norm beside the gate, every bias, every multiplier, tied; field names as published.
FALCON_GATED = {
    "architectures": ["FalconH1ForCausalLM"],
    "model_type": "falcon_h1",
    "attention_bias": True,
    "attention_in_multiplier": 1.5,
    "attention_out_multiplier": 1.5,
    "bos_token_id": 1,
    "embedding_multiplier": 0.6,
    "eos_token_id": 11,
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 64,
    "key_multiplier": 2.0,
    "lm_head_multiplier": 4.0,
    "mamba_chunk_size": 32,
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_head": 8,
    "mamba_d_ssm": 64,
    "mamba_d_state": 32,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 8,
    "mamba_norm_before_gate": False,
    "mamba_proj_bias": True,
    "mamba_rms_norm": False,
    "max_position_embeddings": 1024,
    "mlp_bias": True,
    "mlp_multipliers": [1.4, 0.6],
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "projectors_bias": True,
    "rms_norm_eps": 1e-03,
    "rope_scaling": None,
    "rope_theta": 500.0,
    "ssm_in_multiplier": 1.3,
    "ssm_multipliers": [0.8, 1.3, 0.7, 1.6, 0.5],
    "ssm_out_multiplier": 0.8,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 256,
}
# Norm per group before the gate, limits of dt, no bias but the convolution's, heads of another size; names as transformers 5 has them.
FALCON_NORMED = {
    "architectures": ["FalconH1ForCausalLM"],
    "model_type": "falcon_h1",
    "attention_in_multiplier": 1.2,
    "attention_out_multiplier": 0.8,
    "dtype": "float16",
    "embedding_multiplier": 0.8,
    "eos_token_id": [11, 12],
    "head_dim": 20,  # not hidden_size / num_attention_heads
    "hidden_size": 40,
    "intermediate_size": 56,
    "key_multiplier": 1.8,
    "lm_head_multiplier": 3.0,
    "mamba_chunk_size": 32,
    "mamba_conv_bias": False,
    "mamba_d_conv": 3,
    "mamba_d_head": "auto",
    "mamba_d_ssm": None,
    "mamba_d_state": 16,
    "mamba_expand": 2,
    "mamba_n_groups": 2,
    "mamba_n_heads": 4,
    "mamba_rms_norm": True,
    "max_position_embeddings": 1024,
    "mlp_multipliers": [0.7, 1.2],
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": None,
    "rms_norm_eps": 1e-03,
    "rope_parameters": {"rope_theta": 300.0, "rope_type": "default"},
    "ssm_in_multiplier": 0.9,
    "ssm_multipliers": [1.2, 0.9, 1.4, 0.8, 0.7],
    "ssm_out_multiplier": 1.3,
    "tie_word_embeddings": False,
    "time_step_limit": [0.2, 1.0],
    "vocab_size": 260,
}

# The pattern of published configs, experts without groups whose weights are not divided by their sum, biases in the feed-forward layers.
NEMOTRON_PATTERN = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "attention_bias": False,
    "attention_head_dim": 16,
    "chunk_size": 32,
    "conv_kernel": 4,
    "eos_token_id": 11,
    "head_dim": 16,  # not hidden_size / num_attention_heads
    "hidden_size": 40,
    "hybrid_override_pattern": "ME*M-",
    "intermediate_size": 56,
    "layer_norm_epsilon": 1e-03,
    "mamba_head_dim": 10,
    "mamba_hidden_act": "silu",
    "mamba_num_heads": 8,
    "max_position_embeddings": 1024,
    "mlp_bias": True,
    "mlp_hidden_act": "relu2",
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 32,
    "n_group": 1,
    "n_groups": 2,
    "n_routed_experts": 6,
    "n_shared_experts": 1,
    "norm_topk_prob": False,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 5,
    "num_key_value_heads": 2,
    "routed_scaling_factor": 1.0,
    "ssm_state_size": 96,
    "tie_word_embeddings": False,
    "time_step_limit": [0.2, 1.0],
    "time_step_max": 0.1,
    "time_step_min": 0.001,
    "topk_group": 1,
    "torch_dtype": "bfloat16",
    "use_bias": False,
    "use_conv_bias": True,
    "vocab_size": 256,
}
# The list of transformers 5, groups of experts, experts on fewer channels, biases in the mixers.
NEMOTRON_GROUPED = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "chunk_size": 32,
    "conv_kernel": 3,
    "dtype": "float16",
    "eos_token_id": [11, 12],
    "head_dim": 12,
    "hidden_size": 48,
    "intermediate_size": 40,
    "layer_norm_epsilon": 1e-03,
    "layers_block_type": ["moe", "linear_attention", "full_attention", "moe"],
    "mamba_head_dim": 16,
    "mamba_num_heads": 4,
    "max_position_embeddings": 1024,
    "moe_intermediate_size": 20,
    "moe_latent_size": 24,
    "moe_shared_expert_intermediate_size": 28,
    "n_group": 4,
    "n_groups": 4,
    "n_routed_experts": 12,
    "norm_topk_prob": True,
    "num_attention_heads": 3,
    "num_experts_per_tok": 3,
    "num_key_value_heads": 3,
    "routed_scaling_factor": 2.5,
    "ssm_state_size": 32,
    "tie_word_embeddings": False,
    "topk_group": 2,
    "use_bias": True,
    "use_conv_bias": False,
    "vocab_size": 260,
}

GOLDENS = {
    "falcon-h1-gated": (
        FALCON_GATED,
        torch.bfloat16,
        to_one(FALCON_GATED, *FALCON_MULTIPLIERS)
        | {"rope_theta": {"rope_theta": 10000.0}, "eps": {"rms_norm_eps": 1e-6}},
    ),
    "falcon-h1-normed": (
        FALCON_NORMED,
        torch.float16,
        to_one(FALCON_NORMED, *FALCON_MULTIPLIERS)
        | {
            "lower limit": {"time_step_limit": [0.0, 1.0]},
            "upper limit": {"time_step_limit": [0.2, {"__float__": "Infinity"}]},
            "norm before gate": {"mamba_norm_before_gate": False},
            "rope_theta": {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
        },
    ),
    "nemotron-h-pattern": (
        NEMOTRON_PATTERN,
        torch.bfloat16,
        {
            "lower limit": {"time_step_limit": [0.0, 1.0]},
            "upper limit": {"time_step_limit": [0.2, {"__float__": "Infinity"}]},
            "eps": {"layer_norm_epsilon": 1e-6},
            "weights that sum to one": {"norm_topk_prob": True},
            "one expert fewer": {"num_experts_per_tok": 1},
        },
    ),
    "nemotron-h-grouped": (
        NEMOTRON_GROUPED,
        torch.float16,
        {
            "eps": {"layer_norm_epsilon": 1e-6},
            "all groups": {"topk_group": 4},
            "one group": {"n_group": 1, "topk_group": 1},
            "weights as they are": {"norm_topk_prob": False},
            "routed_scaling_factor": {"routed_scaling_factor": 1.0},
            "one expert fewer": {"num_experts_per_tok": 2},
        },
    ),
}
