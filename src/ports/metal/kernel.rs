//! The open port: pipelines, memory, and both levels of the interface, on whatever GPU is behind it.

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::abi::{TENSORS, at};
use super::bindings::{self, Binding};
use super::buffers::Buffers;
use super::gpu::{Bound, Compiled, Encoding, Gpu};
use super::key::{KEYS, Key, WAVE};
use super::plan::{Plan, THREADS};
use super::source;
use super::table::Table;
use crate::memory::{self, Buffer, Memory};
use crate::{Dtype, Error, Kernel, Launch, Problem, Step, Stream, Unavailable, staging, validate};

/// The kernel that is compiled when the port is opened, to learn whether any will do.
const FIRST: Key = Key { x: Dtype::F32, bc: Dtype::F32, state: Dtype::F32, chunks: 1 };

/// The open Metal port on one GPU. May be used by several threads at once, each with an encoder of its own.
pub struct MetalKernel<G: Gpu> {
    gpu: Arc<G>,
    /// By number of their key; each is compiled when it is first used.
    pipelines: [OnceLock<G::Pipeline>; KEYS],
    /// Held while a pipeline is compiled, so that it is compiled once.
    compiling: [Mutex<()>; KEYS],
    table: Arc<RwLock<Table<G::Buffer>>>,
    description: String,
}

impl<G: Gpu> MetalKernel<G> {
    /// Opens the port on a GPU: asks for system and GPU family, and compiles one kernel, whose SIMD-groups have to have 32 threads.
    ///
    /// # Errors
    ///
    /// The first thing that stands in the way.
    pub fn open(gpu: G) -> Result<Self, Unavailable> {
        let facts = gpu.facts().clone();
        facts.check()?;
        let (system, (major, minor)) = (facts.system.name(), facts.version);
        let bfloat = match facts.language(&Key { x: Dtype::Bf16, ..FIRST }) {
            Ok(_) => "with",
            Err(_) => "without",
        };
        let opened = Self {
            description: format!("{}, {system} {major}.{minor}, {bfloat} bfloat", facts.gpu),
            gpu: Arc::new(gpu),
            pipelines: [const { OnceLock::new() }; KEYS],
            compiling: [const { Mutex::new(()) }; KEYS],
            table: Arc::default(),
        };
        match opened.pipeline(&FIRST) {
            Ok(_) => Ok(opened),
            Err(Error::Driver(error)) => Err(Unavailable::Driver(error)),
            Err(Error::Unsupported(why) | Error::Invalid(why)) => {
                Err(Unavailable::NoDevice(format!("the kernel does not run on {}: {why}", facts.gpu)))
            }
        }
    }

    /// The GPU.
    pub fn gpu(&self) -> &G {
        &self.gpu
    }

    /// Launch level, with buffers instead of pointers: puts the step into `stream`, an open `MTLComputeCommandEncoder` of the
    /// caller's or [`Stream::DEFAULT`]. Neither allocates, copies nor waits; the first step of a key compiles its kernel.
    ///
    /// Of the encoder, the pipeline state and the buffers 0 to 13 are other ones afterwards. Nothing is fenced: an encoder of
    /// the concurrent dispatch type needs the caller's barriers around the step.
    ///
    /// # Errors
    ///
    /// What [`validate`] refuses; a tensor that its buffer does not hold; what this GPU or system does not serve; faults of the
    /// driver. Except for the last, nothing was put into the encoder.
    ///
    /// # Safety
    ///
    /// As [`Kernel::launch`]: each tensor is initialised where it is read, y and the written state overlap no other tensor, nobody
    /// else uses them meanwhile, slot indices are below the pool's size and unique. The stream is the default one or an encoder
    /// of this GPU on which no other thread encodes, and whose command buffer keeps its resources alive (unless it was
    /// made with unretained references, it does).
    #[allow(unsafe_code)] // the launch level
    pub unsafe fn encode(&self, problem: &Problem, at: &Buffers<'_, G::Buffer>, stream: Stream) -> Result<(), Error> {
        for dispatch in self.dispatches(problem, at)? {
            // SAFETY: the caller's promise, and each tensor lies within its buffer.
            unsafe { self.gpu.encode(&dispatch, stream) }?;
        }
        Ok(())
    }

    /// The dispatches of a step, for an engine whose encoder is behind an interface of its own; [`encode`](Self::encode) puts the same
    /// into a Metal encoder. Each reads and writes what the kernel does: y and the state that is written are outputs, see
    /// [`Encoding::writes`]. Nothing is encoded here.
    ///
    /// # Errors
    ///
    /// What [`validate`] refuses; a tensor that its buffer does not hold; what this GPU or system does not serve.
    pub fn dispatches<'a>(
        &'a self,
        problem: &Problem,
        at: &Buffers<'a, G::Buffer>,
    ) -> Result<impl Iterator<Item = Encoding<'a, G>> + use<'a, G>, Error> {
        let launch = validate(problem, &at.pointers(G::identity))?;
        let tensors = at.by_number();
        let find = |number: usize, binding: Binding| {
            // Absent tensors have no bytes.
            let tensor = tensors[number].unwrap_or(at.x);
            bindings::check_room(number, tensor.offset, binding.bytes, G::length(tensor.buffer))?;
            Ok((tensor.buffer, tensor.offset))
        };
        let bound = match problem.dims.batch {
            0 => None,
            _ => Some((self.ready(&launch)?, bind(&launch, find)?)),
        };
        Ok(bound.into_iter().flat_map(|(ready, tensors)| encodings(ready, tensors)))
    }

    /// Makes a buffer of the caller's known, so that [`Kernel::launch`] takes pointers into it. It has to be one that the CPU sees
    /// (shared or managed storage): a pointer is an address in its contents.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a buffer that the CPU does not see, or that is known already.
    pub fn register(&self, buffer: G::Buffer) -> Result<Registered<G>, Error> {
        let (address, length) = (G::address(&buffer).addr(), G::length(&buffer));
        if address == 0 {
            return Err(Error::invalid("buffer", "one that the CPU sees (`encode` takes any)", "private storage"));
        }
        if !write(&self.table).insert(address, length, buffer) {
            return Err(Error::invalid("buffer", "one that is not registered yet", format!("one at {address:#x}")));
        }
        Ok(Registered { table: Arc::clone(&self.table), address })
    }

    /// The pipeline of a key, compiled by the first thread that asks.
    fn pipeline(&self, key: &Key) -> Result<&G::Pipeline, Error> {
        let number = key.number().ok_or_else(|| Error::unsupported("dtypes", "a kernel's", key))?;
        if let Some(pipeline) = self.pipelines[number].get() {
            return Ok(pipeline);
        }
        let language = self.gpu.facts().language(key)?;
        let _one_at_a_time = lock(&self.compiling[number]);
        if let Some(pipeline) = self.pipelines[number].get() {
            return Ok(pipeline);
        }
        let compiled = self.gpu.compile(key, language, &source::of(key))?;
        check(&compiled)?;
        Ok(self.pipelines[number].get_or_init(|| compiled.pipeline))
    }

    /// How a launch runs, and its kernel.
    fn ready(&self, launch: &Launch) -> Result<(Plan, &G::Pipeline), Error> {
        let plan = Plan::new(launch)?;
        Ok((plan, self.pipeline(&plan.key)?))
    }
}

/// The tensors of a launch, each as `find` has it by its number.
fn bind<'a, B>(
    launch: &Launch,
    find: impl Fn(usize, Binding) -> Result<(&'a B, usize), Error>,
) -> Result<[Bound<'a, B>; TENSORS], Error> {
    let bindings = bindings::of(launch);
    let (x, _) = find(at::X, bindings[at::X])?;
    let mut tensors = [Bound { buffer: x, offset: 0, bytes: 0 }; TENSORS];
    for (number, binding) in bindings.into_iter().enumerate().filter(|(_, binding)| binding.address != 0) {
        let (buffer, offset) = find(number, binding)?;
        tensors[number] = Bound { buffer, offset, bytes: binding.bytes };
    }
    Ok(tensors)
}

/// A launch, ready to be encoded.
fn encodings<'a, G: Gpu>(
    (plan, pipeline): (Plan, &'a G::Pipeline),
    tensors: [Bound<'a, G::Buffer>; TENSORS],
) -> impl Iterator<Item = Encoding<'a, G>> {
    plan.dispatches().map(move |(constants, grid)| Encoding { pipeline, tensors, constants, grid })
}

/// Whether the kernel, as it was compiled here, runs as it is written.
fn check<P>(compiled: &Compiled<P>) -> Result<(), Error> {
    if compiled.thread_execution_width != WAVE as usize {
        let expected = format!("{WAVE} threads of a SIMD-group, for which the kernel is written");
        return Err(Error::unsupported("threadExecutionWidth", expected, compiled.thread_execution_width));
    }
    if compiled.max_threads < THREADS as usize {
        let expected = format!("at least {THREADS}");
        return Err(Error::unsupported("maxTotalThreadsPerThreadgroup", expected, compiled.max_threads));
    }
    Ok(())
}

// No thread panics while it holds one of these; if one did, what is guarded is whole all the same.
fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl<G: Gpu> fmt::Debug for MetalKernel<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetalKernel({})", self.description)
    }
}

impl<G: Gpu> Kernel for MetalKernel<G> {
    fn port(&self) -> &'static str {
        super::PORT.name
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    /// Pointers are addresses in buffers that this port allocated ([`Kernel::memory`]) or that were registered with it
    /// ([`MetalKernel::register`]); the stream is an open `MTLComputeCommandEncoder`. [`MetalKernel::encode`] takes buffers instead.
    #[allow(unsafe_code)] // the launch level
    unsafe fn launch(&self, launch: &Launch, stream: Stream) -> Result<(), Error> {
        if launch.problem().dims.batch == 0 {
            return Ok(());
        }
        // Before the table is locked: a kernel that is being compiled holds up nobody's memory.
        let ready = self.ready(launch)?;
        let table = read(&self.table);
        let find = |number: usize, binding: Binding| table.find(number, binding.address, binding.bytes);
        for dispatch in encodings(ready, bind(launch, find)?) {
            // SAFETY: the caller's promise, and each tensor lies within its buffer.
            unsafe { self.gpu.encode(&dispatch, stream) }?;
        }
        Ok(())
    }

    fn prepare(&self, launches: &[Launch]) -> Result<(), Error> {
        launches.iter().try_for_each(|launch| self.ready(launch).map(|_| ()))
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(self)
    }

    fn step(&self, step: Step<'_>) -> Result<(), Error> {
        staging::step(self, self, &step)
    }
}

impl<G: Gpu> Memory for MetalKernel<G> {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Buffer>, Error> {
        let buffer = self.gpu.allocate(bytes.max(1))?;
        let registered = self.register(buffer.clone())?;
        Ok(Box::new(Allocated { gpu: Arc::clone(&self.gpu), buffer, _registered: registered }))
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.gpu.synchronize()
    }
}

/// A buffer that is known to the port while this lives. Nothing that was launched on pointers into it may be waiting to be encoded
/// when it is dropped; what has been encoded keeps the buffer alive.
#[derive(Debug)]
pub struct Registered<G: Gpu> {
    table: Arc<RwLock<Table<G::Buffer>>>,
    address: usize,
}

impl<G: Gpu> Drop for Registered<G> {
    fn drop(&mut self) {
        write(&self.table).remove(self.address);
    }
}

/// A buffer of the port's own.
#[derive(Debug)]
struct Allocated<G: Gpu> {
    gpu: Arc<G>,
    buffer: G::Buffer,
    _registered: Registered<G>,
}

impl<G: Gpu> Allocated<G> {
    fn check(&self, offset: usize, len: usize) {
        memory::assert_fits(offset, len, G::length(&self.buffer));
    }
}

impl<G: Gpu> Buffer for Allocated<G> {
    fn address(&self) -> *mut c_void {
        G::address(&self.buffer)
    }

    #[allow(unsafe_code)] // a copy between checked ranges
    fn upload(&mut self, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.check(offset, from.len());
        // SAFETY: it fits; the buffer is borrowed exclusively, and a launch that uses it has been waited for.
        unsafe { self.gpu.write(&self.buffer, offset, from) };
        Ok(())
    }

    #[allow(unsafe_code)] // a copy between checked ranges
    fn download(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        self.check(offset, to.len());
        // SAFETY: the buffer has these bytes, and a launch that writes them has been waited for.
        unsafe { self.gpu.read(&self.buffer, offset, to) };
        Ok(())
    }
}
