//! The subcommands, and what they share: loading with progress, the choice of the step, checked arguments, the port table.

pub mod bench_decode;
mod checkpoints;
pub mod compare_bench;
pub mod compare_logit_traces;
mod comparison;
pub mod demo;
pub mod doctor;
pub mod ending;
pub mod generate;
pub mod logit_trace;
mod machine;
mod place;
mod port_table;
pub mod verify_models;

use std::io::Write;
use std::path::Path;

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use indicatif::{ProgressBar, ProgressStyle};
use place::Chosen;
use ssm_engine::model::{self, Model};
use ssm_engine::ssm::StepChoice;
use ssm_engine::tokenizer::Tokenizer;
use ssm_engine::{Error, Result};

/// How single tokens are computed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StepArgument {
    /// By the kernel where a port opens, else by the graph
    Auto,
    /// By the kernel, or fail
    Kernel,
    /// By the graph of tensor operations
    Graph,
}

impl From<StepArgument> for StepChoice {
    fn from(argument: StepArgument) -> Self {
        match argument {
            StepArgument::Auto => Self::Auto,
            StepArgument::Kernel => Self::Kernel,
            StepArgument::Graph => Self::Graph,
        }
    }
}

/// A count from 1.
fn positive() -> RangedU64ValueParser<usize> {
    at_least(1)
}

/// A count from `least`, and small enough that sums and products of a few do not overflow.
fn at_least(least: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..=1 << 24)
}

/// A finite number from 0.
fn fraction() -> impl Fn(&str) -> Result<f64, String> + Clone {
    |text: &str| match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("expected a finite number from 0".to_owned()),
    }
}

/// Loads a checkpoint, with a bar on a terminal.
fn load(folder: &Path, place: &Chosen) -> Result<(Box<dyn Model>, Tokenizer)> {
    let bar = progress_bar("loading {bytes}/{total_bytes} {wide_bar} {eta}");
    let on_read = {
        let bar = bar.clone();
        move |read, total| {
            bar.set_length(total);
            bar.set_position(read);
        }
    };
    let model = model::load(folder, &place.device, place.dtype, on_read)?;
    bar.finish_and_clear();
    Ok((model, Tokenizer::open(folder)?))
}

/// A bar on stderr, which indicatif hides where that is no terminal.
fn progress_bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}

/// Writes a line to stdout.
fn print_line(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// Writes a value to stdout as indented JSON.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print_line(&serde_json::to_string_pretty(value).map_err(|error| Error::Output(error.into()))?)
}
