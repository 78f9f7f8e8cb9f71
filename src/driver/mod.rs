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

/// A text in a fixed array, up to its zero byte.
#[cfg(any(feature = "cuda", feature = "rocm"))]
fn text(array: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|&c| c as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
