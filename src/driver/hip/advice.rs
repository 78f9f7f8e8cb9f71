//! What a person can do about a status of HIP. Runtimes say "no device" or "invalid image" and leave it at that.

use super::bindings::hipError_t;

/// Where the runtime finds no device.
pub const NO_DEVICE: &str = "check that `rocminfo` lists the GPU, that this user is in the groups `render` and `video`, and that \
                             HIP_VISIBLE_DEVICES does not hide it";

/// What may help; empty where nothing is known.
pub fn of(status: hipError_t) -> &'static str {
    match status {
        hipError_t::hipErrorNoDevice | hipError_t::hipErrorInvalidDevice => NO_DEVICE,
        hipError_t::hipErrorOutOfMemory => "free device memory, or use a smaller pool of state slots",
        hipError_t::hipErrorNoBinaryForGpu
        | hipError_t::hipErrorInvalidImage
        | hipError_t::hipErrorInvalidKernelFile
        | hipError_t::hipErrorFileNotFound
        | hipError_t::hipErrorInvalidDeviceFunction => {
            "the code object was checked before the call, so that the runtime is probably too old for this GPU: for gfx1151, \
             ROCm 6.4 is known to refuse and ROCm 7.2 to load it"
        }
        hipError_t::hipErrorNotInitialized | hipError_t::hipErrorDeinitialized => {
            "the runtime is not there any more: is this called while the process ends?"
        }
        hipError_t::hipErrorIllegalAddress
        | hipError_t::hipErrorLaunchFailure
        | hipError_t::hipErrorContextIsDestroyed => {
            "the device has faulted, in this launch or in one before it, and later calls of this process fail too: start the \
             process anew; `dmesg` may say more"
        }
        hipError_t::hipErrorStreamCaptureUnsupported => {
            "a stream is being captured: only the launch level may be called meanwhile"
        }
        _ => "",
    }
}
