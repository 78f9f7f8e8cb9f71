//! `bench-decode`: tokens per second of one model or of all, as a table that a later run can be compared with.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ssm_engine::bench::{Machine, OK, Plan, Record, any_prompt, measure, prompt, write};
use ssm_engine::model;
use ssm_engine::ssm::Step;
use ssm_engine::{Error, Result};

use super::comparison::compare;
use super::ending::{Ending, Failure, Status};
use super::place::{Chosen, PlaceArguments};
use super::{StepArgument, checkpoints, machine};

/// Measure prefill and decode in tokens per second
///
/// One row per model, greedy, medians over the rounds, after a round that is not counted. A model that cannot be measured is
/// a row that ends in FAIL:reason, or in SKIP:reason where the checkpoint is of an unknown architecture, and the run goes on.
///
/// With --ab, kernel and graph alternate in one process on one model: both decode the same tokens from copies of the same
/// prompt state. Prints both medians, their ratio, and how far the logits of the two differ.
#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("target").required(true).args(["model", "model_option"])),
    after_help = "\
The file of --output is replaced, never appended to. It is written whole after each model, so that a run that is broken off
leaves the models that it measured. `compare-bench` compares two such files.

Examples:
  ssm-engine bench-decode DIR
  ssm-engine bench-decode all --models-dir models --output graph.csv --step graph
  ssm-engine bench-decode all --models-dir models --output bench.csv --suffix kernel    # writes bench_kernel.csv
  ssm-engine bench-decode DIR --ab --prompt-tokens 512 --max-tokens 128 --rounds 9 --json
  ssm-engine bench-decode DIR --ab --random-weights --device cuda    # the speed that a config.json implies

Exit status: 0 every model was measured, 1 one was not or the run failed, 2 wrong arguments."
)]
pub struct Arguments {
    /// Checkpoint folder, or `all` for every one in --models-dir
    #[arg(value_name = "MODEL|all")]
    model: Option<PathBuf>,
    /// Checkpoint folder; the same as MODEL
    #[arg(long = "model", id = "model_option", value_name = "DIR")]
    model_option: Option<PathBuf>,
    /// Folder of checkpoint folders, for `all`; the environment variable MODELS_DIR where it is not given
    #[arg(long, value_name = "DIR")]
    models_dir: Option<PathBuf>,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = super::positive())]
    prompt_tokens: usize,
    /// Tokens decoded and timed per round; a token that ends the text does not end the round
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = super::positive())]
    max_tokens: usize,
    /// Tokens decoded before the clock starts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = super::at_least(0))]
    warmup_tokens: usize,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = super::positive())]
    rounds: usize,
    /// How single tokens are computed; prompts always go through the graph
    #[arg(long, value_enum, default_value_t = StepArgument::Auto, conflicts_with = "ab")]
    step: StepArgument,
    /// Write the rows to this file
    #[arg(long, value_name = "CSV", conflicts_with = "ab")]
    output: Option<PathBuf>,
    /// Put _TAG into the name of the file
    #[arg(long, value_name = "TAG", requires = "output")]
    suffix: Option<String>,
    /// Rest between two models
    #[arg(long, value_name = "SECONDS", default_value_t = 0, conflicts_with = "ab")]
    cooldown: u64,
    /// Measure kernel and graph alternately, on one model
    #[arg(long)]
    ab: bool,
    /// Draw weights at random: of the checkpoint folder only config.json is read
    #[arg(long, requires = "ab")]
    random_weights: bool,
    #[command(flatten)]
    place: PlaceArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Ending {
    let plan = Plan {
        prompt_tokens: arguments.prompt_tokens,
        max_tokens: arguments.max_tokens,
        warmup_tokens: arguments.warmup_tokens,
        rounds: arguments.rounds,
    };
    let place = arguments.place.open().map_err(Failure::refused)?;
    let model = arguments.model.as_deref().or(arguments.model_option.as_deref()).unwrap_or(Path::new(""));
    let all = arguments.model.as_deref() == Some(Path::new("all"));
    if arguments.ab {
        if all {
            let text = "--ab: expected one checkpoint folder, got `all`; `verify-models` does it for a folder of them";
            return Err(Failure::refused(Error::Request(text.to_owned())));
        }
        return super::ending::done(alternate(model, arguments, &place, plan));
    }
    let folders = if all {
        let models_dir = checkpoints::models_dir(arguments.models_dir.as_deref()).map_err(Failure::refused)?;
        checkpoints::find(&models_dir)?
    } else {
        vec![model.to_owned()]
    };
    Ok(measure_all(arguments, &place, plan, &folders)?)
}

fn alternate(folder: &Path, arguments: &Arguments, place: &Chosen, plan: Plan) -> Result<()> {
    let (model, prompt) = if arguments.random_weights {
        let model = model::load_random(folder, &place.device, place.dtype)?;
        let prompt = any_prompt(model.info().vocabulary, plan.prompt_tokens);
        (model, prompt)
    } else {
        let (model, tokenizer) = super::load(folder, place)?;
        (model, prompt(&tokenizer, plan.prompt_tokens)?)
    };
    let comparison = compare(&*model, &prompt, plan)?;
    if arguments.json {
        return super::print_json(&comparison);
    }
    comparison.lines().iter().try_for_each(|line| super::print_line(line))
}

fn measure_all(arguments: &Arguments, place: &Chosen, plan: Plan, folders: &[PathBuf]) -> Result<Status> {
    let output = arguments.output.as_deref().map(|path| with_suffix(path, arguments.suffix.as_deref()));
    let machine = machine::here();
    let mut records: Vec<Record> = Vec::new();
    for folder in folders {
        if !records.is_empty() {
            cool_down(arguments.cooldown);
        }
        let record = measure_one(folder, place, arguments.step, plan, &machine).unwrap_or_else(|error| {
            eprintln!("error: {error}");
            Record::unmeasured(folder, &machine, plan, checkpoints::outcome(&error))
        });
        if !arguments.json {
            super::print_line(&line(&record))?;
        }
        records.push(record);
        if let Some(path) = &output {
            write(path, &records)?;
        }
    }
    if arguments.json {
        super::print_json(&records)?;
    }
    Ok(if records.iter().all(|record| record.outcome == OK) { Status::Done } else { Status::Failed })
}

fn measure_one(folder: &Path, place: &Chosen, step: StepArgument, plan: Plan, machine: &Machine) -> Result<Record> {
    let (model, tokenizer) = super::load(folder, place)?;
    let step = Step::for_model(step.into(), &*model)?;
    let bar = super::progress_bar("{msg} {pos}/{len} tokens {wide_bar} {eta}");
    bar.set_length(plan.tokens() as u64);
    bar.set_message(folder.display().to_string());
    let speed = measure(&*model, &tokenizer, &step, plan, |tokens| bar.inc(tokens as u64))?;
    bar.finish_and_clear();
    Ok(Record::measured(folder, machine, plan, speed, &step, model.place()))
}

fn line(record: &Record) -> String {
    match (record.prefill_tok_s, record.decode_tok_s) {
        (Some(prefill), Some(decode)) => format!(
            "{:<32} prefill {prefill:>9.1} tok/s   decode {decode:>8.1} tok/s   {}",
            record.model,
            record.port.as_deref().map_or_else(|| "graph".to_owned(), |port| format!("kernel, port {port}")),
        ),
        _ => format!("{:<32} {}", record.model, record.outcome),
    }
}

/// A bar on a terminal, since a run that rests looks like one that hangs.
fn cool_down(seconds: u64) {
    let bar = super::progress_bar("cooling down {pos}/{len} s {wide_bar}");
    bar.set_length(seconds);
    for _ in 0..seconds {
        thread::sleep(Duration::from_secs(1));
        bar.inc(1);
    }
    bar.finish_and_clear();
}

/// `folder/name_TAG.csv` of `folder/name.csv`.
fn with_suffix(path: &Path, suffix: Option<&str>) -> PathBuf {
    let Some(suffix) = suffix else { return path.to_owned() };
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push("_");
    name.push(suffix);
    if let Some(extension) = path.extension() {
        name.push(OsStr::new("."));
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffix_goes_before_the_extension() {
        for (path, expected) in [("a/b.csv", "a/b_x.csv"), ("b", "b_x"), ("a.b/c.d.csv", "a.b/c.d_x.csv")] {
            assert_eq!(with_suffix(Path::new(path), Some("x")), Path::new(expected));
            assert_eq!(with_suffix(Path::new(path), None), Path::new(path));
        }
    }
}
