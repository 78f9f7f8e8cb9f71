#!/usr/bin/env bash
# Builds the ggml peer of the CPU benchmark: ggml's CPU back end for this very machine, from the sources that the crate
# llama-cpp-sys-2 carries, behind the few functions of benches/peers/ggml.c.
set -euo pipefail

version=0.1.161
if [ "${1:-}" = --help ] || [ $# -ne 1 ]; then
  cat <<HELP
usage: scripts/ggml-peer.sh DIR

Writes DIR/libggml_peer.so (about 3 minutes on 2 cores; needs cargo, cmake and a C++ compiler). Then:
  SSM_UPDATE_BENCH_GGML=DIR/libggml_peer.so cargo bench --bench ports
HELP
  [ "${1:-}" = --help ]
  exit
fi
for tool in cargo cmake cc c++; do
  command -v "$tool" >/dev/null || { echo "ggml-peer: '$tool' is missing; on Debian: apt-get install cmake g++" >&2; exit 1; }
done

here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1/fetch/src" && cd "$1"
: > fetch/src/lib.rs
cat > fetch/Cargo.toml <<TOML
[package]
name = "fetch"
version = "0.0.0"
[dependencies]
llama-cpp-sys-2 = "=$version"
[workspace]
TOML
cargo vendor --quiet --manifest-path fetch/Cargo.toml vendor >/dev/null
rm -rf ggml && cp -r vendor/llama-cpp-sys-2/llama.cpp/ggml ggml
: > ggml/ggml.pc.in # left out of the crate; only its install step uses it
cmake -S ggml -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_OPENMP=OFF -DBUILD_SHARED_LIBS=OFF \
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF >cmake.log
cmake --build build --parallel --target ggml-cpu ggml-base >build.log 2>&1 || { tail -20 build.log >&2; exit 1; }
cc -O2 -shared -fPIC -Iggml/include -o libggml_peer.so "$here/benches/peers/ggml.c" \
  build/src/libggml-cpu.a build/src/libggml-base.a -lstdc++ -lpthread -lm
echo "$PWD/libggml_peer.so"
