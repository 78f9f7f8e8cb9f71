//! The scripted HIP runtime of `tests/scripted_hip`, for the tests of the ROCm port.

use std::ffi::{CString, c_char};
use std::ops::Deref;
use std::path::PathBuf;

use ssm_update::ports::rocm::{Image, RocmKernel};
use ssm_update::{Unavailable, switches};

use super::images::good;
use super::scripting::{self, Base, Listed, Sources, control};
#[allow(unused_imports)] // not every test binary uses them
pub use super::scripting::{Call, compile};

const SOURCES: Sources = Sources {
    folder: "scripted_hip",
    texts: &[include_str!("../scripted_hip/script.c"), include_str!("../scripted_hip/script.h")],
};

/// The functions of the list in `src/driver/hip/functions.rs`.
pub fn functions() -> Vec<Listed> {
    scripting::listed("src/driver/hip/functions.rs", &["hip"])
}

/// The library without some functions.
pub fn library(without: &[&str]) -> PathBuf {
    let listed = functions();
    assert!(without.iter().all(|name| listed.iter().any(|f| f.name == *name)), "not in the list: {without:?}");
    let exported: Vec<&str> = listed.iter().map(|f| &f.name[..]).filter(|name| !without.contains(name)).collect();
    SOURCES.library(&[], &exported)
}

control! {
    Control:
    set_devices = b"script_set_devices"(i32);
    set_device = b"script_set_device"(i32, *const c_char, i32);
    live_modules = b"script_live_modules"() -> u32;
    current_device = b"script_current_device"() -> i32;
    set_current_device = b"script_set_current_device"(i32);
}

/// A scripted runtime.
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
    /// One device that there is a code object for, and every function.
    pub fn new() -> Self {
        Self::without(&[])
    }

    /// As [`Script::new`], without some functions.
    pub fn without(missing: &[&str]) -> Self {
        let base = Base::copy_of(&library(missing), &SOURCES);
        let script = Self { control: Control::of(base.library()), base };
        script.set_devices(&[(good().target, 32)]);
        script
    }

    /// Switches by which the port loads exactly this runtime.
    pub fn switches(&self) -> switches::Rocm {
        switches::Rocm { library: Some(self.path().to_owned().into_os_string()), ..switches::Rocm::default() }
    }

    /// Opens the port on it.
    pub fn open(&self, device: Option<i32>, images: &[Image<'_>]) -> Result<RocmKernel, Unavailable> {
        RocmKernel::open(&self.switches(), device, images)
    }

    /// Devices with their architectures and lanes.
    pub fn set_devices(&self, devices: &[(&str, i32)]) {
        // SAFETY: as for every call below, script.h asks nothing of its callers but valid pointers.
        unsafe { (self.control.set_devices)(devices.len().try_into().expect("a few")) };
        for (number, (architecture, lanes)) in (0..).zip(devices) {
            let architecture = CString::new(*architecture).expect("no zero byte");
            // SAFETY: a text that ends in zero.
            unsafe { (self.control.set_device)(number, architecture.as_ptr(), *lanes) };
        }
    }

    /// Modules that are loaded and allocations that are not freed.
    pub fn live(&self) -> (u32, u32) {
        // SAFETY: see `set_devices`.
        unsafe { ((self.control.live_modules)(), self.live_allocations()) }
    }

    /// The calling thread's device.
    pub fn current_device(&self) -> i32 {
        // SAFETY: see `set_devices`.
        unsafe { (self.control.current_device)() }
    }

    /// Makes a device the calling thread's, as the engine around the port may have done.
    pub fn set_current_device(&self, device: i32) {
        // SAFETY: see `set_devices`.
        unsafe { (self.control.set_current_device)(device) };
    }

    /// Nothing is left, and nothing was misused.
    ///
    /// # Panics
    ///
    /// When that is not so.
    pub fn assert_clean(&self, when: &str) {
        assert_eq!(self.live(), (0, 0), "modules and allocations that are left, {when}");
        assert_eq!(self.misuses(), 0, "handles misused, {when}");
    }
}
