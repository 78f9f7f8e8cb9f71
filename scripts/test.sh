#!/usr/bin/env bash
# Everything that CI runs, in order, up to the first failure. `make test` calls this after scripts/setup.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin

# Continuous integration has every compiler of the HIP kernel; elsewhere the tests say which ones they did without. For all steps
# alike: the build script depends on it.
[[ -z ${CI-} ]] || export SSM_UPDATE_REQUIRE_HIPCC=1

# One line per step: its name, then what it proves. The function step_NAME does it. Cheap and talkative steps come first.
#
# Each cargo command uses the release profile. Clippy and rustdoc then share their metadata of the dependencies, and all of
# them the build scripts and procedural macros; the dependencies' code is generated once, for the tests.
steps=(
    'format      rustfmt agrees with every file'
    'licences    each dependency may be shipped'
    'packages    what is published is whole, has nothing else in it, and its features are documented'
    'clippy      no warnings, with and without the accelerator features'
    'apple       the Metal port, the C interface, and the step in candle, as macOS and iOS build them: clippy for their targets, no warnings'
    'nvrtc       the engine'"'"'s CUDA kernels compile, without warnings'
    'docs        rustdoc without warnings'
    'tests       unit tests, integration tests and doctests of every package'
    'linked      the ROCm port with the HIP runtime linked instead of loaded'
    'simulated   the ROCm port on simulated GPUs: the parity tests, the cases, and the engine'"'"'s golden text'
    'capi        the C interface: installed, programs in C and C++ built by pkg-config and CMake and run, the GPU simulated'
    'semver      the crates keep what the newest release promised'
    'mutants     planted faults are found by the tests'
)

# What takes longer and needs nightly Rust: for `make test-all`, and by name.
longer=(
    'fuzz        30 s of each fuzz target find nothing'
    'sanitized   the unsafe parts and the shared ones under address and thread sanitizer and Miri'
)

step_format() { cargo fmt --all --check; }

step_licences() { python3 scripts/check_licences.py; }

step_packages() { python3 scripts/check_packages.py; }

step_clippy() {
    cargo clippy --workspace --all-targets --locked --release -- -D warnings
    cargo clippy -p ssm-update --all-targets --no-default-features --locked --release -- -D warnings
}

# Nothing is linked, so that Rust's own libraries for a target are all it takes.
step_apple() {
    local target
    for target in aarch64-apple-darwin aarch64-apple-ios; do
        if [[ -d $(rustc --print sysroot)/lib/rustlib/$target/lib ]]; then
            cargo clippy -p ssm-update --all-targets --target "$target" --locked --release -- -D warnings
            cargo clippy -p ssm-update-capi --lib --target "$target" --locked --release -- -D warnings
            cargo clippy -p ssm-update-candle --features metal --all-targets --target "$target" --locked --release -- -D warnings
        else
            # Also where CI is set: the libraries come from elsewhere than everything else that the tests need, and a day without
            # that place is no fault of a change.
            echo "NOT RUN for $target: Rust has no libraries for it (rustup target add $target)"
        fi
    done
}

step_nvrtc() {
    local status=0
    python3 scripts/check_engine_kernels.py || status=$?
    # 3: NOT RUN, as it says.
    [[ $status == 0 || $status == 3 ]]
}

step_docs() { RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked --release; }

step_tests() { cargo test --workspace --locked --release; }

# The crate hip-runtime-sys needs headers and library where it is built.
step_linked() {
    if [[ -n ${HIP_PATH-} || -e /usr/include/hip/hip_runtime_api.h ]]; then
        HIP_PATH=${HIP_PATH-/usr} cargo test -p ssm-update --features hip-runtime-sys --locked --release --test driver_real
    elif [[ -n ${CI-} ]]; then
        echo 'CI is set, and there are no HIP headers: scripts/setup.sh installs libamdhip64-dev on Debian' >&2
        return 1
    else
        echo 'NOT RUN: no HIP headers (package libamdhip64-dev, or HIP_PATH)'
    fi
}

# The compiled kernels run on the simulator of hip-sim/. HIP_SIM_TEST_TARGETS=all: on every target, one after the other.
step_simulated() {
    local target targets=(gfx1151 gfx1100) names
    if [[ ${HIP_SIM_TEST_TARGETS-} == all ]]; then
        mapfile -t targets < <(grep -o '^gfx[0-9]*' hip/targets.txt)
    fi
    cargo build -p hip-sim --locked --release
    local -x SSM_UPDATE_HIP_LIBRARY HIP_SIM_ARCH
    SSM_UPDATE_HIP_LIBRARY=$(realpath "${CARGO_TARGET_DIR:-target}/release/libhip_sim.so")
    for target in "${targets[@]}"; do
        printf -- '--- the rocm port on %s, simulated\n' "$target"
        HIP_SIM_ARCH=$target
        names=(cases conformance properties rounding)
        SSM_UPDATE_ONLY_PORT=rocm cargo test -p ssm-update --locked --release "${names[@]/#/--test=}" -- --nocapture
    done
    HIP_SIM_ARCH=${targets[0]}
    # Hardware does not round its approximations correctly, as the simulator does where it is not told otherwise.
    printf -- '--- the same on %s, with approximations up to 1 ulp off\n' "${targets[0]}"
    names=(cases numerics rounding)
    HIP_SIM_ULP=1 SSM_UPDATE_ONLY_PORT=rocm cargo test -p ssm-update --locked --release "${names[@]/#/--test=}" -- \
        --nocapture --skip errors_over_20000_steps
    printf -- '--- the engine with the rocm port on %s, simulated\n' "${targets[0]}"
    SSM_UPDATE_PORT=rocm cargo test -p ssm-engine --locked --release --test goldens -- --nocapture
}

step_capi() { bash scripts/capi-examples.sh; }

step_semver() { bash scripts/semver.sh; }

# All of them take longer than everything else together: a third a day, each one every third day. `make mutants` runs all.
step_mutants() { python3 scripts/mutants.py --part "$(($(date +%s) / 86400 % 3 + 1))/3"; }

step_fuzz() { bash scripts/fuzz.sh --seconds 30; }

step_sanitized() { bash scripts/sanitize.sh; }

usage() {
    cat <<'TEXT'
usage: scripts/test.sh [STEP...]

Runs the steps in the order of the list, all of them where none is named, and stops at the first that fails.
TEXT
    printf '  %s\n' "${steps[@]}"
    printf '\nWith HIP_SIM_TEST_TARGETS=all (make test-all), or by name:\n'
    printf '  %s\n' "${longer[@]}"
}

minutes() { printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); }

selected=("${steps[@]}")
[[ ${HIP_SIM_TEST_TARGETS-} != all ]] || selected+=("${longer[@]}")
if [[ $# != 0 ]]; then
    selected=()
    for name in "$@"; do
        [[ $name != -h && $name != --help ]] || { usage && exit; }
        found=
        for step in "${steps[@]}" "${longer[@]}"; do
            [[ ${step%% *} != "$name" ]] || found=$step
        done
        [[ -n $found ]] || { printf 'no such step: %s\n' "$name" >&2 && usage >&2 && exit 2; }
        selected+=("$found")
    done
fi

times=()
for step in "${selected[@]}"; do
    read -r name purpose <<<"$step"
    printf '\n=== %s: %s\n' "$name" "$purpose"
    began=$SECONDS
    # A shell of its own, with errexit on: inside a condition, bash would go on after a step's failing line.
    set +e
    (
        set -e
        "step_$name"
    )
    status=$?
    set -e
    took=$(minutes $((SECONDS - began)))
    if [[ $status != 0 ]]; then
        printf '\n=== %s FAILED after %s (exit status %d); alone: scripts/test.sh %s\n' \
            "$name" "$took" "$status" "$name" >&2
        exit 1
    fi
    printf '=== %s passed in %s\n' "$name" "$took"
    times+=("$(printf '  %-10s %s' "$name" "$took")")
done
printf '\n=== all %d steps passed in %s\n' "${#times[@]}" "$(minutes "$SECONDS")"
printf '%s\n' "${times[@]}"
