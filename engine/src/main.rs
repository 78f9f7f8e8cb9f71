//! The command `ssm-engine`: text from hybrid Mamba2 models, and what the fused step does for them.

#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::ending::{done, exit};
use commands::{bench_decode, compare_bench, compare_logit_traces, demo, doctor, generate, logit_trace, verify_models};

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
  ssm-engine bench-decode DIR --ab
  ssm-engine verify-models --models-dir models --report report.md
  ssm-engine doctor

Exit status: 0 done, 1 failed (the reason is on stderr), 2 wrong arguments. Commands that compare or verify have more to say
with it: see their own --help."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Generate(generate::Arguments),
    BenchDecode(bench_decode::Arguments),
    CompareBench(compare_bench::Arguments),
    LogitTrace(logit_trace::Arguments),
    CompareLogitTraces(compare_logit_traces::Arguments),
    VerifyModels(verify_models::Arguments),
    Doctor(doctor::Arguments),
    Demo(demo::Arguments),
}

fn main() -> ExitCode {
    exit(match Arguments::parse().command {
        Command::Generate(arguments) => done(generate::run(&arguments)),
        Command::BenchDecode(arguments) => bench_decode::run(&arguments),
        Command::CompareBench(arguments) => compare_bench::run(&arguments),
        Command::LogitTrace(arguments) => done(logit_trace::run(&arguments)),
        Command::CompareLogitTraces(arguments) => compare_logit_traces::run(&arguments),
        Command::VerifyModels(arguments) => verify_models::run(&arguments),
        Command::Doctor(arguments) => done(doctor::run(&arguments)),
        Command::Demo(arguments) => done(demo::run(&arguments)),
    })
}
