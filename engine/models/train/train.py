#!/usr/bin/env python3
"""Trains the small GraniteMoeHybrid checkpoint on the text that corpus.py wrote, or evaluates a saved one.

    python3 train.py --text TEXT_DIR --out OUT_DIR [--minutes M] [--set dropout=0.3 ...]
    python3 train.py --text TEXT_DIR --evaluate CHECKPOINT_DIR

All hyper-parameters are in train.json. The model is transformers' own GraniteMoeHybridForCausalLM; while it
trains, three of its functions are replaced by faster ones with the same result (checked below before the first step).
"""
import argparse
import json
import math
import pathlib
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM
from transformers.models.granitemoehybrid import modeling_granitemoehybrid as granite

HERE = pathlib.Path(__file__).parent
END = "<|endoftext|>"


def read_chapters(text_dir, name):
    return (pathlib.Path(text_dir) / f"{name}.txt").read_text().split("\f\n")


def train_tokenizer(chapters, vocab_size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    # The whole byte alphabet, so that any text can be encoded, not only the characters of this one.
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        chapters, trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    )
    assert tokenizer.get_vocab_size() == vocab_size and tokenizer.token_to_id(END) == 0
    return tokenizer


# --- faster equivalents of transformers' fallbacks ---


def fast_chunk_scan(x, dt, A, B, C, chunk_size, D, dt_bias, dt_limit, **_):
    """The same chunked form as transformers' fallback, by matrix products instead of broadcast sums."""
    batch, length, heads, width = x.shape
    pad = -length % chunk_size
    dt = F.softplus(dt.float() + dt_bias).clamp(*dt_limit)
    x = x.float()
    skip = x * D[:, None]

    def chunks(t):
        t = F.pad(t, (0, 0) * (t.dim() - 2) + (0, pad))
        return t.reshape(batch, -1, chunk_size, *t.shape[2:])

    xdt, decay = chunks(x * dt[..., None]), chunks(dt * A).cumsum(2).transpose(2, 3)  # [b,c,l,h,p], [b,c,h,l]
    B, C = chunks(B.float()), chunks(C.float())
    B, C = (t.repeat_interleave(heads // t.shape[3], 3).transpose(2, 3) for t in (B, C))  # [b,c,h,l,n]
    xdt = xdt.transpose(2, 3)  # [b,c,h,l,p]
    mask = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=x.device).tril()
    between = (decay[..., :, None] - decay[..., None, :]).masked_fill(~mask, -torch.inf).exp()
    y = ((C @ B.transpose(-1, -2)) * between) @ xdt
    last = decay[..., -1:]
    added = (xdt * (last - decay).exp()[..., None]).transpose(-1, -2) @ B  # [b,c,h,p,n]
    state, before = torch.zeros_like(added[:, 0]), []
    for c in range(added.shape[1]):
        before.append(state)
        state = state * last[:, c, ..., None].exp() + added[:, c]
    y = y + (C * decay.exp()[..., None]) @ torch.stack(before, 1).transpose(-1, -2)
    y = y.transpose(2, 3).reshape(batch, -1, heads, width)[:, :length]
    return y + skip


def fast_conv(x, weight, bias=None, activation=None, **_):
    taps = weight.shape[-1]
    padded = F.pad(x, (taps - 1, 0))
    out = sum(padded[..., k : k + x.shape[-1]] * weight[:, k, None] for k in range(taps))
    return F.silu(out if bias is None else out + bias[:, None])


def all_experts(self, h, index, weight):
    """Every expert on every token: with four small ones, two matrix products are faster than sorting tokens."""
    weight = torch.zeros(h.shape[0], self.num_experts, device=h.device).scatter(1, index, weight)
    gate, up = (h @ self.gate_up_proj.flatten(0, 1).T).view(-1, self.num_experts, 2 * self.intermediate_dim).chunk(2, -1)
    return (F.silu(gate) * up * weight[..., None]).flatten(1) @ self.down_proj.transpose(1, 2).flatten(0, 1)


class Fast:
    """Within `with Fast():` the model uses the functions above."""

    SWAPS = [
        (granite, "mamba2_chunk_scan", fast_chunk_scan),
        (granite, "causal_conv1d_fn", fast_conv),
        (granite.GraniteMoeHybridExperts, "forward", all_experts),
    ]

    def __enter__(self):
        self.saved = [getattr(owner, name) for owner, name, _ in self.SWAPS]
        for owner, name, new in self.SWAPS:
            setattr(owner, name, new)

    def __exit__(self, *_):
        for (owner, name, _), old in zip(self.SWAPS, self.saved):
            setattr(owner, name, old)


# --- model ---


def init_dt(model, dt_range):
    """Mamba2's own initialisation; transformers' (dt_bias = 1) starts with heads that forget within a few tokens."""
    for layer in model.model.layers:
        if layer.mamba is not None:
            heads = layer.mamba.num_heads
            low, high = (math.log(v) for v in dt_range)
            dt = torch.exp(low + torch.rand(heads) * (high - low))
            layer.mamba.dt_bias.data.copy_(dt + torch.log(-torch.expm1(-dt)))
            layer.mamba.A_log.data.copy_(torch.log(1 + 15 * torch.rand(heads)))


def add_dropout(model, p):
    def hook(_module, _inputs, out):
        if isinstance(out, tuple):
            return (F.dropout(out[0], p, _module.training), *out[1:])
        return F.dropout(out, p, _module.training)

    model.model.embed_tokens.register_forward_hook(hook)
    for layer in model.model.layers:
        for part in (layer.mamba, layer.self_attn, layer.shared_mlp, layer.block_sparse_moe):
            if part is not None:
                part.register_forward_hook(hook)


def collect_balance(model, losses):
    """Switch Transformers' load balance per layer: 1 when all experts get the same share."""

    def hook(module, _inputs, out):
        index, _, logits = out
        share = F.one_hot(index, module.num_experts).float().mean((0, 1))
        losses.append(module.num_experts * (share * logits.softmax(-1).mean(0)).sum())

    for layer in model.model.layers:
        layer.block_sparse_moe.router.register_forward_hook(hook)


@torch.no_grad()
def evaluate(model, sequences):
    """Sum of -log p and number of predicted tokens; a sequence starts with END, which is not predicted, and ends with END."""
    model.eval()
    total = count = 0
    for ids in sequences:
        logits = model(ids[None, :-1], use_cache=False).logits[0].float()
        total += F.cross_entropy(logits, ids[1:], reduction="sum").item()
        count += len(ids) - 1
    return total, count


def held_out_sequences(tokenizer, chapters, device):
    return [torch.tensor([0, *tokenizer.encode(c).ids, 0], device=device) for c in chapters]


def report(model, tokenizer, chapters, device):
    total, count = evaluate(model, held_out_sequences(tokenizer, chapters, device))
    size = sum(len(c.encode()) for c in chapters)
    return {
        "held_out_tokens": count,
        "held_out_bytes": size,
        "perplexity_per_token": round(math.exp(total / count), 4),
        "perplexity_per_byte": round(math.exp(total / size), 4),
        "bits_per_byte": round(total / size / math.log(2), 4),
    }


def windows(chapters_ids, window, generator):
    """One epoch: the chapters in random order, cut into windows at a random phase."""
    order = torch.randperm(len(chapters_ids), generator=generator).tolist()
    stream = torch.cat([chapters_ids[i] for i in order])
    stream = stream[torch.randint(window, (1,), generator=generator).item() :]
    cut = stream[: (len(stream) - 1) // window * window + 1].unfold(0, window + 1, window)
    return cut[torch.randperm(len(cut), generator=generator)]


def train(p, text_dir, out_dir, minutes):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(p["seed"])
    train_text, held_text = read_chapters(text_dir, "train"), read_chapters(text_dir, "heldout")
    tokenizer = train_tokenizer(train_text, p["model"]["vocab_size"])
    chapters_ids = [torch.tensor([0, *e.ids]) for e in tokenizer.encode_batch(train_text)]
    held_out = held_out_sequences(tokenizer, held_text, device)
    print(f"{sum(map(len, chapters_ids))} training tokens", flush=True)

    # f32 weights and arithmetic throughout (tf32 products): at this size the step is bound by launches, not by matrix units.
    config = GraniteMoeHybridConfig(**{k: v for k, v in p["model"].items() if k not in ("architectures", "dtype", "model_type")})
    model = GraniteMoeHybridForCausalLM(config).float()
    init_dt(model, p["dt_range"])
    model.to(device)
    print(f"{sum(w.numel() for w in model.parameters())} parameters on {device}", flush=True)
    probe = held_out[0][None, :150]
    with torch.no_grad():
        model.eval()
        slow = model(probe, use_cache=False).logits
        with Fast():
            fast = model(probe, use_cache=False).logits
    assert (slow - fast).abs().max() < 1e-3 * slow.abs().max(), "the fast functions do not agree with transformers'"
    torch.set_float32_matmul_precision("high")

    add_dropout(model, p["dropout"])
    balance = []
    collect_balance(model, balance)
    matrices = [w for n, w in model.named_parameters() if w.dim() >= 2 and "conv1d" not in n]
    others = [w for n, w in model.named_parameters() if w.dim() < 2 or "conv1d" in n]
    groups = [{"params": matrices, "weight_decay": p["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=p["lr"], betas=tuple(p["betas"]), fused=device == "cuda")
    generator = torch.Generator().manual_seed(p["seed"])
    batches, best, best_weights, start, step = [], math.inf, None, time.time(), 0
    with Fast():
        while True:
            elapsed = (time.time() - start) / 60
            # A cosine over the steps, or over the minutes where those run out first.
            done = max(step / p["steps"], elapsed / minutes)
            if step % p["eval_every"] == 0 and step or done >= 1:
                total, count = evaluate(model, held_out)
                value = total / count
                print(f"step {step} minutes {elapsed:.2f} held-out {value:.4f}", flush=True)
                if value < best:
                    best, best_weights = value, {k: v.clone() for k, v in model.state_dict().items()}
                if done >= 1:
                    break
            if not batches:
                batches = [b for b in windows(chapters_ids, p["window"], generator).split(p["batch"]) if len(b) == p["batch"]]
            ids = batches.pop().to(device)
            model.train()
            balance.clear()
            logits = model(ids[:, :-1], use_cache=False).logits
            loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
            lr = p["lr"] * min(1, (step + 1) / p["warmup_steps"]) * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
            for group in optimizer.param_groups:
                group["lr"] = lr
            (loss + p["balance"] * sum(balance) / len(balance)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), p["clip"])
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 100 == 0:
                even = sum(balance).item() / len(balance)
                print(f"step {step} minutes {elapsed:.2f} loss {loss.item():.4f} balance {even:.3f}", flush=True)
            step += 1
    model.load_state_dict(best_weights)
    save(model, tokenizer, p, out_dir)
    result = {"steps": step, "minutes": round((time.time() - start) / 60, 2)}
    result["device"] = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return result


def save(model, tokenizer, p, out_dir):
    out_dir = pathlib.Path(out_dir)
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=0, pad_token_id=0)
    model.to(torch.bfloat16).save_pretrained(out_dir)
    # The field names of the published Granite 4.0-H configs ("mamba", "nope", no time_step_limit), not transformers' newer ones.
    (out_dir / "config.json").write_text(json.dumps(p["model"], indent=2) + "\n")
    tokenizer.save(str(out_dir / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END, "pad_token": END}
    (out_dir / "tokenizer_config.json").write_text(json.dumps(names, indent=2) + "\n")


def load(checkpoint, device):
    """The saved weights, up-cast to f32; transformers' own functions."""
    return GraniteMoeHybridForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, experts_implementation="eager").to(device).eval()


def samples(model, tokenizer, device):
    for heading in ("Psalms 151\n\n1 The LORD", "Genesis 51\n\n1 And it came to pass", "In the beginning"):
        ids = torch.tensor([[0, *tokenizer.encode(heading).ids]], device=device)
        for kind in ({"do_sample": False}, {"do_sample": True, "temperature": 0.8, "top_p": 0.95}):
            torch.manual_seed(7)
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=160, **kind)
            print(f"--- {kind}\n{tokenizer.decode(out[0, 1:].tolist(), skip_special_tokens=False)}", flush=True)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--text", required=True)
    args.add_argument("--out")
    args.add_argument("--evaluate")
    args.add_argument("--minutes", type=float, default=math.inf)
    args.add_argument("--set", nargs="*", default=[])
    args = args.parse_args()
    p = json.loads((HERE / "train.json").read_text())
    for pair in args.set:
        key, value = pair.split("=")
        assert key in p, key
        p[key] = json.loads(value)
    result = {} if args.evaluate else train(p, args.text, args.out, args.minutes)
    checkpoint = args.evaluate or args.out
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("highest")
    model, tokenizer = load(checkpoint, device), Tokenizer.from_file(f"{checkpoint}/tokenizer.json")
    with Fast():  # gives the same number as without, in a tenth of the time on a CPU
        result |= report(model, tokenizer, read_chapters(args.text, "heldout"), device)
    print(json.dumps(result), flush=True)
    if not args.evaluate:
        (pathlib.Path(args.out) / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    samples(model, tokenizer, device)


if __name__ == "__main__":
    main()
