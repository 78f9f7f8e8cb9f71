//! Streams. Work is done when the call that asked for it returns, so that a stream is always idle.

use std::ffi::c_void;

use super::enter::{exports, put};
use super::graphs::{check_wait, not_captured};
use super::runtime::{Object, Runtime, Stream};
use super::status::Status;

/// The default stream, and those that stand for it per thread and for the legacy order.
const DEFAULT_STREAMS: [usize; 3] = [0, 1, 2];

/// Checks a stream that a caller passes; answers its device.
pub(super) fn check_stream(runtime: &Runtime, stream: *mut c_void) -> Result<usize, Status> {
    if DEFAULT_STREAMS.contains(&(stream as usize)) {
        return Ok(runtime.current());
    }
    match runtime.handles().get(stream as usize) {
        Some(Object::Stream(stream)) => Ok(stream.device),
        _ => Err(Status::INVALID_HANDLE),
    }
}

fn idle(runtime: &Runtime, stream: *mut c_void) -> Result<(), Status> {
    let device = check_stream(runtime, stream)?;
    check_wait(runtime, stream)?;
    runtime.device(device).map(drop)
}

/// Makes a stream of the current device.
///
/// # Safety
///
/// The pointer is null or valid for a write.
unsafe fn create(runtime: &Runtime, stream: *mut *mut c_void, blocking: bool) -> Result<(), Status> {
    if stream.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    drop(runtime.here()?);
    let handle = runtime.handles().add(Object::Stream(Stream { device: runtime.current(), blocking, capture: None }));
    // SAFETY: valid for a write by this function's contract.
    unsafe { put(stream, handle as *mut c_void) }
}

exports! {
    /// Makes a stream.
    fn hipStreamCreate(stream: *mut *mut c_void) |runtime| {
        // SAFETY: by this function's contract.
        unsafe { create(runtime, stream, true) }
    };

    /// Makes a stream; `hipStreamNonBlocking` is the only flag.
    fn hipStreamCreateWithFlags(stream: *mut *mut c_void, flags: u32) |runtime| {
        if flags > 1 {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: by this function's contract.
        unsafe { create(runtime, stream, flags == 0) }
    };

    /// Ends a stream.
    fn hipStreamDestroy(stream: *mut c_void) |runtime| {
        let mut handles = runtime.handles();
        match handles.get(stream as usize) {
            Some(Object::Stream(_)) => handles.remove(stream as usize).map(drop).ok_or(Status::INVALID_HANDLE),
            _ => Err(Status::INVALID_HANDLE),
        }
    };

    /// Waits for a stream.
    fn hipStreamSynchronize(stream: *mut c_void) |runtime| idle(runtime, stream);

    /// Whether a stream is idle.
    fn hipStreamQuery(stream: *mut c_void) |runtime| idle(runtime, stream);

    /// Lets a stream wait for an event.
    fn hipStreamWaitEvent(stream: *mut c_void, event: *mut c_void, flags: u32) |runtime| {
        let _ = flags;
        not_captured(runtime, stream, "hipStreamWaitEvent")?;
        idle(runtime, stream)?;
        match runtime.handles().get(event as usize) {
            Some(Object::Event(_)) => Ok(()),
            _ => Err(Status::INVALID_HANDLE),
        }
    };
}
