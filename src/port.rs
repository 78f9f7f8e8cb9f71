//! The table of ports, the predicate, and the choice. Opening a row is detection, predicate and construction at once, so
//! that the answer "available" and the handle that launches cannot disagree.

use std::any::Any;
use std::ffi::c_void;
use std::fmt::Debug;

use crate::switches::Selection;
use crate::{Error, Launch, Memory, NoPort, Step, Unavailable, ports};

/// One row of the table. Rows are never under `cfg`: a port that was not built answers [`Unavailable::NotBuilt`].
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// The platform's name in lower case.
    pub name: &'static str,
    /// Finds out whether the port can run here and makes its handle.
    pub open: fn() -> Result<Box<dyn Kernel>, Unavailable>,
}

/// Every port, in order of preference. The CPU is last and opens on every machine.
pub static SSM_PORTS: &[Port] = &[ports::rocm::PORT, ports::cuda::PORT, ports::metal::PORT, ports::cpu::PORT];

/// A stream of the caller's that orders launches: a `hipStream_t`, a `CUstream`, an `MTLComputeCommandEncoder`.
/// The CPU port has none and ignores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub *mut c_void);

impl Stream {
    /// The default stream.
    pub const DEFAULT: Self = Self(std::ptr::null_mut());
}

/// An open port. A handle may be used from several threads at once.
///
/// Where a port can more than all of them, such as Metal's with its buffers, the handle is that port's type behind [`Any`].
pub trait Kernel: Any + Send + Sync + Debug {
    /// Name of the port, as in the table.
    fn port(&self) -> &'static str;

    /// The device and the path taken on it, for people.
    fn describe(&self) -> String;

    /// Launch level: queues the step on `stream` and returns. Accelerator ports allocate nothing, copy nothing and wait for
    /// nothing, so that the launch can be captured into a graph. The CPU port has finished when this returns.
    ///
    /// # Errors
    ///
    /// Slot indices that are visible to the host and wrong: nothing has been written then. Faults of the driver
    /// ([`Error::Driver`]): what the step writes is unspecified then.
    ///
    /// # Safety
    ///
    /// The caller vouches for what [`validate`](crate::validate) cannot see:
    /// - each pointer is to memory of this port that holds its whole tensor (shapes in [`Pointers`](crate::Pointers),
    ///   strides in the problem), initialised where it is read, and stays so until the stream has passed this launch;
    /// - y overlaps no other tensor, and the written state none but `state_in`;
    /// - nobody else writes these tensors or reads y and the written state meanwhile;
    /// - slot indices in device memory are below the pool's size, and no two rows share one.
    #[allow(unsafe_code)] // the launch level: raw pointers
    unsafe fn launch(&self, launch: &Launch, stream: Stream) -> Result<(), Error>;

    /// Makes ready what launches like these need, several at once: on ports that compile at run time, their kernels. Without it, the
    /// first of them does that, which may take a second and fails while a stream is captured. Sizes of the batch, strides and
    /// addresses may be others later, as long as the same tensors are there and their alignment is the same. No memory is touched.
    ///
    /// # Errors
    ///
    /// Faults of compiler and driver ([`Error::Driver`]).
    fn prepare(&self, launches: &[Launch]) -> Result<(), Error> {
        let _ = launches;
        Ok(())
    }

    /// Memory for this port's launches; `None` where they work on the host's.
    fn memory(&self) -> Option<&dyn Memory> {
        None
    }

    /// Host level: checks everything, runs the step on host memory and returns when y and the state are there.
    ///
    /// # Errors
    ///
    /// What [`validate`](crate::validate) and [`validate_slots`](crate::validate_slots) refuse, tensors of the wrong length
    /// or layout: nothing has been written then. Faults of the driver ([`Error::Driver`]): nothing of the host's has been
    /// written either, unless copying the results back is what failed.
    fn step(&self, step: Step<'_>) -> Result<(), Error>;
}

/// Whether the fused step should be used: not switched off, and a port of [`SSM_PORTS`] opens.
///
/// It opens the port to find out, which loads a code object on an accelerator: ask once per model, not per token.
pub fn ssm_kernel_available() -> bool {
    has_kernel_port(SSM_PORTS)
}

/// Whether [`select_kernel_port`] would give a handle for this table under the switches in force now.
pub fn has_kernel_port(ports: &[Port]) -> bool {
    select_kernel_port(ports).is_ok()
}

/// Opens the first port of the table that can run here, or exactly the one that `SSM_UPDATE_PORT` names.
///
/// The environment is read here and nowhere on the path of a launch. Which port was taken, and which were passed over for
/// what reason, goes to the `log` crate at level info.
///
/// # Errors
///
/// [`NoPort`] says what switched the step off, or names every port considered and why it was not taken.
pub fn select_kernel_port(ports: &[Port]) -> Result<Box<dyn Kernel>, NoPort> {
    select_with(ports, &Selection::from_env())
}

/// [`select_kernel_port`] with the switches given instead of read from the environment.
///
/// # Errors
///
/// As [`select_kernel_port`].
pub fn select_with(ports: &[Port], switches: &Selection) -> Result<Box<dyn Kernel>, NoPort> {
    if let Some(variable) = switches.switched_off_by() {
        return Err(NoPort::SwitchedOff { variable });
    }
    if let Some(wanted) = &switches.port {
        let row = ports.iter().find(|port| wanted == port.name).ok_or_else(|| NoPort::UnknownName {
            name: wanted.to_string_lossy().into_owned(),
            known: ports.iter().map(|port| port.name).collect(),
        })?;
        return open(row).map_err(|why| NoPort::NamedClosed { name: row.name, why });
    }
    let mut tried = Vec::new();
    for port in ports {
        match open(port) {
            Ok(kernel) => return Ok(kernel),
            Err(why) => tried.push((port.name, why)),
        }
    }
    Err(NoPort::NoneOpened { tried })
}

fn open(port: &Port) -> Result<Box<dyn Kernel>, Unavailable> {
    let opened = (port.open)();
    match &opened {
        Ok(kernel) => log::info!("SSM step on port {}: {}", port.name, kernel.describe()),
        Err(why) => log::info!("SSM port {} passed over: {why}", port.name),
    }
    opened
}
