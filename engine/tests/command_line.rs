//! The program as a person or a script meets it: help, arguments, exit status, what goes to which stream.

mod common;

use std::path::Path;

use common::Tiny;
use common::program::{assert_status, run, stderr, stdout};
use serde_json::{Value, json};
use ssm_update::switches;

fn generate<'a>(folder: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["generate", "--model", folder.to_str().unwrap(), "--prompt", "abc", "--max-tokens", "6"], more].concat()
}

#[test]
fn help_of_every_command_has_examples() {
    let commands = [
        "generate",
        "bench-decode",
        "compare-bench",
        "logit-trace",
        "compare-logit-traces",
        "verify-models",
        "doctor",
        "demo",
    ];
    let list = stdout(&run(&["--help"], &[]));
    assert!(commands.iter().all(|command| list.contains(&format!("\n  {command} "))), "{list}");
    for command in [&[""], &commands[..]].concat() {
        let arguments: Vec<&str> = [command, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
        let output = run(&arguments, &[]);
        assert_status(&output, 0);
        assert!(stdout(&output).contains("Examples:"), "{command}");
    }
}

#[test]
fn wrong_arguments_exit_with_2() {
    for arguments in [
        &[][..],
        &["dance"],
        &["generate"],
        &["generate", "--model", "x"],
        &["generate", "--model", "x", "--prompt", "y", "--max-tokens", "-1"],
        &["generate", "--model", "x", "--prompt", "y", "--step", "magic"],
        &["bench-decode", "--model", "x", "--rounds", "0"],
        &["bench-decode", "--model", "x", "--prompt-tokens", "0"],
        &["bench-decode"],
        &["bench-decode", "x", "--model", "x"],
        &["bench-decode", "x", "--suffix", "y"],
        &["bench-decode", "x", "--ab", "--output", "y"],
        &["bench-decode", "all", "--ab"],
        &["bench-decode", "all"],
        &["compare-bench", "--before", "x"],
        &["compare-bench", "--before", "x", "--after", "x", "--moved-threshold", "-1"],
        &["logit-trace", "x"],
        &["logit-trace", "x", "y", "0"],
        &["logit-trace", "x", "y", "1", "1", "1"],
        &["compare-logit-traces", "x"],
        &["compare-logit-traces", "x", "y", "--decided", "NaN"],
        &["verify-models"],
        &["verify-models", "--models-dir", "x", "--positions", "0"],
    ] {
        let output = run(arguments, &[]);
        assert_status(&output, 2);
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn failures_exit_with_1_and_say_why() {
    let folder = Tiny::new(1, json!({})).write();
    for (arguments, word) in [
        (vec!["generate", "--model", "no/such/folder", "--prompt", "x"], "no/such/folder"),
        (generate(folder.path(), &["--temperature", "-1"]), "temperature"),
        (generate(folder.path(), &["--top-p", "0"]), "top-p"),
        (vec!["generate", "--model", folder.path().to_str().unwrap(), "--prompt", ""], "no tokens"),
        (vec!["bench-decode", "--model", "no/such/folder"], "no/such/folder"),
        (vec!["bench-decode", "no/such/folder", "--ab"], "no/such/folder"),
        (vec!["bench-decode", "all", "--models-dir", "no/such/folder"], "no/such/folder"),
        (vec!["verify-models", "--models-dir", "no/such/folder"], "no/such/folder"),
        (vec!["logit-trace", folder.path().to_str().unwrap(), "no/such/file"], "no/such/file"),
        (vec!["demo", "--model", "no/such/folder"], "no/such/folder"),
    ] {
        let output = run(&arguments, &[]);
        assert_status(&output, 1);
        assert!(stderr(&output).starts_with("error: ") && stderr(&output).contains(word), "{}", stderr(&output));
    }
}

#[test]
fn text_goes_to_stdout_and_statistics_to_stderr() {
    let folder = Tiny::new(2, json!({})).write();
    let output = run(&generate(folder.path(), &[]), &[]);
    assert_status(&output, 0);
    assert!(stdout(&output).ends_with('\n') && !stdout(&output).contains("tok/s"));
    for word in ["kernel, port", "prefill 3 tokens", "decode 6 tokens", "tok/s"] {
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    }
}

#[test]
fn same_text_by_kernel_by_graph_and_with_the_same_seed() {
    let folder = Tiny::new(3, json!({})).write();
    let text = |more: &[&str]| stdout(&run(&generate(folder.path(), more), &[]));
    assert_eq!(text(&["--step", "kernel"]), text(&["--step", "graph"]));
    let drawn = ["--temperature", "1.5", "--seed", "4", "--max-tokens", "30"];
    let arguments =
        || [&["generate", "--model", folder.path().to_str().unwrap(), "--prompt", "abc"], &drawn[..]].concat();
    assert_eq!(run(&arguments(), &[]).stdout, run(&arguments(), &[]).stdout);
}

#[test]
fn kernel_switch_takes_the_graph_and_says_so() {
    let folder = Tiny::new(4, json!({})).write();
    for variable in [switches::KERNEL, switches::CUDA_KERNEL] {
        let output = run(&generate(folder.path(), &[]), &[(variable, "0")]);
        assert_status(&output, 0);
        assert!(stderr(&output).contains("graph") && stderr(&output).contains(variable), "{}", stderr(&output));
        // Any other value leaves the kernel on.
        let output = run(&generate(folder.path(), &[]), &[(variable, "1")]);
        assert!(stderr(&output).contains("kernel, port"), "{}", stderr(&output));
        // Asked for by name, the kernel is not replaced in silence.
        let output = run(&generate(folder.path(), &["--step", "kernel"]), &[(variable, "0")]);
        assert_status(&output, 1);
        assert!(stderr(&output).contains(variable), "{}", stderr(&output));
    }
}

#[test]
fn named_port_is_exact() {
    let folder = Tiny::new(5, json!({})).write();
    let output = run(&generate(folder.path(), &[]), &[(switches::PORT, "cpu")]);
    assert_status(&output, 0);
    assert!(stderr(&output).contains("port cpu"));
    let output = run(&generate(folder.path(), &[]), &[(switches::PORT, "abacus")]);
    assert_status(&output, 1);
    assert!(stderr(&output).contains("abacus") && stderr(&output).contains("rocm"), "{}", stderr(&output));
}

/// A port that does not open here ends the program with its reason; where it opens, it is the one that runs.
#[test]
fn named_port_that_cannot_run_fails_with_its_reason() {
    let folder = Tiny::new(6, json!({})).write();
    for port in ssm_update::SSM_PORTS {
        let output = run(&generate(folder.path(), &[]), &[(switches::PORT, port.name)]);
        match (port.open)() {
            Ok(_) => assert!(stderr(&output).contains(&format!("port {}", port.name))),
            Err(why) => {
                assert_status(&output, 1);
                assert!(stderr(&output).contains(port.name) && stderr(&output).contains(&why.to_string()));
            }
        }
    }
}

#[test]
fn doctor_shows_every_port_and_switch() {
    let output = run(&["doctor"], &[(switches::PORT, "rocm")]);
    assert_status(&output, 0);
    let text = stdout(&output);
    for port in ssm_update::SSM_PORTS {
        assert!(text.lines().any(|line| line.starts_with(port.name)), "{text}");
    }
    assert!(text.contains("SSM_UPDATE_PORT            \"rocm\"") && text.contains("not set"), "{text}");

    let report: Value = serde_json::from_slice(&run(&["doctor", "--json"], &[]).stdout).unwrap();
    assert_eq!(report["ports"].as_array().unwrap().len(), ssm_update::SSM_PORTS.len());
    assert!(report["selected"].is_string() && report["reason"].is_null());
    let off: Value = serde_json::from_slice(&run(&["doctor", "--json"], &[(switches::KERNEL, "0")]).stdout).unwrap();
    assert!(off["selected"].is_null() && off["reason"].as_str().unwrap().contains(switches::KERNEL));
}

#[test]
fn bench_decode_reports_both_arms() {
    let folder = Tiny::new(7, json!({})).write();
    let model = folder.path().to_str().unwrap();
    let arguments = ["bench-decode", model, "--ab", "--prompt-tokens", "9", "--max-tokens", "5", "--rounds", "2"];
    let output = run(&arguments, &[]);
    assert_status(&output, 0);
    assert!(["kernel", "graph", "ratio", "differ"].iter().all(|word| stdout(&output).contains(word)));

    let output = run(&[&arguments[..], &["--json"]].concat(), &[]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["kernel_tok_s"].as_array().unwrap().len(), 2);
    assert_eq!(report["prompt_tokens"], 9);
    assert!(report["ratio"].as_f64().unwrap() > 0.0);
    assert!(report["agreement"]["max_abs_logit_difference"].as_f64().unwrap() < 2e-4);

    // There is nothing to compare when the kernel is off.
    let output = run(&arguments, &[(switches::KERNEL, "0")]);
    assert_status(&output, 1);
    assert!(stderr(&output).contains(switches::KERNEL));
}

#[test]
fn demo_shows_ports_text_and_comparison() {
    let folder = Tiny::new(8, json!({})).write();
    let arguments = ["demo", "--model", folder.path().to_str().unwrap(), "--prompt", "abc", "--max-tokens", "5"];
    let output = run(&arguments, &[]);
    assert_status(&output, 0);
    let text = stdout(&output);
    assert!(
        ["rocm", "selected: ", "abc", "kernel", "graph", "ratio", "differ"].iter().all(|word| text.contains(word)),
        "{text}"
    );
    // Without the kernel it still decodes, and says what is missing.
    let output = run(&arguments, &[(switches::KERNEL, "0")]);
    assert_status(&output, 0);
    assert!(stdout(&output).contains("No comparison") && stdout(&output).contains(switches::KERNEL));
}
