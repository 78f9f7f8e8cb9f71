//! Devices: which there are, what they say of themselves, and waiting for them.

use std::ffi::c_char;

use super::enter::{bytes_mut, exports, put};
use super::graphs::check_unsafe_call;
use super::properties::{hipDeviceProp_tR0000, hipDeviceProp_tR0600};
use super::runtime::Runtime;
use super::status::Status;
use crate::device::{LDS_MAX, Model};

/// Most blocks of a grid in x, y and z, as the runtime reports them.
pub(super) const GRID_MAX: [i32; 3] = [i32::MAX, 65536, 65536];
/// Most work-items of a block, in all and in each dimension.
pub(super) const BLOCK_MAX: i32 = 1024;

/// `hipDeviceAttribute_t`, as far as it is answered; the numbers are the same in HIP 5 to 7.
fn attribute(runtime: &Runtime, number: i32) -> Option<i32> {
    let config = &runtime.config;
    let model = Model::of(config.arch);
    let name = config.arch.name();
    Some(match number {
        3 | 8 | 85 => 1,                     // maps host memory, concurrent kernels, unified addressing
        0 | 6 | 10 | 11 | 17 | 18 | 24 => 0, // ECC, compute mode, cooperative, multi-GPU board, time limit, managed
        5 => model.clock_mhz * 1000,
        16 => model.integrated.into(),
        19 => model.l2_bytes,
        23 => properties_major(name),
        26..=28 | 56 => BLOCK_MAX,
        29..=31 => GRID_MAX[number as usize - 29],
        57 => 2048,
        58 => i32::MAX,
        59 => model.bus_bits,
        60 => model.memory_mhz * 1000,
        61 => properties_minor(name),
        63 => model.multiprocessors(),
        67..=69 => 0, // PCI
        71 | 72 => 65536,
        74..=76 | 10002 => LDS_MAX as i32,
        87 => config.wavefront as i32,
        10000 | 10017 => 100_000, // the constant clock, in kHz
        10012 => 0,
        10015 => model.compute_units,
        10018 => 1,
        _ => return None,
    })
}

/// Major version of an architecture: 11 of gfx1151.
pub(super) fn properties_major(name: &str) -> i32 {
    name["gfx".len()..name.len() - 2].parse().expect("gfx, then digits")
}

/// Minor version of an architecture: 5 of gfx1151.
pub(super) fn properties_minor(name: &str) -> i32 {
    name[name.len() - 2..name.len() - 1].parse().expect("gfx, then digits")
}

exports! {
    /// How many devices there are.
    fn hipGetDeviceCount(count: *mut i32) |runtime| {
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(count, runtime.device_count() as i32)? };
        if runtime.device_count() == 0 { Err(Status::NO_DEVICE) } else { Ok(()) }
    };

    /// The calling thread's device.
    fn hipGetDevice(device: *mut i32) |runtime| {
        if runtime.device_count() == 0 {
            return Err(Status::NO_DEVICE);
        }
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(device, runtime.current() as i32) }
    };

    /// Chooses the calling thread's device.
    fn hipSetDevice(device: i32) |runtime| {
        runtime.set_current(runtime.checked(device)?);
        Ok(())
    };

    /// The device of a number, which is the number.
    fn hipDeviceGet(device: *mut i32, ordinal: i32) |runtime| {
        runtime.checked(ordinal)?;
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(device, ordinal) }
    };

    /// The product's name, cut to `length` bytes with its null.
    fn hipDeviceGetName(name: *mut c_char, length: i32, device: i32) |runtime| {
        runtime.checked(device)?;
        let size = usize::try_from(length).ok().filter(|&size| size > 0).ok_or(Status::INVALID_VALUE)?;
        // SAFETY: null, or valid for writes of that many bytes by this function's contract.
        let place = unsafe { bytes_mut(name.cast(), size)? };
        let text = Model::of(runtime.config.arch).name.as_bytes();
        let used = text.len().min(size - 1);
        place[..used].copy_from_slice(&text[..used]);
        place[used] = 0;
        Ok(())
    };

    /// Bytes of a device's memory.
    fn hipDeviceTotalMem(bytes: *mut usize, device: i32) |runtime| {
        runtime.checked(device)?;
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(bytes, runtime.config.memory as usize) }
    };

    /// A number that describes a device.
    fn hipDeviceGetAttribute(value: *mut i32, number: i32, device: i32) |runtime| {
        runtime.checked(device)?;
        let answer = attribute(runtime, number).ok_or(Status::INVALID_VALUE)?;
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(value, answer) }
    };

    /// What a device says of itself, in the layout before HIP 6.
    fn hipGetDeviceProperties(properties: *mut hipDeviceProp_tR0000, device: i32) |runtime| {
        runtime.checked(device)?;
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(properties, hipDeviceProp_tR0000::of(&runtime.config)) }
    };

    /// What a device says of itself, in the layout of HIP 6 and 7.
    fn hipGetDevicePropertiesR0600(properties: *mut hipDeviceProp_tR0600, device: i32) |runtime| {
        runtime.checked(device)?;
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(properties, hipDeviceProp_tR0600::of(&runtime.config)) }
    };

    /// Waits for the current device.
    fn hipDeviceSynchronize() |runtime| {
        check_unsafe_call(runtime)?;
        runtime.here().map(drop)
    };
}
