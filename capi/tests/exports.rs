//! What the shared library shows to a program that loads it: the header's functions, all of them and nothing else, under the name that
//! programs are linked to.

#![cfg(target_os = "linux")]

mod common;

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

/// Functions that the header declares: a name at the start of a word, with a parenthesis behind it, outside of comments.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(common::header()).expect("the header is there");
    let mut parts = header.split("/*");
    let mut text = parts.next().unwrap_or_default().to_owned();
    parts.for_each(|part| text += part.split_once("*/").expect("a comment ends").1);
    let words = text.match_indices("ssm_update_").filter_map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        rest[end..].starts_with('(').then(|| rest[..end].to_owned())
    });
    words.collect()
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
