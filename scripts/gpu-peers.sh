#!/usr/bin/env bash
# Lays out what the GPU benchmark compares with: FlashInfer's headers, its update compiled for Hopper, and mamba_ssm's Triton kernel.
set -euo pipefail

flashinfer=0.7.4
mamba=v2.3.2.post1
if [[ ${1-} == --help || ${1-} == -h || $# != 1 ]]; then
    cat <<HELP
usage: scripts/gpu-peers.sh DIR

Writes DIR/flashinfer (headers of FlashInfer $flashinfer), DIR/*.so (its update for the benchmark's sizes, by nvcc; about 5 minutes on
2 cores) and DIR/mamba_ssm (mamba_ssm $mamba: its Triton kernel). Needs pip, nvcc 13 and git. Then, on a machine with a Hopper GPU:
  python3 benches/peers/gpu.py --peers DIR --ours 'cargo bench -p ssm-update-bench --bench cuda --'
MAMBA_REPOSITORY names another clone of https://github.com/state-spaces/mamba.
HELP
    [[ ${1-} == --help || ${1-} == -h ]]
    exit
fi
here=$(cd "$(dirname "$0")/.." && pwd)
for tool in python3 nvcc git; do
    command -v "$tool" >/dev/null || { echo "gpu-peers: '$tool' is missing" >&2; exit 1; }
done
mkdir -p "$1" && cd "$1"

if [[ ! -e flashinfer/include ]]; then
    python3 -m pip download -q --no-deps -d wheels "flashinfer-python==$flashinfer"
    python3 - <<'PY'
import glob, pathlib, zipfile
keep = ("flashinfer/data/include/", "flashinfer/data/cutlass/include/")
with zipfile.ZipFile(glob.glob("wheels/flashinfer_python-*.whl")[0]) as wheel:
    for name in wheel.namelist():
        if name.startswith(keep) and not name.endswith("/"):
            target = pathlib.Path("flashinfer") / name.removeprefix("flashinfer/data/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wheel.read(name))
# 0.7.4 narrows a stride inside braces, which a plain nvcc refuses.
header = pathlib.Path("flashinfer/include/flashinfer/mamba/kernel_selective_state_update_stp.cuh")
text = header.read_text()
header.write_text(text.replace("DSTATE * DIM, params.state_stride_batch}", "DSTATE * DIM, (unsigned long)params.state_stride_batch}"))
PY
    rm -r wheels
fi

if [[ ! -e mamba_ssm ]]; then
    git clone -q --depth 1 --branch "$mamba" "${MAMBA_REPOSITORY-https://github.com/state-spaces/mamba}" mamba
    mkdir -p mamba_ssm/ops/triton
    # Only the kernel: the package's own __init__ wants its compiled parts.
    touch mamba_ssm/__init__.py mamba_ssm/ops/__init__.py mamba_ssm/ops/triton/__init__.py
    cp mamba/mamba_ssm/ops/triton/{selective_state_update,softplus}.py mamba_ssm/ops/triton/
    rm -rf mamba
fi

for sizes in '64 128' '80 128' '128 256'; do
    for state in 'f32 float' 'bf16 nv_bfloat16' 'f16 half'; do
        read -r head_dim d_state name type <<<"$sizes $state"
        out=flashinfer_${head_dim}_${d_state}_$name.so
        [[ ! -e $out ]] || continue
        echo "gpu-peers: compiling $out" >&2
        nvcc -O3 -std=c++20 -gencode=arch=compute_90a,code=sm_90a -DFLASHINFER_MAMBA_ENABLE_SM90 -DFLASHINFER_ENABLE_BF16 \
            -DFLASHINFER_ENABLE_F16 -DFLASHINFER_ENABLE_FP8_E4M3 -DFLASHINFER_ENABLE_FP8_E5M2 -use_fast_math \
            --expt-relaxed-constexpr "-DSTATE_T=$type" "-DHEAD_DIM=$head_dim" "-DD_STATE=$d_state" -Iflashinfer/include \
            -Iflashinfer/cutlass/include -Xcompiler -fPIC -shared "$here/benches/peers/flashinfer.cu" -o "$out.part" -lcuda \
            >nvcc.log 2>&1 || { cat nvcc.log >&2; exit 1; }
        mv "$out.part" "$out"
    done
done
rm -f nvcc.log
echo "$PWD"
