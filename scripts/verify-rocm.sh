#!/usr/bin/env bash
# Everything that can be known about the ROCm port on this machine; on one with an AMD GPU, everything on it too, with a report and
# a record of its speed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
PATH=$PATH:$HOME/.cargo/bin

usage() {
    cat <<'TEXT'
usage: scripts/verify-rocm.sh [--quick] [--no-timing] [--even-if-busy] [--report FILE]

1. Without a GPU: every target compiled and read, the guard against waves of 64 lanes, prebuilt/; declarations against HIP's headers, a
   scripted HIP library that plays faults, and the HIP runtime of this machine, loaded and linked.
2. Where there is an AMD GPU (/dev/kfd), where the port has to open: what device, driver and runtime are there; the cases, the
   conformance list, the properties, rounding and errors over many steps; the engine's golden text; graphs captured and replayed, and
   100 repetitions, all bit-equal; and times: step, copy, host, first launch, and hipRTC compiling the same source.
   Elsewhere the same on a simulated gfx1151, each line labelled so, and without times.
3. A report, target/verify-rocm/report.md, and on a GPU a record, benches/record/<architecture>/<date>.csv: docs/rocm.md says where to send
   them.

  --quick         without 1, and of 2 the cases and one model's shape
  --no-timing     without the times
  --even-if-busy  times also while another process holds the GPU, which is refused otherwise; the record says so
  --report FILE   another file for the report

What this machine lacks is named, with NOT RUN. All parts are run, also after one that failed.
Exit status: 0, 1 where a part failed, 2 for a wrong command line.
TEXT
}

quick=
timing=1
busy=()
folder=${CARGO_TARGET_DIR:-target}/verify-rocm
file=$folder/report.md
while [[ $# != 0 ]]; do
    case $1 in
        --quick) quick=1 ;;
        --no-timing) timing= ;;
        --even-if-busy) busy=(--even-if-busy) ;;
        --report)
            [[ -n ${2-} ]] || { printf -- '--report: expected a file\n' >&2 && exit 2; }
            file=$2
            shift
            ;;
        -h | --help) usage && exit ;;
        *) printf 'unknown: %s\n' "$1" >&2 && usage >&2 && exit 2 ;;
    esac
    shift
done

source scripts/report.sh
begin_report "$folder" "$file"

declarations() {
    cargo test --release --locked -p ssm-update-bindings &&
        tests abi dispatch selection driver_cost driver_faults driver_launch driver_library driver_open driver_real
}

rocm() { cargo run --release --locked --quiet -p ssm-update-bench --bin rocm -- "$@"; }

cases() { SSM_UPDATE_ONLY_PORT=rocm tests cases; }

# A wave of the simulator takes its time: tens of thousands of steps are for hardware.
numerics() {
    if [[ -n $simulated ]]; then
        echo 'NOT RUN: errors over 20000 steps (for a GPU)'
        SSM_UPDATE_ONLY_PORT=rocm cargo test --release --locked -p ssm-update --test numerics -- --nocapture \
            --skip errors_over_20000_steps
    else
        SSM_UPDATE_ONLY_PORT=rocm tests numerics
    fi
}

goldens() { SSM_UPDATE_PORT=rocm cargo test --release --locked -p ssm-engine --test goldens -- --nocapture; }

if [[ -z $quick ]]; then
    part 'sources, build and code objects' \
        tests build_plan code_objects code_object_images hip_arithmetic kernel_keys kernel_page
    part 'declarations, loader and port' declarations
    part 'runtime linked' bash scripts/test.sh linked
else
    for name in 'sources, build and code objects' 'declarations, loader and port' 'runtime linked'; do
        lacking "$name" 'left out by --quick'
    done
fi

# The names of what follows say where it ran.
simulated=
where='on the GPU'
if [[ ! -e /dev/kfd ]]; then
    simulated=1
    where='on simulated gfx1151'
    printf '\nNo AMD GPU here (/dev/kfd is absent): what follows is simulated, and says nothing about time.\n'
    part 'building the simulator' cargo build --release --locked -p hip-sim
    SSM_UPDATE_HIP_LIBRARY=$(realpath "${CARGO_TARGET_DIR:-target}/release/libhip_sim.so")
    HIP_SIM_ARCH=gfx1151
    export SSM_UPDATE_HIP_LIBRARY HIP_SIM_ARCH
    line_label='simulated: '
fi
# Whoever has a GPU expects the port to open on it.
export SSM_UPDATE_REQUIRE_PORT=rocm

part 'building the program that checks and measures' cargo build --release --locked -p ssm-update-bench --bin rocm
part "facts $where" rocm facts
facts=()
mapfile -t facts < <(grep '^\(simulated: \)\?[a-zA-Z-][^:]*: ' "$report_folder/${#rows[@]}.log")

checked=(check)
measured=(bench "${busy[@]}")
# Shapes of other models say little more on the simulator, where each takes minutes.
if [[ -n $quick$simulated ]]; then
    checked+=(--filter plamo)
    measured+=(--filter plamo)
fi
[[ -z $quick ]] || checked+=(--repetitions 10)
[[ -z $simulated ]] || measured+=(--out "$report_folder/simulated.csv")

if [[ -z $quick ]]; then
    part "cases, conformance, properties, rounding $where" parity rocm
    part "errors $where" numerics
    part "the engine's golden text $where" goldens
else
    part "cases $where" cases
    for name in 'conformance, properties, rounding' 'errors' "the engine's golden text"; do
        lacking "$name $where" 'left out by --quick'
    done
fi
part "graphs and repetitions $where" rocm "${checked[@]}"
if [[ -n $timing ]]; then
    part "${simulated:+the code of the }benchmark $where" rocm "${measured[@]}"
else
    lacking "benchmark $where" 'left out by --no-timing'
fi

compilers=$(for name in hipcc amdclang++ clang++-22 clang++-19; do
    command -v "$name" >/dev/null && "$name" --version 2>/dev/null | grep -m 1 'clang version'
done | sort -u | paste -sd ';' -)
end_report 'The ROCm port of ssm-update' \
    "where: $where" "${facts[@]}" "compilers of the HIP kernel on PATH: ${compilers:-none}"
