#!/usr/bin/env bash
# Compares the public interface of the published crates with the newest release.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin

case ${1-} in
    '') ;;
    *) printf 'usage: scripts/semver.sh\n\nThe newest tag v* that HEAD comes from is the release; exit status 1 where the version promises more than the change keeps.\n' &&
        { [[ $1 == -h || $1 == --help ]] && exit || exit 2; } ;;
esac

release=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)
if [[ -z $release ]]; then
    # A clone without history or tags cannot tell; no release is no failure.
    printf 'NOT RUN: there is no release to compare with (no tag v*)\n'
    exit
fi

tools=$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools
# Built where this version of it is not there yet; cargo looks.
cargo install --locked cargo-semver-checks --version 0.51.0 --root "$tools"
# Without what cannot be documented here: hip-runtime-sys needs ROCm's headers, and candle's accelerators a toolkit.
"$tools/bin/cargo-semver-checks" semver-checks -p ssm-update -p ssm-update-candle --baseline-rev "$release" --default-features ||
    exit 1 # its own is 100
