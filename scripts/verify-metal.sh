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

folder=${CARGO_TARGET_DIR:-target}/verify-metal
report=$folder/report.md
mkdir -p "$folder"
failed=0
not_run=0
rows=()

# One part: a name, and the command that proves it.
part() {
    local name=$1 log began=$SECONDS status=passed
    shift
    log=$folder/$((${#rows[@]} + 1)).log
    printf '\n=== %s\n' "$name"
    if ! "$@" 2>&1 | tee "$log"; then
        status=FAILED
        failed=$((failed + 1))
        printf '=== %s: FAILED\n' "$name" >&2
    elif grep -q '^NOT RUN' "$log"; then
        # The part says which of it.
        status='passed, in part NOT RUN'
        not_run=$((not_run + 1))
    fi
    rows+=("| $name | $status | $((SECONDS - began)) s |")
    {
        printf '\n## %s: %s\n\n    %s\n\n```text\n' "$name" "$status" "$*"
        # The whole log of what failed; of the rest, what it says at the end.
        if [[ $status == FAILED ]]; then cat "$log"; else tail -n 60 "$log"; fi
        printf '```\n'
    } >>"$folder/parts.md"
}

lacking() {
    printf '\n=== %s: NOT RUN (%s)\n' "$1" "$2"
    rows+=("| $1 | NOT RUN: $2 | |")
    not_run=$((not_run + 1))
}

tests() {
    local names=()
    for name in "$@"; do names+=("--test=$name"); done
    cargo test --release --locked -p ssm-update "${names[@]}" -- --nocapture
}

parity() { SSM_UPDATE_ONLY_PORT=$1 tests cases conformance properties rounding; }

golden() { SSM_UPDATE_PORT=metal cargo test --release --locked -p ssm-engine --test goldens -- --nocapture; }

# Tensors, graph and step on candle's Metal device.
candle_operation() {
    SSM_UPDATE_CANDLE_TEST_DEVICE=metal cargo test --release --locked -p ssm-update-candle --features metal -- --nocapture
}
candle_golden() {
    SSM_ENGINE_TEST_DEVICE=metal cargo test --release --locked -p ssm-engine --features metal --test goldens -- --nocapture
}

: >"$folder/parts.md"
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

{
    printf '# The Metal port of ssm-update\n\n'
    printf -- '- commit: %s%s\n' "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" \
        "$(git diff --quiet HEAD 2>/dev/null || echo ', with changes')"
    printf -- '- system: %s\n' "$(sw_vers 2>/dev/null | awk '{ print $2 }' | paste -sd ' ' - || true)$(uname -srm)"
    printf -- '- processor: %s\n' "$(sysctl -n machdep.cpu.brand_string 2>/dev/null || echo unknown)"
    printf -- '- %s\n\n' "$(rustc --version)"
    printf '| part | outcome | time |\n|---|---|---|\n'
    printf '%s\n' "${rows[@]}"
    cat "$folder/parts.md"
} >"$report"

printf '\n'
printf '%s\n' "${rows[@]}"
printf '\nverify-metal: %d parts, %d failed, %d not run; report: %s\n' "${#rows[@]}" "$failed" "$not_run" "$report"
[[ $failed == 0 ]]
