#!/usr/bin/env bash
# Builds the C interface and lays it out as programs in C and C++ look for it.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin

usage() {
    cat <<'TEXT'
usage: scripts/install-capi.sh [--prefix FOLDER] [--libdir FOLDER] [--destdir FOLDER] [--no-strip] [-- CARGO_ARGUMENT...]

Builds the shared and the static library of the C interface, and installs below the prefix (/usr/local unless told):

  include/ssm_update.h
  lib/libssm_update.so, .so.0, .so.VERSION    shared (on macOS libssm_update.dylib and so on)
  lib/libssm_update.a                         static
  lib/pkgconfig/ssm_update.pc, ssm_update-static.pc
  lib/cmake/ssm_update/                       find_package(ssm_update): ssm_update::shared, ssm_update::static
  share/doc/ssm_update/                       licences

The tree may be moved afterwards: its files find each other.

  --libdir FOLDER    below the prefix, instead of lib: such as lib64, or lib/x86_64-linux-gnu
  --destdir FOLDER   put in front of the prefix when files are copied, and nowhere in them: for packagers
  --no-strip         keep what debuggers read
  -- ARGUMENT...     for cargo: -- --no-default-features --features rocm leaves the other accelerators out
TEXT
}

prefix=/usr/local
libdir=lib
destdir=
strip=yes
arguments=()
while [[ $# != 0 ]]; do
    case $1 in
        --prefix | --libdir | --destdir)
            [[ $# -ge 2 ]] || { usage >&2 && exit 2; }
            declare "${1#--}=$2"
            shift 2
            ;;
        --no-strip) strip= && shift ;;
        --) shift && arguments=("$@") && break ;;
        -h | --help) usage && exit ;;
        *) usage >&2 && exit 2 ;;
    esac
done
[[ $prefix == /* ]] || { printf 'the prefix has to be an absolute path: %s\n' "$prefix" >&2 && exit 2; }
[[ $libdir != /* && $libdir != *..* ]] || { printf 'the libdir is a folder below the prefix: %s\n' "$libdir" >&2 && exit 2; }

cargo build -p ssm-update-capi --release --locked "${arguments[@]+"${arguments[@]}"}"

built=${CARGO_TARGET_DIR:-target}/release
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
abi=$(sed -n 's/^pub const SSM_UPDATE_ABI_VERSION: u32 = \(.*\);/\1/p' capi/src/abi_version.rs)
[[ -n $version && -n $abi ]]
# The part of the version within which versions are compatible.
series=${version%%.*}
[[ $series != 0 ]] || series=${version%.*}

# The static library's own needs: what `rustc --print native-static-libs` says, without repetitions.
case $(uname -s) in
    Darwin)
        from=$built/libssm_update_capi.dylib
        file=libssm_update.$version.dylib soname=libssm_update.$abi.dylib link=libssm_update.dylib
        system_libs='-framework Metal -framework Foundation -framework CoreFoundation -lobjc -liconv -lm'
        cmake_libs='-framework Metal;-framework Foundation;-framework CoreFoundation;objc;iconv;m'
        strip_shared=(strip -x) strip_static=(strip -S)
        ;;
    *)
        from=$built/libssm_update_capi.so
        file=libssm_update.so.$version soname=libssm_update.so.$abi link=libssm_update.so
        system_libs='-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc'
        cmake_libs='gcc_s;util;rt;pthread;m;dl;c'
        strip_shared=(strip --strip-unneeded) strip_static=(strip --strip-debug)
        ;;
esac

# How many folders a file in FOLDER is below the prefix, as a path back.
back() { sed 's|[^/]\+|..|g' <<<"$1"; }

root=$destdir$prefix
lib=$root/$libdir
cmake=$lib/cmake/ssm_update

# Templates: @NAME@ becomes what is given as NAME=VALUE.
fill() { # TEMPLATE FILE NAME=VALUE...
    local template=capi/packaging/$1 file=$2 text pair
    shift 2
    text=$(<"$template")
    for pair in VERSION="$version" LIBDIR="$libdir" "$@"; do
        text=${text//"@${pair%%=*}@"/"${pair#*=}"}
    done
    ! grep -n '@[A-Z_]*@' <<<"$text" >&2 || { printf '%s has a name that nobody gives a value\n' "$template" >&2 && exit 1; }
    install -d "$(dirname "$file")"
    printf '%s\n' "$text" >"$file"
    chmod 644 "$file"
}

install -d "$lib"
install -d "$root/include" && install -m 644 include/ssm_update.h "$root/include/ssm_update.h"
install -m 755 "$from" "$lib/$file"
install -m 644 "$built/libssm_update_capi.a" "$lib/libssm_update.a"
if [[ -n $strip ]]; then
    "${strip_shared[@]}" "$lib/$file"
    "${strip_static[@]}" "$lib/libssm_update.a"
fi
ln -sf "$file" "$lib/$soname"
ln -sf "$soname" "$lib/$link"

# shellcheck disable=SC2016 # pkg-config's own variables
fill ssm_update.pc.in "$lib/pkgconfig/ssm_update.pc" PREFIX_FROM_PC="$(back "$libdir/pkgconfig")" \
    LIBS='-L${libdir} -lssm_update'
# A file of its own, since `pkg-config --static` still takes the shared library where both are there.
# shellcheck disable=SC2016
fill ssm_update.pc.in "$lib/pkgconfig/ssm_update-static.pc" PREFIX_FROM_PC="$(back "$libdir/pkgconfig")" \
    LIBS='${libdir}/libssm_update.a '"$system_libs"
fill ssm_updateConfig.cmake.in "$cmake/ssm_updateConfig.cmake" PREFIX_FROM_CMAKE="$(back "$libdir/cmake/ssm_update")" \
    SHARED_FILE="$file" SONAME="$soname" CMAKE_SYSTEM_LIBS="$cmake_libs"
fill ssm_updateConfigVersion.cmake.in "$cmake/ssm_updateConfigVersion.cmake" \
    SERIES_PATTERN="${series//./\\\\.}" POINTER_BYTES="$(($(getconf LONG_BIT) / 8))"
install -d "$root/share/doc/ssm_update" && install -m 644 LICENSE-APACHE LICENSE-MIT "$root/share/doc/ssm_update"

printf 'installed ssm_update %s, interface %s, below %s:\n' "$version" "$abi" "$root"
for path in "$lib/$file" "$lib/libssm_update.a"; do
    printf '  %-28s %8.1f MB\n' "${path##*/}" "$(awk '{ print $1 / 1e6 }' <<<"$(wc -c <"$path")")"
done
