#!/usr/bin/env python3
"""Golden vectors of the families beside Granite: small random checkpoints and the logits of each family's reference, f32, CPU.

    python3 families.py [NAME ...]        # writes ../../tests/golden; without names all

Always the full pass over all tokens, never the reference's own one-token path, which clamps nothing in transformers. Each golden is
checked against the same pass in f64, and by leaving out one thing at a time: whatever a test on it could not notice is an error here.
"""
import json
import math
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

import family_configs
from goldens import GOLDEN, random_tensor

PROMPT, FORCED, GREEDY = 100, 32, 64
# What an omission has to move some logit by, ten times what the engine's tests permit.
SEEN = 2e-2


def model_of(folder, dtype=torch.float32):
    """The reference with the weights of a checkpoint folder."""
    config = json.loads((folder / "config.json").read_text())
    model = getattr(transformers, config["architectures"][0]).from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    if config["model_type"] == "nemotron_h":
        # transformers clamps dt to `time_step_min` and up, which bounds the initial values of a training; the models' own code and
        # the other engines clamp to `time_step_limit`.
        for module in model.modules():
            if hasattr(module, "time_step_limit"):
                module.time_step_limit = model.config.time_step_limit
    return model


def full(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def write(folder, config, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def make_random(name, config, seed, dtype):
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
        tensors[key] = random_tensor(seed, key.replace("embeddings", "embed_tokens"), tensor.shape).to(own)
    write(GOLDEN / name, config, tensors)


def router_margin(model, ids):
    """By how little the choice of experts is decided, over all tokens."""
    margins = []

    def margin(module, inputs, _):
        scores = torch.nn.functional.linear(inputs[0].flatten(0, -2), module.weight).sigmoid() + module.e_score_correction_bias
        groups = scores.view(-1, module.num_group, module.num_experts // module.num_group).topk(2).values.sum(-1).sort(descending=True)
        if module.topk_group < module.num_group:
            margins.append((groups.values[:, module.topk_group - 1] - groups.values[:, module.topk_group]).min().item())
        kept = torch.zeros_like(groups.values).scatter_(1, groups.indices[:, : module.topk_group], 1).repeat_interleave(
            module.num_experts // module.num_group, 1
        )
        top = scores.masked_fill(kept == 0, -math.inf).sort(descending=True).values
        margins.append((top[:, module.top_k - 1] - top[:, module.top_k]).min().item())

    hooks = [m.register_forward_hook(margin) for m in model.modules() if type(m).__name__.endswith("TopkRouter")]
    full(model, ids)
    for hook in hooks:
        hook.remove()
    return min(margins, default=None)


def golden(name, ids):
    folder, prompt, forced = GOLDEN / name, ids[:PROMPT], ids[PROMPT:]
    model = model_of(folder)
    logits = full(model, prompt + forced[:-1])[PROMPT - 1 :]
    error = (full(model_of(folder, torch.float64), prompt + forced[:-1])[PROMPT - 1 :] - logits).abs().max().item()
    greedy = []
    for _ in range(GREEDY):
        greedy.append(full(model, prompt + greedy)[-1].argmax().item())
    best = full(model, prompt + greedy)[PROMPT - 1 : -1].topk(2, -1).values
    gap = best[:, 0] - best[:, 1]
    facts = {
        "logits": "row i is the output after prompt_ids and the first i tokens of forced_ids; it predicts forced_ids[i]",
        "greedy": "greedy_ids continue prompt_ids and do not stop at end-of-text; greedy_gap is best minus second-best logit per step",
        "arithmetic": f"{model_source(folder)}, full forward pass, f32, CPU, weights up-cast to f32",
        "largest_logit": logits.abs().max().item(),
        "difference_from_f64": error,
        "smallest_greedy_gap": gap.min().item(),
        "smallest_router_margin": router_margin(model, prompt + forced),
    }
    print(name, json.dumps(facts, indent=2), flush=True)
    assert error < 1e-4 and (facts["smallest_router_margin"] or 1) > 1e-4
    save_file(
        {
            "prompt_ids": torch.tensor(prompt),
            "forced_ids": torch.tensor(forced),
            "logits": logits.contiguous(),
            "greedy_ids": torch.tensor(greedy),
            "greedy_gap": gap.contiguous(),
        },
        GOLDEN / f"{name}.safetensors",
    )
    (GOLDEN / f"{name}.json").write_text(json.dumps(facts, indent=2) + "\n")


def model_source(folder):
    return f"transformers {transformers.__version__}"


def omissions(name, config, changes, ids):
    """Leaves one thing out at a time and says by how much the logits move: what a test on these goldens would notice."""
    tensors, moved = load_file(GOLDEN / name / "model.safetensors"), {}
    truth = full(model_of(GOLDEN / name), ids)

    def change(what, config=config, tensors=tensors):
        with tempfile.TemporaryDirectory() as temporary:
            write(pathlib.Path(temporary), config, tensors)
            other = full(model_of(pathlib.Path(temporary)), ids)
        moved[what] = (other - truth)[PROMPT - 1 :].abs().max().item()

    for what, fields in changes.items():
        change(what, config | fields)
    for key, tensor in tensors.items():
        if key.endswith(("bias", ".D", "A_log")) or "norm" in key:
            neutral = torch.ones_like if "norm" in key else torch.zeros_like
            change(key, tensors=tensors | {key: neutral(tensor)})
    for what, by in sorted(moved.items(), key=lambda item: item[1])[:8]:
        print(f"  without {what}: {by:.4f}")
    unseen = [what for what, by in moved.items() if not by > SEEN]
    assert not unseen, f"these omissions would hardly be seen: {unseen}"


def main():
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)  # small tensors
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name, (config, dtype, changes) in family_configs.GOLDENS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        make_random(name, config, 1, dtype)
        ids = torch.randint(1, config["vocab_size"], (PROMPT + FORCED,), generator=torch.Generator().manual_seed(1)).tolist()
        golden(name, ids)
        omissions(name, config, changes, ids)


if __name__ == "__main__":
    main()
