//! The CUDA port: one kernel source on board, compiled by NVRTC for the device that is there when a problem first needs it, and
//! kept on disk.
//!
//! - `source` is what is compiled, `key` what a compiled kernel depends on, `compiler` NVRTC with `cache`, the compiled ones on
//!   disk, and `modules` those that are loaded;
//! - `plan` turns a checked launch into key, parameters and grid.
//!
//! Driver and compiler are looked for when the port is opened. A launch whose kernel is loaded is one call of the driver, beside the
//! question which context the thread has.

pub mod cache;
pub mod compiler;
pub mod key;
mod modules;
pub mod plan;
mod source;

use std::collections::HashSet;
use std::fmt;

use rayon::prelude::*;

use crate::driver::cuda::{self, Context, library};
use crate::memory::{Buffer, Memory};
use crate::{DriverError, Error, Kernel, Launch, Port, Step, Stream, Unavailable, staging, switches};
use compiler::Compiler;
use key::Key;
use modules::Modules;
use plan::Plan;

/// The row of the table.
pub const PORT: Port = Port { name: "cuda", open };

/// The oldest compute capability that the source is written for.
const OLDEST: (i32, i32) = (7, 0);
/// The oldest whose launches can overlap (programmatic dependent launch), and the oldest driver that captures such launches into
/// graphs, that of CUDA 12.3.
const OVERLAP: (i32, i32) = (9, 0);
const OVERLAP_DRIVER: i32 = 12_030;

fn open() -> Result<Box<dyn Kernel>, Unavailable> {
    Ok(Box::new(CudaKernel::open(&switches::Cuda::from_env(), None)?))
}

/// The open CUDA port on one device. May be used by several threads at once, each with a stream of its own.
pub struct CudaKernel {
    modules: Modules,
    compiler: Compiler,
    l2_bytes: u64,
    overlap: bool,
    description: String,
    /// Last, so that it outlives the modules.
    context: Context,
}

impl CudaKernel {
    /// Opens the port on a device: finds driver and NVRTC, asks the device for its compute capability, and sees that a small
    /// kernel compiles and loads. Without a device named, that of the calling thread's context, or else the first.
    ///
    /// The port works in the calling thread's context where that is of the device, and else in the device's primary context, as
    /// CUDA's runtime does. Streams and memory of the launch level have to be of the same context.
    ///
    /// # Errors
    ///
    /// The first thing that stands in the way. Nothing stays loaded then but the libraries.
    pub fn open(switches: &switches::Cuda, device: Option<i32>) -> Result<Self, Unavailable> {
        let cuda = library::driver(switches)?;
        cuda.init()?;
        let count = cuda.device_count()?;
        if count < 1 {
            let (origin, advice) = (cuda.origin(), cuda::NO_DEVICE_ADVICE);
            return Err(Unavailable::NoDevice(format!("the CUDA driver ({origin}) reports no device; {advice}")));
        }
        let device = match device {
            Some(device) => device,
            None => cuda.current_device()?.unwrap_or(0),
        };
        if !(0..count).contains(&device) {
            return Err(Unavailable::NoDevice(format!("device {device} of {count}, counted from 0, does not exist")));
        }
        let properties = cuda.properties(device)?;
        let (major, minor) = properties.capability;
        if properties.capability < OLDEST {
            return Err(Unavailable::NoDevice(format!(
                "device {device} ({}) has compute capability {major}.{minor}, and the kernel needs {}.{} or newer",
                properties.name, OLDEST.0, OLDEST.1
            )));
        }

        let version = cuda.version()?;
        let compiler = Compiler::for_device(switches, version, properties.capability)?;
        let description = format!(
            "{} (sm_{major}{minor}), device {device}, CUDA driver for {} from {}, {compiler}",
            properties.name,
            compiler::dotted(version),
            cuda.origin(),
        );
        let context = cuda.context(device)?;
        modules::load(&context, &compiler.probe()?, source::PROBE_ENTRY)?;
        Ok(Self {
            modules: Modules::default(),
            compiler,
            l2_bytes: u64::try_from(properties.l2_bytes).unwrap_or(0),
            overlap: properties.capability >= OVERLAP && version >= OVERLAP_DRIVER,
            description,
            context,
        })
    }
}

impl fmt::Debug for CudaKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaKernel({})", self.description)
    }
}

impl Kernel for CudaKernel {
    fn port(&self) -> &'static str {
        PORT.name
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn prepare(&self, launches: &[Launch]) -> Result<(), Error> {
        let keys: HashSet<Key> = launches.iter().map(Key::of).collect();
        let made = keys
            .into_par_iter()
            .map(|key| self.modules.get(&key, &self.compiler, &self.context, || Ok(())).map(|_| ()));
        made.collect::<Result<(), _>>().map_err(Error::Driver)
    }

    #[allow(unsafe_code)] // the launch level
    unsafe fn launch(&self, launch: &Launch, stream: Stream) -> Result<(), Error> {
        if launch.problem().dims.batch == 0 {
            return Ok(());
        }
        let plan = Plan::new(launch, self.l2_bytes)?;
        let function = self.modules.get(&plan.key, &self.compiler, &self.context, || {
            // SAFETY: the caller vouches for the stream.
            match unsafe { self.context.is_capturing(stream) }? {
                true => Err(not_prepared()),
                false => Ok(()),
            }
        })?;
        for (params, grid) in plan.launches() {
            // SAFETY: `params` is the kernel's struct and holds pointers that the caller vouches for; the kernel waits for what is
            // queued ahead of it.
            unsafe { self.context.launch(function, grid, Plan::BLOCK, &params, stream, self.overlap) }?;
        }
        Ok(())
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(self)
    }

    fn step(&self, step: Step<'_>) -> Result<(), Error> {
        staging::step(self, self, &step)
    }
}

#[cold]
fn not_prepared() -> Box<DriverError> {
    Box::new(DriverError {
        call: "loading a kernel while a stream is captured".to_owned(),
        code: 900,
        name: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED".to_owned(),
        text: "the kernel of this problem is not loaded yet".to_owned(),
        advice: "pass the launch to Kernel::prepare, or launch it once, before the capture begins".to_owned(),
    })
}

impl Memory for CudaKernel {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Buffer>, Error> {
        Ok(Box::new(self.context.allocate(bytes)?))
    }

    #[allow(unsafe_code)] // the stream is known
    fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: the default stream is always there.
        unsafe { self.context.synchronize(Stream::DEFAULT) }.map_err(Error::Driver)
    }
}
