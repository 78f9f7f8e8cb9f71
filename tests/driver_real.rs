//! The real HIP runtime, such as Debian's libamdhip64-5: it is loaded, by its name and by the search, or linked with the feature
//! `hip-runtime-sys`; and without a GPU the port says in the runtime's words that there is none.
//!
//! Where it is not installed a line says so; where `CI` is set that is a failure.

#![cfg(all(feature = "rocm", target_os = "linux"))]

#[path = "common/child.rs"]
mod child;

use std::env;
use std::path::Path;

use ssm_update::ports::rocm::{BUILT, RocmKernel};
use ssm_update::switches::{HIP_LIBRARY, HSA_OVERRIDE, ROCM_PATH, Rocm};
use ssm_update::{Kernel, Unavailable};

/// The runtime's names, newest first.
const NAMES: [&str; 3] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];

/// What AMD's kernel driver offers to processes. Without it there is no device, whatever is installed.
fn has_driver() -> bool {
    Path::new("/dev/kfd").exists()
}

/// Files that this process has mapped whose name has the runtime's in it.
fn mapped() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux tells what is mapped");
    let mut files: Vec<String> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|file| file.contains("libamdhip64"))
        .map(str::to_owned)
        .collect();
    files.dedup();
    files
}

/// Not a test of its own: opens the port with the switches of its environment, in a process that has loaded nothing else.
#[test]
#[ignore = "run by other tests as a child process with an environment of its own"]
fn child_opens_the_port() {
    println!("\nBEFORE {}", mapped().join(" "));
    match RocmKernel::open(&Rocm::from_env(), None, BUILT.images) {
        Ok(kernel) => println!("ANSWER opened: {}", kernel.describe()),
        Err(Unavailable::Driver(error)) => println!("ANSWER driver {} {}: {error}", error.code, error.advice.len()),
        Err(why) => println!("ANSWER closed: {why}"),
    }
    println!("AFTER {}", mapped().join(" "));
}

/// What the child prints: the runtimes that were mapped before, the answer, and those mapped after.
struct Answer {
    before: String,
    answer: String,
    after: String,
}

fn ask(library: Option<&str>) -> Answer {
    let mut command = child::command("child_opens_the_port");
    // Cargo puts the folders of what it builds into the search path, where an instrument of this project may have the same name.
    for variable in [HIP_LIBRARY, ROCM_PATH, HSA_OVERRIDE, "LD_LIBRARY_PATH"] {
        command.env_remove(variable);
    }
    let output = command.envs(library.map(|name| (HIP_LIBRARY, name))).output().expect("the test binary starts");
    let line = |word: &str| child::answer(&output, word).trim().to_owned();
    Answer { before: line("BEFORE "), answer: line("ANSWER "), after: line("AFTER ") }
}

/// The first name that the system finds. Asked of a process of its own, so that this one has not loaded it.
fn installed() -> Option<&'static str> {
    let found = NAMES.into_iter().find(|name| !ask(Some(name)).answer.contains("No such file"));
    if found.is_none() {
        println!("NOT RUN: none of {} is installed (Debian: apt install libamdhip64-5)", NAMES.join(", "));
        assert!(env::var_os("CI").is_none(), "CI is set, and there is no HIP runtime to test with");
    }
    found
}

/// Without a driver: no device, in the runtime's words, with advice. With one: the port opens, or says why not.
fn check(answer: &str, how: &str) {
    println!("{how}: {answer}");
    if has_driver() {
        let known = ["opened: ", "driver ", "closed: "].iter().any(|start| answer.starts_with(start));
        assert!(known, "{how}: {answer}");
        return;
    }
    let rest = answer.strip_prefix("driver 100 ").unwrap_or_else(|| panic!("{how}: {answer}"));
    let (advice, text) = rest.split_once(": ").expect("the length of the advice, then the text");
    assert_ne!(advice, "0", "{how}: {answer}");
    for part in ["hipErrorNoDevice (100)", "rocminfo"] {
        assert!(text.contains(part), "{how}: {part} in: {text}");
    }
    assert!(text.starts_with("hipGetDeviceCount"), "{how}: the call: {text}");
    let words = text.split_once("(100): ").and_then(|(_, rest)| rest.split_once(';')).expect("the runtime's text").0;
    assert!(words.len() > 3 && words != "the library gives no text", "{how}: {text}");
}

#[test]
fn the_runtime_is_loaded_by_its_name() {
    let Some(name) = installed() else { return };
    let Answer { answer, after, .. } = ask(Some(name));
    check(&answer, name);
    assert!(after.contains("libamdhip64"), "{after}");
}

/// Found where the search finds it, and loaded only then.
#[cfg(not(feature = "hip-runtime-sys"))]
#[test]
fn the_runtime_is_found_by_the_search() {
    if installed().is_none() {
        return;
    }
    let Answer { before, answer, after } = ask(None);
    assert_eq!(before, "", "nothing is loaded until the port is opened");
    check(&answer, "by the search");
    assert!(after.contains("libamdhip64"), "{after}");
}

/// There before anything is opened, and no other one is loaded.
#[cfg(feature = "hip-runtime-sys")]
#[test]
fn the_runtime_is_the_one_that_this_program_is_linked_to() {
    let Answer { before, answer, after } = ask(None);
    assert!(before.contains("libamdhip64"), "linked, and so loaded with the program: {before:?}");
    check(&answer, "linked");
    assert_eq!(before, after);
    if let Some(description) = answer.strip_prefix("opened: ") {
        assert!(description.contains("from linked"), "{description}");
    }
}
