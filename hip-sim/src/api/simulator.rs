//! What the simulator has beside HIP: reports and counters of the current device.

use std::ffi::{c_char, c_void};

use super::runtime::Runtime;
use super::status::Status;
use crate::counters::{CLASSES, Counters, SPACES, SpaceTraffic, Traffic};

/// [`Counters`] in C's layout, without the allocations.
#[allow(non_camel_case_types, reason = "a name of the C interface")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct hip_sim_launch_counters {
    /// Work-groups that ran.
    pub groups: u64,
    /// Waves that ran.
    pub waves: u64,
    /// Instructions by class: scalar, vector, scalar memory, global, flat, scratch, LDS, branches, control.
    pub instructions: [u64; CLASSES.len()],
    /// Active lanes, summed over vector instructions.
    pub active_lanes: u64,
    /// Traffic by space: global, flat, scratch, LDS, scalar.
    pub spaces: [SpaceTraffic; SPACES.len()],
}

impl From<&Counters> for hip_sim_launch_counters {
    fn from(counters: &Counters) -> Self {
        let Counters { groups, waves, instructions, active_lanes, spaces, .. } = *counters;
        Self { groups, waves, instructions, active_lanes, spaces }
    }
}

/// Copies what fits of a value to the caller, in C's layout.
///
/// # Safety
///
/// The pointer is null, or valid for writes of `size` bytes.
unsafe fn copy_out<T: Copy>(pointer: *mut c_void, size: usize, value: &T) -> i32 {
    if pointer.is_null() {
        return Status::INVALID_VALUE.0;
    }
    // Older callers know fewer fields.
    let size = size.min(size_of::<T>());
    // SAFETY: the source is a value of at least that size; the target is valid by this function's contract, and no part of
    // the simulator's memory.
    unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), pointer.cast(), size) };
    Status::SUCCESS.0
}

/// The report of the current device's failed launch as a C string, cut to `size` bytes with its null. Answers the bytes that
/// all of it takes, with the null: 1 where no launch failed.
///
/// # Safety
///
/// The pointer is null, or valid for writes of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hip_sim_last_report(text: *mut c_char, size: usize) -> usize {
    let report = Runtime::get().and_then(|runtime| {
        let device = runtime.any_device(runtime.current()).ok()?;
        Some(device.last_report().to_owned())
    });
    let report = report.unwrap_or_default();
    if !text.is_null() && size > 0 {
        let length = report.len().min(size - 1);
        // SAFETY: the text has that many bytes, and the target one more, by this function's contract.
        unsafe { std::ptr::copy_nonoverlapping(report.as_ptr(), text.cast(), length) };
        // SAFETY: the byte behind them is within `size`.
        unsafe { text.add(length).write(0) };
    }
    report.len() + 1
}

/// Makes the current device usable again after a failed launch.
#[unsafe(no_mangle)]
pub extern "C" fn hip_sim_clear() -> i32 {
    let Some(runtime) = Runtime::get() else { return Status::NOT_INITIALIZED.0 };
    match runtime.any_device(runtime.current()) {
        Ok(mut device) => {
            device.clear();
            Status::SUCCESS.0
        }
        Err(status) => status.0,
    }
}

/// Counters of the current device's last launch: the first `size` bytes of [`hip_sim_launch_counters`].
///
/// # Safety
///
/// The pointer is null, or valid for writes of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hip_sim_counters(counters: *mut hip_sim_launch_counters, size: usize) -> i32 {
    let Some(runtime) = Runtime::get() else { return Status::NOT_INITIALIZED.0 };
    let Ok(device) = runtime.any_device(runtime.current()) else { return Status::NO_DEVICE.0 };
    let value = hip_sim_launch_counters::from(device.last_counters());
    // SAFETY: by this function's contract.
    unsafe { copy_out(counters.cast(), size, &value) }
}

/// What the current device's last launch moved in the allocation that begins at `address`: the first `size` bytes of
/// [`Traffic`]: read, written, different bytes read, different bytes written.
///
/// # Safety
///
/// The pointer is null, or valid for writes of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hip_sim_traffic(address: *const c_void, traffic: *mut Traffic, size: usize) -> i32 {
    let Some(runtime) = Runtime::get() else { return Status::NOT_INITIALIZED.0 };
    let Ok(device) = runtime.any_device(runtime.current()) else { return Status::NO_DEVICE.0 };
    let value = device.last_counters().of_allocation(address as u64);
    // SAFETY: by this function's contract.
    unsafe { copy_out(traffic.cast(), size, &value) }
}
