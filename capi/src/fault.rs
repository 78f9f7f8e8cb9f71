//! How an error, or a panic, becomes a status and a text for the calling thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ssm_update::{Error, Mismatch, NoPort, Unavailable};

use crate::Status;

/// Why a call did not do what it was asked for.
#[derive(Debug)]
pub struct Fault {
    status: Status,
    text: String,
}

impl Fault {
    /// A wrong argument, named as in the header.
    pub fn invalid(argument: &str, expected: impl Into<String>, got: impl ToString) -> Self {
        let (expected, got) = (expected.into(), got.to_string());
        Self {
            status: Status::Invalid,
            text: format!("invalid argument to the fused SSM step: {argument}: expected {expected}, got {got}"),
        }
    }

    fn panic(payload: &(dyn Any + Send)) -> Self {
        let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => text,
            (_, Some(text)) => text.as_str(),
            _ => "a panic without a text",
        };
        Self { status: Status::Internal, text: format!("a fault of the library ssm_update: {text}") }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let (status, error) = match error {
            Error::Unsupported(why) => (Status::Unsupported, Error::Unsupported(in_c(why))),
            Error::Invalid(why) => (Status::Invalid, Error::Invalid(in_c(why))),
            Error::Driver(_) => (Status::Driver, error),
            _ => (Status::Internal, error),
        };
        Self { status, text: error.to_string() }
    }
}

/// With the field's name as the header has it.
fn in_c(why: Mismatch) -> Mismatch {
    let field = match why.field {
        "dtypes.x" => "x_dtype",
        "dtypes.bc" => "bc_dtype",
        "dtypes.state" => "state_dtype",
        "strides.y" => "y_stride",
        "dt.min, dt.max" => "dt_min, dt_max",
        as_it_is => as_it_is,
    };
    Mismatch { field, ..why }
}

impl From<NoPort> for Fault {
    fn from(why: NoPort) -> Self {
        Self { status: Status::Unavailable, text: why.to_string() }
    }
}

impl From<(&str, Unavailable)> for Fault {
    fn from((port, why): (&str, Unavailable)) -> Self {
        Self { status: Status::Unavailable, text: format!("{port}: {why}") }
    }
}

/// How the thread's last call ended. No text is an empty one.
struct Last {
    status: Status,
    text: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { status: Status::Ok, text: None }) };
}

/// Runs the body of a call and keeps how it ended for the thread. No panic leaves it.
pub fn guard(body: impl FnOnce() -> Result<(), Fault>) -> Status {
    // After a panic nothing of the body's is used again but what the caller lent, and the caller is told.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => keep(Last { status: Status::Ok, text: None }),
        Ok(Err(Fault { status, text })) => keep(Last { status, text: Some(c_text(text)) }),
        Err(payload) => {
            let Fault { status, text } = Fault::panic(&*payload);
            keep(Last { status, text: Some(c_text(text)) })
        }
    }
}

/// A text without its zero bytes, one of which would end it for a reader in C: some texts are a driver's.
pub fn c_text(text: impl Into<Vec<u8>>) -> CString {
    let mut text = text.into();
    text.retain(|&byte| byte != 0);
    CString::new(text).unwrap_or_default()
}

fn keep(now: Last) -> Status {
    let status = now.status;
    // While a thread ends, its values may be gone already: the status is returned all the same.
    let _ = LAST.try_with(|last| *last.borrow_mut() = now);
    status
}

/// The text of the calling thread's last call that returned a status or a truth: what went wrong, or empty if nothing did. In
/// English, in UTF-8, without a line break at its end. Never null.
///
/// The text is the library's, and valid until the same thread calls again.
/// Threads: each has its own.
#[unsafe(no_mangle)]
pub extern "C" fn ssm_update_last_error() -> *const c_char {
    let text = LAST.try_with(|last| last.borrow().text.as_ref().map(|text| text.as_ptr()));
    text.ok().flatten().unwrap_or(c"".as_ptr())
}

/// The status of the calling thread's last call that returned a status or a truth.
///
/// Threads: each has its own.
#[unsafe(no_mangle)]
pub extern "C" fn ssm_update_last_status() -> Status {
    LAST.try_with(|last| last.borrow().status).unwrap_or(Status::Ok)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> (Status, String) {
        // SAFETY: the text ends in zero, and this thread makes no other call before it is copied.
        let text = unsafe { CStr::from_ptr(ssm_update_last_error()) };
        (ssm_update_last_status(), text.to_str().expect("UTF-8").to_owned())
    }

    #[test]
    fn a_panic_becomes_a_status_and_its_text() {
        assert_eq!(guard(|| panic!("with {}", "a value")), Status::Internal);
        assert_eq!(last(), (Status::Internal, "a fault of the library ssm_update: with a value".to_owned()));
        assert_eq!(guard(|| std::panic::panic_any(7)), Status::Internal);
        assert!(last().1.ends_with("a panic without a text"));
        assert_eq!(guard(|| Ok(())), Status::Ok);
        assert_eq!(last(), (Status::Ok, String::new()));
    }

    #[test]
    fn a_zero_byte_does_not_end_a_text() {
        guard(|| Err(Fault::invalid("a", "one", "t\0wo")));
        assert!(last().1.ends_with("got two"), "{:?}", last());
    }
}
