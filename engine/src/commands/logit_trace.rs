//! `logit-trace`: what a model predicts at each position of a text.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressDrawTarget;
use ssm_engine::config::Config;
use ssm_engine::ssm::Step;
use ssm_engine::trace::{
    Header, Plan, hash_tokens, record, write_header, write_header_json, write_row, write_row_json,
};
use ssm_engine::{Error, Result};

use super::StepArgument;
use super::place::PlaceArguments;

/// Write the logits of a given text as a table
///
/// The text's tokens go through the model in chunks of CHUNK, each in one pass after PREFILL tokens of what precedes it, from
/// an empty memory. Every position predicts the token after it. One token (CHUNK 1) goes through the step, more through the
/// graph. Without --start-token, the first chunks have less context than PREFILL, since the text begins there.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes lines `# key<TAB>value`, then a line per position with the columns chunk, pos, target, nll, top_ids and top_logits,
separated by tabs. `compare-logit-traces` compares two of them. With --json: a line with an object of the keys, then one per position.

Examples:
  ssm-engine logit-trace DIR text.txt > trace.tsv
  ssm-engine logit-trace DIR text.txt 1 128 8 512 --start-token 512 --step kernel > kernel.tsv    # the fused step
  ssm-engine logit-trace DIR text.txt 1 128 8 512 --start-token 512 --step graph > graph.tsv

Exit status: 0 done, 1 failed (a text that is too short is told what it needs), 2 wrong arguments.")]
pub struct Arguments {
    /// Checkpoint folder
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// File with the text, UTF-8
    #[arg(value_name = "TEXT")]
    text: PathBuf,
    /// Tokens of a pass
    #[arg(value_name = "CHUNK", default_value_t = 256, value_parser = super::positive())]
    chunk: usize,
    /// Passes at most
    #[arg(value_name = "MAX_CHUNKS", default_value_t = 4, value_parser = super::positive())]
    max_chunks: usize,
    /// Logits to keep per position, at least 2
    #[arg(value_name = "TOPK", default_value_t = 8, value_parser = super::at_least(2))]
    top_k: usize,
    /// Tokens of context before each pass
    #[arg(value_name = "PREFILL", default_value_t = 0)]
    prefill: usize,
    /// Token of the text at which the first chunk begins
    #[arg(long, value_name = "N", default_value_t = 0)]
    start_token: usize,
    /// How single tokens are computed; wider passes always go through the graph
    #[arg(long, value_enum, default_value_t = StepArgument::Auto)]
    step: StepArgument,
    /// Write lines of JSON instead, for other programs; `compare-logit-traces` reads the table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let text = read_text(&arguments.text)?;
    let (model, tokenizer) = super::load(&arguments.model, &arguments.place.open()?)?;
    let step = Step::for_model(arguments.step.into(), &*model)?;
    let plan = Plan {
        chunk: arguments.chunk,
        max_chunks: arguments.max_chunks,
        top_k: arguments.top_k,
        prefill: arguments.prefill,
        start: arguments.start_token,
    };
    let tokens = tokenizer.encode(&text)?;
    let chunks = plan.spans(tokens.len())?.len();
    let header = Header::default()
        .with("model", arguments.model.display())
        .with("corpus", arguments.text.display())
        .with("tokens", tokens.len())
        .with("tokens_sha256", hash_tokens(&tokens, &plan)?)
        .with("chunks", chunks)
        .with("chunk_tokens", plan.chunk)
        .with("topk", plan.top_k)
        .with("prefill", plan.prefill)
        .with("start_token", plan.start)
        .with("positions", chunks * plan.chunk)
        .with("architecture", model.info().architecture)
        .with("weights_dtype", weights_dtype(&arguments.model)?)
        .with("dtype", model.place().dtype.as_str())
        .with("tensors", format!("{:?}", model.place().device.location()))
        .with("port", step.name())
        .with("step", step.describe())
        .with("engine", concat!("ssm-engine ", env!("CARGO_PKG_VERSION")));

    let bar = super::progress_bar("tracing {pos}/{len} positions {wide_bar} {eta}");
    bar.set_length((chunks * plan.chunk) as u64);
    let mut stdout = std::io::stdout().lock();
    if stdout.is_terminal() {
        // The rows are progress enough, and a bar would stand between them.
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    match arguments.json {
        true => write_header_json(&mut stdout, &header)?,
        false => write_header(&mut stdout, &header)?,
    }
    record(&*model, &step, &tokens, &plan, |row| {
        bar.inc(1);
        match arguments.json {
            true => write_row_json(&mut stdout, &row),
            false => write_row(&mut stdout, &row),
        }
    })?;
    bar.finish_and_clear();
    Ok(stdout.flush()?)
}

/// Reads a text.
pub fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

/// The dtype that config.json states for the weights; that of the activations is the engine's choice.
fn weights_dtype(folder: &Path) -> Result<String> {
    let config = Config::open(folder)?;
    let stated = ["dtype", "torch_dtype"].iter().find_map(|field| config.get(field)?.as_str().map(str::to_owned));
    Ok(stated.unwrap_or_else(|| "not stated".to_owned()))
}
