#!/usr/bin/env python3
"""Golden vectors for the engine's tests, from transformers in f32 on the CPU, each checked against a plain f64 recurrence.

    python3 goldens.py --text TEXT_DIR        # writes ../../tests/golden

For the trained checkpoint and for two small random ones, which are made here and switch on what the trained one leaves off.

Which of transformers' paths is right: its full forward pass clamps dt to `time_step_limit`; its one-token cached path
(`mamba2_selective_state_update`) is never given the limits and does not clamp, so with finite limits the two disagree. The plain
recurrence below clamps always and agrees with the full pass, which is what a model is trained with. The goldens' logits are therefore
those of the full pass, and the cached path is checked with a clamp put in.
"""
import argparse
import json
import math
import pathlib
import zlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM
from transformers.models.granitemoehybrid import modeling_granitemoehybrid as granite

import train
from golden_files import nothing_neutral

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent.parent / "tests" / "golden"

# Field names as transformers 5 writes them here, as the published configs have them in `switches-dense` and in the trained one.
MOE = {
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "model_type": "granitemoehybrid",
    "attention_bias": True,
    "attention_multiplier": 0.4,
    "bos_token_id": 0,
    "dtype": "float16",
    "embedding_multiplier": 3.0,
    "eos_token_id": 0,
    "head_dim": 16,  # not hidden_size / num_attention_heads
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 20,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
    "logits_scaling": 0.5,
    "mamba_chunk_size": 32,
    "mamba_conv_bias": False,
    "mamba_d_conv": 4,
    "mamba_d_head": 24,
    "mamba_d_state": 32,
    "mamba_expand": 8,
    "mamba_n_groups": 8,
    "mamba_n_heads": 16,
    "mamba_proj_bias": True,
    "max_position_embeddings": 1024,
    "num_attention_heads": 4,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 6,
    "position_embedding_type": "rope",
    "residual_multiplier": 0.7,
    "rms_norm_eps": 1e-03,
    "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"},
    "shared_intermediate_size": 40,
    "tie_word_embeddings": False,
    "time_step_limit": [0.25, 1.0],
    "vocab_size": 256,
}
DENSE = {
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "model_type": "granitemoehybrid",
    "attention_multiplier": 0.3,
    "bos_token_id": 0,
    "embedding_multiplier": 2.0,
    "eos_token_id": 0,
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 64,
    "layer_types": ["attention", "mamba", "mamba", "attention", "mamba"],
    "logits_scaling": 0.4,
    "mamba_chunk_size": 256,
    "mamba_d_conv": 4,
    "mamba_d_head": "auto",
    "mamba_d_state": 64,
    "mamba_expand": 2,
    "mamba_n_groups": 2,
    "mamba_n_heads": 8,
    "max_position_embeddings": 1024,
    "num_attention_heads": 4,
    "num_hidden_layers": 5,
    "num_key_value_heads": 1,
    "num_local_experts": 0,
    "position_embedding_type": None,
    "residual_multiplier": 0.6,
    "rms_norm_eps": 2e-04,
    "rope_theta": 10000,
    "shared_intermediate_size": 96,
    "tie_word_embeddings": True,
    "time_step_limit": [0.0, {"__float__": "Infinity"}],  # what transformers 5 writes for infinity
    "torch_dtype": "float32",
    "vocab_size": 384,
}


def config_of(checkpoint):
    return GraniteMoeHybridConfig.from_pretrained(checkpoint)


def random_tensor(seed, name, shape):
    g = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    r = torch.randn(shape, generator=g)
    if name.endswith("A_log"):
        return torch.rand(shape, generator=g) * 3.5 - 2.5  # decay rates from 0.08 to 2.7
    return nothing_neutral(name, r)


def make_random(name, config, seed, dtype, shard):
    out = GOLDEN / name
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    text = json.dumps(config, indent=2) + "\n"
    (out / "config.json").write_text(text)
    model = GraniteMoeHybridForCausalLM(config_of(out))
    for key, tensor in model.state_dict().items():
        if key != "lm_head.weight" or not config["tie_word_embeddings"]:
            tensor.copy_(random_tensor(seed, key, tensor.shape))
    model.to(dtype).save_pretrained(out, max_shard_size=shard)
    (out / "generation_config.json").unlink(missing_ok=True)
    (out / "config.json").write_text(text)  # as above, not as transformers writes it


# --- the plain recurrence: f64, one token at a time, straight from the formulas ---


class Plain:
    def __init__(self, config, tensors):
        self.c = config
        self.w = {k: v.double() for k, v in tensors.items()}
        self.conv, self.state, self.keys, self.values, self.position = {}, {}, {}, {}, 0
        self.router_margin, self.clamped, self.seen = math.inf, [0, 0], 0

    def linear(self, name, x):
        y = self.w[name + ".weight"] @ x
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def norm(self, name, x):
        return x * (x.square().mean() + self.c.rms_norm_eps).rsqrt() * self.w[name + ".weight"]

    def mamba(self, i, h):
        c, p = self.c, f"model.layers.{i}.mamba"
        inner, bc = c.mamba_expand * c.hidden_size, c.mamba_n_groups * c.mamba_d_state
        gate, xbc, dt = self.linear(p + ".in_proj", h).split([inner, inner + 2 * bc, c.mamba_n_heads])
        past = self.conv.setdefault(i, torch.zeros(inner + 2 * bc, c.mamba_d_conv, dtype=torch.float64))
        past = self.conv[i] = torch.cat([past[:, 1:], xbc[:, None]], 1)
        xbc = (past * self.w[p + ".conv1d.weight"][:, 0]).sum(1)
        if p + ".conv1d.bias" in self.w:
            xbc = xbc + self.w[p + ".conv1d.bias"]
        x, b, cc = F.silu(xbc).split([inner, bc, bc])
        x = x.view(c.mamba_n_heads, c.mamba_d_head)
        per_group = c.mamba_n_heads // c.mamba_n_groups
        b, cc = (t.view(c.mamba_n_groups, c.mamba_d_state).repeat_interleave(per_group, 0) for t in (b, cc))
        dt = F.softplus(dt + self.w[p + ".dt_bias"])
        low, high = c.time_step_limit
        self.clamped[0] += (dt < low).sum().item()
        self.clamped[1] += (dt > high).sum().item()
        self.seen += dt.numel()
        dt = dt.clamp(low, high)
        s = self.state.setdefault(i, torch.zeros(c.mamba_n_heads, c.mamba_d_head, c.mamba_d_state, dtype=torch.float64))
        decay = torch.exp(-torch.exp(self.w[p + ".A_log"]) * dt)
        s = self.state[i] = decay[:, None, None] * s + (dt[:, None] * x)[:, :, None] * b[:, None, :]
        y = (s * cc[:, None, :]).sum(-1) + self.w[p + ".D"][:, None] * x
        y = self.norm(p + ".norm", y.flatten() * F.silu(gate))
        return self.linear(p + ".out_proj", y)

    def rotate(self, x):
        if self.c.position_embedding_type != "rope":
            return x
        half = x.shape[-1] // 2
        angle = self.position * self.c.rope_parameters["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def attention(self, i, h):
        c, p = self.c, f"model.layers.{i}.self_attn"
        width = getattr(c, "head_dim", c.hidden_size // c.num_attention_heads)
        q, k, v = (self.linear(f"{p}.{n}_proj", h).view(-1, width) for n in "qkv")
        self.keys.setdefault(i, []).append(self.rotate(k))
        self.values.setdefault(i, []).append(v)
        repeat = c.num_attention_heads // c.num_key_value_heads
        keys, values = (torch.stack(t[i]).repeat_interleave(repeat, 1) for t in (self.keys, self.values))
        weights = (torch.einsum("hd,thd->ht", self.rotate(q), keys) * c.attention_multiplier).softmax(-1)
        return self.linear(p + ".o_proj", torch.einsum("ht,thd->hd", weights, values).flatten())

    def gated(self, into, out_of, h):
        gate, up = (into @ h).chunk(2)
        return out_of @ (F.silu(gate) * up)

    def feed_forward(self, i, h):
        w, p = self.w, f"model.layers.{i}"
        out = self.gated(w[p + ".shared_mlp.input_linear.weight"], w[p + ".shared_mlp.output_linear.weight"], h)
        if self.c.num_local_experts > 0:
            p += ".block_sparse_moe"
            top = (w[p + ".router.layer.weight"] @ h).sort(descending=True)
            k = self.c.num_experts_per_tok
            self.router_margin = min(self.router_margin, (top.values[k - 1] - top.values[k]).item())
            for share, e in zip(top.values[:k].softmax(-1), top.indices[:k]):
                out = out + share * self.gated(w[p + ".input_linear.weight"][e], w[p + ".output_linear.weight"][e], h)
        return out

    def step(self, token):
        c, h = self.c, self.w["model.embed_tokens.weight"][token] * self.c.embedding_multiplier
        for i, kind in enumerate(c.layer_types):
            x = self.norm(f"model.layers.{i}.input_layernorm", h)
            mixed = self.mamba(i, x) if kind == "linear_attention" else self.attention(i, x)
            h = h + mixed * c.residual_multiplier
            h = h + self.feed_forward(i, self.norm(f"model.layers.{i}.post_attention_layernorm", h)) * c.residual_multiplier
        self.position += 1
        head = self.w["model.embed_tokens.weight" if c.tie_word_embeddings else "lm_head.weight"]
        return head @ self.norm("model.norm", h) / c.logits_scaling

    def run(self, ids):
        return torch.stack([self.step(t) for t in ids])


# --- transformers' two paths ---


def full(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def cached(model, ids, prompt):
    """Prefill of `prompt` tokens, then one token at a time: the rows from the last prompt token on."""
    out = model(torch.tensor([ids[:prompt]]), use_cache=True)
    rows = [out.logits[0, -1]]
    for t in ids[prompt:]:
        out = model(torch.tensor([[t]]), past_key_values=out.past_key_values, use_cache=True)
        rows.append(out.logits[0, -1])
    return torch.stack(rows)


def clamping_update(limits):
    """transformers' one-token update with the clamp that it lacks: dt is prepared here and its own preparation is left out."""
    plain = granite.mamba2_selective_state_update

    def update(state, x, dt, A, B, C, D, dt_bias, dt_softplus, **kwargs):
        return plain(state, x, F.softplus(dt + dt_bias).clamp(*limits), A, B, C, D, dt_bias=None, dt_softplus=False, **kwargs)

    return update


def golden(name, checkpoint, prompt, forced, steps, tokenizer=None):
    config = config_of(checkpoint)
    tensors = {}
    for part in sorted(pathlib.Path(checkpoint).glob("*.safetensors")):
        tensors |= load_file(part)
    model = train.load(checkpoint, "cpu")
    ids, n = prompt + forced[:-1], len(prompt)

    plain = Plain(config, tensors)
    truth = plain.run(ids)[n - 1 :]
    logits = full(model, ids)[n - 1 :]
    error = (logits - truth).abs().max().item()

    greedy, picker = [], Plain(config, tensors)
    row = picker.run(prompt)[-1]
    for _ in range(steps):
        greedy.append(row.argmax().item())
        row = picker.step(greedy[-1])
    rows = full(model, prompt + greedy)[n - 1 : -1]
    assert rows.argmax(-1).tolist() == greedy, "transformers' full pass chooses other tokens than the plain recurrence"
    best = rows.topk(2, -1).values
    gap = best[:, 0] - best[:, 1]

    # The cached path, as it is and (where the limits are finite) with the clamp.
    as_is = (cached(model, ids, n) - logits).abs().max().item()
    limits, ours = config.time_step_limit, granite.mamba2_selective_state_update
    granite.mamba2_selective_state_update = clamping_update(limits)
    clamped = (cached(model, ids, n) - logits).abs().max().item()
    granite.mamba2_selective_state_update = ours

    facts = {
        "logits": "row i is the output after prompt_ids and the first i tokens of forced_ids; it predicts forced_ids[i]",
        "greedy": "greedy_ids continue prompt_ids and do not stop at end-of-text; greedy_gap is best minus second-best logit per step",
        "arithmetic": "transformers' full forward pass, f32, CPU, weights up-cast to f32; dt clamped to time_step_limit everywhere",
        "largest_logit": logits.abs().max().item(),
        "difference_from_f64_recurrence": error,
        "difference_of_cached_path_with_clamp": clamped,
        "difference_of_cached_path_as_shipped": as_is,
        "smallest_greedy_gap": gap.min().item(),
        "smallest_router_margin": min(plain.router_margin, picker.router_margin) if config.num_local_experts else None,
        "dt_clamped_low_and_high": [count / plain.seen for count in plain.clamped],
    }
    if tokenizer:
        text = {key: tokenizer.decode(t, skip_special_tokens=False) for key, t in (("prompt", prompt), ("greedy", greedy))}
        assert tokenizer.encode(text["prompt"]).ids == prompt
        facts |= {"prompt_text": text["prompt"], "greedy_text": text["greedy"]}
    print(name, json.dumps(facts, indent=2), flush=True)
    assert error < 5e-5 and clamped < 5e-5 and facts["smallest_greedy_gap"] > 5e-3
    finite = limits[0] > 0 or limits[1] < math.inf
    assert (as_is > 1e-2) if finite else (as_is < 5e-5)
    assert not finite or min(facts["dt_clamped_low_and_high"]) > 0.05
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
    return config, tensors, ids


def omissions(config, tensors, ids):
    """Leaves one thing out at a time and says by how much the logits move: what a test on these goldens would notice."""
    ids, moved = ids[:40], {}  # few tokens: the recurrence in Python is slow
    truth = Plain(config, tensors).run(ids)

    def change(what, config=config, tensors=tensors):
        moved[what] = (Plain(config, tensors).run(ids) - truth)[20:].abs().max().item()

    def with_config(**fields):
        other = GraniteMoeHybridConfig.from_dict(config.to_dict())
        for key, value in fields.items():
            setattr(other, key, value)
        return other

    for field in ("embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier"):
        change(field, with_config(**{field: 1.0}))
    change("rms_norm_eps", with_config(rms_norm_eps=0.0))
    head_dim = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    change("attention_multiplier, but head_dim^-0.5", with_config(attention_multiplier=head_dim**-0.5))
    change("rope switched", with_config(position_embedding_type=None if config.position_embedding_type == "rope" else "rope"))
    if config.position_embedding_type == "rope":
        change("rope_theta 10000", with_config(rope_parameters={"rope_theta": 10000.0, "rope_type": "default"}))
    if config.num_local_experts:
        change("one expert fewer", with_config(num_experts_per_tok=config.num_experts_per_tok - 1))
    if config.time_step_limit[1] < math.inf:
        change("limits", with_config(time_step_limit=(0.0, math.inf)))
        change("lower limit", with_config(time_step_limit=(0.0, config.time_step_limit[1])))
        change("upper limit", with_config(time_step_limit=(config.time_step_limit[0], math.inf)))
    for key in tensors:
        if key.endswith(("bias", ".D", "A_log")) or "norm" in key:
            neutral = torch.ones if "norm" in key else torch.zeros
            change(key, tensors=tensors | {key: neutral(tensors[key].shape)})
    for what, by in sorted(moved.items(), key=lambda item: item[1])[:8]:
        print(f"  without {what}: {by:.4f}")
    return moved


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--text", required=True)
    args.add_argument("--only", choices=["kjv", "switches-moe", "switches-dense"])
    args = args.parse_args()
    GOLDEN.mkdir(parents=True, exist_ok=True)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)  # small tensors

    for name, config, seed, dtype, shard in (
        ("switches-moe", MOE, 1, torch.float16, "400KB"),
        ("switches-dense", DENSE, 1, torch.float32, "5GB"),
    ):
        if args.only not in (None, name):
            continue
        make_random(name, config, seed, dtype, shard)
        g = torch.Generator().manual_seed(seed)
        ids = torch.randint(1, config["vocab_size"], (132,), generator=g).tolist()
        moved = omissions(*golden(name, GOLDEN / name, ids[:100], ids[100:], 64))
        assert min(moved.values()) > 2e-2, "some omission would hardly be seen"

    if args.only in (None, "kjv"):
        checkpoint = HERE.parent / "kjv"
        chapter = next(c for c in train.read_chapters(args.text, "heldout") if c.startswith("John 3\n"))
        tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
        ids = [0, *tokenizer.encode(chapter).ids][:264]
        golden("kjv", checkpoint, ids[:200], ids[200:], 128, tokenizer)


if __name__ == "__main__":
    main()
