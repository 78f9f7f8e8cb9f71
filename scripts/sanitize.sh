#!/usr/bin/env bash
# The unsafe parts under AddressSanitizer with the checks of undefined behaviour, what threads share under ThreadSanitizer, and the way from
# borrows to raw pointers and through the CPU port under Miri.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin

usage() {
    cat <<'TEXT'
usage: scripts/sanitize.sh [address | thread | miri]...

address  the tests of the drivers, the CPU port, the host level, the C interface and the simulator, with AddressSanitizer (LeakSanitizer
         included), and with what rustc can check of undefined behaviour: preconditions of unsafe functions of the standard library
         (ub-checks), debug assertions and overflow
thread   launches at once, ports opened and closed at once, and the folder of compiled kernels, with ThreadSanitizer; needs the sources
         of the standard library (rustup component add rust-src --toolchain nightly)
miri     the host level, every way of handing over a step, and the CPU port's vector and portable code with one thread and with several, in
         Miri, which knows what each borrow permits; without the drivers' ports, whose libraries it cannot call; needs its component
         (rustup component add miri rust-src --toolchain nightly)

All where none is named. Needs nightly Rust (rustup toolchain install nightly): without it nothing is run, which is said, and the
status is 0. Builds below target/sanitize.
TEXT
}

kinds=()
for kind in "$@"; do
    case $kind in
        -h | --help) usage && exit ;;
        address | thread | miri) kinds+=("$kind") ;;
        *) printf 'no such kind: %s\n' "$kind" >&2 && usage >&2 && exit 2 ;;
    esac
done
[[ ${#kinds[@]} != 0 ]] || kinds=(address thread miri)

source scripts/nightly.sh
nightly_or_leave 'the sanitizers'

built=$(realpath -m "${CARGO_TARGET_DIR:-target}")
target=$(rustc -vV | sed -n 's/^host: //p')

has_library_sources() { [[ -e $(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock ]]; }

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
    if ! has_library_sources; then
        echo 'NOT RUN: it needs the sources of the standard library: rustup component add rust-src --toolchain nightly'
        return
    fi
    local -x RUSTFLAGS="-Zsanitizer=thread $checks"
    local -x TSAN_OPTIONS=second_deadlock_stack=1
    tests thread ssm-update -Zbuild-std --test=threads
}

run_miri() {
    if ! has_library_sources || ! cargo +nightly miri --version >/dev/null 2>&1; then
        echo 'NOT RUN: it needs Miri: rustup component add miri rust-src --toolchain nightly'
        return
    fi
    # Files and clocks are the machine's. Borrows as trees: crossbeam, below rayon, is not made for the older rules, makes pointers of numbers,
    # and rayon's own threads outlive the program.
    local -x MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks'
    local miri=(cargo +nightly miri test --quiet --locked -p ssm-update --no-default-features)
    local -x CARGO_TARGET_DIR=$built/sanitize/miri RUSTFLAGS=''
    # Not all bit patterns of bf16, which are minutes of safe code, nor the large state, which is for what follows.
    "${miri[@]}" --lib --test=borrows -- --skip bf16_rounds_as_half_does --skip pieces_of_one_launch_do_not_meet
    # Programs are told that the processor has what they were compiled for. Miri knows AVX2, and not AVX-512.
    [[ $target != x86_64-* ]] || RUSTFLAGS='-Ctarget-feature=+avx2,+fma,+f16c' "${miri[@]}" --test=borrows
}

for kind in "${kinds[@]}"; do
    began=$SECONDS
    printf -- '--- %s sanitizer\n' "$kind"
    "run_$kind"
    printf -- '--- %s sanitizer: %d min %02d s\n' "$kind" $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
done
