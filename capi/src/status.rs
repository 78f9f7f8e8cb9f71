//! What calls answer.

/// What a call answers. Everything but SSM_UPDATE_STATUS_OK comes with a text, see ssm_update_last_error().
///
/// A newer library may have more of them: treat a number that you do not know as a failure.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done, or queued on the caller's stream.
    Ok = 0,
    /// Shapes, strides or dtypes that no kernel serves, or not this port's. The text contains `unsupported shapes`. Nothing was
    /// written: take the graph of tensor operations.
    Unsupported = 1,
    /// An argument that no path could serve: a null pointer, limits out of order, a slot beyond the pool, overlapping buffers, a
    /// number that stands for nothing. Nothing was written.
    Invalid = 2,
    /// The port, or every port, does not open here, or an environment variable turned the step off. The text says why.
    Unavailable = 3,
    /// A call of the driver failed. What the step writes is unspecified.
    Driver = 4,
    /// A fault of this library, caught before it reached the caller. Please report it. What the step writes is unspecified.
    Internal = 5,
}
