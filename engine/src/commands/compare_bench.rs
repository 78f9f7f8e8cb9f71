//! `compare-bench`: which models became faster or slower between two tables.

use std::path::PathBuf;

use clap::ValueEnum;
use ssm_engine::Error;
use ssm_engine::bench::{Limits, Metric, compare, read};

use super::ending::{Ending, Failure, Status};

/// Which rate is compared.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MetricArgument {
    /// Decoded tokens per second
    Decode,
    /// Prompt tokens per second
    Prefill,
}

/// Compare two tables of bench-decode
///
/// Rows are paired by model; of several rows of a model the last one counts. Prints median, quartiles and range of the ratios
/// after / before, the rows that moved, and every row that took no part, with the reason.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads the tables of `bench-decode`, and those of other engines that have the columns model, hardware, prompt_tokens,
prefill_tok_s and decode_tok_s; a row that ends in FAIL:reason or SKIP:reason was not measured.

Examples:
  ssm-engine compare-bench --before monday.csv --after tuesday.csv
  ssm-engine compare-bench --before graph.csv --after kernel.csv --fail-below 1.0
  ssm-engine compare-bench --before one-host.csv --after other-host.csv --allow-hardware-change --json

Exit status: 0 compared, 1 with --fail-below: the ratio of a model is below it, or a model that was measured before ends in
FAIL after; 2 the tables must not be compared (the reasons are on stderr), cannot be read, or wrong arguments.")]
pub struct Arguments {
    /// Table of before
    #[arg(long, value_name = "CSV")]
    before: PathBuf,
    /// Table of after
    #[arg(long, value_name = "CSV")]
    after: PathBuf,
    /// Rate to compare
    #[arg(long, value_enum, default_value_t = MetricArgument::Decode)]
    metric: MetricArgument,
    /// Tell the rows whose ratio is further from 1 than this
    #[arg(long, value_name = "FRACTION", default_value_t = 0.10, value_parser = super::fraction())]
    moved_threshold: f64,
    /// End with status 1 where a ratio is below this
    #[arg(long, value_name = "RATIO", value_parser = super::fraction())]
    fail_below: Option<f64>,
    /// Compare prompts whose lengths differ by this fraction of the longer one at most
    #[arg(long, value_name = "FRACTION", default_value_t = 0.10, value_parser = super::fraction())]
    prompt_tolerance: f64,
    /// Compare across different hardware
    #[arg(long)]
    allow_hardware_change: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Ending {
    let read = |path: &PathBuf| read(path).map_err(Failure::refused);
    let (before, after) = (read(&arguments.before)?, read(&arguments.after)?);
    let limits = Limits {
        metric: match arguments.metric {
            MetricArgument::Decode => Metric::Decode,
            MetricArgument::Prefill => Metric::Prefill,
        },
        moved_threshold: arguments.moved_threshold,
        prompt_tolerance: arguments.prompt_tolerance,
        allow_hardware_change: arguments.allow_hardware_change,
        fail_below: arguments.fail_below,
    };
    let comparison = compare(&before, &after, limits);
    if arguments.json {
        super::print_json(&comparison)?;
    } else {
        comparison.lines().iter().try_for_each(|line| super::print_line(line))?;
    }
    if !comparison.refusals.is_empty() {
        let text = format!("not comparable: {}", comparison.refusals.join("; "));
        return Err(Failure::refused(Error::Request(text)));
    }
    let regressed = comparison.pairs.iter().any(|pair| pair.regression) || comparison.lost(&before).next().is_some();
    Ok(if arguments.fail_below.is_some() && regressed { Status::Failed } else { Status::Done })
}
