#!/usr/bin/env python3
"""Golden vectors of the families whose reference is in transformers: small random checkpoints, f32, CPU.

    python3 families.py [NAME ...]        # writes ../../tests/golden; without names all

Never transformers' one-token path, which clamps nothing. Each golden is checked against the same pass in f64.
"""
import json
import math
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.falcon_h1.modeling_falcon_h1 import FalconH1RMSNormGated
from transformers.models.zamba2.modeling_zamba2 import Zamba2RMSNormGated

import family_configs
from golden_files import GOLDEN, ONE, PROMPT, ZERO, omissions, record, token_ids
from goldens import random_tensor


def model_of(folder, dtype=torch.float32):
    """The reference with the weights of a checkpoint folder."""
    config = json.loads((folder / "config.json").read_text())
    model = getattr(transformers, config["architectures"][0]).from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    model.config._experts_implementation = "eager"  # the others have no f64
    if config["model_type"] == "nemotron_h":
        # transformers clamps dt to `time_step_min` and up, which bounds the initial values of a training; the models' own code and
        # the other engines clamp to `time_step_limit`.
        for module in model.modules():
            if hasattr(module, "time_step_limit"):
                module.time_step_limit = model.config.time_step_limit
    if config["model_type"] == "mamba2":
        # transformers' fused path takes the means of the gated norm over groups, as the code that the models were trained with, its
        # plain path over all channels.
        for module in model.modules():
            if type(module).__name__ == "Mamba2Mixer":
                weight, channels = module.norm.weight, module.intermediate_size
                module.norm = Zamba2RMSNormGated(channels, channels // module.n_groups, module.layer_norm_epsilon)
                module.norm.weight = weight
    return model


def full(model):
    return lambda ids: model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def reference(folder, dtype=torch.float32):
    return full(model_of(folder, dtype))


def without_groups(folder):
    """The reference with the means of gated norms over all channels."""
    model = model_of(folder)
    for module in model.modules():
        if isinstance(module, Zamba2RMSNormGated):
            module.group_size = module.weight.numel()
        elif isinstance(module, FalconH1RMSNormGated):
            module.n_groups = 1
    return full(model)


def has_groups(model):
    """Whether some gated norm takes its means over groups."""
    zamba = any(module.group_size < module.weight.numel() for module in model.modules() if isinstance(module, Zamba2RMSNormGated))
    return zamba or any(module.n_groups > 1 for module in model.modules() if isinstance(module, FalconH1RMSNormGated))


def neutral(key):
    return ONE if "norm" in key else ZERO if key.endswith(("bias", ".D", "A_log")) else None


def make_random(name, config, dtype):
    """Writes a checkpoint with random weights under the names that transformers saves."""
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        (temporary / "config.json").write_text(json.dumps(config))
        architecture = getattr(transformers, config["architectures"][0])
        architecture(architecture.config_class.from_pretrained(temporary)).save_pretrained(temporary)
        tensors = load_file(temporary / "model.safetensors")
    for key, tensor in tensors.items():
        # The recurrence's own vectors stay f32, so that dtypes are mixed in one file as in published ones.
        own = torch.float32 if key.endswith(("A_log", ".D", "dt_bias", "correction_bias")) else dtype
        tensors[key] = random_tensor(1, key.replace("embeddings", "embed_tokens"), tensor.shape).to(own)
    (GOLDEN / name).mkdir(parents=True, exist_ok=True)
    (GOLDEN / name / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(tensors, GOLDEN / name / "model.safetensors", metadata={"format": "pt"})


def router_margin(model, ids):
    """By how little the choice of experts is decided, over all tokens."""
    margins = []

    def margin(module, inputs, _):
        scores = torch.nn.functional.linear(inputs[0].flatten(0, -2), module.weight).sigmoid() + module.e_score_correction_bias
        size = module.num_experts // module.num_group
        groups = scores.unflatten(1, (module.num_group, size)).topk(min(2, size)).values.sum(-1).sort(descending=True)
        if module.topk_group < module.num_group:
            margins.append((groups.values[:, module.topk_group - 1] - groups.values[:, module.topk_group]).min().item())
        kept = torch.zeros_like(groups.values).scatter_(1, groups.indices[:, : module.topk_group], 1).repeat_interleave(size, 1)
        top = scores.masked_fill(kept == 0, -math.inf).sort(descending=True).values
        margins.append((top[:, module.top_k - 1] - top[:, module.top_k]).min().item())

    for module in model.modules():
        if type(module).__name__.endswith("TopkRouter"):
            module.register_forward_hook(margin)
    model(torch.tensor([ids]), use_cache=False)
    return min(margins, default=None)


def main():
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)  # small tensors
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name, (config, dtype, changes) in family_configs.GOLDENS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        make_random(name, config, dtype)
        ids, folder = token_ids(config["vocab_size"]), GOLDEN / name
        error = abs(reference(folder, torch.float64)(ids) - reference(folder)(ids))[PROMPT - 1 :].max().item()
        margin = router_margin(model_of(folder), ids)
        assert error < 1e-4 and (margin or 1) > 1e-4
        record(
            name,
            reference,
            f"transformers {transformers.__version__}, dt clamped to time_step_limit",
            difference_from_f64=error,
            smallest_router_margin=margin,
        )
        others = [("groups of the norm", without_groups)] if has_groups(model_of(folder)) else []
        omissions(name, reference, changes, neutral, others)


if __name__ == "__main__":
    main()
