//! The argument segment: what the caller passes, and what the runtime adds behind it.
//!
//! The hidden arguments are those of code object 5: LLVM's "User Guide for AMDGPU Backend", "Code Object V5 Metadata".

use super::aperture::{PRIVATE_BASE, SHARED_BASE};
use super::geometry::Geometry;
use crate::code_object::{ArgumentKind, KernelMetadata};

/// What the hidden arguments are made of.
#[derive(Clone, Copy, Debug)]
pub struct Hidden {
    /// The launch's shape.
    pub geometry: Geometry,
    /// Bytes of LDS that the launch adds to those of the kernel.
    pub dynamic_lds: u32,
}

/// Why arguments are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// A buffer of arguments that is too small or too large.
    #[error("{got} bytes of arguments, {expected} expected")]
    Size {
        /// What the explicit arguments take.
        expected: usize,
        /// What was passed.
        got: usize,
    },
    /// The metadata note places an argument outside the segment.
    #[error("an argument at {offset} of {size} bytes in a segment of {segment}")]
    Outside {
        /// Its offset.
        offset: usize,
        /// Its size.
        size: usize,
        /// The segment's size.
        segment: usize,
    },
}

impl Hidden {
    /// The value of a hidden argument, as its low bytes. Those that a launch here cannot have are null.
    fn value(&self, name: &str) -> u64 {
        let Geometry { grid, block } = self.geometry;
        let (name, axis) = match name.as_bytes() {
            [.., b'_', axis @ b'x'..=b'z'] => (&name[..name.len() - 2], usize::from(axis - b'x')),
            _ => (name, 0),
        };
        match name {
            // Whole work-groups only; the partial one is told by the remainder.
            "block_count" => u64::from(grid[axis] / block[axis]),
            "group_size" => u64::from(block[axis]),
            "remainder" => u64::from(grid[axis] % block[axis]),
            "grid_dims" => u64::from(self.geometry.dimensions()),
            "dynamic_lds_size" => u64::from(self.dynamic_lds),
            "private_base" => u64::from(PRIVATE_BASE),
            "shared_base" => u64::from(SHARED_BASE),
            // Offsets of the grid are always 0 in HIP. There are no buffers for printf, host calls, the device's heap and
            // queues: a kernel that uses one reads a null pointer, and the access is reported.
            _ => 0,
        }
    }
}

/// Bytes that the explicit arguments take, up to the end of the last one.
pub(crate) fn explicit_size(kernel: &KernelMetadata) -> usize {
    kernel.explicit().map(|argument| argument.offset + argument.size).max().unwrap_or(0)
}

/// The argument segment, from the explicit arguments in their layout.
///
/// # Errors
///
/// When their size is not the kernel's.
pub fn pack(kernel: &KernelMetadata, explicit: &[u8], hidden: &Hidden) -> Result<Vec<u8>, ArgumentError> {
    let expected = explicit_size(kernel);
    // Callers round the size up, as the compiler does for the segment.
    if explicit.len() < expected || explicit.len() > expected.next_multiple_of(16) {
        return Err(ArgumentError::Size { expected, got: explicit.len() });
    }
    let segment = kernel.kernarg_size.max(expected);
    let mut bytes = vec![0; segment];
    bytes[..expected].copy_from_slice(&explicit[..expected]);
    for argument in &kernel.arguments {
        let ArgumentKind::Hidden(name) = &argument.kind else { continue };
        let place = bytes.get_mut(argument.offset..argument.offset + argument.size);
        let (offset, size) = (argument.offset, argument.size);
        let place = place.ok_or(ArgumentError::Outside { offset, size, segment })?;
        let value = hidden.value(name).to_le_bytes();
        let used = value.len().min(size);
        place[..used].copy_from_slice(&value[..used]);
    }
    Ok(bytes)
}
