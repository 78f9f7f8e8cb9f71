//! `cargo bench -p ssm-update-bench --bench cuda`: the CUDA port, as rows for benches/peers/gpu.py.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use ssm_update::ports::cuda::CudaKernel;
use ssm_update::{Dims, Dtype, Kernel, Memory, Stream, switches};
use ssm_update_bench::cases::Case;
use ssm_update_bench::gpu::cuda::Device;
use ssm_update_bench::gpu::{Effort, OnDevice, Rotation, host_time, step_times};
use ssm_update_bench::gpu_report;

/// Times the CUDA port on the first NVIDIA GPU: launches captured into a graph, each on the next of many state buffers.
///
/// Prints `case,batch,state,us` rows, medians, in place, x in bf16; each case is checked against the f64 reference first.
/// benches/peers/gpu.py runs this beside other libraries.
#[derive(Debug, Parser)]
#[command(
    name = "cuda",
    after_help = "Examples:\n  \
    cargo bench -p ssm-update-bench --bench cuda\n  \
    cargo bench -p ssm-update-bench --bench cuda -- --states f32 --batches 1,4\n  \
    cargo bench -p ssm-update-bench --bench cuda -- --first-launch   (with SSM_UPDATE_CACHE_DIR on an empty folder, twice)"
)]
struct Args {
    /// Dtypes of the state
    #[arg(long, value_delimiter = ',', default_value = "f32,bf16,f16")]
    states: Vec<String>,
    /// Batch sizes
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256")]
    batches: Vec<usize>,
    /// Only cases whose name contains this text
    #[arg(long, default_value = "")]
    filter: String,
    /// Replays of each graph
    #[arg(long, default_value_t = 21)]
    replays: usize,
    /// Instead of steps, time the first launch of this process, from the context on
    #[arg(long)]
    first_launch: bool,
    /// Instead of measuring, make table and picture of a record that benches/peers/gpu.py wrote
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Given by `cargo bench`; ignored
    #[arg(long, hide = true)]
    bench: bool,
}

/// Bytes of state over which the launches of a graph are spread, so that no cache holds what comes next.
const ROTATION: Rotation = Rotation { bytes: 300_000_000, most: 64 };

/// Name, heads, head_dim, d_state, groups.
const CASES: [(&str, [usize; 4]); 4] = [
    ("granite-4.0-h-tiny", [48, 64, 128, 1]),
    ("nemotron-3-nano", [64, 64, 128, 8]),
    ("nemotron-nano-9b-v2", [128, 80, 128, 8]),
    ("falcon-h1-7b", [24, 128, 256, 1]),
];

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cuda: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    if let Some(path) = &args.report {
        return gpu_report::report(path, &CASES);
    }
    let device = Device::new()?;
    let chosen: Vec<_> = CASES.into_iter().filter(|(name, _)| name.contains(&args.filter)).collect();
    if chosen.is_empty() {
        let names = CASES.map(|(name, _)| name).join(", ");
        return Err(format!("--filter {}: no case has this in its name; they are {names}", args.filter).into());
    }
    let dtype = |name: &String| {
        let dtype = Dtype::ALL.into_iter().find(|dtype| dtype.name() == name);
        dtype.ok_or_else(|| format!("--states: expected f32, f16 or bf16, got {name}"))
    };
    let states = args.states.iter().map(dtype).collect::<Result<Vec<_>, _>>()?;
    if let Some(batch) = args.batches.iter().find(|&&batch| batch == 0) {
        return Err(format!("--batches: expected numbers from 1, got {batch}").into());
    }
    let case = |(name, [heads, head_dim, d_state, groups]): (&str, [usize; 4]), batch| Case {
        models: name.to_owned(),
        dims: Dims { batch, heads, head_dim, groups, d_state, slots: batch },
        rotating: true,
        every_mode: false,
    };

    let begin = Instant::now();
    let kernel = CudaKernel::open(&switches::Cuda::from_env(), None)?;
    let opened = begin.elapsed();
    eprintln!("{}: {}", device.name()?, kernel.describe());
    if args.first_launch {
        let on_device = OnDevice::new(&kernel, &case(chosen[0], 1), states[0], ROTATION)?;
        let begin = Instant::now();
        // SAFETY: whole tensors of the port's memory, which nobody else uses.
        unsafe { kernel.launch(&on_device.launch(0), Stream::DEFAULT) }?;
        Memory::synchronize(&kernel)?;
        let launched = begin.elapsed();
        println!(
            "opened in {:.2} ms, first launch {:.2} ms, together {:.2} ms",
            opened.as_secs_f64() * 1e3,
            launched.as_secs_f64() * 1e3,
            (opened + launched).as_secs_f64() * 1e3
        );
        return Ok(());
    }

    println!("case,batch,state,us,state_GBps,host_ns");
    let effort = Effort::of(args.replays);
    for &shape in &chosen {
        for (&batch, &state) in args.batches.iter().flat_map(|batch| states.iter().map(move |state| (batch, state))) {
            let on_device = OnDevice::new(&kernel, &case(shape, batch), state, ROTATION)?;
            on_device
                .check(&kernel)
                .map_err(|error| format!("{} batch {batch} {state}: {error}; not timed", shape.0))?;
            let us = step_times(&device, &kernel, &on_device, effort)?.median;
            let host = host_time(&device, &kernel, &on_device, effort)?;
            let rate = on_device.state_bytes() as f64 / us / 1e3;
            println!("{},{batch},{state},{us:.3},{rate:.0},{host:.0}", shape.0);
        }
    }
    Ok(())
}
