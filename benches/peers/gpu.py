"""Times of one single-token Mamba2 update on an NVIDIA GPU, side by side in one run: FlashInfer with each of its algorithms,
mamba_ssm's Triton kernel, a plain kernel, and this library.

Each candidate is checked against an f64 computation and then timed: a CUDA graph of launches over rotating state buffers, so that no
cache holds what comes next, replayed; medians. x, B, C and y are bf16, dt and the per-head vectors f32, the state is updated in place
(the plain kernel: from one buffer to another). Prints CSV rows, and with --out writes them to a file, in which `cargo bench --bench
cuda -- --report FILE` makes table and chart.

Needs PyTorch, Triton, a Hopper GPU or newer, and the folder that scripts/gpu-peers.sh makes.
"""

import argparse
import ctypes
import importlib
import os
import subprocess
import sys
import time

import torch

# Name, heads, head_dim, d_state, groups: as in benches/cuda.rs.
CASES = [
    ("granite-4.0-h-tiny", 48, 64, 128, 1),
    ("nemotron-3-nano", 64, 64, 128, 8),
    ("nemotron-nano-9b-v2", 128, 80, 128, 8),
    ("falcon-h1-7b", 24, 128, 256, 1),
]
BATCHES = (1, 4, 16, 64, 256)
STATES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# SSUAlgorithm
ALGORITHMS = {"auto": 0, "simple": 1, "vertical": 2, "horizontal": 3, "async-horizontal": 4}


def graph_time(run, buffers, replays=21):
    """Median microseconds of one call, from replays of a graph of `buffers` calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(buffers):
            run(i)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(buffers):
                run(i)
        for _ in range(8):
            graph.replay()
        torch.cuda.synchronize()
        times = []
        for _ in range(replays):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / buffers)
    return sorted(times)[len(times) // 2]


def stream_rate():
    """GB/s of reading one large array and writing another."""
    a = torch.randn(1 << 28, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / graph_time(lambda _: torch.mul(a, 1.0001, out=b), 4) / 1e3


def peers_of(case, batch, state, args, triton_update, emit):
    """Checks and times every other library on one case."""
    name, heads, head_dim, d_state, groups = case
    dtype = STATES[state]
    library = ctypes.CDLL(os.path.join(args.peers, f"flashinfer_{head_dim}_{d_state}_{state}.so"))
    one = batch * heads * head_dim * d_state * dtype.itemsize
    buffers = max(2, min(64, int(600e6 // (2 * one)) + 1))
    start = torch.randn(batch, heads, head_dim, d_state, device="cuda").to(dtype)
    states = [start.clone() for _ in range(buffers)]
    bf16 = dict(device="cuda", dtype=torch.bfloat16)
    x = torch.randn(batch, heads, head_dim, **bf16)
    b, c = torch.randn(batch, groups, d_state, **bf16), torch.randn(batch, groups, d_state, **bf16)
    y = torch.empty_like(x)
    dt, bias, d = (torch.randn(n, device="cuda") for n in (batch * heads, heads, heads))
    dt, a = dt.view(batch, heads), -torch.exp(torch.randn(heads, device="cuda"))

    # The reference of the first and the last batch row.
    rows = sorted({0, batch - 1})
    step = torch.nn.functional.softplus(dt[rows].double() + bias.double())
    wide_b, wide_c = (t[rows].double().repeat_interleave(heads // groups, 1) for t in (b, c))
    wide_x = x[rows].double()
    advanced = (start[rows].double() * torch.exp(step * a.double())[..., None, None]
                + (step[..., None] * wide_x)[..., None] * wide_b[:, :, None])
    wanted = (advanced * wide_c[:, :, None]).sum(-1) + wide_x * d.double()[None, :, None]

    pointer = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
    current = lambda: ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    tensors = [pointer(t) for t in (x, dt, bias, a, b, c, d, y)]

    def flashinfer(algorithm):
        return lambda i: library.flashinfer_run(pointer(states[i]), *tensors, batch, heads, groups, algorithm, current())

    candidates = {f"flashinfer {name}": flashinfer(number) for name, number in ALGORITHMS.items()}
    full = (batch, heads, head_dim)
    wide = dict(
        dt=dt[..., None].expand(full), A=a[:, None, None].expand(heads, head_dim, d_state), D=d[:, None].expand(heads, head_dim),
        dt_bias=bias[:, None].expand(heads, head_dim))

    def update(state):
        return triton_update(state, x, wide["dt"], wide["A"], b, c, D=wide["D"], dt_bias=wide["dt_bias"], dt_softplus=True)

    def triton(i):
        # It allocates its result, which has to outlive the capture.
        results[:] = [update(states[i])]
        return 0

    results = []
    if triton_update:
        candidates["mamba_ssm triton"] = triton
    if state == "f32":
        others = [torch.empty_like(start) for _ in range(buffers)]
        candidates["plain"] = lambda i: library.plain_run(
            pointer(states[i]), pointer(others[i]), *tensors, batch, heads, groups, current())
    for candidate, run in candidates.items():
        states[0].copy_(start)
        y.fill_(float("nan"))
        results.clear()
        if run(0) != 0:
            continue  # the algorithm does not serve these sizes
        torch.cuda.synchronize()
        got = results[0] if results else y
        error = float((got[rows].double() - wanted).norm() / wanted.norm())
        if not error < 2e-2:
            sys.exit(f"{candidate} differs from the reference by {error:.1e} ({name}, batch {batch}, {state})")
        emit(name, batch, state, candidate, graph_time(run, buffers, args.replays), error)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", required=True, help="the folder that scripts/gpu-peers.sh made")
    parser.add_argument("--ours", help="command that prints rows of case,batch,state,us,..., such as the benchmark `cuda`")
    parser.add_argument("--states", default="f32,bf16,f16")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--replays", type=int, default=21)
    parser.add_argument("--out", help="file for the rows")
    args = parser.parse_args()
    for state in args.states.split(","):
        if state not in STATES:
            parser.error(f"--states: expected {', '.join(STATES)}, got {state}")
    sys.path.insert(0, args.peers)
    triton_update = importlib.import_module("mamba_ssm.ops.triton.selective_state_update").selective_state_update

    out = open(args.out, "w") if args.out else None

    def line(text):
        print(text, flush=True)
        if out:
            out.write(text + "\n")
            out.flush()

    line(f"# {torch.cuda.get_device_name()}, {time.strftime('%Y-%m-%d')}, PyTorch {torch.__version__}")
    line(f"# command: {' '.join(['gpu.py'] + sys.argv[1:])}")
    line(f"# stream GB/s: {stream_rate():.0f}")
    line("case,batch,state,candidate,us,error")
    emit = lambda name, batch, state, candidate, us, error: line(f"{name},{batch},{state},{candidate},{us:.3f},{error:.1e}")
    for case in CASES:
        for state in args.states.split(","):
            for batch in map(int, args.batches.split(",")):
                peers_of(case, batch, state, args, triton_update, emit)
                torch.cuda.empty_cache()
    line(f"# stream GB/s: {stream_rate():.0f}")
    torch.cuda.empty_cache()
    if args.ours:
        ours = subprocess.run(args.ours, shell=True, capture_output=True, text=True)
        if ours.returncode:
            sys.exit(f"{args.ours} failed:\n{ours.stderr}")
        for remark in ours.stderr.splitlines():
            line(f"# {remark}")
        for text in ours.stdout.splitlines():
            field = text.split(",")
            if len(field) >= 4 and field[1].isdigit():
                line(f"{field[0]},{field[1]},{field[2]},ssm-update,{field[3]},")


main()
