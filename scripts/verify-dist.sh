#!/usr/bin/env bash
# Installs what scripts/dist.sh made into fresh Debian 12 roots in which nothing else of the project exists, and uses it there.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin:/usr/sbin

usage() {
    cat <<'TEXT'
usage: scripts/verify-dist.sh [--dist FOLDER] [PART...]

Checks the files that `make dist` made, in FOLDER (target/dist unless told). Each part works in a copy of a Debian 12 root that
debootstrap makes once, without a network but for the installation of Debian's own packages:

  deb        both Debian packages installed by apt; the examples that come with them, built by pkg-config and by CMake, and run on the CPU
             and then, with its code objects, on the simulated GPU of this repository; removed again
  archive    the binary archive, its checksums, the same examples against it, moved to another folder, shared and static
  crate      the source crate with its vendored dependencies and a copy of this machine's Rust: a program on it, built without a
             network and without a compiler of the HIP kernel, and run
  sbom       the archive's list of what is in the binary, against CycloneDX's schema, which a Python package brings
  docs       rustdoc as docs.rs calls it, on this machine
  twice      make dist in two clones in different folders: the same bytes (long: two whole builds)

Without names: all but twice. The first three need root, debootstrap and chroot, and sbom that Python package (fetched on the first use);
where they are missing, a line says what was not run.

Exit status: 0 passed, or not run for a reason that was printed; 1 failed; 2 wrong arguments.
TEXT
}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
dist=$target/dist
parts=()
while [[ $# != 0 ]]; do
    case $1 in
        --dist)
            [[ $# -ge 2 ]] || { usage >&2 && exit 2; }
            dist=$(realpath "$2")
            shift 2
            ;;
        -h | --help) usage && exit ;;
        deb | archive | crate | docs | sbom | twice) parts+=("$1") && shift ;;
        *) usage >&2 && exit 2 ;;
    esac
done
[[ ${#parts[@]} != 0 ]] || parts=(deb archive crate sbom docs)

die() { printf 'verify-dist: %s\n' "$*" >&2 && exit 1; }
say() { printf -- '--- %s\n' "$*"; }

work=$target/verify-dist
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
archive=ssm_update-$version-x86_64-linux

# --- roots ---------------------------------------------------------------------------------------------------------------

# Why there can be no root here; nothing where there can.
no_root() {
    if [[ $EUID != 0 ]]; then
        echo 'it takes root'
    elif ! command -v debootstrap >/dev/null; then
        echo 'there is no debootstrap (Debian: apt install debootstrap)'
    elif [[ $(dpkg --print-architecture 2>/dev/null) != amd64 ]]; then
        echo 'the binary files are for amd64'
    fi
}

# A minimal Debian 12 with compilers of C and C++, CMake and pkg-config, kept between runs.
base=$work/debian-12
make_base() {
    [[ ! -e $base.complete ]] || return 0
    say 'making a Debian 12 root with debootstrap'
    rm -rf "$base" && mkdir -p "$base"
    debootstrap --variant=minbase --include=cmake,g++,libc6-dev,make,pkg-config bookworm "$base" >"$work/debootstrap.log" 2>&1 ||
        { tail -n 5 "$work/debootstrap.log" >&2 && die "debootstrap failed: $work/debootstrap.log"; }
    touch "$base.complete"
}

# A copy of it, in which nothing of the project is, which is looked at.
fresh() { # NAME
    make_base
    root=$work/$1
    rm -rf "$root" && cp -a "$base" "$root"
    local found
    found=$(find "$root" -xdev \( -iname '*ssm*update*' -o -name '*.hipfb' \) -print -quit)
    [[ -z $found ]] || die "a fresh root has something of the project already: $found"
}

# A command in the root. Without network: no interface is up, and no name resolves. With /proc, by which Rust finds its own libraries.
inside() { unshare --net --pid --fork --mount-proc="$root/proc" chroot "$root" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C.UTF-8 "$@"; }

# What the example of the C interface has to say: a table with every port, and results from the processor.
check_step() { # OUTPUT
    local port
    for port in rocm cuda metal cpu; do
        grep -q "^  $port " <<<"$1" || die "the table of ports has no row for $port: $1"
    done
    grep -q '^  cpu  *opens$' <<<"$1" || die "the port cpu does not open: $1"
}

# The examples, from a folder in the root, by CMake and by pkg-config.
examples() { # FOLDER CMAKE_PREFIX PKG_CONFIG_PATH LD_LIBRARY_PATH
    local output package
    inside cmake -S "$1" -B /tmp/build -DCMAKE_PREFIX_PATH="$2" >"$work/cmake.log" || { cat "$work/cmake.log" && die 'CMake does not find the package'; }
    inside cmake --build /tmp/build >"$work/cmake.log" || { cat "$work/cmake.log" && die 'the examples do not build'; }
    for package in shared static; do
        say "built by CMake, $package: step cpu"
        output=$(inside /tmp/build/step-$package cpu)
        printf '%s\n' "$output"
        check_step "$output"
    done
    # Stands in for the HIP runtime: the only thing of the project that was not installed, and only from here on. Built where the sources are.
    cargo build -p hip-sim --release --locked
    install -m 644 "$target/release/libhip_sim.so" "$root/tmp/"
    for package in shared static; do
        say "built by CMake, $package: step rocm and stream, on a simulated GPU"
        output=$(inside SSM_UPDATE_HIP_LIBRARY=/tmp/libhip_sim.so /tmp/build/step-$package rocm)
        grep '^taken: rocm' <<<"$output" || die "the port rocm is not taken: $output"
        inside SSM_UPDATE_HIP_LIBRARY=/tmp/libhip_sim.so /tmp/build/stream-$package /tmp/libhip_sim.so
    done
    rm "$root/tmp/libhip_sim.so"
    for package in ssm_update ssm_update-static; do
        # shellcheck disable=SC2016 # for the shell in the root
        inside PKG_CONFIG_PATH="$3" sh -ec 'cc -std=c11 -O1 -Wall -Wextra -Werror "$1/step.c" $(pkg-config --cflags --libs "$2") -lm -o /tmp/"$2"' \
            sh "$1" "$package"
        say "built by pkg-config, $package: step"
        output=$(inside LD_LIBRARY_PATH="$4" "/tmp/$package")
        check_step "$output"
        inside LD_LIBRARY_PATH="$4" ldd "/tmp/$package" | grep ssm_update ||
            [[ $package == ssm_update-static ]] || die 'the program does not use the shared library'
    done
}

# --- parts ---------------------------------------------------------------------------------------------------------------

part_deb() {
    fresh deb
    mkdir "$root/tmp/dist" && cp "$dist"/*.deb "$root/tmp/dist/"
    inside sh -ec 'apt-get install -y --no-install-recommends /tmp/dist/*.deb' >"$work/apt.log" 2>&1 ||
        { cat "$work/apt.log" >&2 && die 'apt does not install the packages'; }
    rm -r "$root/tmp/dist"
    # shellcheck disable=SC2016 # dpkg's own variables
    inside dpkg-query -W -f '${Package} ${Version} ${Architecture}: ${Depends}\n' 'libssm-update*'
    # grep reads to the end: with -q, the other end of the pipe would fail.
    inside ldconfig -p | grep 'libssm_update\.so\.' || die 'the loader does not know the library'
    # shellcheck disable=SC2016 # for the shell in the root
    inside sh -ec 'cd / && for list in /var/lib/dpkg/info/libssm-update*.md5sums; do md5sum --check --quiet "$list"; done'
    examples /usr/share/doc/libssm-update-dev/examples '' '' ''
    inside dpkg --purge libssm-update-dev libssm-update0 >/dev/null
    local left
    left=$(inside find / -xdev -name '*ssm*update*' -not -path '/tmp/*' -not -path '/proc/*' -print)
    [[ -z $left ]] || die "left behind by the packages: $left"
}

part_archive() {
    fresh archive
    mkdir "$root/opt/elsewhere"
    tar --extract --gzip --file "$dist/$archive.tar.gz" --directory "$root/opt/elsewhere"
    inside sh -ec "cd /opt/elsewhere/$archive && sha256sum --check --quiet SHA256SUMS && mv /opt/elsewhere/$archive /opt/moved"
    inside find /opt/moved/share/ssm_update/code-objects -type f -printf '%f %s\n' | sort
    examples /opt/moved/share/doc/ssm_update/examples /opt/moved /opt/moved/lib/pkgconfig /opt/moved/lib
}

part_crate() {
    fresh crate
    local name=ssm-update-$version sysroot output
    sysroot=$(rustc --print sysroot)
    mkdir -p "$root/srv" "$root/opt/rust"
    tar --extract --gzip --file "$dist/$name.crate" --directory "$root/srv"
    # Rust itself, without documentation and other targets.
    (cd "$sysroot" && tar --create bin/cargo bin/rustc lib/lib* lib/rustlib/x86_64-unknown-linux-gnu) | tar --extract --directory "$root/opt/rust"
    # What a person with a network does: everything that the crate's own Cargo.lock names, into one folder. Away from here, where
    # Cargo would take the crate for a part of this workspace.
    mkdir -p "$root/srv/.cargo"
    vendored=$(mktemp -d)
    trap 'rm -rf "$vendored"' EXIT
    tar --extract --gzip --file "$dist/$name.crate" --directory "$vendored"
    (cd "$vendored/$name" && cargo vendor --locked ../vendor) >"$root/srv/.cargo/config.toml" 2>"$work/vendor.log" ||
        { cat "$work/vendor.log" >&2 && die 'cargo vendor failed'; }
    mv "$vendored/vendor" "$root/srv/"
    sed -i 's|^directory = .*|directory = "/srv/vendor"|' "$root/srv/.cargo/config.toml"

    # The example of the front page, as a program of somebody's.
    mkdir -p "$root/srv/program/src"
    printf '[package]\nname = "program"\nversion = "0.0.0"\nedition = "2024"\n[dependencies]\nssm-update = { path = "../%s" }\n' "$name" \
        >"$root/srv/program/Cargo.toml"
    cp "$root/srv/$name/Cargo.lock" "$root/srv/program/"
    {
        printf 'fn main() -> Result<(), Box<dyn std::error::Error>> {\n'
        # The blocks without a language are Rust.
        awk '/^\/\/! ```/ { code = fence ? 0 : $0 == "//! ```"; fence = !fence; next } code { sub(/^\/\/! ?/, ""); print }' \
            "$root/srv/$name/src/lib.rs" | sed '/^# Ok::/d'
        # shellcheck disable=SC2016 # Rust
        printf '    for port in SSM_PORTS {\n        let opens = (port.open)().map(|kernel| kernel.describe()).unwrap_or_else(|why| why.to_string());\n'
        printf '        println!("{}: {opens}", port.name);\n    }\n    Ok(())\n}\n'
    } >"$root/srv/program/src/main.rs"

    say 'building a program on the source crate, without network and HIP compiler'
    inside sh -ec '! command -v hipcc && ! command -v clang' >/dev/null || die 'the root has a compiler of the HIP kernel'
    output=$(inside PATH=/opt/rust/bin:/usr/bin:/bin sh -ec 'cd /srv/program && cargo build --release --offline -vv 2>&1') ||
        { printf '%s\n' "$output" | tail -n 30 && die 'the source crate does not build'; }
    grep -o 'no compiler for the HIP kernel was found\|the binaries of prebuilt/ are taken, for [a-z0-9, ]* alone' <<<"$output" | sort -u
    grep -q 'the binaries of prebuilt/ are taken' <<<"$output" || die 'the build does not say that it took the binaries of prebuilt/'
    output=$(inside /srv/program/target/release/program)
    printf '%s\n' "$output"
    grep -q '^computed by cpu$' <<<"$output" || die 'the program did not compute on the processor'
}

# The schema's keeper publishes it with a program that reads it. Kept between runs.
python=$work/cyclonedx/bin/python
no_validator() {
    local package='cyclonedx-python-lib[json-validation]==11.12.0'
    [[ ! -e $work/cyclonedx/complete || $(<"$work/cyclonedx/complete") != "$package" ]] || return 0
    { rm -rf "$work/cyclonedx" && python3 -m venv "$work/cyclonedx" && "$python" -m pip install --quiet "$package" &&
        printf '%s' "$package" >"$work/cyclonedx/complete"; } >"$work/pip.log" 2>&1 ||
        echo "the validator of CycloneDX could not be fetched: $(tail -n 1 "$work/pip.log")"
}

part_sbom() {
    local list=share/doc/ssm_update/ssm_update.cdx.json
    tar --extract --gzip --file "$dist/$archive.tar.gz" --directory "$work" "$archive/$list"
    "$python" scripts/dist/check_sbom.py "$work/$archive/$list"
}

part_docs() {
    local package told
    for package in ssm-update ssm-update-candle; do
        # What docs.rs reads, from the same place.
        told=$(cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, sys
(package,) = [p for p in json.load(sys.stdin)["packages"] if p["name"] == sys.argv[1]]
told = package["metadata"]["docs"]["rs"]
print(",".join(told.get("features", [])), *told["rustdoc-args"])' "$package")
        say "rustdoc as docs.rs calls it: $package: $told"
        # shellcheck disable=SC2086 # words
        # The markers of features are unstable, and docs.rs has the nightly Rust for them. They are allowed to this crate alone.
        RUSTC_BOOTSTRAP=${package//-/_} DOCS_RS=1 RUSTDOCFLAGS=-Dwarnings CARGO_TARGET_DIR=$target/docs-rs \
            cargo rustdoc --lib -p "$package" --locked --features "${told%% *}" -- ${told#* }
    done
}

part_twice() {
    local folder first='' sums
    [[ -z $(git status --porcelain) ]] || die 'there are changes that are not committed, which clones would not have'
    for folder in "$work/twice/one" "$work/twice/a folder with another name"; do
        say "make dist in $folder"
        rm -rf "$folder" && git clone --quiet . "$folder"
        # cargo-deb need not be built twice.
        [[ ! -d $target/tools ]] || { mkdir -p "$folder/target" && cp -R "$target/tools" "$folder/target/"; }
        (cd "$folder" && env -u CARGO_TARGET_DIR bash scripts/dist.sh) >"$work/twice.log" 2>&1 || { tail -n 20 "$work/twice.log" >&2 && die 'make dist failed'; }
        sums=$(<"$folder/target/dist/SHA256SUMS")
        [[ -z $first || $sums == "$first" ]] || { diff <(printf '%s\n' "$first") <(printf '%s\n' "$sums") >&2 || die 'the bytes differ between two folders'; }
        first=$sums
    done
    printf '%s\n' "$first"
}

# Why a part cannot be had here; nothing where it can.
lacking() { # PART
    case $1 in
        deb | archive | crate) no_root ;;
        sbom) no_validator ;;
        docs | twice) ;;
    esac
}

mkdir -p "$work"
[[ -e $dist/SHA256SUMS || ${parts[*]} == docs || ${parts[*]} == twice ]] || die "there is no $dist/SHA256SUMS; run: make dist"
[[ ! -e $dist/SHA256SUMS ]] || (cd "$dist" && sha256sum --check --quiet SHA256SUMS)
ran=0 left=0
for part in "${parts[@]}"; do
    printf '\n=== %s\n' "$part"
    reason=$(lacking "$part")
    if [[ -n $reason ]]; then
        printf 'NOT RUN: %s\n' "$reason"
        left=$((left + 1))
        continue
    fi
    "part_$part"
    ran=$((ran + 1))
done
printf '\nverify-dist: %d parts passed, %d not run\n' "$ran" "$left"
