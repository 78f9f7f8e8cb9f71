//! `bench-decode`: tokens per second with the kernel and with the graph.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use ssm_engine::Result;

use super::comparison::{Plan, compare};

/// Measure decode with kernel and graph, alternately in one run
///
/// Both arms decode the same tokens from copies of the same prompt state. Prints both medians, their ratio, and how far the
/// logits of the two differ.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ssm-engine bench-decode --model DIR
  ssm-engine bench-decode --model DIR --prompt-tokens 512 --max-tokens 128 --rounds 9 --json")]
pub struct Arguments {
    /// Checkpoint folder
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = positive())]
    prompt_tokens: usize,
    /// Tokens timed per round, for each of the two
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = positive())]
    max_tokens: usize,
    /// Tokens decoded before the clock starts, in every round
    #[arg(long, value_name = "N", default_value_t = 16)]
    warmup_tokens: usize,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive())]
    rounds: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn positive() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1 << 24)
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let (model, tokenizer) = super::load(&arguments.model)?;
    let plan = Plan {
        prompt_tokens: arguments.prompt_tokens,
        max_tokens: arguments.max_tokens,
        warmup_tokens: arguments.warmup_tokens,
        rounds: arguments.rounds,
    };
    let comparison = compare(&*model, &tokenizer, plan)?;
    if arguments.json {
        return super::print_json(&comparison);
    }
    comparison.lines().iter().try_for_each(|line| super::print_line(line))
}
