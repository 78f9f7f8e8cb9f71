//! Memory of a port whose launches cannot reach the host's. Engines bring their own buffers to the launch level; this is for
//! the host level, for tests, benchmarks and small programs.

use std::ffi::c_void;
use std::fmt::Debug;

use crate::Error;

/// Allocates memory that a port's launches can reach.
pub trait Memory: Send + Sync {
    /// A buffer of at least `bytes` bytes, aligned for every tensor, uninitialised.
    ///
    /// # Errors
    ///
    /// Faults of the driver, such as too little memory.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Buffer>, Error>;

    /// Waits until everything on the default stream is done, and gives its faults.
    ///
    /// # Errors
    ///
    /// Faults of the driver, also those of launches queued before.
    fn synchronize(&self) -> Result<(), Error>;
}

/// A buffer of a port's memory, freed when dropped. Nothing that was queued may still use it then.
pub trait Buffer: Debug {
    /// Its address for the launch level.
    fn address(&self) -> *mut c_void;

    /// Copies host memory to `offset` bytes behind the buffer's start, and returns when that is done.
    ///
    /// # Errors
    ///
    /// Faults of the driver.
    ///
    /// # Panics
    ///
    /// When it does not fit.
    fn upload(&mut self, offset: usize, from: &[u8]) -> Result<(), Error>;

    /// Copies from `offset` bytes behind the buffer's start to host memory, and returns when that is done.
    ///
    /// # Errors
    ///
    /// Faults of the driver.
    ///
    /// # Panics
    ///
    /// When the buffer has no such part.
    fn download(&self, offset: usize, to: &mut [u8]) -> Result<(), Error>;
}

/// Holds a range of a buffer to the buffer's length.
///
/// # Panics
///
/// As [`Buffer`] promises, where it does not fit.
#[cfg(any(feature = "cuda", feature = "metal", feature = "rocm"))]
pub(crate) fn assert_fits(offset: usize, len: usize, bytes: usize) {
    let fits = offset.checked_add(len).is_some_and(|end| end <= bytes);
    assert!(fits, "{len} bytes at {offset} of a buffer of {bytes} bytes");
}
