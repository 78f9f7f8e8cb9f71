//! The Metal port: the kernel is compiled at run time, for the GPU that is there.
//!
//! - `abi` is what the kernel is told, `key` which kernels there are, `source` the text that is compiled;
//! - `support` says what system and GPU have to be, `plan` turns a checked launch into key, constants and grid, `bindings` into
//!   tensors by number, `table` finds the buffers that pointers are in;
//! - `gpu` is what all of this needs of a GPU, `kernel` the port on top of it, `buffers` its tensors as an engine has them.
//!
//! Nothing of that needs a Mac. Metal itself is in `driver::metal`, on macOS and iOS only.

pub mod abi;
pub mod bindings;
mod buffers;
mod gpu;
pub mod kernel;
pub mod key;
pub mod plan;
pub mod source;
pub mod support;
pub mod table;

pub use buffers::{At, Buffers};
pub use gpu::{Bound, Compiled, Encoding, Gpu};
pub use kernel::{MetalKernel, Registered};

#[cfg(any(target_os = "macos", target_os = "ios"))]
pub use crate::driver::metal::{Apple, MetalBuffer, encoder_stream};

use crate::{Kernel, Port, Unavailable};

/// The row of the table.
pub const PORT: Port = Port { name: "metal", open };

#[cfg(any(target_os = "macos", target_os = "ios"))]
fn open() -> Result<Box<dyn Kernel>, Unavailable> {
    Ok(Box::new(MetalKernel::open(Apple::system_default()?)?))
}

#[cfg(not(any(target_os = "macos", target_os = "ios")))]
fn open() -> Result<Box<dyn Kernel>, Unavailable> {
    Err(Unavailable::NotBuilt(format!(
        "Metal is there on macOS and iOS only, and this build is for {}",
        std::env::consts::OS
    )))
}
