#!/usr/bin/env bash
# The unsafe parts under AddressSanitizer with the checks of undefined behaviour, and what threads share under ThreadSanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin

usage() {
    cat <<'TEXT'
usage: scripts/sanitize.sh [address | thread]...

address  the tests of the drivers, the CPU port, the host level, the C interface and the simulator, with AddressSanitizer (LeakSanitizer
         included), and with what rustc can check of undefined behaviour: preconditions of unsafe functions of the standard library
         (ub-checks), debug assertions and overflow
thread   launches at once, ports opened and closed at once, and the folder of compiled kernels, with ThreadSanitizer; needs the sources
         of the standard library (rustup component add rust-src --toolchain nightly)

Both where none is named. Needs nightly Rust (rustup toolchain install nightly): without it nothing is run, which is said, and the
status is 0. Builds below target/sanitize.
TEXT
}

kinds=()
for kind in "$@"; do
    case $kind in
        -h | --help) usage && exit ;;
        address | thread) kinds+=("$kind") ;;
        *) printf 'no such kind: %s\n' "$kind" >&2 && usage >&2 && exit 2 ;;
    esac
done
[[ ${#kinds[@]} != 0 ]] || kinds=(address thread)

source scripts/nightly.sh
nightly_or_leave 'the sanitizers'

built=$(realpath -m "${CARGO_TARGET_DIR:-target}")
target=$(rustc -vV | sed -n 's/^host: //p')

# With --target the flags are for what is tested, and not for build scripts and procedural macros.
tests() { # KIND PACKAGE [ARGUMENT...]
    local kind=$1 package=$2
    shift 2
    CARGO_TARGET_DIR=$built/sanitize/$kind cargo +nightly test --quiet --locked --release --target "$target" -p "$package" "$@"
}

checks='-Cdebug-assertions -Coverflow-checks -Zub-checks'

run_address() {
    local -x RUSTFLAGS="-Zsanitizer=address $checks"
    # Little optimisation: sooner built, and faults are reported where they are.
    local -x CARGO_PROFILE_RELEASE_OPT_LEVEL=1
    # The scripted libraries and the simulator define functions of the same names, on purpose.
    local -x ASAN_OPTIONS=detect_odr_violation=0:detect_stack_use_after_return=1
    local -x LSAN_OPTIONS="suppressions=$PWD/scripts/lsan-suppressions.txt:print_suppressions=0"
    tests address ssm-update --lib --test=refusal --test=cases --test=rounding --test=code_object_images --test=driver_faults \
        --test=driver_launch --test=driver_open --test=cuda_faults --test=cuda_launch --test=cuda_open --test=cuda_cache \
        --test=worst_moment
    # Not the tests that load the simulator as a library: one that is made for the sanitizer only loads into programs that export it.
    tests address ssm-update-capi --test=interface
    tests address hip-sim --lib
}

run_thread() {
    # Only with Rust's own library made for it, too: of locks that are taken inside of the one that rustup has, ThreadSanitizer sees nothing,
    # and takes everything under them for races.
    if [[ ! -e $(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock ]]; then
        echo 'NOT RUN: it needs the sources of the standard library: rustup component add rust-src --toolchain nightly'
        return
    fi
    local -x RUSTFLAGS="-Zsanitizer=thread $checks"
    local -x TSAN_OPTIONS=second_deadlock_stack=1
    tests thread ssm-update -Zbuild-std --test=threads
}

for kind in "${kinds[@]}"; do
    began=$SECONDS
    printf -- '--- %s sanitizer\n' "$kind"
    "run_$kind"
    printf -- '--- %s sanitizer: %d min %02d s\n' "$kind" $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
done
