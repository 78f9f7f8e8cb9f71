//! How every function is entered, and how it reaches through the caller's pointers.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::rtc::INTERNAL_ERROR;
use super::runtime::Runtime;
use super::status::Status;

thread_local! {
    static LAST: Cell<Status> = const { Cell::new(Status::SUCCESS) };
}

/// The thread's last error.
pub(super) fn last_error() -> Status {
    LAST.get()
}

/// Forgets the thread's last error.
pub(super) fn clear_last_error() {
    LAST.set(Status::SUCCESS);
}

/// Runs a function's body, and keeps what it answers if it is an error.
pub(super) fn enter(function: &'static str, body: impl FnOnce(&Runtime) -> Result<(), Status>) -> i32 {
    let status = answer(function, body, Status::NOT_INITIALIZED, Status::UNKNOWN);
    if status != Status::SUCCESS {
        LAST.set(status);
    }
    status.0
}

/// The same for hipRTC, whose results are others, and no errors of HIP.
pub(super) fn enter_rtc(function: &'static str, body: impl FnOnce(&Runtime) -> Result<(), Status>) -> i32 {
    answer(function, body, INTERNAL_ERROR, INTERNAL_ERROR).0
}

fn answer(
    function: &'static str,
    body: impl FnOnce(&Runtime) -> Result<(), Status>,
    uninitialized: Status,
    panicked: Status,
) -> Status {
    let run = || {
        let runtime = Runtime::get().ok_or(uninitialized)?;
        match runtime.told_to_fail(function) {
            Some(status) => Err(status),
            None => body(runtime),
        }
    };
    // A panic must not cross into C.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => Status::SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => {
            eprintln!("hip-sim: {function}: a panic inside the simulator");
            panicked
        }
    }
}

/// Writes a result through the caller's pointer.
///
/// # Safety
///
/// The pointer is null or valid for a write.
pub(super) unsafe fn put<T>(pointer: *mut T, value: T) -> Result<(), Status> {
    if pointer.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, and then valid by this function's contract; C does not promise alignment.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// The caller's bytes, to read.
///
/// # Safety
///
/// The pointer is null or valid for reads of that many bytes until the function that was called returns.
pub(super) unsafe fn bytes<'a>(pointer: *const std::ffi::c_void, size: usize) -> Result<&'a [u8], Status> {
    if size == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || isize::try_from(size).is_err() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, and then valid by this function's contract; bytes need no alignment.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), size) })
}

/// The caller's bytes, to write.
///
/// # Safety
///
/// The pointer is null or valid for writes of that many bytes, and nobody else uses them, until the function that was called
/// returns.
pub(super) unsafe fn bytes_mut<'a>(pointer: *mut std::ffi::c_void, size: usize) -> Result<&'a mut [u8], Status> {
    if size == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() || isize::try_from(size).is_err() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, and then valid by this function's contract; any byte is a valid u8 once written, and HIP's functions
    // only write here.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), size) })
}

/// Declares exported functions, each of which answers a status, and the list of their names.
///
/// The body is a closure from the runtime to a result; [`enter`] runs it, or what is named.
macro_rules! exports {
    ($(#[$doc:meta])* fn $($rest:tt)*) => { exports! { through enter: $(#[$doc])* fn $($rest)* } };
    (through $enter:ident: $($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:expr;)*) => {
        /// The functions of this file.
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// Each pointer is null, or valid for what HIP's header says is read and written through it.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> i32 {
                $crate::api::enter::$enter(stringify!($name), $body)
            }
        )*
    };
}
pub(super) use exports;
