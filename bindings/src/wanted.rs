//! What of HIP is declared: the functions that a list names, and these constants.

use crate::Error;

/// The constants of HIP's enums that are declared for the library. With the others, the headers of every version would differ.
pub const DRIVER: &[&str] = &[
    // Statuses that the driver tells apart, or that a load or a launch is known to end with.
    "hipSuccess",
    "hipErrorInvalidValue",
    "hipErrorOutOfMemory",
    "hipErrorNotInitialized",
    "hipErrorDeinitialized",
    "hipErrorInvalidConfiguration",
    "hipErrorInvalidDevicePointer",
    "hipErrorInvalidMemcpyDirection",
    "hipErrorInsufficientDriver",
    "hipErrorInvalidDeviceFunction",
    "hipErrorNoDevice",
    "hipErrorInvalidDevice",
    "hipErrorInvalidImage",
    "hipErrorInvalidContext",
    "hipErrorNoBinaryForGpu",
    "hipErrorECCNotCorrectable",
    "hipErrorInvalidKernelFile",
    "hipErrorInvalidSource",
    "hipErrorFileNotFound",
    "hipErrorSharedObjectSymbolNotFound",
    "hipErrorSharedObjectInitFailed",
    "hipErrorOperatingSystem",
    "hipErrorInvalidHandle",
    "hipErrorNotFound",
    "hipErrorNotReady",
    "hipErrorIllegalAddress",
    "hipErrorLaunchOutOfResources",
    "hipErrorLaunchTimeOut",
    "hipErrorContextIsDestroyed",
    "hipErrorAssert",
    "hipErrorLaunchFailure",
    "hipErrorNotSupported",
    "hipErrorStreamCaptureUnsupported",
    "hipErrorUnknown",
    "hipErrorRuntimeMemory",
    "hipErrorRuntimeOther",
    // Arguments.
    "hipDeviceAttributeWarpSize",
    "hipMemcpyHostToDevice",
    "hipMemcpyDeviceToHost",
];

/// Those for the measurements.
pub const BENCHMARK: &[&str] = &[
    "hipSuccess",
    "hipDeviceAttributeL2CacheSize",
    "hipDeviceAttributeMultiprocessorCount",
    "hipDeviceAttributeClockRate",
    "hipDeviceAttributeWarpSize",
    "hipStreamCaptureModeThreadLocal",
];

/// Those for hipRTC. The numbers of its failures differ between versions; their names do not.
pub const RTC: &[&str] = &["HIPRTC_SUCCESS"];

/// The functions that a list (such as the text of `src/driver/hip/functions.rs`) names: in lines that begin with
/// `REQUIRED name(` or `OPTIONAL name(`.
pub fn functions(list: &str) -> Result<Vec<String>, Error> {
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let name = |line: &str| {
        let line = line.trim_start();
        let rest = line.strip_prefix("REQUIRED ").or_else(|| line.strip_prefix("OPTIONAL "))?;
        let (name, _) = rest.split_once('(')?;
        is_name(name).then(|| name.to_owned())
    };
    let names: Vec<_> = list.lines().filter_map(name).collect();
    if names.is_empty() {
        return Err(Error::Failed(
            "the list of functions has no line that begins with REQUIRED or OPTIONAL".to_owned(),
        ));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_from_the_list_alone() {
        let list = "//! OPTIONAL hipDocumented(\n(@cast REQUIRED $a:expr) => {}\nREQUIRED $name(\n    // REQUIRED hipGone();\n\
                    \n    REQUIRED hipInit(flags: c_uint) -> hipError_t;\n    OPTIONAL hipFree(\n        x: c_int\n    );\n";
        assert_eq!(functions(list).unwrap(), ["hipInit", "hipFree"]);
        assert!(functions("fn main() {}").is_err());
    }
}
