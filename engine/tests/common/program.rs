//! The program, run as a person or a script runs it.

use std::process::{Command, Output};

use ssm_update::switches;

/// Runs the program with these arguments and environment variables, and none of the others that it reads.
pub fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ssm-engine"));
    for name in switches::ALL.into_iter().chain(["MODELS_DIR"]) {
        command.env_remove(name);
    }
    command.args(arguments).envs(variables.iter().copied()).output().expect("the program starts")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("stdout is UTF-8")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("stderr is UTF-8")
}

pub fn assert_status(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "stdout: {}\nstderr: {}", stdout(output), stderr(output));
}
