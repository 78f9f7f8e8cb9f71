//! Copies and fills. They are done when the call returns.

use std::ffi::c_void;

use super::enter::{bytes, bytes_mut, exports};
use super::graphs::{Node, check_waiting_copy, not_captured, queue};
use super::runtime::Runtime;
use super::status::Status;
use crate::memory::DeviceMemory;

/// Values of `hipMemcpyKind`.
const HOST_TO_HOST: i32 = 0;
const HOST_TO_DEVICE: i32 = 1;
const DEVICE_TO_HOST: i32 = 2;
const DEVICE_TO_DEVICE: i32 = 3;
const DEFAULT: i32 = 4;

/// The kind that two addresses have, whatever the caller says: device addresses are of a range of their own.
fn kind_of(to: u64, from: u64) -> i32 {
    match (DeviceMemory::is_device_address(to), DeviceMemory::is_device_address(from)) {
        (false, false) => HOST_TO_HOST,
        (true, false) => HOST_TO_DEVICE,
        (false, true) => DEVICE_TO_HOST,
        (true, true) => DEVICE_TO_DEVICE,
    }
}

/// The device that an address belongs to.
pub(super) fn owner(runtime: &Runtime, address: u64) -> Result<usize, Status> {
    for number in 0..runtime.device_count() {
        if runtime.any_device(number)?.memory.find(address).is_some() {
            return Ok(number);
        }
    }
    // No device has it: the current one says where it lies.
    Ok(runtime.current())
}

/// Copies as the kind says.
///
/// # Safety
///
/// A host address is null or valid for that many bytes.
unsafe fn copy(runtime: &Runtime, to: u64, from: u64, size: usize, kind: i32) -> Result<(), Status> {
    if !(HOST_TO_HOST..=DEFAULT).contains(&kind) {
        return Err(Status::INVALID_MEMCPY_DIRECTION);
    }
    drop(runtime.here()?);
    if size == 0 {
        return Ok(());
    }
    if to == 0 || from == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let actual = kind_of(to, from);
    if kind != DEFAULT && kind != actual {
        let name = |address| if DeviceMemory::is_device_address(address) { "device" } else { "host" };
        eprintln!("hip-sim: a copy of kind {kind} from {from:#x} ({}) to {to:#x} ({})", name(from), name(to));
        return Err(Status::INVALID_VALUE);
    }
    match actual {
        HOST_TO_HOST => {
            // SAFETY: both are host addresses, not null, and valid by this function's contract; they may overlap.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, size) };
        }
        HOST_TO_DEVICE => {
            // SAFETY: a host address, valid by this function's contract.
            let source = unsafe { bytes(from as *const c_void, size)? };
            runtime.device(owner(runtime, to)?)?.memory.write(to, source)?;
        }
        DEVICE_TO_HOST => {
            let device = runtime.device(owner(runtime, from)?)?;
            device.memory.check(from, size as u64)?;
            // SAFETY: a host address, valid by this function's contract.
            device.memory.read(from, unsafe { bytes_mut(to as *mut c_void, size)? })?;
        }
        _ => {
            copy_on_device(runtime, to, from, size)?;
        }
    }
    Ok(())
}

/// Copies within a device, or from one to another.
pub(super) fn copy_on_device(runtime: &Runtime, to: u64, from: u64, size: usize) -> Result<(), Status> {
    let (target, source) = (owner(runtime, to)?, owner(runtime, from)?);
    if target == source {
        runtime.device(target)?.memory.copy(to, from, size as u64)?;
    } else {
        let mut through = vec![0; size];
        runtime.device(source)?.memory.read(from, &mut through)?;
        runtime.device(target)?.memory.write(to, &through)?;
    }
    Ok(())
}

/// Fills bytes.
pub(super) fn fill(runtime: &Runtime, address: u64, value: u8, size: usize) -> Result<(), Status> {
    drop(runtime.here()?);
    if address == 0 && size > 0 {
        return Err(Status::INVALID_VALUE);
    }
    runtime.device(owner(runtime, address)?)?.memory.fill(address, size as u64, value)?;
    Ok(())
}

/// Copies in the order of a stream. Into a graph goes what stays on devices.
///
/// # Safety
///
/// A host address is null or valid for that many bytes.
unsafe fn copy_in_order(
    runtime: &Runtime,
    to: u64,
    from: u64,
    size: usize,
    kind: i32,
    stream: *mut c_void,
) -> Result<(), Status> {
    let on_device = kind_of(to, from) == DEVICE_TO_DEVICE && matches!(kind, DEVICE_TO_DEVICE | DEFAULT);
    if on_device && size > 0 {
        return queue(runtime, stream, Node::Copy { to, from, size });
    }
    not_captured(runtime, stream, "a copy from or to the host")?;
    // SAFETY: by this function's contract.
    unsafe { copy(runtime, to, from, size, kind) }
}

/// Fills in the order of a stream.
fn fill_in_order(
    runtime: &Runtime,
    pointer: *mut c_void,
    value: u8,
    size: usize,
    stream: *mut c_void,
) -> Result<(), Status> {
    queue(runtime, stream, Node::Fill { to: pointer as u64, value, size })
}

exports! {
    /// Copies bytes in the direction of `kind`.
    fn hipMemcpy(to: *mut c_void, from: *const c_void, size: usize, kind: i32) |runtime| {
        check_waiting_copy(runtime)?;
        // SAFETY: host addresses are valid by this function's contract.
        unsafe { copy(runtime, to as u64, from as u64, size, kind) }
    };

    /// Copies bytes in the direction of `kind`, in the order of a stream.
    fn hipMemcpyAsync(to: *mut c_void, from: *const c_void, size: usize, kind: i32, stream: *mut c_void) |runtime| {
        // SAFETY: host addresses are valid by this function's contract.
        unsafe { copy_in_order(runtime, to as u64, from as u64, size, kind, stream) }
    };

    /// Copies from host to device.
    fn hipMemcpyHtoD(to: *mut c_void, from: *const c_void, size: usize) |runtime| {
        check_waiting_copy(runtime)?;
        // SAFETY: host addresses are valid by this function's contract.
        unsafe { copy(runtime, to as u64, from as u64, size, HOST_TO_DEVICE) }
    };

    /// Copies from device to host.
    fn hipMemcpyDtoH(to: *mut c_void, from: *mut c_void, size: usize) |runtime| {
        check_waiting_copy(runtime)?;
        // SAFETY: host addresses are valid by this function's contract.
        unsafe { copy(runtime, to as u64, from as u64, size, DEVICE_TO_HOST) }
    };

    /// Copies within a device, or from one to another.
    fn hipMemcpyDtoD(to: *mut c_void, from: *mut c_void, size: usize) |runtime| {
        check_waiting_copy(runtime)?;
        // SAFETY: host addresses are refused.
        unsafe { copy(runtime, to as u64, from as u64, size, DEVICE_TO_DEVICE) }
    };

    /// Copies from host to device, in the order of a stream.
    fn hipMemcpyHtoDAsync(to: *mut c_void, from: *const c_void, size: usize, stream: *mut c_void) |runtime| {
        // SAFETY: host addresses are valid by this function's contract.
        unsafe { copy_in_order(runtime, to as u64, from as u64, size, HOST_TO_DEVICE, stream) }
    };

    /// Copies from device to host, in the order of a stream.
    fn hipMemcpyDtoHAsync(to: *mut c_void, from: *mut c_void, size: usize, stream: *mut c_void) |runtime| {
        // SAFETY: host addresses are valid by this function's contract.
        unsafe { copy_in_order(runtime, to as u64, from as u64, size, DEVICE_TO_HOST, stream) }
    };

    /// Copies within a device, in the order of a stream.
    fn hipMemcpyDtoDAsync(to: *mut c_void, from: *mut c_void, size: usize, stream: *mut c_void) |runtime| {
        // SAFETY: host addresses are refused.
        unsafe { copy_in_order(runtime, to as u64, from as u64, size, DEVICE_TO_DEVICE, stream) }
    };

    /// Fills bytes with the lowest byte of `value`.
    fn hipMemset(pointer: *mut c_void, value: i32, size: usize) |runtime| {
        check_waiting_copy(runtime)?;
        fill(runtime, pointer as u64, value as u8, size)
    };

    /// Fills bytes with the lowest byte of `value`, in the order of a stream.
    fn hipMemsetAsync(pointer: *mut c_void, value: i32, size: usize, stream: *mut c_void) |runtime| {
        fill_in_order(runtime, pointer, value as u8, size, stream)
    };

    /// Fills bytes.
    fn hipMemsetD8(pointer: *mut c_void, value: u8, count: usize) |runtime| {
        check_waiting_copy(runtime)?;
        fill(runtime, pointer as u64, value, count)
    };

    /// Fills bytes, in the order of a stream.
    fn hipMemsetD8Async(pointer: *mut c_void, value: u8, count: usize, stream: *mut c_void) |runtime| {
        fill_in_order(runtime, pointer, value, count, stream)
    };
}
