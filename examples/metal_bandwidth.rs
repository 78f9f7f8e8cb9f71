//! `cargo run --release --example metal_bandwidth`: the step on this machine's GPU beside a copy of memory, as times of the GPU.
//!
//! Steps are encoded as an engine does it, several into one encoder, each on a state of its own, so that the states do not stay in
//! a cache. "GB/s" counts each byte of the state once read and once written, and the other tensors once.

#[cfg(any(target_os = "macos", target_os = "ios"))]
#[path = "metal_bandwidth/measure.rs"]
mod measure;

#[cfg(any(target_os = "macos", target_os = "ios"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    measure::run()
}

#[cfg(not(any(target_os = "macos", target_os = "ios")))]
fn main() -> std::process::ExitCode {
    eprintln!("NOT RUN: Metal is there on macOS and iOS only");
    std::process::ExitCode::FAILURE
}
