//! The drivers of accelerators, fenced in: declarations, calls that return `Result`, and types that own what they hold. No
//! foreign function is called above this folder.

#![allow(unsafe_code)] // foreign functions

#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "rocm")]
pub mod hip;
#[cfg(any(feature = "cuda", feature = "rocm"))]
mod library;
#[cfg(all(feature = "metal", any(target_os = "macos", target_os = "ios")))]
pub mod metal;
#[cfg(any(feature = "cuda", feature = "rocm"))]
mod table;
