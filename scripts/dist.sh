#!/usr/bin/env bash
# Makes the files of a release from the commit that is checked out.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin
umask 022

usage() {
    cat <<'TEXT'
usage: scripts/dist.sh [--out FOLDER] [--allow-dirty]

Makes from the commit that is checked out, in FOLDER (target/dist unless told):

  ssm-update-VERSION.crate, ssm-update-candle-VERSION.crate    the source packages for Rust
  ssm-update-VERSION.tar.gz                                    everything of the repository, for people who build packages
  ssm_update-VERSION-x86_64-linux.tar.gz                       libraries, header, package files, code objects, notices, list of contents
  libssm-update0_*.deb, libssm-update-dev_*.deb                the same for Debian 12 and newer
  SHA256SUMS

The same commit gives the same bytes, in any folder, with the same versions of Rust, of the compiler of the HIP kernel and of binutils.
Their times are that of the commit, or SOURCE_DATE_EPOCH.

  --out FOLDER     made anew: what it had is gone
  --allow-dirty    go on with changes that are not committed, for trying things out; the source packages then say so

Exit status: 0 made, 1 failed, 2 wrong arguments.
TEXT
}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$target/dist
dirty=()
while [[ $# != 0 ]]; do
    case $1 in
        --out)
            [[ $# -ge 2 ]] || { usage >&2 && exit 2; }
            out=$(realpath -m "$2")
            shift 2
            ;;
        --allow-dirty) dirty=(--allow-dirty) && shift ;;
        -h | --help) usage && exit ;;
        *) usage >&2 && exit 2 ;;
    esac
done

die() { printf 'dist: %s\n' "$*" >&2 && exit 1; }
say() { printf 'dist: %s\n' "$*" >&2; }

triple=x86_64-unknown-linux-gnu
[[ $(rustc -vV | sed -n 's/^host: //p') == "$triple" ]] || die "the binary files are made on $triple, and this Rust is for $(rustc -vV | sed -n 's/^host: //p')"
for tool in dpkg-shlibdeps git tar gzip strip; do
    command -v "$tool" >/dev/null || die "there is no $tool (Debian: apt install dpkg-dev git binutils)"
done
changes=$(git status --porcelain)
[[ -z $changes || -n ${dirty[*]-} ]] || die "there are changes that are not committed; commit them, or say --allow-dirty:"$'\n'"$changes"
notices=$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html
[[ -e $notices ]] || die "the notices of Rust's standard library are not there: $notices (rustup's toolchains have them)"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH-$(git log -1 --format=%ct)}
# A release has every architecture's code object, made here.
export SSM_UPDATE_REQUIRE_HIPCC=1
unset SSM_UPDATE_ARCHS

# --- cargo-deb, beside the build -----------------------------------------------------------------------------------------

tools=$target/tools
# Built where this version of it is not there yet; cargo looks.
cargo install --locked cargo-deb --version 3.8.0 --root "$tools"

# --- the libraries -------------------------------------------------------------------------------------------------------

# A build folder of its own, and emptied: other flags than everybody's, and nothing in it that another commit left.
export CARGO_TARGET_DIR=$target/dist-build
rm -rf "$CARGO_TARGET_DIR"
# No path of this machine gets into the libraries. The last one that fits counts. Rust's own sources stand under their commit, also where
# the component rust-src is installed, which would be named by its place.
remap() { printf '%s\037' "--remap-path-prefix=$1=$2"; }
flags=$(
    remap "$PWD" /ssm-update
    remap "$(realpath "${CARGO_HOME:-$HOME/.cargo}")" /cargo
    remap "$(rustc --print sysroot)/lib/rustlib/src/rust" "/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')"
    remap "$CARGO_TARGET_DIR" /target
)
unset RUSTFLAGS
export CARGO_ENCODED_RUSTFLAGS=${flags%$'\037'}
cargo fetch --locked

name=ssm_update-$version-x86_64-linux
stage=$CARGO_TARGET_DIR/stage
tree=$stage/$name
say 'building the libraries'
bash scripts/install-capi.sh --prefix "$tree"
# For cargo-deb, which looks for what is built below this folder.
bash scripts/install-capi.sh --prefix /usr --libdir lib/x86_64-linux-gnu --destdir "$CARGO_TARGET_DIR/release/debian" >/dev/null

# --- what goes with them -------------------------------------------------------------------------------------------------

# Cargo tells where the build script wrote the code objects; nothing is built again.
built=$(cargo build -p ssm-update-capi --release --locked --message-format json 2>/dev/null | python3 -c '
import json, sys
messages = (json.loads(line) for line in sys.stdin)
print(*{m["out_dir"] for m in messages if m["reason"] == "build-script-executed" and "#ssm-update@" in m["package_id"]}, sep="\n")')
[[ -d $built ]] || die "expected one folder of code objects, and not: $built"
objects=$tree/share/ssm_update/code-objects
python3 scripts/dist/code_objects.py "$built" "$objects"

doc=$tree/share/doc/ssm_update
python3 scripts/dist/licences.py "$doc/THIRD-PARTY-LICENCES.txt"
python3 scripts/dist/sbom.py --code-objects "$objects/manifest.toml" "$doc/ssm_update.cdx.json"
install -m 644 "$notices" "$doc/rust-standard-library.html"
install -m 644 CHANGELOG.md docs/engines.md docs/environment-variables.md docs/packagers.md docs/rocm.md "$doc"
install -d "$doc/examples"
install -m 644 capi/examples/{CMakeLists.txt,reference.h,step.c,stream.cpp} "$doc/examples"
cp -R "$tree/share" "$CARGO_TARGET_DIR/release/debian/"

# --- the files -----------------------------------------------------------------------------------------------------------

rm -rf "$out"
install -d "$out"

# shellcheck disable=SC2094 # the list leaves itself out
(cd "$tree" && find . -type f ! -name SHA256SUMS -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS)
LC_ALL=C tar --create --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --directory "$stage" "$name" | gzip -9n >"$out/$name.tar.gz"

for variant in runtime dev; do
    # Its warnings are not for here: nothing is built, and nothing is stripped a second time.
    "$tools/bin/cargo-deb" -p ssm-update-capi --variant "$variant" --no-build --no-strip --quiet --output "$out/" >/dev/null
done

# What the library needs of Debian's, by its symbols. The tool wants to be beside a source package.
mkdir -p "$CARGO_TARGET_DIR/shlibdeps/debian"
printf 'Source: ssm-update\n\nPackage: libssm-update0\nArchitecture: any\n' >"$CARGO_TARGET_DIR/shlibdeps/debian/control"
needs=$(cd "$CARGO_TARGET_DIR/shlibdeps" && dpkg-shlibdeps -O "$tree/lib/libssm_update.so.$version" 2>/dev/null)
says=$(dpkg-deb --field "$out"/libssm-update[0-9]*.deb Depends)
[[ ${needs#shlibs:Depends=} == "$says" ]] || die "the library needs ${needs#*=}, and capi/Cargo.toml says that it depends on: $says"

git archive --format tar --prefix "ssm-update-$version/" HEAD | gzip -9n >"$out/ssm-update-$version.tar.gz"

# Not built here: what was packed is built by scripts/verify-dist.sh, away from everything else.
cargo package -p ssm-update -p ssm-update-candle --offline --no-verify --quiet "${dirty[@]+"${dirty[@]}"}"
install -m 644 "$CARGO_TARGET_DIR"/package/*.crate "$out"

(cd "$out" && LC_ALL=C sha256sum -- *.* >SHA256SUMS)
say "made in $out:"
cat "$out/SHA256SUMS"
