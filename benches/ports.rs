//! `cargo bench -p ssm-update-bench --bench ports`: the CPU port beside a copy, the graph and ggml.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use ssm_update::Kernel;
use ssm_update::ports::cpu::{CpuKernel, Isa, Pool, RayonPool};
use ssm_update_bench::ggml::Ggml;
use ssm_update_bench::record::{self, Row};
use ssm_update_bench::{arms, cases, chart, measure};

/// Times the CPU port beside a copy of the same bytes, the graph of tensor operations and, where built, ggml.
///
/// Every arm of a case is checked against the f64 reference before it is timed; all arms of a case are timed in turn.
/// Prints a table and writes it, with a chart, to benches/record/<device>/<date>.{csv,svg}.
#[derive(Debug, Parser)]
#[command(
    name = "ports",
    after_help = "Examples:\n  \
    cargo bench -p ssm-update-bench --bench ports\n  \
    cargo bench -p ssm-update-bench --bench ports -- --filter 48x64x128 --no-record\n  \
    SSM_UPDATE_BENCH_GGML=DIR/libggml_peer.so cargo bench -p ssm-update-bench --bench ports   (see scripts/ggml-peer.sh)"
)]
struct Args {
    /// Only cases whose name or models contain this text
    #[arg(long, default_value = "")]
    filter: String,
    /// Threads of every arm; all of the machine's if not given
    #[arg(long)]
    threads: Option<usize>,
    /// Instruction set of the CPU port: avx512bf16, avx512, avx2, portable; the best one if not given
    #[arg(long)]
    isa: Option<String>,
    /// Rounds of every case
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// MiB over which the states of a rotating case are spread, per arm; more than the last-level cache holds
    #[arg(long, default_value_t = 768)]
    rotate_mib: usize,
    /// Folder of the records
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/record"))]
    record: PathBuf,
    /// Print only, write nothing
    #[arg(long)]
    no_record: bool,
    /// Given by `cargo bench`; ignored
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ports: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let pool: Arc<dyn Pool> = Arc::new(RayonPool::global());
    let threads = args.threads.unwrap_or_else(|| pool.threads());
    if threads == 0 || threads > pool.threads() {
        return Err(format!("--threads: expected 1 to {}, got {threads}", pool.threads()).into());
    }
    let isas = Isa::available();
    let isa = match &args.isa {
        None => isas[0],
        Some(name) => *isas.iter().find(|isa| isa.name() == name).ok_or_else(|| {
            let here: Vec<_> = isas.iter().map(|isa| isa.name()).collect();
            format!("--isa: expected one of {}, got {name}", here.join(", "))
        })?,
    };
    let ggml = match std::env::var_os("SSM_UPDATE_BENCH_GGML") {
        None => {
            eprintln!("ggml takes no part: SSM_UPDATE_BENCH_GGML is not set (scripts/ggml-peer.sh builds it)");
            None
        }
        Some(path) => Some(Ggml::load(path.as_ref())?),
    };
    let setting = arms::Setting {
        kernel: CpuKernel::new(isa, threads, Arc::clone(&pool)),
        pool,
        threads,
        ggml,
        rotate_bytes: args.rotate_mib.max(1) << 20,
    };
    let chosen: Vec<_> = cases::all()
        .into_iter()
        .filter(|case| case.name().contains(&args.filter) || case.models.contains(&args.filter))
        .collect();
    if chosen.is_empty() {
        return Err(format!("--filter {}: no case has this in its name or models", args.filter).into());
    }

    let progress = ProgressBar::new((chosen.len() * args.rounds) as u64);
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} rounds, {eta} left: {msg}")?);
    println!("{}, {}", record::processor(), setting.kernel.describe());
    println!("{HEADING}");
    let mut rows = Vec::new();
    for case in &chosen {
        progress.set_message(case.name());
        let mut arms = arms::of_case(case, &setting)?;
        let times = measure::measure(&mut arms, args.rounds, || progress.inc(1));
        let timed: Vec<_> =
            arms.iter().zip(times).map(|(arm, times)| (arm.name().to_owned(), arm.bytes(), times)).collect();
        let of_case = record::rows(case, &timed);
        progress.suspend(|| of_case.iter().for_each(print));
        rows.extend(of_case);
    }
    progress.finish_and_clear();

    if args.no_record {
        return Ok(());
    }
    let processor = record::processor();
    let stem = record::stem(&args.record, &processor);
    let (csv, svg) = (stem.with_extension("csv"), stem.with_extension("svg"));
    let command: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let facts = [
        ("date", record::today()),
        ("processor", processor.clone()),
        ("port", setting.kernel.describe()),
        ("threads", threads.to_string()),
        (
            "ggml",
            if setting.ggml.is_some() { "built for this machine by scripts/ggml-peer.sh" } else { "absent" }.to_owned(),
        ),
        ("command", format!("cargo bench -p ssm-update-bench --bench ports -- {}", command.join(" "))),
        (
            "note",
            format!("medians of steps timed in turn; rotating: each arm's states spread over {} MiB", args.rotate_mib),
        ),
    ];
    record::write(&csv, &rows, &facts)?;
    chart::draw(&svg, &rows, &format!("{processor}, {threads} threads, {}", record::today()))?;
    println!("wrote {} and {}", csv.display(), svg.display());
    Ok(())
}

const HEADING: &str =
    "case                    state     arm                      median us   GB/s  of copy  x graph  x ggml";

fn print(row: &Row) {
    let optional = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    println!(
        "{:<23} {:<9} {:<24} {:>9.1} {:>6.1} {:>7.0} % {:>7} {:>7}",
        row.case,
        if row.rotating { "rotating" } else { "resident" },
        row.arm,
        row.times.median,
        row.gb_per_s,
        row.of_copy * 100.0,
        optional(row.over_graph),
        optional(row.over_ggml),
    );
}
