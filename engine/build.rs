//! Keeps the compiler's version for the tables of `bench-decode`: it compiled the kernel of the CPU port.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").expect("Cargo sets RUSTC");
    let output = Command::new(rustc).arg("--version").output();
    // A table that does not know it is better than a build that fails.
    let version = output.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.as_deref().map_or("rustc, version unknown", str::trim);
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    fs::write(folder.join("rustc-version.txt"), version).expect("OUT_DIR can be written");
}
