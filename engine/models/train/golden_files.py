"""What the golden vectors of a family hold and how they are judged, whatever library the family's reference comes in.

A reference is a function `open(folder)` that gives a function from token ids to logits, `[tokens, vocabulary]` f32: always the full
pass over all tokens.
"""
import json
import pathlib
import tempfile

import numpy
from safetensors.numpy import save_file

GOLDEN = pathlib.Path(__file__).parent.parent.parent / "tests" / "golden"

PROMPT, FORCED, GREEDY = 100, 32, 64
# What an omission has to move some logit by, ten times what the engine's tests permit.
SEEN = 2e-2
ZERO = {"F32": bytes(4), "F16": bytes(2), "BF16": bytes(2)}
ONE = {"F32": b"\0\0\x80\x3f", "F16": b"\0\x3c", "BF16": b"\x80\x3f"}


def nothing_neutral(name, r):
    """A tensor of a random checkpoint from normal values of its shape, in any library: each norm away from 1, each bias and D away from 0, so
    that leaving any one out is seen. A_log is the caller's."""
    if name.endswith("dt_bias"):
        return r * 0.7 - 0.5
    if name.endswith(".D"):
        return r * 0.5 + 0.8
    if "norm" in name:
        return 1 + 0.4 * r
    if name.endswith("bias"):
        return r * 0.4
    if "conv1d" in name:
        return r * 0.5
    if "embed_tokens" in name or "lm_head" in name:
        return r * r.shape[-1] ** -0.5
    return r * 1.3 * r.shape[-1] ** -0.5


def token_ids(vocabulary):
    return numpy.random.default_rng(1).integers(1, vocabulary, PROMPT + FORCED).tolist()


def record(name, open_reference, arithmetic, **facts):
    """Writes NAME.safetensors and NAME.json beside the checkpoint NAME."""
    folder = GOLDEN / name
    run = open_reference(folder)
    ids = token_ids(json.loads((folder / "config.json").read_text())["vocab_size"])
    prompt, forced = ids[:PROMPT], ids[PROMPT:]
    logits = run(prompt + forced[:-1])[PROMPT - 1 :]
    greedy = []
    for _ in range(GREEDY):
        greedy.append(int(run(prompt + greedy)[-1].argmax()))
    best = numpy.sort(run(prompt + greedy)[PROMPT - 1 : -1])
    gap = best[:, -1] - best[:, -2]
    facts = {
        "logits": "row i is the output after prompt_ids and the first i tokens of forced_ids; it predicts forced_ids[i]",
        "greedy": "greedy_ids continue prompt_ids and do not stop at end-of-text; greedy_gap is best minus second-best logit per step",
        "arithmetic": f"{arithmetic}, full forward pass, f32, CPU, weights up-cast to f32",
        "largest_logit": abs(logits).max().item(),
        "smallest_greedy_gap": gap.min().item(),
    } | facts
    print(name, json.dumps(facts, indent=2), flush=True)
    save_file(
        {
            "prompt_ids": numpy.array(prompt),
            "forced_ids": numpy.array(forced),
            "logits": numpy.ascontiguousarray(logits),
            "greedy_ids": numpy.array(greedy),
            "greedy_gap": gap,
        },
        GOLDEN / f"{name}.safetensors",
    )
    (GOLDEN / f"{name}.json").write_text(json.dumps(facts, indent=2) + "\n")


def filled(checkpoint, key, patterns):
    """The bytes of a safetensors file with one tensor filled with one value, whatever its dtype."""
    start = 8 + int.from_bytes(checkpoint[:8], "little")
    tensor = json.loads(checkpoint[8:start])[key]
    begin, end = (start + offset for offset in tensor["data_offsets"])
    pattern = patterns[tensor["dtype"]]
    return checkpoint[:begin] + pattern * ((end - begin) // len(pattern)) + checkpoint[end:]


def omissions(name, open_reference, changes, neutral, others=()):
    """Leaves one thing out at a time; fails where the logits hardly move, since a test on this golden would not notice.

    `changes` are fields of the configuration by what they leave out; `neutral(key)` is ZERO or ONE for the tensors that are to be tried;
    `others` are pairs of a name and another reference.
    """
    folder, moved = GOLDEN / name, {}
    config, checkpoint = json.loads((folder / "config.json").read_text()), (folder / "model.safetensors").read_bytes()
    ids = token_ids(config["vocab_size"])
    truth = open_reference(folder)(ids)

    def change(what, config=config, checkpoint=checkpoint, reference=open_reference):
        with tempfile.TemporaryDirectory() as other:
            other = pathlib.Path(other)
            (other / "config.json").write_text(json.dumps(config))
            (other / "model.safetensors").write_bytes(checkpoint)
            moved[what] = abs(reference(other)(ids) - truth)[PROMPT - 1 :].max().item()

    for what, fields in changes.items():
        change(what, config=config | fields)
    for what, reference in others:
        change(what, reference=reference)
    for key in json.loads(checkpoint[8 : 8 + int.from_bytes(checkpoint[:8], "little")]):
        if key != "__metadata__" and neutral(key):
            change(key, checkpoint=filled(checkpoint, key, neutral(key)))
    for what, by in sorted(moved.items(), key=lambda item: item[1])[:8]:
        print(f"  without {what}: {by:.4f}")
    unseen = [what for what, by in moved.items() if not by > SEEN]
    assert not unseen, f"these omissions would hardly be seen: {unseen}"
