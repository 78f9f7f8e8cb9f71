#!/usr/bin/env bash
# Installs the C interface into a folder of the build, compiles the programs of capi/examples against it as an engine would, and
# runs them: by pkg-config and by CMake, with the shared and with the static library, on the CPU and on a simulated AMD GPU; and as a
# primitive of MLX, beside mlx-lm's graph.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin

case ${1-} in
    '') ;;
    *) printf 'usage: scripts/capi-examples.sh\n' >&2 && exit 2 ;;
esac

built=$(realpath "${CARGO_TARGET_DIR:-target}")
out=$built/capi
rm -rf "$out" && mkdir -p "$out"

# Installed and then moved: the tree must not know where it was.
bash scripts/install-capi.sh --prefix "$out/first"
mv "$out/first" "$out/prefix"
cargo build -p hip-sim --release --locked
simulator=$built/release/libhip_sim.so

run_all() { # STEP STREAM
    printf -- '--- %s cpu\n' "${1##*/}"
    "$1" cpu
    printf -- '--- %s, with the simulated GPU\n' "${2##*/}"
    SSM_UPDATE_HIP_LIBRARY=$simulator "$2" "$simulator"
}

# What a tool's absence means: a line here, a failure where CI is set, which scripts/setup.sh prepares for all of it.
missing() { # TOOL PACKAGE
    printf 'NOT RUN: there is no %s (Debian: apt install %s)\n' "$1" "$2"
    [[ -z ${CI-} ]] || { printf 'CI is set: scripts/setup.sh installs it on Debian\n' >&2 && exit 1; }
}

warnings=(-O1 -Wall -Wextra -Werror -pedantic)
if ! command -v c++ >/dev/null; then
    missing 'compiler of C++' g++
    exit
fi

if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$out/prefix/lib/pkgconfig
    for package in ssm_update ssm_update-static; do
        read -ra cflags <<<"$(pkg-config --cflags "$package")"
        read -ra libs <<<"$(pkg-config --libs "$package")"
        programs=("$out/pkg-config-step${package#ssm_update}" "$out/pkg-config-stream${package#ssm_update}")
        cc -std=c11 "${warnings[@]}" "${cflags[@]}" capi/examples/step.c "${libs[@]}" -lm -o "${programs[0]}"
        c++ -std=c++17 "${warnings[@]}" "${cflags[@]}" capi/examples/stream.cpp "${libs[@]}" -ldl -o "${programs[1]}"
        # Where the loader finds it is the business of who installs it; a prefix such as /usr needs nothing.
        LD_LIBRARY_PATH=$out/prefix/lib DYLD_LIBRARY_PATH=$out/prefix/lib run_all "${programs[@]}"
    done
else
    missing pkg-config pkg-config
fi

if command -v cmake >/dev/null; then
    cmake -S capi/examples -B "$out/cmake" -DCMAKE_PREFIX_PATH="$out/prefix" >"$out/cmake.log" || { cat "$out/cmake.log" && exit 1; }
    cmake --build "$out/cmake"
    # CMake gives what it builds the folder of the library.
    for kind in shared static; do
        run_all "$out/cmake/step-$kind" "$out/cmake/stream-$kind"
    done
else
    missing cmake cmake
fi

# scripts/setup.sh makes it, with MLX for the CPU.
python=$built/mlx/bin/python
if [[ -x $python ]] && command -v cmake >/dev/null; then
    printf -- '--- the step as a primitive of MLX\n'
    cmake -S capi/examples/mlx -B "$out/mlx" -DCMAKE_PREFIX_PATH="$out/prefix" -DPython_EXECUTABLE="$python" >"$out/mlx.log" ||
        { cat "$out/mlx.log" && exit 1; }
    cmake --build "$out/mlx" >"$out/mlx.log" || { cat "$out/mlx.log" && exit 1; }
    "$python" capi/examples/mlx/check_step.py "$out/mlx"
else
    printf 'NOT RUN: there is no %s, which scripts/setup.sh makes where there are a Python with headers and wheels of MLX\n' "$python"
    [[ -z ${CI-} ]] || { printf 'CI is set\n' >&2 && exit 1; }
fi
