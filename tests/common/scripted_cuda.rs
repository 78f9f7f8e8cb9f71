//! The scripted CUDA driver and the scripted NVRTC of `tests/scripted_cuda`, in one library, for the tests of the CUDA port.

use std::ffi::{CString, c_char};
use std::ops::Deref;
use std::path::PathBuf;

use ssm_update::ports::cuda::CudaKernel;
use ssm_update::{Unavailable, switches};

use super::scripting::{self, Base, Listed, Sources, control};

const SOURCES: Sources = Sources {
    folder: "scripted_cuda",
    texts: &[include_str!("../scripted_cuda/script.c"), include_str!("../scripted_cuda/script.h")],
};

const LIST: &str = "src/driver/cuda/functions.rs";

/// The functions of the driver.
pub fn driver_functions() -> Vec<Listed> {
    scripting::listed(LIST, &["cu"])
}

/// The functions of NVRTC.
pub fn nvrtc_functions() -> Vec<Listed> {
    scripting::listed(LIST, &["nvrtc"])
}

/// The library without some functions, and with an NVRTC of a version.
pub fn library(without: &[&str], nvrtc: (i32, i32)) -> PathBuf {
    library_of(DRIVER, without, nvrtc)
}

/// The same with a driver that serves a version of CUDA: 12040 for 12.4.
pub fn library_of(driver: i32, without: &[&str], nvrtc: (i32, i32)) -> PathBuf {
    let listed = [driver_functions(), nvrtc_functions()].concat();
    assert!(without.iter().all(|name| listed.iter().any(|f| f.name == *name)), "not in the list: {without:?}");
    let exported: Vec<&str> = listed.iter().map(|f| &f.name[..]).filter(|name| !without.contains(name)).collect();
    let macros = [("DRIVER_VERSION", driver), ("NVRTC_MAJOR", nvrtc.0), ("NVRTC_MINOR", nvrtc.1)];
    SOURCES.library(&macros.map(|(name, value)| format!("-D{name}={value}")), &exported)
}

/// The version of the scripted NVRTC, unless it is told otherwise.
pub const NVRTC: (i32, i32) = (12, 4);
/// The version of CUDA that the scripted driver serves, unless it is told otherwise.
pub const DRIVER: i32 = 12_040;

control! {
    Control:
    set_driver = b"script_set_driver"(i32);
    set_devices = b"script_set_devices"(i32);
    set_device = b"script_set_device"(i32, i32, i32, i32);
    make_context = b"script_make_context"(i32) -> u64;
    end_context = b"script_end_context"(u64);
    retain_primary = b"script_retain_primary"(i32) -> u64;
    release_primary = b"script_release_primary"(i32);
    primary_references = b"script_primary_references"(i32) -> u32;
    clear_stack = b"script_clear_stack"();
    push = b"script_push"(u64);
    depth = b"script_depth"() -> u32;
    current = b"script_current"() -> u64;
    set_capturing = b"script_set_capturing"(u64, i32);
    reset = b"script_reset"();
    live_modules = b"script_live_modules"() -> u32;
    live_programs = b"script_live_programs"() -> u32;
    set_nvrtc = b"script_set_nvrtc"(i32, i32);
    set_architectures = b"script_set_architectures"(*const i32, i32);
    set_log = b"script_set_log"(*const c_char);
    set_cubin_bytes = b"script_set_cubin_bytes"(i64);
    set_meeting = b"script_set_meeting"(u32, u32);
    most_compiling = b"script_most_compiling"() -> u32;
}

/// Bytes of a scripted device's L2 cache, unless it is told otherwise.
pub const L2_BYTES: i32 = 50 << 20;

/// A scripted driver with its NVRTC.
#[derive(Debug)]
pub struct Script {
    base: Base,
    control: Control,
}

impl Deref for Script {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl Script {
    /// One device of compute capability 9.0, and every function.
    pub fn new() -> Self {
        Self::without(&[])
    }

    /// As [`Script::new`], without some functions.
    pub fn without(missing: &[&str]) -> Self {
        let base = Base::copy_of(&library(missing, NVRTC), &SOURCES);
        Self { control: Control::of(base.library()), base }
    }

    /// Switches by which the port loads exactly this library, and keeps nothing on disk.
    pub fn switches(&self) -> switches::Cuda {
        let path = || Some(self.path().to_owned().into_os_string());
        switches::Cuda { library: path(), nvrtc: path(), toolkit: None, cache_dir: Some("".into()) }
    }

    /// Opens the port on it, without a cache.
    pub fn open(&self, device: Option<i32>) -> Result<CudaKernel, Unavailable> {
        CudaKernel::open(&self.switches(), device)
    }

    /// The version of CUDA that the driver serves: 12040 for 12.4.
    pub fn set_driver(&self, version: i32) {
        // SAFETY: as for every call below, script.h asks nothing of its callers but valid pointers.
        unsafe { (self.control.set_driver)(version) };
    }

    /// Devices with their compute capabilities.
    pub fn set_devices(&self, capabilities: &[(i32, i32)]) {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.set_devices)(capabilities.len().try_into().expect("a few")) };
        for (number, &(major, minor)) in (0..).zip(capabilities) {
            self.set_device(number, (major, minor), L2_BYTES);
        }
    }

    /// Compute capability and cache of a device.
    pub fn set_device(&self, device: i32, capability: (i32, i32), l2_bytes: i32) {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.set_device)(device, capability.0, capability.1, l2_bytes) };
    }

    /// A context of the caller's own on a device.
    pub fn make_context(&self, device: i32) -> u64 {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.make_context)(device) }
    }

    /// Ends a context, wherever it is current.
    pub fn end_context(&self, context: u64) {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.end_context)(context) };
    }

    /// The primary context of a device, retained once more.
    pub fn retain_primary(&self, device: i32) -> u64 {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.retain_primary)(device) }
    }

    /// Gives back what [`Script::retain_primary`] retained.
    pub fn release_primary(&self, device: i32) {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.release_primary)(device) };
    }

    /// How often a primary context is retained.
    pub fn primary_references(&self, device: i32) -> u32 {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.primary_references)(device) }
    }

    /// Makes these contexts the calling thread's stack, the last one its current one.
    pub fn set_stack(&self, contexts: &[u64]) {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.clear_stack)() };
        for &context in contexts {
            // SAFETY: see `set_driver`.
            unsafe { (self.control.push)(context) };
        }
    }

    /// Depth and top of the calling thread's stack of contexts.
    pub fn stack(&self) -> (u32, u64) {
        // SAFETY: see `set_driver`.
        unsafe { ((self.control.depth)(), (self.control.current)()) }
    }

    /// Whether a stream is being captured.
    pub fn set_capturing(&self, stream: u64, on: bool) {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.set_capturing)(stream, on.into()) };
    }

    /// Gives up every handle, for what a lost device keeps.
    pub fn reset(&self) {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.reset)() };
    }

    /// Modules that are loaded, allocations that are not freed, programs that are not destroyed.
    pub fn live(&self) -> (u32, u32, u32) {
        // SAFETY: see `set_driver`.
        unsafe { ((self.control.live_modules)(), self.live_allocations(), (self.control.live_programs)()) }
    }

    /// NVRTC's version.
    pub fn set_nvrtc(&self, version: (i32, i32)) {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.set_nvrtc)(version.0, version.1) };
    }

    /// What NVRTC compiles for: 90 for sm_90.
    pub fn set_architectures(&self, architectures: &[i32]) {
        let count = architectures.len().try_into().expect("a few");
        // SAFETY: so many numbers, which the script copies.
        unsafe { (self.control.set_architectures)(architectures.as_ptr(), count) };
    }

    /// What NVRTC says of each program from now on.
    pub fn set_log(&self, text: &str) {
        let text = CString::new(text).expect("no zero byte");
        // SAFETY: a text that ends in zero, which the script copies.
        unsafe { (self.control.set_log)(text.as_ptr()) };
    }

    /// Bytes that each CUBIN is said to have.
    pub fn set_cubin_bytes(&self, bytes: i64) {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.set_cubin_bytes)(bytes) };
    }

    /// Compilations wait until so many are under way at once, or so long.
    pub fn set_meeting(&self, count: u32, milliseconds: u32) {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.set_meeting)(count, milliseconds) };
    }

    /// The most compilations that were under way at once.
    pub fn most_compiling(&self) -> u32 {
        // SAFETY: see `set_driver`.
        unsafe { (self.control.most_compiling)() }
    }

    /// Nothing is left, nothing was misused, and no primary context is kept alive.
    ///
    /// # Panics
    ///
    /// When that is not so.
    pub fn assert_clean(&self, when: &str) {
        assert_eq!(self.live(), (0, 0, 0), "modules, allocations and programs that are left, {when}");
        assert_eq!(self.misuses(), 0, "handles misused, {when}");
        for device in 0..8 {
            assert_eq!(
                self.primary_references(device),
                0,
                "the primary context of device {device} is retained, {when}"
            );
        }
    }
}
