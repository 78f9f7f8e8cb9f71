//! Versions, and what errors are called.

use std::ffi::c_char;

use super::enter::{clear_last_error, exports, last_error, put};
use super::status::Status;

/// `HIP_VERSION` of the headers whose layouts are used: 7.1.25424.
const VERSION: i32 = 70_125_424;

exports! {
    /// Starts the library: reads the environment.
    fn hipInit(flags: u32) |_| if flags == 0 { Ok(()) } else { Err(Status::INVALID_VALUE) };

    /// The driver's version.
    fn hipDriverGetVersion(version: *mut i32) |_| {
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(version, VERSION) }
    };

    /// The library's version.
    fn hipRuntimeGetVersion(version: *mut i32) |_| {
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(version, VERSION) }
    };
}

/// The name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorName(status: i32) -> *const c_char {
    Status(status).name().as_ptr()
}

/// What a status means.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorString(status: i32) -> *const c_char {
    Status(status).text().as_ptr()
}

/// The last error of the calling thread, which is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetLastError() -> i32 {
    let last = last_error();
    clear_last_error();
    last.0
}

/// The last error of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn hipPeekAtLastError() -> i32 {
    last_error().0
}
