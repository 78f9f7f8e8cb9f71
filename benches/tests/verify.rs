//! `scripts/verify-rocm.sh` with a cargo that plays: parts that fail, that are not run, and what the report says of them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A cargo that answers by its arguments.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
    *"--bin rocm -- facts"*) echo 'device: gfx1151 (played)' ;;
    *"--bin rocm -- bench"*) echo "$*"; echo 'NOT RUN: the GPU is held by process 1'; exit 77 ;;
    *"--test goldens"*) echo 'the text differs'; exit $GOLDENS ;;
    *) echo "cargo $*" ;;
esac
"#;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder can be made"));
        let cargo = place.path("cargo");
        fs::write(&cargo, CARGO).expect("a file can be written");
        fs::set_permissions(cargo, fs::Permissions::from_mode(0o755)).expect("a file can be made a program");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the script; `goldens` is the exit status of that part.
    fn verify(&self, arguments: &[&str], goldens: &str) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/verify-rocm.sh");
        let path = std::env::var("PATH").expect("there is a PATH");
        let mut command = Command::new("bash");
        command.arg(script).args(arguments).env("PATH", format!("{}:{path}", self.0.path().display()));
        command.env("CARGO_TARGET_DIR", self.path("target")).env("GOLDENS", goldens).env_remove("CI");
        command.output().expect("bash starts")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The row of a part.
fn row<'a>(report: &'a str, part: &str) -> &'a str {
    let found = report.lines().find(|line| line.starts_with(&format!("| {part}")));
    found.unwrap_or_else(|| panic!("{part}: {report}"))
}

#[test]
fn a_part_that_fails_is_told_and_the_others_are_run() {
    let place = Place::new();
    let output = place.verify(&[], "3");
    let report = fs::read_to_string(place.path("target/verify-rocm/report.md")).expect("a report");
    assert_eq!(output.status.code(), Some(1), "{report}{}", text(&output.stderr));
    assert!(row(&report, "the engine's golden text").contains("| FAILED (exit status 3) |"), "{report}");
    assert!(report.contains("the text differs"), "the log of what failed: {report}");
    assert!(row(&report, "graphs and repetitions").contains("| passed |"), "after the failure: {report}");
    assert!(report.contains("device: gfx1151 (played)"), "{report}");
    // Not by the program's status alone: what it says is the reason.
    let benchmark = report.lines().find(|line| line.contains("benchmark on")).expect("a row");
    assert!(benchmark.contains("| NOT RUN: the GPU is held by process 1 |"), "{report}");
    assert!(text(&output.stdout).contains(" 1 failed, "), "{}", text(&output.stdout));
    if !Path::new("/dev/kfd").exists() {
        assert!(row(&report, "facts").contains("on simulated gfx1151"), "{report}");
        assert!(report.contains("\nsimulated: the text differs\n"), "every line is labelled: {report}");
        assert!(row(&report, "errors").contains("in part NOT RUN"), "{report}");
    }
}

#[test]
fn options_are_honoured() {
    let place = Place::new();
    let file = place.path("else/where.md");
    let output = place.verify(&["--quick", "--no-timing", "--report", &file.to_string_lossy()], "3");
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let report = fs::read_to_string(file).expect("a report");
    for (part, outcome) in [
        ("declarations", "NOT RUN: left out by --quick"),
        ("the engine's golden text", "NOT RUN: left out by --quick"),
        ("benchmark", "NOT RUN: left out by --no-timing"),
        ("cases", "passed"),
    ] {
        assert!(row(&report, part).contains(outcome), "{part}: {report}");
    }
    let output = place.verify(&["--quick", "--even-if-busy"], "0");
    assert!(text(&output.stdout).contains(" bench --even-if-busy"), "{}", text(&output.stdout));
    assert_eq!(place.verify(&["--unknown"], "0").status.code(), Some(2));
    assert_eq!(place.verify(&["--report"], "0").status.code(), Some(2));
    assert_eq!(place.verify(&["--help"], "0").status.code(), Some(0));
}
