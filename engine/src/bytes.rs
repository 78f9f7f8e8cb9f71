//! Bytes of weights: a range of a file that is mapped into memory, or of memory of the process' own.
//!
//! A mapped file takes no memory that the system could not have back: pages are read when they are touched and dropped when
//! memory is short. That is how a model starts that is nearly as large as the machine's memory.

use std::fmt;
use std::fs::File;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A file, mapped for reading.
pub(crate) struct MappedFile(memmap2::Mmap);

impl MappedFile {
    /// Maps the whole file.
    #[allow(unsafe_code)]
    pub(crate) fn new(file: &File) -> std::io::Result<Self> {
        // SAFETY: the map is private to this type and only ever read, as bytes, for which any value is a valid one. What the
        // type system cannot rule out is that somebody changes or truncates the file meanwhile: the former gives other
        // weights, the latter ends the process (SIGBUS). That is said in the crate's documentation, and no copy of the file
        // is possible where it is larger than the memory that is left.
        unsafe { memmap2::Mmap::map(file) }.map(Self)
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes that are never changed. A clone and a part share them.
#[derive(Clone)]
pub(crate) struct Bytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl Bytes {
    /// All bytes of `owner`.
    pub(crate) fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let range = 0..owner.as_ref().len();
        Self { owner: Arc::new(owner), range }
    }

    /// The part at `range`, which lies within these bytes.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        debug_assert!(range.start <= range.end && range.end <= self.range.len());
        Self { owner: self.owner.clone(), range: self.range.start + range.start..self.range.start + range.end }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.range.len())
    }
}
