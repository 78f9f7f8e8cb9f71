//! `compare-logit-traces`: whether two traces choose the same tokens where it matters.

use std::path::PathBuf;

use ssm_engine::trace::{Verdict, compare, read};

use super::ending::{Ending, Failure, Status};

/// Compare two logit traces of the same tokens
///
/// A position is decided where the reference's largest logit is at least GAP above its second largest. A candidate that
/// chooses another token there is wrong; elsewhere, rounding alone can change the choice.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads what `logit-trace` writes, or what other engines write in the same columns; lines that begin with `[` are skipped.

Examples:
  ssm-engine compare-logit-traces graph.tsv kernel.tsv
  ssm-engine compare-logit-traces graph.tsv kernel.tsv --decided 1 --json

Exit status: 0 every decided position has the same choice, 1 one has not, 2 the files cannot be compared (the reason is on
stderr) or wrong arguments, 3 inconclusive, since no position is decided.")]
pub struct Arguments {
    /// Trace that is taken as right
    #[arg(value_name = "REFERENCE")]
    reference: PathBuf,
    /// Trace to judge
    #[arg(value_name = "CANDIDATE")]
    candidate: PathBuf,
    /// Gap from which on a position is decided, in logits
    #[arg(long, value_name = "GAP", default_value_t = 2.0, value_parser = super::fraction())]
    decided: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Ending {
    let read = |path: &PathBuf| read(path).map_err(Failure::refused);
    let (reference, candidate) = (read(&arguments.reference)?, read(&arguments.candidate)?);
    let comparison = compare(&reference, &candidate, arguments.decided).map_err(Failure::refused)?;
    if arguments.json {
        super::print_json(&comparison)?;
    } else {
        comparison.lines().iter().try_for_each(|line| super::print_line(line))?;
    }
    Ok(status(comparison.verdict))
}

/// The status that a verdict ends with.
pub fn status(verdict: Verdict) -> Status {
    match verdict {
        Verdict::Agree => Status::Done,
        Verdict::Differ => Status::Failed,
        Verdict::Inconclusive => Status::Inconclusive,
    }
}
