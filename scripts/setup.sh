#!/usr/bin/env bash
# Looks for what building and testing need, installs what is missing where it may, and names the rest.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: scripts/setup.sh [build | test]

Checks that this machine has what is needed: `build` for `make run`, `test` (the default) for `make test` too.
On Debian and Ubuntu missing packages are installed, as root or where sudo asks for no password; otherwise the
command to run is printed and the exit status is 1. Silent when nothing is missing.
TEXT
}

purpose='test'
case ${1-} in
    '' | test) ;;
    build) purpose=build ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && exit 2 ;;
esac
PATH=$PATH:$HOME/.cargo/bin

say() { printf 'setup: %s\n' "$*" >&2; }

# --- Debian packages ---------------------------------------------------------------------------------------------------

# A compiler driver may be there without the C library's start files, so this links a program.
links() { cc -x c -o "$probe" - <<<'int main(void) { return 0; }' 2>/dev/null; }

# tomllib came with Python 3.11; the package tomli is the same module for older ones.
reads_toml() { python3 -c 'import tomllib' 2>/dev/null || python3 -c 'import tomli' 2>/dev/null; }

missing_packages() {
    links || echo gcc libc6-dev
    # cargo fetches dependencies over TLS, against the system's root certificates.
    [[ -e /etc/ssl/certs/ca-certificates.crt || ! -e /etc/debian_version ]] || echo ca-certificates
    command -v make >/dev/null || echo make
    [[ $purpose == test ]] || return 0
    if ! command -v python3 >/dev/null; then
        echo python3
    elif ! reads_toml; then
        echo python3-tomli
    fi
}

# Runs a command as root; fails where that needs a password.
as_root() {
    if [[ $EUID == 0 ]]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

install_packages() {
    command -v apt-get >/dev/null || return 1
    as_root true 2>/dev/null || return 1
    say "installing $*"
    if ! { as_root apt-get update &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
        cat "$log" >&2
        return 1
    fi
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
probe=$scratch/probe
log=$scratch/apt.log

read -ra packages <<<"$(missing_packages | tr '\n' ' ')"
if [[ ${#packages[@]} != 0 ]]; then
    if ! install_packages "${packages[@]}"; then
        say "missing: ${packages[*]}"
        say "install with: sudo apt-get install ${packages[*]}   (or your system's packages of the same content)"
        exit 1
    fi
    # A Python older than 3.11 may have come just now, and needs tomli in addition.
    read -ra packages <<<"$(missing_packages | tr '\n' ' ')"
    if [[ ${#packages[@]} != 0 ]] && ! install_packages "${packages[@]}"; then
        say "still missing after the installation: ${packages[*]}"
        exit 1
    fi
fi

# --- Rust --------------------------------------------------------------------------------------------------------------

if ! rustc=$(rustc --version 2>/dev/null) || ! command -v cargo >/dev/null; then
    say 'missing: Rust (cargo and rustc), on PATH or in ~/.cargo/bin'
    say 'install it as https://rustup.rs describes'
    exit 1
fi
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
read -r _ version _ <<<"$rustc"
if [[ $(printf '%s\n' "$wanted" "${version%%-*}" | sort -V | head -n 1) != "$wanted" ]]; then
    say "Rust $version is too old: this needs $wanted or newer (rust-version in Cargo.toml)"
    say 'update with: rustup update'
    exit 1
fi

[[ $purpose == test ]] || exit 0

# --- compilers of the HIP kernel -----------------------------------------------------------------------------------------

# Two versions, since the guard against waves of 64 lanes rests on different things in them. One is enough to go on, where the
# system has no package of the other; the tests say which ones they used.
kernel_compiler() {
    local tool
    for tool in clang++ ld.lld llvm-objdump; do
        command -v "$tool-$1" >/dev/null || return 1
    done
}

found=0
for version in 19 22; do
    if ! kernel_compiler "$version"; then
        packages=("clang-$version" "lld-$version" "llvm-$version")
        install_packages "${packages[@]}" || true
    fi
    if kernel_compiler "$version"; then
        found=$((found + 1))
    else
        say "clang $version could not be installed (packages ${packages[*]}; Debian 12 has 22 in bookworm-security): the checks that need it are not run"
    fi
done
if [[ $found == 0 ]]; then
    say 'missing: a compiler for the HIP kernel, clang 19 or 22 with lld and LLVM tools of the same version'
    say 'install with: sudo apt-get install clang-19 lld-19 llvm-19   (or your system'"'"'s packages of that content)'
    exit 1
fi

# --- what builds programs on the C interface ---------------------------------------------------------------------------------

packages=()
command -v c++ >/dev/null || packages+=(g++)
command -v cmake >/dev/null || packages+=(cmake)
command -v pkg-config >/dev/null || packages+=(pkg-config)
if [[ ${#packages[@]} != 0 ]] && ! install_packages "${packages[@]}"; then
    say "missing: ${packages[*]}: the programs on the C interface that need them are not built"
fi

# --- the HIP runtime and its headers --------------------------------------------------------------------------------------

# Debian's is old and has no GPU here, which is what the tests want of it: a real runtime that says so. The tests tell what they
# did without.
if [[ ! -e /usr/include/hip/hip_runtime_api.h && -e /etc/debian_version ]] && ! install_packages libamdhip64-dev; then
    say 'the HIP runtime could not be installed (package libamdhip64-dev): the checks that need it are not run'
fi

# --- NVRTC, the compiler of the CUDA kernel ----------------------------------------------------------------------------------

# From the Python packages that NVIDIA publishes, since it compiles without a GPU and without a toolkit. Two versions: CUDA 13 no
# longer knows the oldest architecture that the kernel serves. Kept beside the build.
fetch_nvrtc() { # MAJOR PACKAGE==VERSION
    local folder=${CARGO_TARGET_DIR:-target}/nvrtc/$1 pip=(python3 -m pip)
    [[ ! -e $folder/libnvrtc.so.$1 ]] || return 0
    if ! "${pip[@]}" --version >/dev/null 2>&1; then
        if [[ ! -x $scratch/venv/bin/pip ]]; then
            python3 -m venv "$scratch/venv" >"$log" 2>&1 ||
                { install_packages python3-venv && python3 -m venv --clear "$scratch/venv" >"$log" 2>&1; } || return 1
        fi
        pip=("$scratch/venv/bin/pip")
    fi
    say "fetching NVRTC $1 ($2)"
    "${pip[@]}" download --quiet --no-deps --only-binary=:all: --dest "$scratch/nvrtc-$1" "$2" >"$log" 2>&1 || return 1
    rm -rf "$folder.part" && mkdir -p "$folder.part"
    python3 - "$scratch/nvrtc-$1" "$folder.part" <<'PY'
import glob, pathlib, sys, zipfile
source, target = sys.argv[1:]
with zipfile.ZipFile(glob.glob(source + "/*.whl")[0]) as wheel:
    for name in wheel.namelist():
        file = pathlib.PurePosixPath(name).name
        if file.startswith("libnvrtc") and ".alt." not in file:
            (pathlib.Path(target) / file).write_bytes(wheel.read(name))
PY
    rm -rf "$folder" && mv "$folder.part" "$folder"
}

if [[ $(uname -s) == Linux ]]; then
    fetch_nvrtc 12 nvidia-cuda-nvrtc-cu12==12.9.86 || say 'NVRTC 12 could not be fetched: the kernel is not compiled for sm_70'
    fetch_nvrtc 13 nvidia-cuda-nvrtc==13.0.88 || say 'NVRTC 13 could not be fetched: the kernel is not compiled for sm_75 and newer'
fi

# --- MLX, whose graph of operations the step is compared with ----------------------------------------------------------------

# Its wheel for the CPU, mlx-lm without what it needs for anything but its graph, and the nanobind that MLX's own module was made with:
# another one does not know its arrays. Kept beside the build.
fetch_mlx() {
    local folder=${CARGO_TARGET_DIR:-target}/mlx packages=(mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2 nanobind==3.1.0)
    [[ ! -e $folder/complete || $(<"$folder/complete") != "${packages[*]}" ]] || return 0
    # Python's headers, for the module that is built.
    python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
        install_packages python3-dev || return 1
    say "fetching ${packages[*]}"
    # A folder of its own from the start, since an environment cannot be moved.
    rm -rf "$folder"
    python3 -m venv "$folder" >"$log" 2>&1 ||
        { install_packages python3-venv && python3 -m venv --clear "$folder" >"$log" 2>&1; } || return 1
    "$folder/bin/pip" install --quiet --no-deps --only-binary=:all: "${packages[@]}" >"$log" 2>&1 || { tail -n 3 "$log" >&2 && return 1; }
    "$folder/bin/python" -c 'import mlx.core' >"$log" 2>&1 || { tail -n 1 "$log" >&2 && return 1; }
    printf '%s' "${packages[*]}" >"$folder/complete"
}

# mlx-cpu is the wheel for Linux.
if [[ $(uname -s) == Linux ]]; then
    fetch_mlx || { rm -rf "${CARGO_TARGET_DIR:-target}/mlx" && say 'MLX could not be fetched: the step is not compared with its graph'; }
fi

# --- Rust components -----------------------------------------------------------------------------------------------------

components=()
cargo fmt --version >/dev/null 2>&1 || components+=(rustfmt)
cargo clippy --version >/dev/null 2>&1 || components+=(clippy)
if [[ ${#components[@]} != 0 ]]; then
    # rustup installs into the user's home and needs no rights; a distribution's Rust has no rustup.
    if ! command -v rustup >/dev/null || ! rustup component add "${components[@]}" >&2; then
        say "missing: ${components[*]}"
        say "install with: rustup component add ${components[*]}   (or your system's package of that name)"
        exit 1
    fi
fi

# --- Rust's libraries for Apple's systems ----------------------------------------------------------------------------------

# The Metal port is type-checked for them. A distribution's Rust may not have them; the step says what it did without.
for target in aarch64-apple-darwin aarch64-apple-ios; do
    [[ ! -d $(rustc --print sysroot)/lib/rustlib/$target/lib ]] || continue
    added=
    for _ in 1 2 3; do
        command -v rustup >/dev/null || break
        rustup target add "$target" >"$log" 2>&1 && added=yes && break
        sleep 2
    done
    if [[ -z $added ]]; then
        [[ ! -s $log ]] || head -n 3 "$log" >&2
        say "Rust's libraries for $target could not be installed (rustup target add $target): the Metal port is not checked for it"
    fi
done
