#!/usr/bin/env bash
# Everything that can be known about the ROCm port on this machine; on one with an AMD GPU, conformance on it too.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin

usage() {
    cat <<'TEXT'
usage: scripts/verify-rocm.sh

1. Sources, build and code objects: every target compiled and read, the guard against waves of 64 lanes, prebuilt/.
2. Declarations, loader and port: against HIP's headers, a scripted HIP library that plays faults, and the HIP runtime of this
   machine, loaded and linked.
3. Where there is an AMD GPU (/dev/kfd): the conformance list and the properties on it. There the port has to open.

Stops at the first failure. What this machine lacks is named, with NOT RUN.
TEXT
}

case ${1-} in
    '') ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && exit 2 ;;
esac

say() { printf '\n=== %s\n' "$*"; }

say 'sources, build and code objects'
tests=(build_plan code_objects code_object_images hip_arithmetic kernel_keys kernel_page)
cargo test --release --locked -p ssm-update "${tests[@]/#/--test=}"

say 'declarations, loader and port'
tests=(abi dispatch selection driver_cost driver_faults driver_launch driver_library driver_open
    driver_real)
cargo test --release --locked -p ssm-update-bindings
cargo test --release --locked -p ssm-update "${tests[@]/#/--test=}"
bash scripts/test.sh linked

if [[ -e /dev/kfd ]]; then
    say 'conformance on the GPU'
    SSM_UPDATE_REQUIRE_PORT=rocm cargo test --release --locked -p ssm-update ssm_update_parity
else
    say 'conformance on the GPU: NOT RUN (no AMD GPU here: /dev/kfd is absent)'
fi
