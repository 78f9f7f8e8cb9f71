"""Compares the primitive with mlx-lm's own graph of operations, token by token, for shapes of models and every dtype."""

import argparse
import importlib.metadata
import importlib.util
import math
import sys

import mlx.core as mx

# (nrms, max), both over the root mean square of the reference, that the results of one dtype may differ by.
CEILINGS = {mx.float32: (1e-5, 1e-4), mx.float16: (2e-3, 1.2e-2), mx.bfloat16: (1.6e-2, 7e-2)}

# batch, heads, head_dim, groups, d_state, limits of dt
SHAPES = {
    "granite-4.0-h-tiny": (1, 48, 64, 1, 128, (0.0, math.inf)),
    "falcon-h1-7b": (1, 24, 128, 1, 256, (0.0, math.inf)),
    "plamo-2-1b, batch 3": (3, 32, 128, 1, 64, (0.001, 100.0)),
    "nemotron-3-nano, batch 2": (2, 64, 64, 8, 128, (0.001, 0.1)),
}
TOKENS = 4


def graph():
    """mlx_lm.models.ssm alone: the package around it would import tokenizers and the like."""
    file = next(f for f in importlib.metadata.files("mlx-lm") if str(f).endswith("mlx_lm/models/ssm.py"))
    spec = importlib.util.spec_from_file_location("ssm", file.locate())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ssm_update


def distance(got, expected):
    got, expected = got.astype(mx.float32), expected.astype(mx.float32)
    difference, scale = mx.abs(got - expected), mx.sqrt(mx.mean(expected * expected))
    return (mx.sqrt(mx.mean(difference * difference)) / scale).item(), (difference.max() / scale).item()


def compare(fused, reference, name, dtype):
    batch, heads, head_dim, groups, d_state, limits = SHAPES[name]
    mx.random.seed(7)
    a_log, d, dt_bias = mx.random.normal([heads]), mx.random.normal([heads]), mx.random.normal([heads]) - 2
    state = kept = mx.zeros([batch, heads, head_dim, d_state])
    worst = (0.0, 0.0)
    channels, columns = heads * head_dim, groups * d_state
    for _ in range(TOKENS):
        # Slices of one projection, as models have them: no row of a batch follows the one before.
        projection = mx.random.normal([batch, 1, channels + 2 * columns + heads]).astype(dtype)
        x, b, c, dt = mx.split(projection, [channels, channels + columns, channels + 2 * columns], axis=-1)
        x = x.reshape(batch, 1, heads, head_dim)
        b, c = (part.reshape(batch, 1, groups, d_state) for part in (b, c))
        y, state = fused(x, a_log, b, c, d, dt, dt_bias, state, time_step_limit=limits)
        expected, kept = reference(x, a_log, b, c, d, dt, dt_bias, kept, limits)
        for got, wanted, ceiling in ((y, expected, CEILINGS[dtype]), (state, kept, CEILINGS[mx.float32])):
            found = distance(got, wanted)
            if not (found[0] < ceiling[0] and found[1] < ceiling[1]):
                sys.exit(f"{name}, {dtype}: nrms {found[0]:.1e}, max {found[1]:.1e}, where {ceiling} are allowed")
        worst = tuple(max(pair) for pair in zip(worst, distance(y, expected)))
        assert y.dtype == dtype and state.dtype == mx.float32
    print(f"{name:26} {str(dtype):18} y: nrms {worst[0]:.1e}, max {worst[1]:.1e}")


def check_values(fused):
    """What a graph of values promises: the old state stays what it was while somebody holds it, and nothing is computed twice."""
    ones = mx.ones([1, 1, 2, 4]), mx.zeros([2]), mx.ones([1, 1, 1, 16]), mx.ones([1, 1, 1, 16]), mx.ones([2])
    rest = mx.zeros([1, 1, 2]), mx.zeros([2])
    before = mx.ones([1, 2, 4, 16])
    y, after = fused(*ones, *rest, before)
    mx.eval(y, after)
    assert (before == 1).all().item(), "the state was written where somebody held it"
    assert not (after == 1).any().item()
    # dt' = ln 2: the state halves and takes ln 2; y is 16 of it, and D * x.
    expected = 16 * (0.5 + math.log(2)) + 1
    assert abs(y[0, 0, 1, 3].item() - expected) < 1e-5, (y, expected)


def check_refusals(fused):
    x, per_head, b, dt, state = mx.ones([1, 1, 2, 4]), mx.ones([2]), mx.ones([1, 1, 1, 24]), mx.ones([1, 1, 2]), mx.ones([1, 2, 4, 24])
    good = mx.ones([1, 1, 1, 16]), mx.ones([1, 2, 4, 16])
    for what, call in (
        ("d_state", lambda: fused(x, per_head, b, b, per_head, dt, per_head, state)),
        ("[batch, 1, heads, head_dim]", lambda: fused(mx.ones([1, 3, 2, 4]), per_head, good[0], good[0], per_head, dt, per_head, good[1])),
        ("dt is", lambda: fused(x, per_head, good[0], good[0], per_head, dt[:, :, :1], per_head, good[1])),
        ("not of f32", lambda: fused(x.astype(mx.int32), per_head, good[0], good[0], per_head, dt, per_head, good[1])),
    ):
        try:
            call()
        except ValueError as error:
            assert "unsupported shapes" in str(error) and what in str(error), error
        else:
            sys.exit(f"not refused: {what}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where the module ssm_update_mlx was built")
    sys.path.insert(0, parser.parse_args().folder)
    import ssm_update_mlx

    mx.set_default_device(mx.cpu)
    print(f"mlx {importlib.metadata.version('mlx')}, mlx-lm {importlib.metadata.version('mlx-lm')}")
    check_values(ssm_update_mlx.step)
    check_refusals(ssm_update_mlx.step)
    reference = graph()
    for name in SHAPES:
        for dtype in CEILINGS:
            compare(ssm_update_mlx.step, reference, name, dtype)


if __name__ == "__main__":
    main()
