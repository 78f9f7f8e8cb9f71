//! Metal's errors as values.

use objc2_foundation::NSError;

use crate::DriverError;

/// What a call reported: its domain and code, and its text, which for a compiler is its whole output.
pub fn of(call: String, error: &NSError) -> Box<DriverError> {
    Box::new(DriverError {
        call,
        code: error.code() as i64,
        name: error.domain().to_string(),
        text: error.localizedDescription().to_string(),
        advice: String::new(),
    })
}

/// A call that gave nothing and no reason.
pub fn without_reason(call: String, text: &str) -> Box<DriverError> {
    Box::new(DriverError { call, code: 0, name: "nil".to_owned(), text: text.to_owned(), advice: String::new() })
}
