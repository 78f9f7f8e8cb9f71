//! `verify-models`: kernel against graph on every checkpoint of a folder, with a report.

mod report;

use std::path::{Path, PathBuf};

use serde::Serialize;
use ssm_engine::Result;
use ssm_engine::bench::{Machine, Plan, TEXT, prompt};
use ssm_engine::decoder::Decoder;
use ssm_engine::file::replace;
use ssm_engine::generation::generate;
use ssm_engine::model::Model;
use ssm_engine::sampling::Sampler;
use ssm_engine::ssm::{Step, StepChoice};
use ssm_engine::tokenizer::Tokenizer;
use ssm_engine::trace::{self, Header, Trace, Verdict};

use super::comparison::{self, compare};
use super::ending::{Ending, Failure, Status};
use super::place::{Chosen, PlaceArguments};
use super::{checkpoints, machine, print_json, print_line, progress_bar};

/// Verify the kernel against the graph on every checkpoint of a folder
///
/// Per checkpoint: greedy text by both; logit traces of both, one token per pass after a long context, compared as
/// `compare-logit-traces` does; decoded tokens per second of both, alternately. What is judged is the traces: no decided
/// position may have another choice. A report in Markdown says all of it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ssm-engine verify-models --models-dir models
  MODELS_DIR=models ssm-engine verify-models --report report.md --decided 1
  ssm-engine verify-models --models-dir models --text text.txt --positions 500 --json

Exit status: 0 every checkpoint agrees, 1 a decided position differs or a checkpoint could not be used, 2 wrong arguments,
3 inconclusive: nothing differs, but a checkpoint has no decided position, or is skipped for its unknown architecture.")]
pub struct Arguments {
    /// Folder of checkpoint folders; the environment variable MODELS_DIR where it is not given
    #[arg(long, value_name = "DIR")]
    models_dir: Option<PathBuf>,
    /// Write the report to this file, which is replaced
    #[arg(long, value_name = "FILE", default_value = "verify-models.md")]
    report: PathBuf,
    /// File with the text to trace, UTF-8; a chapter of the Bible where it is not given
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Positions to trace at most
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = super::positive())]
    positions: usize,
    /// Tokens of context before each position
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = super::at_least(0))]
    prefill: usize,
    /// Gap from which on a position is decided, in logits
    #[arg(long, value_name = "GAP", default_value_t = 2.0, value_parser = super::fraction())]
    decided: f64,
    /// Prompt of the greedy text
    #[arg(long, value_name = "TEXT", default_value = "In the beginning")]
    prompt: String,
    /// Tokens of the greedy text, and tokens timed per round
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = super::positive())]
    max_tokens: usize,
    /// Rounds of timing
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = super::positive())]
    rounds: usize,
    #[command(flatten)]
    place: PlaceArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Logits kept per position.
const TOP_K: usize = 8;

/// Tokens of the prompt before the timed ones, and tokens decoded before the clock starts.
const TIMING: (usize, usize) = (128, 20);

/// What was found, for the report.
#[derive(Debug, Serialize)]
struct Verification {
    date: String,
    hardware: String,
    version: &'static str,
    /// Of the greedy text.
    prompt: String,
    /// The text that was traced, and in which shape.
    traced: String,
    decided_gap: f64,
    models: Vec<Judged>,
}

/// One checkpoint.
#[derive(Debug, Serialize)]
struct Judged {
    model: String,
    /// `agree`, `DIFFER`, `inconclusive`, `FAIL:reason` or `SKIP:reason`.
    outcome: String,
    checks: Option<Checks>,
}

/// What was checked on one checkpoint.
#[derive(Debug, Serialize)]
struct Checks {
    architecture: &'static str,
    mamba_layers: usize,
    attention_layers: usize,
    /// Greedy text by the kernel.
    kernel_text: String,
    /// Greedy text by the graph.
    graph_text: String,
    /// The graph's trace is the reference.
    trace: trace::Comparison,
    speed: comparison::Comparison,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Ending {
    let place = arguments.place.open().map_err(Failure::refused)?;
    let models_dir = checkpoints::models_dir(arguments.models_dir.as_deref()).map_err(Failure::refused)?;
    let folders = checkpoints::find(&models_dir)?;
    let text = arguments.text.as_deref().map_or_else(|| Ok(TEXT.to_owned()), super::logit_trace::read_text)?;
    let Machine { date, hardware } = machine::here();
    let mut verification = Verification {
        date,
        hardware,
        version: env!("CARGO_PKG_VERSION"),
        prompt: arguments.prompt.clone(),
        traced: format!(
            "{}, at most {} passes of one token, each after {} tokens of context",
            arguments.text.as_deref().map_or_else(|| "Genesis 50".to_owned(), |path| path.display().to_string()),
            arguments.positions,
            arguments.prefill
        ),
        decided_gap: arguments.decided,
        models: Vec::new(),
    };
    for folder in &folders {
        let judged = judge(folder, &place, arguments, &text);
        if !arguments.json {
            print_line(&report::line(&judged))?;
        }
        verification.models.push(judged);
        // Whoever breaks off a long run keeps what it found.
        replace(&arguments.report, report::markdown(&verification).as_bytes())?;
    }
    if arguments.json {
        print_json(&verification)?;
    } else {
        print_line(&format!("report: {}", arguments.report.display()))?;
    }
    let statuses = verification.models.iter().map(Judged::status);
    Ok(statuses.max_by_key(|status| severity(*status)).unwrap_or(Status::Done))
}

/// Which of several statuses the whole ends with: a fault weighs more than what remains open.
fn severity(status: Status) -> u8 {
    match status {
        Status::Done => 0,
        Status::Inconclusive => 1,
        Status::Failed | Status::Refused => 2,
    }
}

impl Judged {
    fn status(&self) -> Status {
        match &self.checks {
            Some(checks) => super::compare_logit_traces::status(checks.trace.verdict),
            None if self.outcome.starts_with("SKIP:") => Status::Inconclusive,
            None => Status::Failed,
        }
    }
}

fn judge(folder: &Path, place: &Chosen, arguments: &Arguments, text: &str) -> Judged {
    let model = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
    match check(folder, place, arguments, text) {
        Ok(checks) => {
            let outcome = match checks.trace.verdict {
                Verdict::Agree => "agree",
                Verdict::Differ => "DIFFER",
                Verdict::Inconclusive => "inconclusive",
            };
            Judged { model, outcome: outcome.to_owned(), checks: Some(checks) }
        }
        Err(error) => {
            eprintln!("error: {error}");
            Judged { model, outcome: checkpoints::outcome(&error), checks: None }
        }
    }
}

fn check(folder: &Path, place: &Chosen, arguments: &Arguments, text: &str) -> Result<Checks> {
    let (model, tokenizer) = super::load(folder, place)?;
    let (model, info) = (&*model, model.info());
    let kernel = Step::for_model(StepChoice::Kernel, model)?;
    let graph = Step::for_model(StepChoice::Graph, model)?;
    let trace = |step| traced(model, &tokenizer, step, arguments, text);
    let (reference, candidate) = (trace(&graph)?, trace(&kernel)?);
    let (prompt_tokens, warmup_tokens) = TIMING;
    let plan = Plan { prompt_tokens, warmup_tokens, max_tokens: arguments.max_tokens, rounds: arguments.rounds };
    Ok(Checks {
        architecture: info.architecture,
        mamba_layers: info.mamba_layers,
        attention_layers: info.attention_layers,
        kernel_text: greedy(model, &tokenizer, &kernel, arguments)?,
        graph_text: greedy(model, &tokenizer, &graph, arguments)?,
        trace: trace::compare(&reference, &candidate, arguments.decided)?,
        speed: compare(model, &prompt(&tokenizer, plan.prompt_tokens)?, plan)?,
    })
}

/// The trace whose passes are one token wide, so that each goes through the step after a context that went through the graph.
fn traced(model: &dyn Model, tokenizer: &Tokenizer, step: &Step, arguments: &Arguments, text: &str) -> Result<Trace> {
    let (prefill, max_chunks) = (arguments.prefill, arguments.positions);
    let plan = trace::Plan { chunk: 1, max_chunks, top_k: TOP_K, prefill, start: prefill };
    let tokens = tokenizer.encode(text)?;
    let bar = progress_bar("tracing {msg} {pos}/{len} positions {wide_bar} {eta}");
    bar.set_length(plan.spans(tokens.len())?.len() as u64);
    bar.set_message(step.name());
    let mut trace = Trace { header: Header::default(), rows: Vec::new() };
    trace::record(model, step, &tokens, &plan, |row| {
        bar.inc(1);
        trace.rows.push(row);
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(trace)
}

fn greedy(model: &dyn Model, tokenizer: &Tokenizer, step: &Step, arguments: &Arguments) -> Result<String> {
    let mut text = String::new();
    let prompt = tokenizer.encode(&arguments.prompt)?;
    let mut decoder = Decoder::new(model, step)?;
    let ends = &model.info().end_tokens;
    let bar = progress_bar("greedy text by {msg} {pos}/{len} tokens {wide_bar} {eta}");
    bar.set_length(arguments.max_tokens as u64);
    bar.set_message(step.name());
    generate(&mut decoder, tokenizer, &mut Sampler::greedy(), &prompt, arguments.max_tokens, ends, |piece| {
        text.push_str(piece);
        bar.inc(1);
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_without_checks_end_as_their_outcome_says() {
        let judged = |outcome: &str| Judged { model: "m".to_owned(), outcome: outcome.to_owned(), checks: None };
        assert_eq!(judged("SKIP:unknown architecture").status(), Status::Inconclusive);
        assert_eq!(judged("FAIL:truncated").status(), Status::Failed);
    }

    #[test]
    fn faults_weigh_more_than_what_remains_open() {
        let whole = |statuses: &[Status]| statuses.iter().copied().max_by_key(|status| severity(*status)).unwrap();
        assert_eq!(whole(&[Status::Inconclusive, Status::Failed, Status::Done]), Status::Failed);
        assert_eq!(whole(&[Status::Done, Status::Inconclusive]), Status::Inconclusive);
        assert_eq!(whole(&[Status::Done, Status::Done]), Status::Done);
    }
}
