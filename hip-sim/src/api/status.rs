//! `hipError_t`: the codes that are answered here, with names and texts.

use std::ffi::CStr;

/// A HIP status; 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub i32);

macro_rules! statuses {
    ($($constant:ident = $code:literal, $name:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = concat!("`", $name, "`: ", $text, ".")] pub const $constant: Self = Self($code);)*
        }

        /// Code, name and text, the latter two as C strings.
        const TABLE: &[(i32, &str, &str)] = &[$(($code, concat!($name, "\0"), concat!($text, "\0"))),*];
    };
}

statuses! {
    SUCCESS = 0, "hipSuccess", "no error";
    INVALID_VALUE = 1, "hipErrorInvalidValue", "invalid argument";
    OUT_OF_MEMORY = 2, "hipErrorOutOfMemory", "out of memory";
    NOT_INITIALIZED = 3, "hipErrorNotInitialized", "initialization error";
    INVALID_CONFIGURATION = 9, "hipErrorInvalidConfiguration", "invalid configuration argument";
    INVALID_DEVICE_POINTER = 17, "hipErrorInvalidDevicePointer", "invalid device pointer";
    INVALID_MEMCPY_DIRECTION = 21, "hipErrorInvalidMemcpyDirection", "invalid copy direction for memcpy";
    NO_DEVICE = 100, "hipErrorNoDevice", "no ROCm-capable device is detected";
    INVALID_DEVICE = 101, "hipErrorInvalidDevice", "invalid device ordinal";
    INVALID_IMAGE = 200, "hipErrorInvalidImage", "device kernel image is invalid";
    NO_BINARY_FOR_GPU = 209, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device";
    INVALID_KERNEL_FILE = 218, "hipErrorInvalidKernelFile", "invalid kernel file";
    INVALID_HANDLE = 400, "hipErrorInvalidHandle", "invalid resource handle";
    ILLEGAL_STATE = 401, "hipErrorIllegalState", "the operation cannot be performed in the present state";
    NOT_FOUND = 500, "hipErrorNotFound", "named symbol not found";
    NOT_READY = 600, "hipErrorNotReady", "device not ready";
    LAUNCH_OUT_OF_RESOURCES = 701, "hipErrorLaunchOutOfResources", "out of resources on launch";
    LAUNCH_FAILURE = 719, "hipErrorLaunchFailure", "unspecified launch failure";
    NOT_SUPPORTED = 801, "hipErrorNotSupported", "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, "hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "hipErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture";
    STREAM_CAPTURE_IMPLICIT = 906, "hipErrorStreamCaptureImplicit", "operation would make the legacy stream depend on a capturing blocking stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, "hipErrorStreamCaptureWrongThread", "attempt to terminate a thread-local capture sequence from another thread";
    UNKNOWN = 999, "hipErrorUnknown", "unknown error";
}

impl Status {
    fn row(self) -> (&'static str, &'static str) {
        let row = TABLE.iter().find(|row| row.0 == self.0);
        row.map_or(("hipErrorUnknown\0", "unknown error\0"), |row| (row.1, row.2))
    }

    /// Its name, such as `hipErrorOutOfMemory`.
    pub fn name(self) -> &'static CStr {
        CStr::from_bytes_with_nul(self.row().0.as_bytes()).expect("the table ends each with a null")
    }

    /// What it means.
    pub fn text(self) -> &'static CStr {
        CStr::from_bytes_with_nul(self.row().1.as_bytes()).expect("the table ends each with a null")
    }
}
