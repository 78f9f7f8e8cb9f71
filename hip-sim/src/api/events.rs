//! Events. Their times are those of the simulator: they say nothing about hardware.

use std::ffi::c_void;
use std::time::Instant;

use super::enter::{exports, put};
use super::graphs::not_captured;
use super::runtime::{Object, Runtime};
use super::status::Status;
use super::streams::check_stream;

/// The bits that `hipEventCreateWithFlags` knows: blocking, no timing, between processes, and AMD's on releases.
const FLAGS: u32 = 0x1 | 0x2 | 0x4 | 0xf000_0000;

/// Makes an event.
///
/// # Safety
///
/// The pointer is null or valid for a write.
unsafe fn create(runtime: &Runtime, event: *mut *mut c_void) -> Result<(), Status> {
    if event.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    drop(runtime.here()?);
    let handle = runtime.handles().add(Object::Event(None));
    // SAFETY: valid for a write by this function's contract.
    unsafe { put(event, handle as *mut c_void) }
}

/// The time of an event: none where it was not recorded.
fn time(runtime: &Runtime, event: *mut c_void) -> Result<Option<Instant>, Status> {
    match runtime.handles().get(event as usize) {
        Some(Object::Event(time)) => Ok(*time),
        _ => Err(Status::INVALID_HANDLE),
    }
}

exports! {
    /// Makes an event.
    fn hipEventCreate(event: *mut *mut c_void) |runtime| {
        // SAFETY: by this function's contract.
        unsafe { create(runtime, event) }
    };

    /// Makes an event.
    fn hipEventCreateWithFlags(event: *mut *mut c_void, flags: u32) |runtime| {
        if flags & !FLAGS != 0 {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: by this function's contract.
        unsafe { create(runtime, event) }
    };

    /// Notes the time.
    fn hipEventRecord(event: *mut c_void, stream: *mut c_void) |runtime| {
        let device = check_stream(runtime, stream)?;
        not_captured(runtime, stream, "hipEventRecord")?;
        drop(runtime.device(device)?);
        match runtime.handles().get_mut(event as usize) {
            Some(Object::Event(time)) => *time = Some(Instant::now()),
            _ => return Err(Status::INVALID_HANDLE),
        }
        Ok(())
    };

    /// Waits for an event.
    fn hipEventSynchronize(event: *mut c_void) |runtime| {
        time(runtime, event)?;
        runtime.here().map(drop)
    };

    /// Whether an event has happened.
    fn hipEventQuery(event: *mut c_void) |runtime| {
        time(runtime, event)?;
        runtime.here().map(drop)
    };

    /// Milliseconds between two events.
    fn hipEventElapsedTime(milliseconds: *mut f32, start: *mut c_void, stop: *mut c_void) |runtime| {
        let (start, stop) = (time(runtime, start)?, time(runtime, stop)?);
        let (start, stop) = start.zip(stop).ok_or(Status::INVALID_HANDLE)?;
        let elapsed = match stop.checked_duration_since(start) {
            Some(forward) => forward.as_secs_f32(),
            None => -start.duration_since(stop).as_secs_f32(),
        };
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(milliseconds, elapsed * 1e3) }
    };

    /// Ends an event.
    fn hipEventDestroy(event: *mut c_void) |runtime| {
        time(runtime, event)?;
        runtime.handles().remove(event as usize);
        Ok(())
    };
}
