//! Allocation, on the device and of page-locked host memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;

use super::copies::owner;
use super::enter::{exports, put};
use super::graphs::check_unsafe_call;
use super::runtime::{HostBlock, Object};
use super::status::Status;
use crate::memory::HostError;

impl From<HostError> for Status {
    fn from(error: HostError) -> Self {
        match error {
            HostError::OutOfMemory { .. } => Self::OUT_OF_MEMORY,
            HostError::OutOfBounds { .. } | HostError::NotAnAllocation { .. } => {
                eprintln!("hip-sim: {error}");
                Self::INVALID_VALUE
            }
        }
    }
}

/// What page-locked memory is aligned to.
const HOST_ALIGN: usize = 4096;

exports! {
    /// Allocates device memory; none, and a null pointer, for no bytes.
    fn hipMalloc(pointer: *mut *mut c_void, size: usize) |runtime| {
        check_unsafe_call(runtime)?;
        if pointer.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let mut device = runtime.here()?;
        let address = if size == 0 { 0 } else { device.allocate(size as u64)? };
        // SAFETY: valid for a write by this function's contract.
        unsafe { put(pointer, address as *mut c_void) }
    };

    /// Frees device memory.
    fn hipFree(pointer: *mut c_void) |runtime| {
        check_unsafe_call(runtime)?;
        let address = pointer as u64;
        if address == 0 {
            return Ok(());
        }
        // The pointer may be of another device than the current one.
        runtime.device(owner(runtime, address)?)?.memory.free(address)?;
        Ok(())
    };

    /// Free and total bytes of the current device.
    fn hipMemGetInfo(free: *mut usize, total: *mut usize) |runtime| {
        let sizes = runtime.here()?.memory.sizes();
        // SAFETY: null, or valid for a write by this function's contract; the same below.
        unsafe { put(total, sizes.0 as usize)? };
        // SAFETY: as above.
        unsafe { put(free, sizes.1 as usize) }
    };

    /// Allocates host memory. It is for copies: kernels cannot reach it here.
    fn hipHostMalloc(pointer: *mut *mut c_void, size: usize, flags: u32) |runtime| {
        check_unsafe_call(runtime)?;
        let _ = flags;
        if pointer.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        drop(runtime.here()?);
        if size == 0 {
            // SAFETY: valid for a write by this function's contract.
            return unsafe { put(pointer, std::ptr::null_mut()) };
        }
        let layout = Layout::from_size_align(size, HOST_ALIGN).map_err(|_| Status::OUT_OF_MEMORY)?;
        // SAFETY: the layout has a size above 0.
        let block = unsafe { alloc_zeroed(layout) };
        if block.is_null() {
            return Err(Status::OUT_OF_MEMORY);
        }
        runtime.handles().add_at(block as usize, Object::Host(Box::new(HostBlock { layout })));
        // SAFETY: valid for a write by this function's contract.
        unsafe { put(pointer, block.cast()) }
    };

    /// Frees memory of [`hipHostMalloc`].
    fn hipHostFree(pointer: *mut c_void) |runtime| {
        check_unsafe_call(runtime)?;
        if pointer.is_null() {
            return Ok(());
        }
        let mut handles = runtime.handles();
        let Some(Object::Host(block)) = handles.get(pointer as usize).cloned() else { return Err(Status::INVALID_VALUE) };
        handles.remove(pointer as usize);
        // SAFETY: the block was allocated with this layout by hipHostMalloc, and is freed once: the handle is gone.
        unsafe { dealloc(pointer.cast(), block.layout) };
        Ok(())
    };
}
