//! Tests in processes of their own: the environment and what is loaded belong to a whole process, and tests run in parallel
//! threads.

use std::env;
use std::process::{Command, Output};

/// Runs one ignored test of this binary, and no other.
pub fn command(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a test knows its binary"));
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// What a child has printed behind a word, up to the end of the line.
///
/// # Panics
///
/// When the child failed, with all that it printed, and when it did not print the word.
#[track_caller]
pub fn answer(output: &Output, word: &str) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let start = text.find(word).unwrap_or_else(|| panic!("no {word:?} in: {text}"));
    text[start..].lines().next().expect("one line").trim_start_matches(word).to_owned()
}
