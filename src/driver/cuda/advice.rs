//! What a person can do about a status of CUDA.

use super::functions::Status;

/// Where the driver finds no device.
pub const NO_DEVICE: &str = "check that `nvidia-smi` lists the GPU, that this user may open /dev/nvidia*, and that CUDA_VISIBLE_DEVICES \
                             does not hide it";

/// What may help; empty where nothing is known. The numbers are `CUresult`'s.
pub fn of(status: Status) -> &'static str {
    match status {
        2 => "free device memory, or use a smaller pool of state slots",
        3 | 4 => "the driver is not there any more: is this called while the process ends?",
        34 => "this is a library to link with, not a driver: look for a folder `stubs` in LD_LIBRARY_PATH",
        35 | 803 => {
            "the driver's library and its kernel module have different versions: restart the machine after an update"
        }
        100 | 101 => NO_DEVICE,
        200 | 209 | 218 | 222 => {
            "the compiled kernel is checked before it is loaded, so that the driver is probably older than NVRTC: update the \
             driver, or name an older NVRTC in SSM_UPDATE_NVRTC_LIBRARY"
        }
        400 | 709 => "does the stream belong to the context that was current when the port was opened?",
        700 | 701 | 702 | 710..=719 => {
            "the device has faulted, in this launch or in one before it, and later calls of this process fail too: start the \
             process anew; `compute-sanitizer` finds the place"
        }
        900..=907 => {
            "a stream is being captured: only the launch level may be called meanwhile, and Kernel::prepare before the capture"
        }
        _ => "",
    }
}
