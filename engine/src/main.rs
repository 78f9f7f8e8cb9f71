//! The command `ssm-engine`: text from hybrid Mamba2 models, and what the fused step does for them.

#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::{bench_decode, demo, doctor, generate};

/// Decodes hybrid Mamba2 models with the fused state update of ssm-update.
///
/// A model is a Hugging Face checkpoint folder: config.json, tokenizer.json, and model.safetensors or several files with
/// model.safetensors.index.json.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "\
Examples:
  ssm-engine generate --model DIR --prompt 'In the beginning'
  ssm-engine bench-decode --model DIR --json
  ssm-engine doctor

Exit status: 0 done, 1 failed (the reason is on stderr), 2 wrong arguments."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Generate(generate::Arguments),
    BenchDecode(bench_decode::Arguments),
    Doctor(doctor::Arguments),
    Demo(demo::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Generate(arguments) => generate::run(&arguments),
        Command::BenchDecode(arguments) => bench_decode::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the text has left; there is nobody to tell.
        Err(ssm_engine::Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
