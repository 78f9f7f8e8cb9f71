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

/// Whether there is a compiler of C++. Without one a line says so; where `CI` is set that is a failure.
pub fn has_cpp() -> bool {
    let found = build(true).try_get_compiler().is_ok_and(|compiler| {
        compiler.to_command().arg("--version").output().is_ok_and(|output| output.status.success())
    });
    if !found {
        println!("NOT RUN: there is no compiler of C++ (Debian: apt install g++)");
        assert!(std::env::var_os("CI").is_none(), "CI is set, and there is no compiler of C++");
    }
    found
}

fn build(cpp: bool) -> cc::Build {
    // cc asks for what Cargo tells build scripts; these are of no consequence for the compiler that it finds.
    let system = if cfg!(target_os = "macos") { "apple-darwin" } else { "unknown-linux-gnu" };
    let target = format!("{}-{system}", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.cpp(cpp).target(&target).host(&target).opt_level(1).debug(false).cargo_metadata(false);
    build
}

/// A compiler's run with every warning an error.
///
/// # Panics
///
/// When there is no compiler, and with all that it says when it fails.
pub fn compile(cpp: bool, arguments: &[&OsStr]) {
    let language = if cpp { "C++ (Debian: apt install g++)" } else { "C (Debian: apt install gcc libc6-dev)" };
    let compiler = build(cpp).try_get_compiler().unwrap_or_else(|error| panic!("a compiler of {language}: {error}"));
    let mut command = compiler.to_command();
    command.arg(if cpp { "-std=c++17" } else { "-std=c11" });
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic"]).args(arguments);
    let output = command.output().unwrap_or_else(|error| panic!("a compiler of {language}: {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}
