//! One step on an NVIDIA GPU, timed as engines run it: launches captured into a graph and replayed.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream};
use half::{bf16, f16};
use ssm_update::ports::cuda::CudaKernel;
use ssm_update::{Buffer, Dims, Dtype, Dtypes, Kernel, Launch, Memory, Pointers, Problem, Stream, validate};

use crate::cases::{Case, Data};

/// Bytes of state over which the launches of a graph are spread, so that no cache holds what comes next.
const ROTATE_BYTES: usize = 600_000_000;
/// State buffers of a graph.
const BUFFERS: std::ops::RangeInclusive<usize> = 2..=64;

/// The tensors of a case in device memory: bf16 but for what models keep in f32, the state as told.
pub struct OnDevice {
    problem: Problem,
    inputs: Vec<Box<dyn Buffer>>,
    states: Vec<Box<dyn Buffer>>,
    y: Box<dyn Buffer>,
    data: Data,
}

fn bytes_of(values: &[f32], dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::F32 => values.iter().flat_map(|v| v.to_ne_bytes()).collect(),
        Dtype::F16 => values.iter().flat_map(|&v| f16::from_f32(v).to_ne_bytes()).collect(),
        Dtype::Bf16 => values.iter().flat_map(|&v| bf16::from_f32(v).to_ne_bytes()).collect(),
    }
}

/// The same, read back.
fn values_of(bytes: &[u8], dtype: Dtype) -> Vec<f32> {
    match dtype {
        Dtype::F32 => bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect(),
        Dtype::F16 => bytes.chunks_exact(2).map(|b| f16::from_ne_bytes([b[0], b[1]]).to_f32()).collect(),
        Dtype::Bf16 => bytes.chunks_exact(2).map(|b| bf16::from_ne_bytes([b[0], b[1]]).to_f32()).collect(),
    }
}

fn rounded(values: &mut [f32], dtype: Dtype) {
    let bytes = bytes_of(values, dtype);
    values.copy_from_slice(&values_of(&bytes, dtype));
}

impl OnDevice {
    /// Puts a case on the device. Every batch row has the same values, so that one row is enough to check all.
    pub fn new(kernel: &CudaKernel, case: &Case, state: Dtype) -> Result<Self, Box<dyn Error>> {
        let Dims { batch, heads, head_dim, d_state, .. } = case.dims;
        let mut data = Data::new(Dims { batch: 1, slots: 1, ..case.dims });
        for tensor in [&mut data.x, &mut data.b, &mut data.c] {
            rounded(tensor, Dtype::Bf16);
        }
        rounded(&mut data.state, state);
        let dtypes = Dtypes { x: Dtype::Bf16, bc: Dtype::Bf16, state, ..Dtypes::uniform(Dtype::F32) };
        let memory: &dyn Memory = kernel;
        let upload = |values: &[f32], dtype: Dtype, rows: usize| -> Result<Box<dyn Buffer>, ssm_update::Error> {
            let row = bytes_of(values, dtype);
            let mut buffer = memory.allocate(rows * row.len())?;
            for at in 0..rows {
                buffer.upload(at * row.len(), &row)?;
            }
            Ok(buffer)
        };
        let state_bytes = batch * heads * head_dim * d_state * state.size();
        let buffers = (ROTATE_BYTES / (2 * state_bytes) + 1).clamp(*BUFFERS.start(), *BUFFERS.end());
        Ok(Self {
            problem: Problem::contiguous(case.dims, dtypes),
            inputs: vec![
                upload(&data.x, Dtype::Bf16, batch)?,
                upload(&data.b, Dtype::Bf16, batch)?,
                upload(&data.c, Dtype::Bf16, batch)?,
                upload(&data.dt, Dtype::F32, batch)?,
                upload(&data.a_log, Dtype::F32, 1)?,
                upload(&data.d, Dtype::F32, 1)?,
                upload(&data.dt_bias, Dtype::F32, 1)?,
            ],
            states: (0..buffers).map(|_| upload(&data.state, state, batch)).collect::<Result<_, _>>()?,
            y: memory.allocate(batch * heads * head_dim * 2)?,
            data,
        })
    }

    /// State buffers that take turns.
    pub fn buffers(&self) -> usize {
        self.states.len()
    }

    /// State bytes that one step reads and writes.
    pub fn state_bytes(&self) -> usize {
        let Dims { batch, heads, head_dim, d_state, .. } = self.problem.dims;
        2 * batch * heads * head_dim * d_state * self.problem.dtypes.state.size()
    }

    /// The launch on one of the state buffers.
    pub fn launch(&self, buffer: usize) -> Launch {
        let state = self.states[buffer].address();
        let at = |input: usize| self.inputs[input].address().cast_const();
        let pointers = Pointers {
            x: at(0),
            z: std::ptr::null(),
            b: at(1),
            c: at(2),
            dt: at(3),
            a_log: at(4),
            d: at(5),
            dt_bias: at(6),
            state_in: state,
            state_out: state,
            slots_in: std::ptr::null(),
            slots_out: std::ptr::null(),
            y: self.y.address(),
        };
        validate(&self.problem, &pointers).expect("the tensors of a case fit each other")
    }

    /// Runs one step and compares the first and the last batch row with the f64 reference.
    pub fn check(&self, kernel: &CudaKernel) -> Result<(), Box<dyn Error>> {
        let memory: &dyn Memory = kernel;
        // SAFETY: whole tensors of the port's memory, which nobody else uses.
        unsafe { kernel.launch(&self.launch(0), Stream::DEFAULT) }?;
        memory.synchronize()?;
        let expected = self.data.expected(true);
        let Dims { batch, heads, head_dim, .. } = self.problem.dims;
        let dtype = self.problem.dtypes.state;
        for row in [0, batch - 1] {
            let mut y = vec![0; heads * head_dim * 2];
            self.y.download(row * y.len(), &mut y)?;
            let mut state = vec![0; self.state_bytes() / 2 / batch];
            self.states[0].download(row * state.len(), &mut state)?;
            // y is bf16, whatever the state is.
            expected.check(&values_of(&y, Dtype::Bf16), &values_of(&state, dtype), 7e-2)?;
        }
        Ok(())
    }
}

/// Stream and context of the measurement: the device's primary context, which the port works in, too.
pub struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

impl Device {
    /// The first device.
    pub fn new() -> Result<Self, Box<dyn Error>> {
        let context = CudaContext::new(0)?;
        let stream = context.new_stream()?;
        Ok(Self { context, stream })
    }

    fn raw(&self) -> Stream {
        Stream(self.stream.cu_stream().cast())
    }

    /// Median microseconds of one launch: a graph of a launch on each buffer, replayed.
    pub fn graph_time(&self, kernel: &CudaKernel, case: &OnDevice, replays: usize) -> Result<f64, Box<dyn Error>> {
        let launches: Vec<Launch> = (0..case.buffers()).map(|buffer| case.launch(buffer)).collect();
        let all = || {
            // SAFETY: whole tensors of the port's memory, which only this stream uses.
            launches.iter().try_for_each(|launch| unsafe { kernel.launch(launch, self.raw()) })
        };
        all()?;
        self.stream.synchronize()?;
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
        let captured = all();
        let graph =
            self.stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)?;
        captured?;
        let graph = graph.ok_or("the capture gave no graph")?;
        for _ in 0..8 {
            graph.launch()?;
        }
        let event = || self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        let mut times = Vec::new();
        for _ in 0..replays {
            let begin = event()?;
            graph.launch()?;
            let end = event()?;
            end.synchronize()?;
            times.push(f64::from(begin.elapsed_ms(&end)?) * 1e3 / launches.len() as f64);
        }
        times.sort_unstable_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// Median nanoseconds that the host spends in one launch, the queue never full.
    pub fn host_time(&self, kernel: &CudaKernel, case: &OnDevice) -> Result<f64, Box<dyn Error>> {
        let launch = case.launch(0);
        let mut times = Vec::new();
        for _ in 0..200 {
            self.stream.synchronize()?;
            let begin = std::time::Instant::now();
            for _ in 0..50 {
                // SAFETY: whole tensors of the port's memory, which only this stream uses.
                unsafe { kernel.launch(&launch, self.raw()) }?;
            }
            times.push(begin.elapsed().as_nanos() as f64 / 50.0);
        }
        self.stream.synchronize()?;
        times.sort_unstable_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// The name of the device.
    pub fn name(&self) -> Result<String, Box<dyn Error>> {
        Ok(self.context.name()?)
    }
}
