//! `demo`: everything in one go, for a first look.

use std::io::Write;
use std::path::PathBuf;

use ssm_engine::Result;
use ssm_engine::bench::{Plan, prompt};
use ssm_engine::decoder::Decoder;
use ssm_engine::generation::generate;
use ssm_engine::sampling::Sampler;
use ssm_engine::ssm::{Step, StepChoice};

use super::comparison::compare;
use super::generate::summary;
use super::place::PlaceArguments;
use super::port_table::PortTable;
use super::print_line;

/// Small enough for a first look, large enough for stable medians.
const PLAN: Plan = Plan { prompt_tokens: 64, max_tokens: 128, warmup_tokens: 16, rounds: 5 };

/// Show the port table, decode text, and compare kernel and graph
///
/// Everything goes to stdout.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ssm-engine demo --model DIR
  ssm-engine demo --model DIR --prompt 'And it came to pass' --max-tokens 200")]
pub struct Arguments {
    /// Checkpoint folder
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Text to continue
    #[arg(long, value_name = "TEXT", default_value = "In the beginning")]
    prompt: String,
    /// Tokens to write at most
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_tokens: usize,
    #[command(flatten)]
    place: PlaceArguments,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    print_line("Ports of the fused step, in order of preference\n")?;
    PortTable::open().lines().iter().try_for_each(|line| print_line(&format!("  {line}")))?;

    let (model, tokenizer) = super::load(&arguments.model, &arguments.place.open()?)?;
    let info = model.info();
    print_line(&format!(
        "\n{} from {}: {} Mamba2 and {} attention layers, state {} x {} x {} per layer\n",
        info.architecture,
        arguments.model.display(),
        info.mamba_layers,
        info.attention_layers,
        info.ssm.heads,
        info.ssm.head_dim,
        info.ssm.d_state,
    ))?;

    let step = Step::for_model(StepChoice::Auto, &*model)?;
    // Greedy text of a small model soon repeats itself; a fixed seed makes the drawn text as reproducible.
    let mut sampler = Sampler::new(0.7, 0.95, 1)?;
    let mut stdout = std::io::stdout();
    write!(stdout, "{}", arguments.prompt)?;
    let done = generate(
        &mut Decoder::new(&*model, &step)?,
        &tokenizer,
        &mut sampler,
        &tokenizer.encode(&arguments.prompt)?,
        arguments.max_tokens,
        &info.end_tokens,
        |piece| {
            stdout.write_all(piece.as_bytes())?;
            Ok(stdout.flush()?)
        },
    )?;
    print_line(&format!("\n\n{}\n", summary(&done, &step)))?;

    match &step {
        Step::Graph { reason } => print_line(&format!("No comparison with the kernel: {reason}")),
        Step::Kernel(_) => {
            print_line("Decode with kernel and graph, alternately\n")?;
            let comparison = compare(&*model, &prompt(&tokenizer, PLAN.prompt_tokens)?, PLAN)?;
            comparison.lines().iter().try_for_each(|line| print_line(&format!("  {line}")))
        }
    }
}
