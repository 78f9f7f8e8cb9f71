//! A simulated device: its memory, its code, and what was last launched on it.
#![deny(unsafe_code)]

mod config;
mod model;

pub use config::{Config, ConfigError, Failure, VARIABLES};
pub use model::Model;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;

use rayon::ThreadPool;

use crate::code_object::{CodeObject, LoadError};
use crate::counters::Counters;
use crate::dispatch::{ArgumentError, Geometry, Hidden, Launch, LoadedCode, pack};
use crate::memory::{AllocationKind, DeviceMemory, HostError};
use crate::report::Report;

/// Bytes of LDS that a work-group can have.
pub const LDS_MAX: u64 = 64 << 10;

/// Names a loaded code object.
pub type ModuleId = u64;

/// Why a launch did not happen, or did not end well.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LaunchError {
    /// An earlier launch failed, and nobody has cleared it.
    #[error("an earlier launch of this device failed")]
    Failed,
    /// There is no such module or kernel.
    #[error("no kernel {0}")]
    NoKernel(String),
    /// The kernel cannot run in this shape, or at all here.
    #[error("{0}")]
    Refused(String),
    /// The arguments are not the kernel's.
    #[error(transparent)]
    Arguments(#[from] ArgumentError),
    /// There is no memory for the arguments.
    #[error(transparent)]
    Memory(#[from] HostError),
    /// The kernel ran, and made a mistake.
    #[error("{0}")]
    Fault(Box<Report>),
}

/// Why a code object was not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    /// It cannot be.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] HostError),
}

/// A simulated device.
#[derive(Debug)]
pub struct Device {
    config: Arc<Config>,
    /// Its memory.
    pub memory: DeviceMemory,
    modules: BTreeMap<ModuleId, Arc<LoadedCode>>,
    next_module: ModuleId,
    pool: Arc<ThreadPool>,
    failed: bool,
    last_report: String,
    last_counters: Counters,
}

impl Device {
    /// A device as configured.
    pub fn new(number: usize, config: Arc<Config>) -> Self {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(config.threads.unwrap_or(0))
            .thread_name(|index| format!("hip-sim {index}"))
            .build()
            .expect("threads can be started");
        Self {
            memory: DeviceMemory::new(number, config.memory),
            config,
            modules: BTreeMap::new(),
            next_module: 1,
            pool: Arc::new(pool),
            failed: false,
            last_report: String::new(),
            last_counters: Counters::default(),
        }
    }

    /// What it was told to be.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether a launch failed since the device was last cleared.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Makes a device usable again after a failed launch. Memory stays as it is.
    pub fn clear(&mut self) {
        self.failed = false;
        self.last_report.clear();
    }

    /// The report of the launch that failed; empty where none did.
    pub fn last_report(&self) -> &str {
        &self.last_report
    }

    /// Counters of the last launch.
    pub fn last_counters(&self) -> &Counters {
        &self.last_counters
    }

    /// Makes an allocation.
    ///
    /// # Errors
    ///
    /// When there is no room.
    pub fn allocate(&mut self, size: u64) -> Result<u64, HostError> {
        self.memory.allocate(size, AllocationKind::Buffer)
    }

    /// Loads a code object.
    ///
    /// # Errors
    ///
    /// When it is none for this device.
    pub fn load(&mut self, bytes: &[u8]) -> Result<ModuleId, ModuleError> {
        let object = CodeObject::read(bytes, self.config.arch)?;
        let code = LoadedCode::load(&mut self.memory, object)?;
        let id = self.next_module;
        self.next_module += 1;
        self.modules.insert(id, Arc::new(code));
        Ok(id)
    }

    /// A loaded code object.
    pub fn module(&self, id: ModuleId) -> Option<&Arc<LoadedCode>> {
        self.modules.get(&id)
    }

    /// Takes a code object out of memory.
    ///
    /// # Errors
    ///
    /// When it is not loaded.
    pub fn unload(&mut self, id: ModuleId) -> Result<(), HostError> {
        match self.modules.remove(&id) {
            Some(code) => self.memory.free(code.base),
            None => Err(HostError::NotAnAllocation { address: id, place: "no module".into() }),
        }
    }

    /// Runs a kernel to its end. `arguments` are the explicit ones, in their layout.
    ///
    /// # Errors
    ///
    /// When the launch is refused, or the kernel makes a mistake: then every later launch is refused until
    /// [`clear`](Self::clear), and what was written stays.
    pub fn launch(
        &mut self,
        module: ModuleId,
        kernel: &str,
        geometry: Geometry,
        dynamic_lds: u32,
        arguments: &[u8],
    ) -> Result<Counters, LaunchError> {
        if self.failed {
            return Err(LaunchError::Failed);
        }
        let code = self.modules.get(&module).ok_or_else(|| LaunchError::NoKernel(kernel.into()))?.clone();
        let kernel = code.object.kernel(kernel).ok_or_else(|| LaunchError::NoKernel(kernel.into()))?;
        let (metadata, descriptor) = (&kernel.metadata, &kernel.descriptor);
        let items: u32 = geometry.block.iter().product();
        let refusal = if !descriptor.wave32 || metadata.wavefront_size != 32 {
            Some(format!("{}: waves of {} lanes, the simulator runs 32", metadata.name, metadata.wavefront_size))
        } else if items > metadata.max_workgroup {
            let most = metadata.max_workgroup;
            Some(format!("{}: a block of {items}, it was compiled for at most {most}", metadata.name))
        } else if metadata.required_workgroup.is_some_and(|required| required != geometry.block) {
            let required = metadata.required_workgroup;
            Some(format!("{}: a block of {:?}, it was compiled for {required:?}", metadata.name, geometry.block))
        } else if metadata.whole_workgroups
            && (0..3).any(|axis| !geometry.grid[axis].is_multiple_of(geometry.block[axis]))
        {
            let Geometry { grid, block } = geometry;
            Some(format!("{}: a grid of {grid:?} in groups of {block:?}, compiled for whole groups", metadata.name))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return Err(LaunchError::Refused(refusal));
        }
        let arguments = pack(metadata, arguments, &Hidden { geometry, dynamic_lds })?;
        let trace = self.config.trace.as_ref();
        let (limits, error_ulp) = (self.config.limits, self.config.error_ulp);
        let arguments = &arguments;
        let launch = Launch { code: &code, kernel, geometry, dynamic_lds, arguments, limits, error_ulp, trace };
        if launch.lds() > LDS_MAX {
            let what = format!("{}: {} bytes of LDS, a work-group has {LDS_MAX}", metadata.name, launch.lds());
            return Err(LaunchError::Refused(what));
        }
        let outcome = launch.run(&mut self.memory, &self.pool)?;
        if let (Some(target), Some(text)) = (trace, &outcome.trace) {
            write_trace(target, &metadata.name, text);
        }
        self.last_counters = outcome.counters;
        match outcome.report {
            None => Ok(self.last_counters.clone()),
            Some(report) => {
                self.failed = true;
                self.last_report = report.to_string();
                Err(LaunchError::Fault(report))
            }
        }
    }
}

/// Appends the trace of a launch. That it cannot be written is told, and changes nothing.
fn write_trace(target: &crate::trace::TraceTarget, kernel: &str, text: &str) {
    let file = OpenOptions::new().create(true).append(true).open(&target.path);
    let written =
        file.and_then(|mut file| write!(file, "{kernel}: work-group {}, wave {}\n{text}\n", target.group, target.wave));
    if let Err(error) = written {
        eprintln!("hip-sim: trace {}: {error}", target.path.display());
    }
}
