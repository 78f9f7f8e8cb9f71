//! The contestants of a case. Making one checks it against the reference; only then can it be timed.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use candle_core::{Device, Tensor};
use half::{bf16, f16};
use ssm_engine::ssm::{SsmDims, SsmInputs, SsmParams, Step as EngineStep, StepChoice};
use ssm_update::ports::cpu::{CpuKernel, Pool};
use ssm_update::{Element, Kernel, State, Step, Tensor as HostTensor};

use crate::cases::{Case, Data, Expected};
use crate::ggml::{Ggml, Scan};

/// One way to do a case's step.
pub trait Arm {
    /// Name in the record: who, and how the state is held.
    fn name(&self) -> &str;
    /// State bytes that one step has to read and to write.
    fn bytes(&self) -> usize;
    /// Called before a round of steps.
    fn begin(&mut self) {}
    /// One step, on the next of the rotating buffers.
    fn run(&mut self);
    /// Called after a round of steps.
    fn end(&mut self) {}
}

/// What arms are made from.
#[derive(Debug)]
pub struct Setting {
    /// The CPU port, limited to `threads`.
    pub kernel: CpuKernel,
    /// The pool under it, for the copy.
    pub pool: Arc<dyn Pool>,
    /// Threads of every arm.
    pub threads: usize,
    /// ggml, where it was built.
    pub ggml: Option<Arc<Ggml>>,
    /// Bytes over which a rotating case spreads each arm's states.
    pub rotate_bytes: usize,
}

/// Every arm of a case, in the record's order. The copy comes first: it is what bandwidth is compared with.
///
/// # Errors
///
/// An arm that disagrees with the reference, by name.
pub fn of_case(case: &Case, setting: &Setting) -> Result<Vec<Box<dyn Arm>>, String> {
    make(case, setting).map_err(|error| format!("{}, {error}; not timed", case.name()))
}

fn make(case: &Case, setting: &Setting) -> Result<Vec<Box<dyn Arm>>, String> {
    let data = Rc::new(Data::new(case.dims));
    let expected = data.expected(true);
    let state_bytes = size_of_val(data.state.as_slice());
    let buffers = if case.rotating { setting.rotate_bytes.div_ceil(state_bytes) } else { 1 };

    let mut arms: Vec<Box<dyn Arm>> = vec![
        Box::new(Copy::new(&data, setting, buffers)),
        KernelArm::<f32>::boxed("cpu f32 in place", false, &data, &expected, setting, buffers, 1e-4)?,
    ];
    if case.every_mode {
        arms.push(KernelArm::<f32>::boxed("cpu f32 out of place", true, &data, &expected, setting, buffers, 1e-4)?);
        // A 16-bit buffer has half the bytes: twice as many spread over the same memory. The state it starts from is
        // rounded, which y inherits.
        let small = if case.rotating { 2 * buffers } else { 1 };
        arms.push(KernelArm::<bf16>::boxed("cpu bf16 in place", false, &data, &expected, setting, small, 7e-2)?);
        arms.push(KernelArm::<f16>::boxed("cpu f16 in place", false, &data, &expected, setting, small, 1.2e-2)?);
    }
    if case.dims.batch == 1 {
        let graph = Graph::new(&data, &expected, buffers).map_err(|error| format!("graph: {error}"))?;
        arms.push(Box::new(graph));
    }
    if let Some(ggml) = setting.ggml.as_ref().filter(|_| !case.rotating) {
        let expected = data.expected(false);
        let ggml = GgmlArm::new(ggml, &data, &expected, setting.threads).map_err(|error| format!("ggml: {error}"))?;
        arms.push(Box::new(ggml));
    }
    Ok(arms)
}

/// Elements that begin at a cache line, as engines and ggml allocate them.
#[derive(Debug)]
struct Aligned<T> {
    all: Vec<T>,
    first: usize,
    len: usize,
}

impl<T: Element> Aligned<T> {
    fn from_f32(values: &[f32]) -> Self {
        let mut all = vec![T::default(); values.len() + 64 / size_of::<T>()];
        let first = all.as_ptr().align_offset(64);
        for (to, &from) in all[first..].iter_mut().zip(values) {
            *to = T::from_f32(from);
        }
        Self { all, first, len: values.len() }
    }

    fn get(&self) -> &[T] {
        &self.all[self.first..][..self.len]
    }

    fn get_mut(&mut self) -> &mut [T] {
        &mut self.all[self.first..][..self.len]
    }
}

/// A port of the library, by its host level.
struct KernelArm<U> {
    name: &'static str,
    kernel: CpuKernel,
    data: Rc<Data>,
    /// Buffers to write; with `from` beside them, to write only.
    states: Vec<Aligned<U>>,
    from: Option<Vec<Aligned<U>>>,
    y: Vec<f32>,
    next: usize,
}

impl<U: Element> KernelArm<U>
where
    for<'a> HostTensor<'a>: From<&'a [U]>,
{
    fn boxed(
        name: &'static str,
        out_of_place: bool,
        data: &Rc<Data>,
        expected: &Expected,
        setting: &Setting,
        buffers: usize,
        limit: f64,
    ) -> Result<Box<dyn Arm>, String> {
        // Out of place, both buffers of a pair count towards the memory that rotates.
        let pairs = if out_of_place { buffers.div_ceil(2) } else { buffers };
        let states = || (0..pairs).map(|_| Aligned::from_f32(&data.state)).collect::<Vec<Aligned<U>>>();
        let mut arm = Self {
            name,
            kernel: setting.kernel.clone(),
            data: Rc::clone(data),
            states: states(),
            from: out_of_place.then(states),
            y: vec![f32::NAN; data.x.len()],
            next: 0,
        };
        arm.run();
        let state: Vec<f32> = arm.states[0].get().iter().map(|v| v.to_f32()).collect();
        expected.check(&arm.y, &state, limit).map_err(|error| format!("{name}: {error}"))?;
        Ok(Box::new(arm))
    }
}

impl<U: Element> Arm for KernelArm<U> {
    fn name(&self) -> &str {
        self.name
    }

    fn bytes(&self) -> usize {
        2 * size_of_val(self.states[0].get())
    }

    fn run(&mut self) {
        let data = &*self.data;
        let to = self.states[self.next].get_mut();
        let state = match &self.from {
            None => State::in_place(to),
            Some(from) => State::out_of_place(from[self.next].get(), to),
        };
        let step = Step {
            d: Some((&data.d).into()),
            dt_bias: Some((&data.dt_bias).into()),
            ..Step::new(data.dims, &data.x, &data.b, &data.c, &data.dt, &data.a_log, state, &mut self.y)
        };
        self.kernel.step(step).expect("the same step passed when it was checked");
        self.next = (self.next + 1) % self.states.len();
    }
}

/// A plain copy of the state's bytes from one buffer to another, by the same threads.
struct Copy {
    pool: Arc<dyn Pool>,
    threads: usize,
    pairs: Vec<(Aligned<f32>, Aligned<f32>)>,
    next: usize,
}

impl Copy {
    fn new(data: &Data, setting: &Setting, buffers: usize) -> Self {
        let pair = |_| (Aligned::from_f32(&data.state), Aligned::from_f32(&data.state));
        let pairs = (0..buffers.div_ceil(2)).map(pair).collect();
        Self { pool: Arc::clone(&setting.pool), threads: setting.threads, pairs, next: 0 }
    }
}

impl Arm for Copy {
    fn name(&self) -> &str {
        "copy f32"
    }

    fn bytes(&self) -> usize {
        2 * size_of_val(self.pairs[0].0.get())
    }

    fn run(&mut self) {
        let (from, to) = &mut self.pairs[self.next];
        let piece = from.len.div_ceil(self.threads);
        let pieces: Vec<_> = from.get().chunks(piece).zip(to.get_mut().chunks_mut(piece)).map(Mutex::new).collect();
        self.pool.run(pieces.len(), &|index| {
            let mut piece = pieces[index].lock().expect("each piece is locked once");
            let (from, to) = &mut *piece;
            to.copy_from_slice(from);
        });
        self.next = (self.next + 1) % self.pairs.len();
    }
}

/// The engine's own graph of tensor operations for one token, on candle.
struct Graph {
    step: EngineStep,
    params: SsmParams,
    inputs: [Tensor; 4],
    states: Vec<Tensor>,
    next: usize,
}

impl Graph {
    fn new(data: &Data, expected: &Expected, buffers: usize) -> Result<Self, String> {
        let dims = data.dims;
        let text = |error: candle_core::Error| error.to_string();
        let tensor = |values: &[f32], shape: &[usize]| Tensor::from_slice(values, shape, &Device::Cpu).map_err(text);
        let ssm = SsmDims { heads: dims.heads, head_dim: dims.head_dim, groups: dims.groups, d_state: dims.d_state };
        let per_head = |values| tensor(values, &[dims.heads]);
        let [a_log, d, dt_bias] = [per_head(&data.a_log)?, per_head(&data.d)?, per_head(&data.dt_bias)?];
        let columns = [1, ssm.group_columns()];
        let state_shape = [1, dims.heads, dims.head_dim, dims.d_state];
        let mut graph = Self {
            step: EngineStep::select(StepChoice::Graph, ssm, &Device::Cpu).map_err(|error| error.to_string())?,
            params: SsmParams::new(ssm, (0.0, f32::INFINITY), &a_log, &d, &dt_bias)
                .map_err(|error| error.to_string())?,
            inputs: [
                tensor(&data.x, &[1, ssm.channels()])?,
                tensor(&data.b, &columns)?,
                tensor(&data.c, &columns)?,
                tensor(&data.dt, &[1, dims.heads])?,
            ],
            states: (0..buffers).map(|_| tensor(&data.state, &state_shape)).collect::<Result<_, _>>()?,
            next: 0,
        };
        let y = graph.advance().flatten_all().and_then(|y| y.to_vec1()).map_err(text)?;
        let state = graph.states[0].flatten_all().and_then(|state| state.to_vec1()).map_err(text)?;
        expected.check(&y, &state, 1e-4)?;
        Ok(graph)
    }

    fn advance(&mut self) -> Tensor {
        let [x, b, c, dt] = &self.inputs;
        let inputs = SsmInputs { x, b, c, dt, z: None };
        let y = self.step.advance(&self.params, inputs, &mut self.states[self.next]);
        self.next = (self.next + 1) % self.states.len();
        y.expect("the shapes are those of the parameters")
    }
}

impl Arm for Graph {
    fn name(&self) -> &str {
        "graph f32 (candle)"
    }

    fn bytes(&self) -> usize {
        2 * 4 * self.states[0].elem_count()
    }

    fn run(&mut self) {
        self.advance();
    }
}

/// ggml's SSM_SCAN, always out of place.
struct GgmlArm(Scan);

impl GgmlArm {
    fn new(ggml: &Arc<Ggml>, data: &Data, expected: &Expected, threads: usize) -> Result<Self, String> {
        let mut scan = Scan::new(Arc::clone(ggml), data, threads)?;
        scan.resume();
        scan.run();
        scan.pause();
        let (y, state) = scan.result();
        expected.check(y, state, 1e-4)?;
        Ok(Self(scan))
    }
}

impl Arm for GgmlArm {
    fn name(&self) -> &str {
        "ggml f32 out of place"
    }

    fn bytes(&self) -> usize {
        2 * size_of_val(self.0.result().1)
    }

    fn begin(&mut self) {
        self.0.resume();
    }

    fn run(&mut self) {
        self.0.run();
    }

    fn end(&mut self) {
        self.0.pause();
    }
}
