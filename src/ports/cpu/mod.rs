//! The CPU port: one pass over the state, each byte read once and written once, on every core that pays.
//!
//! - `isa` finds the instruction set at run time; `vector` is what an instruction set has to offer, and `avx512`, `avx2` and
//!   `portable` (any other processor, AArch64 among them) offer it;
//! - `rows` is the step itself, written once over `vector`;
//! - `pool` runs it on threads; a launch is cut into pieces of whole row blocks, whose results do not depend on the cut,
//!   so that any number of threads gives the same bits.

use std::fmt;
use std::sync::Arc;

use crate::switches;
use crate::{Error, Kernel, Launch, Port, Step, Stream, Unavailable, validate_slots};

mod isa;
mod pool;
#[allow(unsafe_code)] // the SIMD part: raw pointers that `validate` and the caller vouch for
mod rows;
#[allow(unsafe_code)]
mod vector;

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
#[allow(unsafe_code)]
mod portable;

pub use isa::Isa;
pub use pool::{Pool, RayonPool};

/// The row of the table.
pub const PORT: Port = Port { name: "cpu", open };

/// State bytes that are worth a thread: handing a piece to a worker that is awake takes 1 us, in which one core moves about
/// this much in cache.
const BYTES_PER_THREAD: usize = 96 * 1024;

fn open() -> Result<Box<dyn Kernel>, Unavailable> {
    let switches = switches::Cpu::from_env();
    let isa = match &switches.isa {
        None => Isa::detect(),
        Some(wanted) => Isa::from_switch(wanted)?,
    };
    let threads = match &switches.threads {
        None => usize::MAX,
        Some(value) => {
            value.to_str().and_then(|text| text.parse().ok()).filter(|&threads| threads > 0).ok_or_else(|| {
                Unavailable::Switch {
                    variable: switches::CPU_THREADS,
                    value: value.to_string_lossy().into_owned(),
                    reason: "expected a whole number from 1".to_owned(),
                }
            })?
        }
    };
    Ok(Box::new(CpuKernel { isa, threads, pool: Arc::new(RayonPool::global()) }))
}

/// The open CPU port.
#[derive(Clone)]
pub struct CpuKernel {
    isa: Isa,
    threads: usize,
    pool: Arc<dyn Pool>,
}

impl CpuKernel {
    /// A handle for one instruction set, with a pool of the caller's, of which at most `threads` threads are used (a
    /// `threads` of 0 counts as 1). [`Isa::available`] lists the instruction sets of this machine, best first.
    pub fn new(isa: Isa, threads: usize, pool: Arc<dyn Pool>) -> Self {
        Self { isa, threads: threads.max(1), pool }
    }

    fn threads(&self) -> usize {
        self.threads.min(self.pool.threads())
    }
}

impl fmt::Debug for CpuKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuKernel({})", self.describe())
    }
}

impl Kernel for CpuKernel {
    fn port(&self) -> &'static str {
        PORT.name
    }

    fn describe(&self) -> String {
        format!("{} instructions, up to {} threads", self.isa.name(), self.threads())
    }

    #[allow(unsafe_code)] // the launch level
    unsafe fn launch(&self, launch: &Launch, _stream: Stream) -> Result<(), Error> {
        let problem = launch.problem();
        // SAFETY: the caller vouches for `batch` indices behind each list that is not null.
        let (slots_in, slots_out) = unsafe { launch.slot_lists() };
        validate_slots(&problem.dims, slots_in, slots_out, problem.update_state, launch.in_place())?;
        // SAFETY: the slots were checked above; the rest is this function's own contract.
        unsafe { self.run(launch) };
        Ok(())
    }

    #[allow(unsafe_code)] // the way down to the launch level
    fn step(&self, step: Step<'_>) -> Result<(), Error> {
        let launch = step.bind()?;
        // SAFETY: `bind` checked lengths, layouts and slots of borrows that `step` holds: shared ones for what is read,
        // exclusive ones for y and the written state, so that nothing overlaps and nobody else writes.
        unsafe { self.run(&launch) };
        Ok(())
    }
}

impl CpuKernel {
    /// # Safety
    ///
    /// The contract of [`Kernel::launch`], with slots that passed [`validate_slots`].
    #[allow(unsafe_code)]
    unsafe fn run(&self, launch: &Launch) {
        let plan = rows::Plan::new(launch, self.isa);
        let useful = (plan.state_bytes() / BYTES_PER_THREAD).max(1);
        let tasks = self.threads().min(useful).min(plan.blocks()).max(1);
        let task = |index: usize| {
            // Whole blocks, spread evenly: task i gets [i * blocks / tasks, (i + 1) * blocks / tasks).
            let cut = |index: usize| (plan.blocks() as u128 * index as u128 / tasks as u128) as usize;
            // SAFETY: the caller's contract; the ranges of different tasks are disjoint.
            unsafe { plan.run(cut(index)..cut(index + 1)) };
        };
        match tasks {
            1 => task(0),
            _ => self.pool.run(tasks, &task),
        }
    }
}
