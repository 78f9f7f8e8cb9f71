//! What the tests of the C interface share.

#![allow(dead_code)] // every test binary compiles this folder and uses its own part of it

pub mod call;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The package's folder.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The committed header.
pub fn header() -> PathBuf {
    folder().join("../include/ssm_update.h")
}

/// A compiler's run with every warning an error.
///
/// # Panics
///
/// When there is no compiler, and with all that it says when it fails.
pub fn compile(cpp: bool, arguments: &[&OsStr]) {
    // cc asks for what Cargo tells build scripts; these are of no consequence for the compiler that it finds.
    let system = if cfg!(target_os = "macos") { "apple-darwin" } else { "unknown-linux-gnu" };
    let target = format!("{}-{system}", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.cpp(cpp).target(&target).host(&target).opt_level(1).debug(false).cargo_metadata(false);
    let language = if cpp { "C++ (Debian: apt install g++)" } else { "C (Debian: apt install gcc libc6-dev)" };
    let compiler = build.try_get_compiler().unwrap_or_else(|error| panic!("a compiler of {language}: {error}"));
    let mut command = compiler.to_command();
    command.arg(if cpp { "-std=c++17" } else { "-std=c11" });
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic"]).args(arguments);
    let output = command.output().unwrap_or_else(|error| panic!("a compiler of {language}: {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}
