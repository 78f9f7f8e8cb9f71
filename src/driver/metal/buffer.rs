//! Buffers.

use std::ffi::c_void;

use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLBuffer, MTLResource, MTLStorageMode};

/// An `MTLBuffer`. A clone is the same buffer.
#[derive(Clone, Debug)]
pub struct MetalBuffer(Retained<ProtocolObject<dyn MTLBuffer>>);

// SAFETY: a buffer may be used from any thread: its reference count is atomic, and its length, storage mode and contents' address
// never change. Access to the contents is ordered by whoever makes it.
unsafe impl Send for MetalBuffer {}
// SAFETY: as above.
unsafe impl Sync for MetalBuffer {}

impl MetalBuffer {
    /// A buffer of the caller's.
    pub fn new(buffer: Retained<ProtocolObject<dyn MTLBuffer>>) -> Self {
        Self(buffer)
    }

    /// The buffer itself.
    pub fn raw(&self) -> &ProtocolObject<dyn MTLBuffer> {
        &self.0
    }

    pub(super) fn identity(&self) -> usize {
        Retained::as_ptr(&self.0).addr()
    }

    /// Null in private storage, whose contents the CPU does not see.
    pub(super) fn address(&self) -> *mut c_void {
        match self.0.storageMode() {
            MTLStorageMode::Shared | MTLStorageMode::Managed => self.0.contents().as_ptr(),
            _ => std::ptr::null_mut(),
        }
    }

    pub(super) fn length(&self) -> usize {
        self.0.length()
    }
}
