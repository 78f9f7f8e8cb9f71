//! What the port needs of a GPU, and no more, so that everything else is the same for Metal's own (`driver::metal`) and for what
//! stands in for it in tests, on machines without Metal.

use std::ffi::c_void;
use std::fmt::Debug;

use super::abi::{Constants, TENSORS, at};
use super::key::Key;
use super::support::{Facts, Language};
use crate::{DriverError, Error, Stream};

/// A GPU with its compiler, its memory, and a queue of its own for [`Stream::DEFAULT`].
pub trait Gpu: Debug + Send + Sync + 'static {
    /// A buffer; a clone is the same buffer.
    type Buffer: Clone + Debug + Send + Sync;
    /// A compiled kernel.
    type Pipeline: Debug + Send + Sync;

    /// System and GPU.
    fn facts(&self) -> &Facts;

    /// Compiles the kernel of a key.
    ///
    /// # Errors
    ///
    /// The compiler's, with its text.
    fn compile(
        &self,
        key: &Key,
        language: Language,
        source: &str,
    ) -> Result<Compiled<Self::Pipeline>, Box<DriverError>>;

    /// A buffer of at least one byte that the CPU sees too.
    ///
    /// # Errors
    ///
    /// Too little memory.
    fn allocate(&self, bytes: usize) -> Result<Self::Buffer, Box<DriverError>>;

    /// What tells one buffer from another.
    fn identity(buffer: &Self::Buffer) -> usize;

    /// Where the CPU sees a buffer; null where it does not.
    fn address(buffer: &Self::Buffer) -> *mut c_void;

    /// Bytes of a buffer.
    fn length(buffer: &Self::Buffer) -> usize;

    /// Copies host memory into a buffer that the CPU sees.
    ///
    /// # Safety
    ///
    /// It fits, and nothing else uses the buffer meanwhile.
    #[allow(unsafe_code)] // the launch level: raw pointers
    unsafe fn write(&self, buffer: &Self::Buffer, offset: usize, from: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), Self::address(buffer).cast::<u8>().add(offset), from.len())
        }
    }

    /// Copies from a buffer that the CPU sees.
    ///
    /// # Safety
    ///
    /// The buffer has these bytes, and nothing writes them meanwhile.
    #[allow(unsafe_code)] // the launch level: raw pointers
    unsafe fn read(&self, buffer: &Self::Buffer, offset: usize, to: &mut [u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(Self::address(buffer).cast::<u8>().add(offset), to.as_mut_ptr(), to.len())
        }
    }

    /// Puts a dispatch into the caller's encoder, or, for the default stream, into the own queue.
    ///
    /// # Errors
    ///
    /// Of the driver; nothing was put there then, or what it writes is unspecified.
    ///
    /// # Safety
    ///
    /// The stream is the default one or an encoder of this GPU that is open and that no other thread uses; for the tensors,
    /// see [`Kernel::launch`](crate::Kernel::launch).
    #[allow(unsafe_code)] // the launch level: raw pointers
    unsafe fn encode(&self, dispatch: &Encoding<'_, Self>, stream: Stream) -> Result<(), Error>
    where
        Self: Sized;

    /// Waits until everything on the default stream is done, and gives its faults.
    ///
    /// # Errors
    ///
    /// Faults of the steps.
    fn synchronize(&self) -> Result<(), Error>;
}

/// A kernel with what it says of itself.
#[derive(Debug)]
pub struct Compiled<P> {
    /// The kernel.
    pub pipeline: P,
    /// Threads of a SIMD-group.
    pub thread_execution_width: usize,
    /// Threads of the largest threadgroup.
    pub max_threads: usize,
}

/// A tensor in its buffer.
#[derive(Debug)]
pub struct Bound<'a, B> {
    /// The buffer.
    pub buffer: &'a B,
    /// Bytes from its start to the tensor.
    pub offset: usize,
    /// Bytes of the tensor; 0 where it is absent and only something has to be bound.
    pub bytes: usize,
}

impl<B> Clone for Bound<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Bound<'_, B> {}

/// One dispatch, ready to be encoded.
#[derive(Debug)]
pub struct Encoding<'a, G: Gpu> {
    /// The kernel.
    pub pipeline: &'a G::Pipeline,
    /// The tensors by number of their buffer.
    pub tensors: [Bound<'a, G::Buffer>; TENSORS],
    /// The constants.
    pub constants: Constants,
    /// Threadgroups in x, y and z.
    pub grid: [u32; 3],
}

impl<G: Gpu> Encoding<'_, G> {
    /// Whether the kernel writes the tensor of this number: y, and the state that is written.
    pub fn writes(number: usize) -> bool {
        [at::STATE_OUT, at::Y].contains(&number)
    }
}
