//! What the shared library shows to a program that loads it: the header's functions, all of them and nothing else, under the name that
//! programs are linked to.

#![cfg(target_os = "linux")]

mod common;
#[path = "../../tests/common/layout.rs"]
#[allow(dead_code, reason = "the rest of it measures structs")]
mod layout;
#[path = "common/prototypes.rs"]
#[allow(dead_code, reason = "the rest of it is for the record of the interface")]
mod prototypes;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The shared library of this build.
fn library() -> PathBuf {
    let mut path = std::env::current_exe().expect("a test is a file");
    path.set_file_name("libssm_update_capi.so");
    assert!(path.exists(), "{} is built with the tests", path.display());
    path
}

fn tool(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(name).args(arguments).arg(library()).output();
    let output = output.unwrap_or_else(|error| panic!("{name} (Debian: apt install binutils): {error}"));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("plain text")
}

/// Functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(common::header()).expect("the header is there");
    prototypes::functions(&layout::without_comments(&header)).into_keys().collect()
}

#[test]
fn the_header_s_functions_are_exported_and_nothing_else() {
    let listed = tool("nm", &["-D", "--defined-only"]);
    let exported: BTreeSet<String> =
        listed.lines().map(|line| line.split_whitespace().last().expect("a name").to_owned()).collect();
    assert_eq!(exported, declared());
    assert!(exported.len() >= 15, "{exported:?}");
}

#[test]
fn the_name_that_programs_keep_has_the_version_of_the_interface() {
    let dynamic = tool("readelf", &["-dW"]);
    let soname = format!("[libssm_update.so.{}]", ssm_update_capi::SSM_UPDATE_ABI_VERSION);
    assert!(dynamic.lines().any(|line| line.contains("(SONAME)") && line.ends_with(&soname)), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    // No accelerator's library: one binary starts everywhere.
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        assert!(
            ["libc.so", "libm.so", "libgcc_s.so", "ld-linux", "libdl.so", "libpthread.so"]
                .iter()
                .any(|name| line.contains(name)),
            "{line}"
        );
    }
}
