//! `generate`: a prompt in, text out.

use std::io::Write;
use std::path::PathBuf;

use ssm_engine::Result;
use ssm_engine::decoder::Decoder;
use ssm_engine::generation::{Generation, generate};
use ssm_engine::sampling::Sampler;
use ssm_engine::ssm::Step;

use super::StepArgument;
use super::place::PlaceArguments;

/// Continue a prompt
///
/// The continuation streams to stdout; which step computed it and how fast goes to stderr after it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ssm-engine generate --model DIR --prompt 'In the beginning'
  ssm-engine generate --model DIR --prompt 'And it came to pass' --temperature 0.8 --top-p 0.95 --seed 7
  ssm-engine generate --model DIR --prompt 'In the beginning' --step graph
  MLXCEL_SSM_KERNEL=0 ssm-engine generate --model DIR --prompt 'In the beginning'    # the same")]
pub struct Arguments {
    /// Checkpoint folder
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Text to continue
    #[arg(long, value_name = "TEXT")]
    prompt: String,
    /// Tokens to write at most
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_tokens: usize,
    /// 0 always takes the most probable token; higher is more varied
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f32,
    /// Draw from the fewest tokens whose probabilities sum to this
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f32,
    /// Of the random generator; the same seed gives the same text
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// How single tokens are computed; prompts always go through the graph
    #[arg(long, value_enum, default_value_t = StepArgument::Auto)]
    step: StepArgument,
    #[command(flatten)]
    place: PlaceArguments,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    // Whatever can be refused without the weights is refused before they are read.
    let mut sampler = Sampler::new(arguments.temperature, arguments.top_p, arguments.seed)?;
    let (model, tokenizer) = super::load(&arguments.model, &arguments.place.open()?)?;
    let step = Step::for_model(arguments.step.into(), &*model)?;
    let prompt = tokenizer.encode(&arguments.prompt)?;

    let mut stdout = std::io::stdout();
    let done = generate(
        &mut Decoder::new(&*model, &step)?,
        &tokenizer,
        &mut sampler,
        &prompt,
        arguments.max_tokens,
        &model.info().end_tokens,
        |piece| {
            stdout.write_all(piece.as_bytes())?;
            Ok(stdout.flush()?)
        },
    )?;
    writeln!(stdout)?;
    eprintln!("{}", summary(&done, &step));
    Ok(())
}

/// What was done, by what and how fast, in one line.
pub fn summary(done: &Generation, step: &Step) -> String {
    format!(
        "[{} | prefill {} tokens, {:.1} tok/s | decode {} tokens, {:.1} tok/s{}]",
        step.describe(),
        done.prompt_tokens,
        done.prefill_rate(),
        done.tokens,
        done.decode_rate(),
        if done.ended { ", end of text" } else { "" },
    )
}
