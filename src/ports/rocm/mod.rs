//! The ROCm port: code objects that were compiled ahead of time, loaded through the HIP module API.
//!
//! - `built` is what the build script put on board, `variant` the kernels' names;
//! - `plan` turns a checked launch into kernel, parameters and grid.
//!
//! The HIP runtime is looked for when the port is opened, and everything is loaded then: a launch is one call of the driver.

mod built;
pub mod plan;
pub mod variant;

use std::fmt;

pub use built::{BUILT, Built, Image, Origin};

use crate::code_object::CodeObject;
use crate::driver::hip::{self, Function, Hip, Module, library};
use crate::memory::{Buffer, Memory};
use crate::ports::gpu::abi;
use crate::{DriverError, Error, Kernel, Launch, Port, Step, Stream, Unavailable, staging, switches};
use plan::Plan;

/// The row of the table.
pub const PORT: Port = Port { name: "rocm", open };

/// Lanes that the device has to report.
const WAVEFRONT: i32 = variant::WAVE as i32;

fn open() -> Result<Box<dyn Kernel>, Unavailable> {
    if let Origin::Absent { why } = BUILT.origin {
        return Err(Unavailable::NotBuilt(why.to_owned()));
    }
    Ok(Box::new(RocmKernel::open(&switches::Rocm::from_env(), None, BUILT.images)?))
}

/// The open ROCm port on one device. May be used by several threads at once, each with a stream of its own.
pub struct RocmKernel {
    hip: &'static Hip,
    device: i32,
    /// The kernels, in the order of [`variant::names`]. They end with the module.
    functions: Vec<Function>,
    #[allow(dead_code)] // owns the functions
    module: Module,
    architecture: String,
    description: String,
}

impl RocmKernel {
    /// The device's architecture, such as `gfx1151`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The name by which the HIP runtime was loaded; `linked` where the program is linked to it.
    pub fn library(&self) -> &str {
        self.hip.origin()
    }

    /// Opens the port on a device, the calling thread's current one unless told: finds the HIP runtime, asks the device for its
    /// wave width and architecture, and loads the image that was compiled for exactly this architecture.
    ///
    /// [`BUILT`] has the images on board. The thread's current device is the same afterwards.
    ///
    /// # Errors
    ///
    /// The first thing that stands in the way. Nothing stays loaded then.
    #[allow(unsafe_code)] // the image is whole
    pub fn open(switches: &switches::Rocm, device: Option<i32>, images: &[Image<'_>]) -> Result<Self, Unavailable> {
        let hip = library::load(switches)?;
        // Asked first, since it says `hipErrorNoDevice` where the initialisation of older runtimes says `hipErrorInvalidDevice`.
        let count = hip.device_count()?;
        hip.init()?;
        if count < 1 {
            let advice = hip::NO_DEVICE_ADVICE;
            return Err(Unavailable::NoDevice(format!(
                "the HIP runtime ({}) reports no device; {advice}",
                hip.origin()
            )));
        }
        let device = match device {
            Some(device) => device,
            None => hip.current_device()?,
        };
        if !(0..count).contains(&device) {
            return Err(Unavailable::NoDevice(format!("device {device} of {count}, counted from 0, does not exist")));
        }
        let _current = hip.use_device(device)?;

        // The fifth layer of the wave32 guard; a query that fails counts as not 32.
        let reported = match hip.wavefront(device) {
            Ok(WAVEFRONT) => None,
            Ok(lanes) => Some(lanes.to_string()),
            Err(error) => Some(format!("an error: {error}")),
        };
        if let Some(reported) = reported {
            return Err(Unavailable::Wavefront { device, reported });
        }
        let properties = hip.properties(device)?.ok_or_else(|| {
            Unavailable::NoDevice(format!(
                "the HIP runtime ({}) has neither hipGetDevicePropertiesR0600 nor hipGetDeviceProperties, so that the \
                 architecture of device {device} is not known",
                hip.origin()
            ))
        })?;

        let loading = Loading { switches, architecture: &properties.architecture };
        let image = images.iter().find(|image| image.target == properties.architecture).ok_or_else(|| {
            Unavailable::Architecture {
                device,
                architecture: properties.architecture.clone(),
                on_board: images.iter().map(|image| image.target.to_owned()).collect(),
                note: loading.note(),
            }
        })?;
        let names = variant::names();
        CodeObject::read(image.bytes)
            .and_then(|object| object.check(image.target, &names, size_of::<abi::Params>() as u64))
            .map_err(|fault| Unavailable::CodeObject {
                target: image.target.to_owned(),
                fault: format!("{fault}{}", loading.note()),
            })?;
        // SAFETY: `read` found every part that the image's headers name within it.
        let module = unsafe { hip.load_module(image.bytes) }.map_err(|error| loading.failed(error))?;
        let functions = names.iter().map(|name| module.function(name)).collect::<Result<_, _>>();
        let functions = functions.map_err(|error| loading.failed(error))?;

        let version = hip.version().unwrap_or_else(|| "of unknown version".to_owned());
        let description = format!(
            "{} ({}), device {device}, HIP {version} from {}, code object by {}",
            properties.architecture,
            properties.name,
            hip.origin(),
            image.compiler
        );
        Ok(Self { hip, device, functions, module, architecture: properties.architecture, description })
    }
}

/// What belongs into the message when a code object does not load.
struct Loading<'a> {
    switches: &'a switches::Rocm,
    architecture: &'a str,
}

impl Loading<'_> {
    fn note(&self) -> String {
        self.switches.hsa_override.as_ref().map_or_else(String::new, |value| {
            format!(
                "; {}={} is set: it makes the device claim an architecture that it may not have, unset it",
                switches::HSA_OVERRIDE,
                value.to_string_lossy()
            )
        })
    }

    fn failed(&self, mut error: Box<DriverError>) -> Unavailable {
        error.call = format!("{} for {}", error.call, self.architecture);
        error.advice = format!("{}{}", error.advice, self.note()).trim_start_matches("; ").to_owned();
        Unavailable::Driver(error)
    }
}

impl fmt::Debug for RocmKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RocmKernel({})", self.description)
    }
}

impl Kernel for RocmKernel {
    fn port(&self) -> &'static str {
        PORT.name
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    #[allow(unsafe_code)] // the launch level
    unsafe fn launch(&self, launch: &Launch, stream: Stream) -> Result<(), Error> {
        if launch.problem().dims.batch == 0 {
            return Ok(());
        }
        let plan = Plan::new(launch)?;
        let function = &self.functions[plan.kernel];
        let _device = self.hip.use_device(self.device)?;
        for (params, grid) in plan.launches() {
            // SAFETY: `params` is the kernels' struct (checked when the code object was loaded) and holds pointers that the
            // caller vouches for; the device on which the kernel was loaded is current.
            unsafe { self.hip.launch(function, grid, [variant::WORK_GROUP, 1, 1], &params, stream) }?;
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

impl Memory for RocmKernel {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Buffer>, Error> {
        let _device = self.hip.use_device(self.device)?;
        Ok(Box::new(self.hip.allocate(bytes)?))
    }

    #[allow(unsafe_code)] // the stream is known
    fn synchronize(&self) -> Result<(), Error> {
        let _device = self.hip.use_device(self.device)?;
        // SAFETY: the default stream is always there.
        unsafe { self.hip.synchronize(Stream::DEFAULT) }.map_err(Error::Driver)
    }
}
