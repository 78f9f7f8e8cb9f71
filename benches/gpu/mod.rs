//! One step on a GPU, timed as engines run it: launches captured into a graph and replayed.

pub mod cuda;

use std::error::Error;
use std::ffi::c_void;
use std::time::Instant;

use half::{bf16, f16};
use ssm_update::{Buffer, Dims, Dtype, Dtypes, Kernel, Launch, Memory, Pointers, Problem, Stream, validate};

use crate::cases::{Case, Data};
use crate::measure::{Times, times};

/// State buffers that take turns, so that no cache holds the next one.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Bytes that they have together at the least, where `most` allows it.
    pub bytes: usize,
    /// Buffers at the most.
    pub most: usize,
}

impl Rotation {
    fn buffers(&self, state_bytes: usize) -> usize {
        (self.bytes / state_bytes + 1).clamp(2, self.most.max(2))
    }
}

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
    ///
    /// # Errors
    ///
    /// Faults of the driver, such as too little memory; a port without memory of its own.
    pub fn new(kernel: &dyn Kernel, case: &Case, state: Dtype, rotation: Rotation) -> Result<Self, Box<dyn Error>> {
        let Dims { batch, heads, head_dim, d_state, .. } = case.dims;
        let mut data = Data::new(Dims { batch: 1, slots: 1, ..case.dims });
        for tensor in [&mut data.x, &mut data.b, &mut data.c] {
            rounded(tensor, Dtype::Bf16);
        }
        rounded(&mut data.state, state);
        let dtypes = Dtypes { x: Dtype::Bf16, bc: Dtype::Bf16, state, ..Dtypes::uniform(Dtype::F32) };
        let memory = memory(kernel)?;
        let upload = |values: &[f32], dtype: Dtype, rows: usize| -> Result<Box<dyn Buffer>, ssm_update::Error> {
            let row = bytes_of(values, dtype);
            let mut buffer = memory.allocate(rows * row.len())?;
            for at in 0..rows {
                buffer.upload(at * row.len(), &row)?;
            }
            Ok(buffer)
        };
        let state_bytes = batch * heads * head_dim * d_state * state.size();
        let buffers = rotation.buffers(state_bytes);
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

    /// Addresses and bytes of the state buffers.
    pub fn states(&self) -> impl Iterator<Item = (*mut c_void, usize)> {
        let bytes = self.state_bytes() / 2;
        self.states.iter().map(move |state| (state.address(), bytes))
    }

    /// Gives a state buffer the values from the beginning again.
    ///
    /// # Errors
    ///
    /// Faults of the driver.
    pub fn reset(&mut self, buffer: usize) -> Result<(), ssm_update::Error> {
        let row = bytes_of(&self.data.state, self.problem.dtypes.state);
        (0..self.problem.dims.batch).try_for_each(|at| self.states[buffer].upload(at * row.len(), &row))
    }

    /// The bits of y and of a state buffer.
    ///
    /// # Errors
    ///
    /// Faults of the driver.
    pub fn bits(&self, buffer: usize) -> Result<(Vec<u8>, Vec<u8>), ssm_update::Error> {
        let Dims { batch, heads, head_dim, .. } = self.problem.dims;
        let (mut y, mut state) = (vec![0; batch * heads * head_dim * 2], vec![0; self.state_bytes() / 2]);
        self.y.download(0, &mut y)?;
        self.states[buffer].download(0, &mut state)?;
        Ok((y, state))
    }

    /// Runs one step and compares the first and the last batch row with the f64 reference.
    ///
    /// # Errors
    ///
    /// Faults of the driver; results that are wrong.
    pub fn check(&self, kernel: &dyn Kernel) -> Result<(), Box<dyn Error>> {
        let memory = memory(kernel)?;
        // SAFETY: whole tensors of the port's memory, which nobody else uses.
        unsafe { kernel.launch(&self.launch(0), Stream::DEFAULT) }?;
        memory.synchronize()?;
        self.check_results()
    }

    /// Compares the first and the last batch row of the first buffer, after its first step, with the f64 reference.
    ///
    /// # Errors
    ///
    /// Faults of the driver; results that are wrong.
    pub fn check_results(&self) -> Result<(), Box<dyn Error>> {
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

/// A port's memory.
///
/// # Errors
///
/// The port works on the host's.
pub fn memory(kernel: &dyn Kernel) -> Result<&dyn Memory, String> {
    kernel.memory().ok_or_else(|| format!("the {} port has no memory of its own to measure with", kernel.port()))
}

/// A stream of a device, with graphs.
pub trait Queue {
    /// The stream.
    fn stream(&self) -> Stream;

    /// Waits until everything on it is done.
    ///
    /// # Errors
    ///
    /// Faults of the driver.
    fn wait(&self) -> Result<(), Box<dyn Error>>;

    /// What `work` asks of the stream, as a graph.
    ///
    /// # Errors
    ///
    /// Faults of the driver, or of `work`.
    fn capture(
        &self,
        work: &mut dyn FnMut() -> Result<(), Box<dyn Error>>,
    ) -> Result<Box<dyn Replay + '_>, Box<dyn Error>>;
}

/// A captured graph.
pub trait Replay {
    /// Queues it.
    ///
    /// # Errors
    ///
    /// Faults of the driver.
    fn launch(&self) -> Result<(), Box<dyn Error>>;

    /// Runs it between two events and waits: milliseconds.
    ///
    /// # Errors
    ///
    /// Faults of the driver.
    fn timed(&self) -> Result<f64, Box<dyn Error>>;
}

/// How much is done for a time.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Replays of a graph that are not counted: clocks rise, and the driver allocates what it needs.
    pub warm_up: usize,
    /// Replays that are, at least one.
    pub replays: usize,
    /// Rounds in which the time of the host is taken, at least one.
    pub host_rounds: usize,
    /// Launches that a round queues in a row, so few that the queue is never full.
    pub row: usize,
}

impl Effort {
    /// For a number of replays on a device.
    pub fn of(replays: usize) -> Self {
        Self { warm_up: 8, replays, host_rounds: 200, row: 50 }
    }

    /// Each thing once, where times mean nothing.
    pub const LEAST: Self = Self { warm_up: 1, replays: 1, host_rounds: 1, row: 2 };
}

/// Microseconds of one of the `parts` that `work` asks of a stream: all of them in a graph, replayed.
///
/// # Errors
///
/// Faults of the driver, or of `work`.
pub fn graph_times(
    queue: &dyn Queue,
    work: &mut dyn FnMut() -> Result<(), Box<dyn Error>>,
    parts: usize,
    effort: Effort,
) -> Result<Times, Box<dyn Error>> {
    work()?;
    queue.wait()?;
    let graph = queue.capture(work)?;
    for _ in 0..effort.warm_up {
        graph.launch()?;
    }
    let micros = (0..effort.replays.max(1)).map(|_| Ok(graph.timed()? * 1e3 / parts as f64));
    Ok(times(micros.collect::<Result<_, Box<dyn Error>>>()?))
}

/// Microseconds of one step: a launch on each of a case's buffers.
///
/// # Errors
///
/// Faults of the driver.
pub fn step_times(
    queue: &dyn Queue,
    kernel: &dyn Kernel,
    case: &OnDevice,
    effort: Effort,
) -> Result<Times, Box<dyn Error>> {
    let launches: Vec<Launch> = (0..case.buffers()).map(|buffer| case.launch(buffer)).collect();
    let mut all = || -> Result<(), Box<dyn Error>> {
        // SAFETY: whole tensors of the port's memory, which only this stream uses.
        Ok(launches.iter().try_for_each(|launch| unsafe { kernel.launch(launch, queue.stream()) })?)
    };
    graph_times(queue, &mut all, launches.len(), effort)
}

/// Median nanoseconds that the host spends in one launch.
///
/// # Errors
///
/// Faults of the driver.
pub fn host_time(
    queue: &dyn Queue,
    kernel: &dyn Kernel,
    case: &OnDevice,
    effort: Effort,
) -> Result<f64, Box<dyn Error>> {
    let launch = case.launch(0);
    let mut micros = Vec::new();
    for _ in 0..effort.host_rounds.max(1) {
        queue.wait()?;
        let begin = Instant::now();
        for _ in 0..effort.row {
            // SAFETY: whole tensors of the port's memory, which only this stream uses.
            unsafe { kernel.launch(&launch, queue.stream()) }?;
        }
        micros.push(begin.elapsed().as_secs_f64() * 1e6 / effort.row as f64);
    }
    queue.wait()?;
    Ok(times(micros).median * 1e3)
}
