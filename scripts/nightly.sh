# For scripts that need nightly Rust: sourced, not run. Whether a machine has it is not this project's to change.

# Ends the script where there is none, with the reason.
nightly_or_leave() { # WHAT
    if ! cargo +nightly --version >/dev/null 2>&1; then
        printf 'NOT RUN: %s need nightly Rust: rustup toolchain install nightly\n' "$1"
        exit 0
    fi
}
