//! The CUDA port on a real GPU, beyond what the parity tests ask of every port: captured launches, launches that overlap, pools
//! beyond 32-bit counts, long runs, repetitions, threads with streams of their own.
//!
//! Captures are their thread's own: tests run side by side, and a global one would forbid the others to allocate.
//!
//! Without a device each test prints NOT RUN with the reason; `SSM_UPDATE_REQUIRE_PORT=cuda` makes that a failure.
#![cfg(feature = "cuda")]

mod common;

use std::env;
use std::sync::Arc;

use common::drift;
use common::ports::REQUIRE_PORT;
use common::rng::Rng;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream};
use half::bf16;
use ssm_update::ports::cuda::CudaKernel;
use ssm_update::{
    Buffer, Dims, Dtype, Dtypes, Error, Kernel, Launch, Memory, Pointers, Problem, Stream, switches, validate,
};

/// The port on the first device and a stream there, or why there is none.
fn device() -> Option<(CudaKernel, Arc<CudaStream>)> {
    match CudaKernel::open(&switches::Cuda::from_env(), None) {
        Ok(kernel) => {
            println!("RUN: {}", kernel.describe());
            let stream = CudaContext::new(0).and_then(|context| context.new_stream()).expect("a stream");
            Some((kernel, stream))
        }
        Err(why) if env::var(REQUIRE_PORT).as_deref() == Ok("cuda") => panic!("{REQUIRE_PORT}=cuda: {why}"),
        Err(why) => {
            println!("NOT RUN: {why}");
            None
        }
    }
}

fn raw(stream: &CudaStream) -> Stream {
    Stream(stream.cu_stream().cast())
}

/// Tensors of one problem on the device: x, B and C in bf16, the rest but the state in f32, every optional tensor there.
struct Tensors {
    problem: Problem,
    x: Box<dyn Buffer>,
    z: Box<dyn Buffer>,
    b: Box<dyn Buffer>,
    c: Box<dyn Buffer>,
    dt: Box<dyn Buffer>,
    per_head: [Box<dyn Buffer>; 3],
    state: Box<dyn Buffer>,
    slots: Box<dyn Buffer>,
    y: Box<dyn Buffer>,
}

fn bf16_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).flat_map(|_| bf16::from_f32(rng.uniform(-1.0, 1.0)).to_ne_bytes()).collect()
}

fn f32_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).flat_map(|_| rng.uniform(-1.0, 1.0).to_ne_bytes()).collect()
}

fn state_bytes(rng: &mut Rng, dtype: Dtype, len: usize) -> Vec<u8> {
    if dtype == Dtype::F32 { f32_bytes(rng, len) } else { bf16_bytes(rng, len) }
}

fn i32_bytes(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

impl Tensors {
    /// With the same values for the same seed and sizes; the pool is left as it is.
    fn new(kernel: &CudaKernel, dims: Dims, state: Dtype, seed: u64) -> Self {
        let mut rng = Rng::new(seed, 7);
        let memory: &dyn Memory = kernel;
        let placed = |bytes: Vec<u8>| {
            let mut buffer = memory.allocate(bytes.len()).expect("room on the device");
            buffer.upload(0, &bytes).expect("the device takes data");
            buffer
        };
        let (channels, columns) = (dims.heads * dims.head_dim, dims.groups * dims.d_state);
        let dtypes = Dtypes { x: Dtype::Bf16, bc: Dtype::Bf16, state, ..Dtypes::uniform(Dtype::F32) };
        Self {
            problem: Problem::contiguous(dims, dtypes),
            x: placed(bf16_bytes(&mut rng, dims.batch * channels)),
            z: placed(bf16_bytes(&mut rng, dims.batch * channels)),
            b: placed(bf16_bytes(&mut rng, dims.batch * columns)),
            c: placed(bf16_bytes(&mut rng, dims.batch * columns)),
            dt: placed(f32_bytes(&mut rng, dims.batch * dims.heads)),
            per_head: [(); 3].map(|()| placed(f32_bytes(&mut rng, dims.heads))),
            state: memory.allocate(dims.slots * channels * dims.d_state * state.size()).expect("room for the pool"),
            slots: placed(i32_bytes(&(0..dims.batch as i32).collect::<Vec<_>>())),
            y: placed(vec![0xff; dims.batch * channels * 2]),
        }
    }

    fn slot_bytes(&self) -> usize {
        let Dims { heads, head_dim, d_state, .. } = self.problem.dims;
        heads * head_dim * d_state * self.problem.dtypes.state.size()
    }

    /// Values of one slot, by a number of its own.
    fn fill_slot(&mut self, slot: usize, number: u64) {
        let (len, dtype) = (self.slot_bytes(), self.problem.dtypes.state);
        let bytes = state_bytes(&mut Rng::new(number, 8), dtype, len / dtype.size());
        self.state.upload(slot * len, &bytes).expect("a slot of the pool");
    }

    fn slot(&self, slot: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.slot_bytes()];
        self.state.download(slot * bytes.len(), &mut bytes).expect("a slot of the pool");
        bytes
    }

    fn y(&self) -> Vec<u8> {
        let Dims { batch, heads, head_dim, .. } = self.problem.dims;
        let mut bytes = vec![0; batch * heads * head_dim * 2];
        self.y.download(0, &mut bytes).expect("y");
        bytes
    }

    fn set_slots(&mut self, slots: &[i32]) {
        self.slots.upload(0, &i32_bytes(slots)).expect("an index for each row");
    }

    /// New values of x and dt, in place.
    fn set_inputs(&mut self, seed: u64) {
        let (mut rng, dims) = (Rng::new(seed, 9), self.problem.dims);
        let (x, dt) = (
            bf16_bytes(&mut rng, dims.batch * dims.heads * dims.head_dim),
            f32_bytes(&mut rng, dims.batch * dims.heads),
        );
        self.x.upload(0, &x).expect("x");
        self.dt.upload(0, &dt).expect("dt");
    }

    /// In place, through the slot indices.
    fn launch(&self) -> Launch {
        let [a_log, d, dt_bias] = self.per_head.each_ref().map(|buffer| buffer.address().cast_const());
        let pointers = Pointers {
            x: self.x.address(),
            z: self.z.address(),
            b: self.b.address(),
            c: self.c.address(),
            dt: self.dt.address(),
            a_log,
            d,
            dt_bias,
            state_in: self.state.address(),
            state_out: self.state.address(),
            slots_in: self.slots.address().cast_const().cast(),
            slots_out: self.slots.address().cast_const().cast(),
            y: self.y.address(),
        };
        validate(&self.problem, &pointers).expect("the tensors fit each other")
    }

    fn run(&self, kernel: &CudaKernel, stream: Stream) {
        // SAFETY: whole tensors of the port's memory, which only one stream uses at a time.
        unsafe { kernel.launch(&self.launch(), stream) }.expect("a legal launch");
    }
}

const SMALL: Dims = Dims { batch: 4, heads: 6, head_dim: 20, groups: 2, d_state: 48, slots: 9 };

#[test]
fn a_captured_launch_follows_what_changes_in_place() {
    let Some((kernel, stream)) = device() else { return };
    let mut captured = Tensors::new(&kernel, SMALL, Dtype::F32, 1);
    let mut direct = Tensors::new(&kernel, SMALL, Dtype::F32, 1);
    for slot in 0..SMALL.slots {
        captured.fill_slot(slot, slot as u64);
        direct.fill_slot(slot, slot as u64);
    }
    kernel.prepare(&[captured.launch()]).expect("the kernel compiles");
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).expect("a capture begins");
    // Two: the second one depends on the state that the first one writes.
    captured.run(&kernel, raw(&stream));
    captured.run(&kernel, raw(&stream));
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).expect("a capture ends").expect("with a graph");

    for (replay, slots) in [[0, 1, 2, 3], [8, -1, 3, 0], [-1, -1, -1, -1], [4, 2, -7, 6]].iter().enumerate() {
        for tensors in [&mut captured, &mut direct] {
            tensors.set_slots(slots);
            tensors.set_inputs(replay as u64);
        }
        graph.launch().expect("a replay");
        stream.synchronize().expect("it ends");
        for _ in 0..2 {
            direct.run(&kernel, Stream::DEFAULT);
            Memory::synchronize(&kernel).expect("it ends");
        }
        assert_eq!(captured.y(), direct.y(), "replay {replay}");
        let row = SMALL.heads * SMALL.head_dim * 2;
        for (batch_row, slot) in slots.iter().enumerate() {
            let zero = captured.y()[batch_row * row..][..row].iter().all(|&byte| byte == 0);
            assert_eq!(zero, *slot < 0, "replay {replay}, row {batch_row}");
        }
        for slot in 0..SMALL.slots {
            assert_eq!(captured.slot(slot), direct.slot(slot), "replay {replay}, slot {slot}");
        }
    }
}

#[test]
fn a_capture_does_not_compile() {
    let Some((kernel, stream)) = device() else { return };
    let tensors = Tensors::new(&kernel, SMALL, Dtype::Bf16, 2);
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).expect("a capture begins");
    // SAFETY: whole tensors of the port's memory, which nobody else uses.
    let refused = unsafe { kernel.launch(&tensors.launch(), raw(&stream)) };
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags);
    let Err(Error::Driver(error)) = refused else { panic!("{refused:?}") };
    assert!(error.advice.contains("Kernel::prepare"), "{error}");
    assert!(graph.is_ok(), "the capture is not spoilt: {graph:?}", graph = graph.err());
}

#[test]
fn launches_that_overlap_give_what_separate_ones_give() {
    let Some((kernel, stream)) = device() else { return };
    for (dims, state) in [
        (SMALL, Dtype::F32),
        (Dims { batch: 1, heads: 48, head_dim: 64, groups: 1, d_state: 128, slots: 4 }, Dtype::F32),
        (Dims { batch: 16, heads: 32, head_dim: 64, groups: 8, d_state: 256, slots: 16 }, Dtype::Bf16),
    ] {
        let results = [true, false].map(|apart| {
            let mut tensors = Tensors::new(&kernel, dims, state, 3);
            for slot in 0..dims.slots {
                tensors.fill_slot(slot, slot as u64);
            }
            for _ in 0..1000 {
                tensors.run(&kernel, raw(&stream));
                if apart {
                    stream.synchronize().expect("it ends");
                }
            }
            stream.synchronize().expect("they end");
            (tensors.y(), (0..dims.slots).map(|slot| tensors.slot(slot)).collect::<Vec<_>>())
        });
        assert!(results[0] == results[1], "{dims:?}, state {state}");
    }
}

/// Slots on both sides of 2^31 and 2^32 elements give what the first slots of a small pool give.
#[test]
fn pools_beyond_32_bit_counts() {
    let Some((kernel, _)) = device() else { return };
    let dims = Dims { batch: 8, heads: 48, head_dim: 64, groups: 1, d_state: 128, slots: 8 };
    let slot_elements = dims.heads * dims.head_dim * dims.d_state;
    // The slot that holds the element, with its neighbours.
    let around = |element: usize| [element / slot_elements - 1, element / slot_elements, element / slot_elements + 1];
    let mut slots: Vec<usize> = [1 << 31, 1 << 32].into_iter().flat_map(around).collect();
    slots.extend([0, (1 << 32) / slot_elements + 7]);
    for state in [Dtype::Bf16, Dtype::F32] {
        let mut small = Tensors::new(&kernel, dims, state, 4);
        let mut large = Tensors::new(&kernel, Dims { slots: (1 << 32) / slot_elements + 8, ..dims }, state, 4);
        for (row, &slot) in slots.iter().enumerate() {
            small.fill_slot(row, row as u64);
            large.fill_slot(slot, row as u64);
        }
        large.set_slots(&slots.iter().map(|&slot| slot as i32).collect::<Vec<_>>());
        for tensors in [&small, &large] {
            tensors.run(&kernel, Stream::DEFAULT);
        }
        Memory::synchronize(&kernel).expect("they end");
        assert!(small.y() == large.y(), "state {state}");
        for (row, &slot) in slots.iter().enumerate() {
            assert!(small.slot(row) == large.slot(slot), "state {state}, slot {slot}");
        }
        println!("state {state}: {} elements", large.problem.dims.slots * slot_elements);
    }
}

#[test]
fn a_hundred_repetitions_give_the_same_bits() {
    let Some((kernel, stream)) = device() else { return };
    let dims = Dims { batch: 16, heads: 48, head_dim: 64, groups: 1, d_state: 128, slots: 16 };
    let mut tensors = Tensors::new(&kernel, dims, Dtype::F32, 5);
    let mut first = None;
    for repetition in 0..100 {
        for slot in 0..dims.slots {
            tensors.fill_slot(slot, slot as u64);
        }
        tensors.run(&kernel, raw(&stream));
        stream.synchronize().expect("it ends");
        let result = (tensors.y(), (0..dims.slots).map(|slot| tensors.slot(slot)).collect::<Vec<_>>());
        let same = *first.get_or_insert_with(|| result.clone()) == result;
        assert!(same, "repetition {repetition}");
    }
}

#[test]
fn threads_with_streams_of_their_own() {
    let Some((kernel, _)) = device() else { return };
    let result = |stream: Stream, wait: &dyn Fn()| {
        let mut tensors = Tensors::new(&kernel, SMALL, Dtype::F32, 6);
        for slot in 0..SMALL.slots {
            tensors.fill_slot(slot, slot as u64);
        }
        for step in 0..50 {
            tensors.set_inputs(step);
            tensors.run(&kernel, stream);
            wait();
        }
        (tensors.y(), (0..SMALL.slots).map(|slot| tensors.slot(slot)).collect::<Vec<_>>())
    };
    let alone = result(Stream::DEFAULT, &|| Memory::synchronize(&kernel).expect("it ends"));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let stream = CudaContext::new(0).and_then(|context| context.new_stream()).expect("a stream");
                    result(raw(&stream), &|| stream.synchronize().expect("it ends"))
                })
            })
            .collect();
        for thread in threads {
            assert!(thread.join().expect("no panic") == alone);
        }
    });
}

#[test]
fn twenty_thousand_steps_do_not_drift() {
    let Some((kernel, _)) = device() else { return };
    let truth = drift::truth(&[1, 20_000], Dtype::F32);
    let errors = drift::errors::<f32>(&kernel, Dtype::F32, &truth);
    for error in &errors {
        println!("after {} steps: state nrms {:.1e} max {:.1e}", error.step, error.state.0, error.state.1);
        for (nrms, max) in [error.state, error.y] {
            assert!(nrms < 1e-5 && max < 1e-4, "{error:?}");
        }
    }
}
