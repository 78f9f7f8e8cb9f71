#!/usr/bin/env bash
# Builds the fuzz targets of fuzz/ and runs them.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin

mapfile -t all < <(sed -n 's/^path = "fuzz_targets\/\(.*\)\.rs"$/\1/p' fuzz/Cargo.toml | sort)

usage() {
    cat <<'TEXT'
usage: scripts/fuzz.sh [TARGET...] [--seconds N]

Runs each target (all where none is named) for N seconds, 30 unless told otherwise, on inputs that are made up: from those of earlier
runs (target/fuzz/corpus) and from files of the repository. Each target gets a line at the end: runs, and how much of the code they
have met. A finding stops the script with status 1, and its input is kept below target/fuzz/artifacts.

Needs nightly Rust (rustup toolchain install nightly) and a C++ compiler; cargo-fuzz is built on the first use. Without nightly
nothing is run, which is said, and the status is 0.

Targets:
TEXT
    printf '  %s\n' "${all[@]}"
}

seconds=30
targets=()
while [[ $# != 0 ]]; do
    case $1 in
        -h | --help) usage && exit ;;
        --seconds)
            [[ ${2-} =~ ^[1-9][0-9]*$ ]] || { printf -- '--seconds: a whole number from 1 is expected, got %s\n' "${2-nothing}" >&2 && exit 2; }
            seconds=$2
            shift
            ;;
        *)
            [[ " ${all[*]} " == *" $1 "* ]] || { printf 'no such target: %s\n' "$1" >&2 && usage >&2 && exit 2; }
            targets+=("$1")
            ;;
    esac
    shift
done
[[ ${#targets[@]} != 0 ]] || targets=("${all[@]}")

built=$(realpath -m "${CARGO_TARGET_DIR:-target}")
unset CARGO_TARGET_DIR
source scripts/nightly.sh
nightly_or_leave 'the fuzz targets'

tools=$built/tools
# Built where this version of it is not there yet; cargo looks.
cargo install --quiet --locked cargo-fuzz --version 0.13.2 --root "$tools"
PATH=$tools/bin:$PATH

fuzz() { # COMMAND TARGET [ARGUMENT...]: with what was built kept apart from everything else
    local command=$1
    shift
    cargo +nightly fuzz "$command" --target-dir "$built/fuzz/build" "$@"
}

# --- seeds: small files of the repository, where bytes that are made up would need long to become one --------------------------------

corpus=$built/fuzz/corpus
mkdir -p "${targets[@]/#/$corpus/}" "${targets[@]/#/$built/fuzz/artifacts/}"
seed() { # TARGET FILE...
    local target=$1 file
    shift
    [[ -d $corpus/$target ]] || return 0
    for file in "$@"; do
        [[ $(stat -c %s "$file") -gt 300000 ]] || cp "$file" "$corpus/$target/seed-$(sha256sum "$file" | cut -c 1-16)"
    done
}
mapfile -t configs < <(find engine/models engine/tests -name config.json)
seed config "${configs[@]}"
mapfile -t traces < <(find engine/tests -name '*.tsv' -size -20k)
seed logit_trace "${traces[@]}"

# --- runs -----------------------------------------------------------------------------------------------------------------------------

printf 'fuzz: building (some 15 minutes the first time); log: %s\n' "$built/fuzz/build.log"
fuzz build >"$built/fuzz/build.log" 2>&1 || { cat "$built/fuzz/build.log" >&2 && exit 1; }
lines=()
for target in "${targets[@]}"; do
    log=$built/fuzz/$target.log
    printf 'fuzz: %s for %d s\n' "$target" "$seconds"
    # An input that takes 10 s or 2 GiB is a finding.
    if ! fuzz run "$target" "$corpus/$target" -- "-max_total_time=$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
        "-artifact_prefix=$built/fuzz/artifacts/$target/" -print_final_stats=1 >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        printf 'fuzz: %s found something: its input is below %s\n' "$target" "$built/fuzz/artifacts/$target" >&2
        exit 1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    met=$(sed -n 's/.*\(cov: [0-9]*\).*/\1/p' "$log" | tail -n 1)
    # None at all would be a target that does nothing.
    [[ ${runs:-0} -gt 100 ]] || { tail -n 60 "$log" >&2 && printf 'fuzz: %s made %s runs\n' "$target" "${runs:-no}" >&2 && exit 1; }
    lines+=("$(printf '  %-12s %5d s  %10d runs  %s' "$target" "$seconds" "$runs" "$met")")
done
printf 'fuzz: nothing found\n'
printf '%s\n' "${lines[@]}"
