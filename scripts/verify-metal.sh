#!/usr/bin/env bash
# Everything that can be known about the Metal port on this machine; on a Mac, everything on its GPU too, with a report.
set -uo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin

usage() {
    cat <<'TEXT'
usage: scripts/verify-metal.sh

1. Without a GPU: keys, constants, geometry, choice and error texts; the kernel as C++ on the CPU (on Linux), with every parity test
   on it; the Rust side type-checked for macOS and iOS.
2. On a Mac: the cases, the conformance list, the properties and the rounding on its GPU, where the port has to open; the engine's
   golden text with its steps on the port, and with all of its tensors on candle's Metal device; the bandwidth of the step beside that
   of a copy.
3. A report, target/verify-metal/report.md: attach it to an issue.

What this machine lacks is named, with NOT RUN. All parts are run, also after one that failed; the exit status is 1 where one did.
TEXT
}

case ${1-} in
    '') ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && exit 2 ;;
esac

source scripts/report.sh
folder=${CARGO_TARGET_DIR:-target}/verify-metal
begin_report "$folder" "$folder/report.md"

golden() { SSM_UPDATE_PORT=metal cargo test --release --locked -p ssm-engine --test goldens -- --nocapture; }

# Tensors, graph and step on candle's Metal device.
candle_operation() {
    SSM_UPDATE_CANDLE_TEST_DEVICE=metal cargo test --release --locked -p ssm-update-candle --features metal -- --nocapture
}
candle_golden() {
    SSM_ENGINE_TEST_DEVICE=metal cargo test --release --locked -p ssm-engine --features metal --test goldens -- --nocapture
}

part 'keys, constants, geometry, choice' cargo test --release --locked -p ssm-update --lib ports::metal
part 'plan' tests metal_plan
if [[ $(uname -s) == Linux ]]; then
    part 'header, port and shim' tests metal_abi metal_port metal_shim
    part 'parity of the kernel as C++' parity 'metal (shim)'
else
    lacking 'header, port and shim' 'the shim runs on Linux only'
    lacking 'parity of the kernel as C++' 'the shim runs on Linux only'
fi
part 'type check for macOS and iOS' bash scripts/test.sh apple

if [[ $(uname -s) == Darwin ]]; then
    part 'parity on the GPU' parity metal
    part 'golden text, steps on the GPU' golden
    part "the operation on candle's Metal device" candle_operation
    part "golden text on candle's Metal device" candle_golden
    part 'bandwidth on the GPU' cargo run --release --locked -p ssm-update --example metal_bandwidth
else
    for name in 'parity on the GPU' 'golden text, steps on the GPU' "the operation on candle's Metal device" \
        "golden text on candle's Metal device" 'bandwidth on the GPU'; do
        lacking "$name" "this is $(uname -s), and Metal is there on macOS"
    done
fi

end_report 'The Metal port of ssm-update' \
    "system: $(sw_vers 2>/dev/null | awk '{ print $2 }' | paste -sd ' ' - || true)$(uname -srm)" \
    "processor: $(sysctl -n machdep.cpu.brand_string 2>/dev/null || echo unknown)"
