//! The measurement, on macOS and iOS.

use std::error::Error;

use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLBlitCommandEncoder, MTLCommandBuffer, MTLCommandEncoder, MTLCommandQueue, MTLDevice};
use ssm_update::ports::metal::{Apple, At, Buffers, Gpu, MetalBuffer, MetalKernel, encoder_stream};
use ssm_update::{Dims, Dtype, Dtypes, Kernel, Problem};

/// Bytes over which the states of one measurement are spread: more than a last-level cache has.
const SPREAD: usize = 512 << 20;
/// Bytes of a copy.
const COPY: usize = 512 << 20;
/// Command buffers of each measurement, of which the median counts; the first one compiles and warms up.
const ROUNDS: usize = 21;

/// heads, head_dim, d_state, groups, batch, and T with the state's dtype.
const CASES: [(usize, usize, usize, usize, usize, Dtype, Dtype); 10] = [
    (48, 64, 128, 1, 1, Dtype::F16, Dtype::F32),
    (48, 64, 128, 1, 4, Dtype::F16, Dtype::F32),
    (48, 64, 128, 1, 16, Dtype::F16, Dtype::F32),
    (48, 64, 128, 1, 64, Dtype::F16, Dtype::F32),
    (48, 64, 128, 1, 16, Dtype::F32, Dtype::F32),
    (48, 64, 128, 1, 16, Dtype::F16, Dtype::F16),
    (48, 64, 128, 1, 16, Dtype::Bf16, Dtype::Bf16),
    (48, 64, 256, 1, 16, Dtype::F16, Dtype::F32),
    (64, 64, 128, 8, 16, Dtype::F16, Dtype::F32),
    (24, 32, 64, 1, 1, Dtype::F16, Dtype::F32),
];

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Prints the table.
pub fn run() -> Outcome<()> {
    let kernel = MetalKernel::open(Apple::system_default()?)?;
    let queue = kernel.gpu().device().newCommandQueue().ok_or("no command queue")?;
    println!("{}", kernel.describe());
    let copy = copy_rate(kernel.gpu(), &queue)?;
    println!("a copy of {} MiB: {copy:.1} GB/s", COPY >> 20);
    println!(
        "{:<24} {:>5} {:>6} {:>6} {:>10} {:>8} {:>8}",
        "heads x dim x state", "batch", "T", "state", "us", "GB/s", "of copy"
    );
    for (heads, head_dim, d_state, groups, batch, x, state) in CASES {
        let dims = Dims { batch, heads, head_dim, groups, d_state, slots: batch };
        let name = format!("{heads}x{head_dim}x{d_state} g{groups}");
        match step(&kernel, &queue, &Problem::contiguous(dims, Dtypes { state, ..Dtypes::uniform(x) })) {
            Ok((seconds, bytes)) => {
                let rate = bytes as f64 / seconds / 1e9;
                let (us, of_copy) = (seconds * 1e6, rate / copy * 100.0);
                println!("{name:<24} {batch:>5} {x:>6} {state:>6} {us:>10.2} {rate:>8.1} {of_copy:>6.0} %");
            }
            Err(why) => println!("{name:<24} {batch:>5} {x:>6} {state:>6} NOT RUN: {why}"),
        }
    }
    Ok(())
}

/// Seconds of the GPU that a command buffer takes: the median of several.
fn time(
    queue: &ProtocolObject<dyn MTLCommandQueue>,
    encode: impl Fn(&ProtocolObject<dyn MTLCommandBuffer>) -> Outcome<()>,
) -> Outcome<f64> {
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let seconds = autoreleasepool(|_| -> Outcome<f64> {
            let commands: Retained<ProtocolObject<dyn MTLCommandBuffer>> =
                queue.commandBuffer().ok_or("no command buffer")?;
            encode(&commands)?;
            commands.commit();
            commands.waitUntilCompleted();
            match commands.error() {
                Some(error) => Err(error.localizedDescription().to_string().into()),
                None => Ok(commands.GPUEndTime() - commands.GPUStartTime()),
            }
        })?;
        if round > 0 {
            times.push(seconds);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// GB/s of a copy by the GPU, each byte counted once read and once written.
fn copy_rate(gpu: &Apple, queue: &ProtocolObject<dyn MTLCommandQueue>) -> Outcome<f64> {
    let (from, to) = (gpu.allocate(COPY)?, gpu.allocate(COPY)?);
    let seconds = time(queue, |commands| {
        let encoder = commands.blitCommandEncoder().ok_or("no encoder")?;
        // SAFETY: both buffers have as many bytes.
        unsafe {
            encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(from.raw(), 0, to.raw(), 0, COPY);
        }
        encoder.endEncoding();
        Ok(())
    })?;
    Ok(2.0 * COPY as f64 / seconds / 1e9)
}

/// Seconds of one step in place, and the bytes that it moves.
fn step(
    kernel: &MetalKernel<Apple>,
    queue: &ProtocolObject<dyn MTLCommandQueue>,
    problem: &Problem,
) -> Outcome<(f64, usize)> {
    let (dims, dtypes) = (problem.dims, problem.dtypes);
    let (row, group) = (dims.batch * dims.heads * dims.head_dim, dims.batch * dims.groups * dims.d_state);
    let small = [
        row * dtypes.x.size(),
        group * dtypes.bc.size(),
        group * dtypes.bc.size(),
        dims.batch * dims.heads * dtypes.dt.size(),
        dims.heads * dtypes.a_log.size(),
        row * dtypes.x.size(),
    ];
    let state_bytes = dims.slots * dims.heads * dims.head_dim * dims.d_state * dtypes.state.size();
    // Zeros from the system; a state of zeros moves the same bytes as any other.
    let [x, b, c, dt, a_log, y] = small.map(|bytes| kernel.gpu().allocate(bytes));
    let (x, b, c, dt, a_log, y) = (x?, b?, c?, dt?, a_log?, y?);
    let states: Vec<MetalBuffer> = (0..(SPREAD / state_bytes).clamp(2, 512))
        .map(|_| kernel.gpu().allocate(state_bytes))
        .collect::<Result<_, _>>()?;

    let at = |buffer| At { buffer, offset: 0 };
    let seconds = time(queue, |commands| {
        let encoder = commands.computeCommandEncoder().ok_or("no encoder")?;
        let stream = encoder_stream(&encoder);
        for state in &states {
            let tensors = Buffers {
                x: at(&x),
                z: None,
                b: at(&b),
                c: at(&c),
                dt: at(&dt),
                a_log: at(&a_log),
                d: None,
                dt_bias: None,
                state_in: at(state),
                state_out: Some(at(state)),
                slots_in: None,
                slots_out: None,
                y: at(&y),
            };
            // SAFETY: whole tensors, zeroed, in buffers that outlive the command buffer, which is waited for.
            unsafe { kernel.encode(problem, &tensors, stream) }?;
        }
        encoder.endEncoding();
        Ok(())
    })?;
    Ok((seconds / states.len() as f64, 2 * state_bytes + small.iter().sum::<usize>()))
}
