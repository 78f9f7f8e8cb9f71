#!/usr/bin/env python3
"""Golden vectors of PLaMo 2, whose reference is in mlx-lm: small random checkpoints, f32, CPU.

    pip install mlx-cpu mlx-lm
    python3 plamo2.py        # writes ../../tests/golden

mlx-lm leaves out the window of attention that the models were trained with. Here it is put in, as the models' own code has it: position i
sees i - attention_window_size to i, except in the layers of full_attention_idx.
"""
import functools
import json
import zlib

import mlx.core as mx
import mlx_lm
import numpy
from mlx.utils import tree_flatten
from mlx_lm.models import plamo2 as mlx_plamo2

from golden_files import GOLDEN, ONE, ZERO, omissions, record

# Published names, attention in a window and without, untied.
WINDOWED = {
    "architectures": ["Plamo2ForCausalLM"],
    "model_type": "plamo2",
    "attention_window_size": 20,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "full_attention_idx": [3],
    "hidden_size": 32,
    "hidden_size_per_head": 16,
    "intermediate_size": 48,
    "linear_type": "normal",
    "mamba_chunk_size": 256,
    "mamba_d_conv": 4,
    "mamba_d_state": 32,
    "mamba_enabled": True,
    "mamba_num_heads": 4,
    "mamba_step": 2,
    "max_position_embeddings": 1024,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-03,
    "tie_word_embeddings": False,
    "vocab_size": 256,
}
# Fewer layers than half of `mamba_step`, so that the last one is attention; one key head, tied, the older class name.
LAST = {
    "architectures": ["PlamoForCausalLM"],
    "model_type": "plamo2",
    "attention_window_size": 33,
    "eos_token_id": 2,
    "hidden_size": 48,
    "hidden_size_per_head": 8,
    "intermediate_size": 40,
    "mamba_d_conv": 3,
    "mamba_d_state": 16,
    "mamba_num_heads": 6,
    "mamba_step": 6,
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-03,
    "tie_word_embeddings": True,
    "vocab_size": 260,
}


def random_weight(name, shape):
    """As random_tensor of goldens.py; the norms of the residual blocks are stored as differences from their offsets."""
    r = numpy.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, numpy.float32)
    if name.endswith("A_log"):
        return numpy.random.default_rng(zlib.crc32(name.encode())).uniform(-2.5, 1.0, shape)
    if name.endswith("dt_bias"):
        r = r * 0.7 - 0.5
        r[0] = -12.0  # so that dt has to be raised to its lower limit
        return r
    if name.endswith(".D"):
        return r * 0.5 + 0.8
    if name.endswith("norm.weight"):
        return r * 0.3
    if name.endswith(("norm_weight", "q_weight", "k_weight")):
        return 1 + 0.4 * r
    if "conv1d" in name:
        return r * 0.5
    if "embed_tokens" in name or "lm_head" in name:
        return r * 2 * shape[-1] ** -0.5
    return r * 1.3 * shape[-1] ** -0.5


def make_random(name, config, dtype):
    model = mlx_plamo2.Model(mlx_plamo2.ModelArgs.from_dict(config))
    tensors = {}
    for key, tensor in tree_flatten(model.parameters()):
        shape = (tensor.shape[0], 1, tensor.shape[1]) if "conv1d" in key else tensor.shape  # mlx has the taps before the channels
        own = mx.float32 if key.endswith(("A_log", ".D", "dt_bias")) else dtype
        tensors[key] = mx.array(random_weight(key, shape)).astype(own)
    (GOLDEN / name).mkdir(parents=True, exist_ok=True)
    (GOLDEN / name / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    mx.save_safetensors(str(GOLDEN / name / "model.safetensors"), tensors, {"format": "pt"})


def reference(folder, change=lambda model: None):
    config = json.loads((folder / "config.json").read_text())
    model = mlx_plamo2.Model(mlx_plamo2.ModelArgs.from_dict(config))
    tensors = {key: tensor.astype(mx.float32) for key, tensor in mx.load(str(folder / "model.safetensors")).items()}
    model.load_weights(list(model.sanitize(tensors).items()))
    change(model)

    def run(ids):
        hidden, position = model.model.embed_tokens(mx.array([ids])), mx.arange(len(ids))
        causal = position[:, None] >= position
        window = causal & (position[:, None] - position <= config["attention_window_size"])
        for i, layer in enumerate(model.layers):
            mask = None if layer.is_mamba else causal if i in config.get("full_attention_idx", []) else window
            hidden = layer(hidden, mask=mask)
        hidden = model.model.norm(hidden)
        logits = model.model.embed_tokens.as_linear(hidden) if config["tie_word_embeddings"] else model.lm_head(hidden)
        return numpy.array(logits[0])

    return run


def with_offset(norm, offset):
    """The reference with another offset of a norm."""

    def change(model):
        for layer in model.layers:
            getattr(layer, norm).offset = offset

    return lambda folder: reference(folder, change)


def without_rotary(folder):
    def change(model):
        for layer in model.layers:
            if not layer.is_mamba:
                layer.mixer.rope = lambda x: x

    return reference(folder, change)


def without_limits(folder):
    """mlx-lm has the limits of dt as a default argument."""
    run, update = reference(folder), mlx_plamo2.ssm_update

    def unlimited(ids):
        mlx_plamo2.ssm_update = functools.partial(update, time_step_limit=(0.0, float("inf")))
        logits = run(ids)
        mlx_plamo2.ssm_update = update
        return logits

    return unlimited


def neutral(key):
    if key.endswith(("norm.weight", ".D", "A_log", "dt_bias")):
        return ZERO
    return ONE if key.endswith(("norm_weight", "q_weight", "k_weight")) else None


def main():
    norms = ("pre_mixer_norm", "post_mixer_norm", "pre_mlp_norm", "post_mlp_norm")
    others = [(f"offset of {norm}", with_offset(norm, 0.5)) for norm in norms] + [("rotary", without_rotary), ("limits", without_limits)]
    for name, config, dtype, changes in (
        ("plamo2-windowed", WINDOWED, mx.bfloat16, {"full_attention_idx": {"full_attention_idx": []}}),
        ("plamo2-last", LAST, mx.float16, {}),
    ):
        make_random(name, config, dtype)
        record(name, reference, f"mlx-lm {mlx_lm.__version__} with the window put in")
        changes |= {
            "eps": {"rms_norm_eps": 1e-6},
            "window": {"attention_window_size": 2048},
            "last position of the window": {"attention_window_size": config["attention_window_size"] - 1},
        }
        omissions(name, reference, changes, neutral, others)


if __name__ == "__main__":
    main()
