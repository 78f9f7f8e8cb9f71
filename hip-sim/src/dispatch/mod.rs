//! A launch: from a kernel, a grid and bytes of arguments to waves that have run, or to a report.
//!
//! Work-groups are spread over threads. So that neither results nor reports depend on how many there are, a launch that meets
//! a fault, or an atomic operation on device memory (whose order shows), is undone and run again on one thread, group after
//! group in linear order. Whatever else two groups could tell each other is a race, and thereby a fault.
#![deny(unsafe_code)]

mod aperture;
mod arguments;
mod geometry;
mod group;
mod launch;
mod registers;
mod view;

pub use aperture::{PRIVATE_BASE, SHARED_BASE};
pub(crate) use arguments::explicit_size;
pub use arguments::{ArgumentError, Hidden, pack};
pub use geometry::{Geometry, GeometryError};
pub use launch::{Launch, Limits, LoadedCode, Outcome};
