//! `cargo run --release -p ssm-update-bench --bin rocm -- COMMAND`: facts, checks and measurements of the ROCm port on the GPU of this
//! machine, or on the simulated one.

mod check;
mod facts;
mod first;
mod measure;
mod record;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use ssm_update::ports::rocm::{BUILT, RocmKernel};
use ssm_update::{Dims, Dtype, switches};
use ssm_update_bench::cases::Case;
use ssm_update_bench::hip::Hip;
use ssm_update_bench::kfd::{self, Busy, Kfd};
use ssm_update_bench::models::MODELS;

/// Says what the ROCm port runs on, checks graphs and repetition, and measures.
///
/// Uses the HIP runtime that the port loads (SSM_UPDATE_HIP_LIBRARY names another one). Where that is the simulator, every line says so,
/// and no time is told. `make verify-rocm` runs all of it and more.
#[derive(Debug, Parser)]
#[command(name = "rocm", after_help = AFTER)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Examples:
  cargo run --release -p ssm-update-bench --bin rocm -- facts
  cargo run --release -p ssm-update-bench --bin rocm -- bench --filter granite --batches 1,4
  SSM_UPDATE_HIP_LIBRARY=$PWD/target/release/libhip_sim.so cargo run --release -p ssm-update-bench --bin rocm -- check

Exit status:
  0   everything was done
  1   a check failed, or the GPU or its runtime did; nothing is recorded
  2   the command line is wrong
  77  nothing was measured: another process holds the GPU";

#[derive(Debug, Subcommand)]
enum Command {
    /// What device, driver, runtime and code objects are there
    Facts {
        /// Where the driver tells of processes and caches
        #[arg(long, value_name = "DIR", default_value = kfd::ROOT)]
        kfd: PathBuf,
    },
    /// Launches captured into graphs and replayed, and repetitions: the same bits as launched one by one
    Check {
        #[command(flatten)]
        which: Which,
        /// Times that each step is repeated from the same state
        #[arg(long, default_value_t = 100)]
        repetitions: usize,
    },
    /// Times of step, copy, host and first launch, each result checked against the f64 reference before it is timed
    Bench(Bench),
    /// One first launch in this process, for `bench`
    #[command(hide = true)]
    FirstLaunch(first::First),
}

/// Cases.
#[derive(Debug, Args)]
struct Which {
    /// Only models whose name contains this text
    #[arg(long, default_value = "")]
    filter: String,
    /// Dtypes of the state
    #[arg(long, value_delimiter = ',', default_value = "f32,bf16")]
    states: Vec<String>,
}

/// What is measured, and how.
#[derive(Debug, Args)]
struct Bench {
    #[command(flatten)]
    which: Which,
    /// Batch sizes; 1,4,16,64 on a GPU and 1 on the simulator, if not given
    #[arg(long, value_delimiter = ',')]
    batches: Vec<usize>,
    /// Replays of each graph; 21 on a GPU and 1 on the simulator, if not given
    #[arg(long)]
    replays: Option<usize>,
    /// MiB over which the state buffers of a case are spread; if not given, eight times the caches, and 512 at least
    #[arg(long)]
    footprint_mib: Option<usize>,
    /// Processes that time the first launch, for each way to have the kernel; 5 on a GPU and 1 on the simulator, if not given
    #[arg(long)]
    first_launches: Option<usize>,
    /// The only hipRTC that may be loaded; if not given, that of the system or of ROCM_PATH
    #[arg(long, value_name = "FILE")]
    hiprtc_library: Option<String>,
    /// Where the driver tells of processes and caches
    #[arg(long, value_name = "DIR", default_value = kfd::ROOT)]
    kfd: PathBuf,
    /// Measure also while another process holds the GPU; the record says so
    #[arg(long)]
    even_if_busy: bool,
    /// The record; if not given, `benches/record/ARCHITECTURE/DATE.csv` on a GPU, and none on the simulator
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Models whose shapes are measured.
const SHAPES: [&str; 4] = ["Granite-4.0-H tiny, 1b", "Falcon-H1 1.5b", "Nemotron-3-Nano-30B-A3B", "PLaMo-2 1b"];

/// Exit status where another process holds the GPU: the one that means "skipped" to test drivers.
const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    let begin = Instant::now();
    let done = match &Arguments::parse().command {
        Command::Facts { kfd } => facts::print(&Kfd(kfd.clone())),
        Command::Check { which, repetitions } => check::run(which, *repetitions),
        Command::Bench(args) => measure::run(args),
        Command::FirstLaunch(args) => first::run(args, begin),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Busy>() => {
            println!(
                "NOT RUN: the GPU is {error}, so that times would mean little (--even-if-busy measures all the same)"
            );
            ExitCode::from(SKIPPED)
        }
        Err(error) => {
            eprintln!("rocm: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The port on the current device, and its runtime.
fn open() -> Result<(RocmKernel, Hip), Box<dyn Error>> {
    let kernel = RocmKernel::open(&switches::Rocm::from_env(), None, BUILT.images)?;
    let hip = Hip::load(kernel.library())?;
    Ok((kernel, hip))
}

/// The begin of every line about a simulated device.
fn label(hip: &Hip) -> &'static str {
    if hip.simulated() { "simulated: " } else { "" }
}

impl Which {
    /// The cases at a batch size.
    fn cases(&self, batch: usize) -> Result<Vec<Case>, String> {
        let lower = self.filter.to_lowercase();
        let wanted = |name: &str| SHAPES.contains(&name) && name.to_lowercase().contains(&lower);
        let case = |(name, [heads, head_dim, d_state, groups]): (&str, [usize; 4])| Case {
            models: name.to_owned(),
            dims: Dims { batch, heads, head_dim, groups, d_state, slots: batch },
            rotating: true,
            every_mode: false,
        };
        let cases: Vec<Case> = MODELS.into_iter().filter(|(name, _)| wanted(name)).map(case).collect();
        if cases.is_empty() {
            return Err(format!(
                "--filter {}: no model has this in its name; they are {}",
                self.filter,
                SHAPES.join("; ")
            ));
        }
        Ok(cases)
    }

    fn states(&self) -> Result<Vec<Dtype>, String> {
        let dtype = |name: &String| {
            let dtype = Dtype::ALL.into_iter().find(|dtype| dtype.name() == name);
            dtype.ok_or_else(|| format!("--states: expected f32, f16 or bf16, got {name}"))
        };
        self.states.iter().map(dtype).collect()
    }
}
