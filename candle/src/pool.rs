//! Device memory between tokens.

use candle_core::{Device, Result};

/// Keeps memory that tensors gave back for the tensors that follow. On CUDA the driver's pool otherwise returns it to the system
/// whenever a stream is waited for, that is at every token, and maps it anew. Does nothing on other devices.
///
/// # Errors
///
/// Faults of the driver.
pub fn keep_freed_memory(device: &Device) -> Result<()> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => keep(device),
        _ => Ok(()),
    }
}

#[cfg(feature = "cuda")]
#[allow(unsafe_code)] // calls of the driver
fn keep(device: &candle_core::CudaDevice) -> Result<()> {
    use candle_core::Error;
    use candle_core::cuda_backend::cudarc::driver::sys;

    let stream = device.cuda_stream();
    let context = stream.context();
    context.bind_to_thread().map_err(Error::wrap)?;
    let mut pool = std::ptr::null_mut();
    let mut most = u64::MAX;
    // SAFETY: the context is current, so that the device is a valid one, and `pool` has room for a handle.
    unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, context.cu_device()) }.result().map_err(Error::wrap)?;
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the pool is the device's, and this attribute is a 64-bit number.
    unsafe { sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut most).cast()) }.result().map_err(Error::wrap)
}
