//! The fused Mamba2 decode step of [`ssm_update`] as an operation on [candle](candle_core)'s tensors: on candle's own buffers, on
//! candle's own stream, without copies.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use ssm_update_candle::{Update, kernel_for};
//!
//! let device = Device::Cpu;                       // or Device::new_cuda(0)?, with the feature `cuda`
//! let kernel = kernel_for(&device)?;              // once per process
//! let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &device);
//!
//! let state = zeros(&[1, 48, 64, 128])?;          // [slots, heads, head_dim, d_state], once per sequence and layer
//! # let (x, b, c) = (zeros(&[1, 48, 64])?, zeros(&[1, 1, 128])?, zeros(&[1, 1, 128])?);
//! # let (dt, a_log, d) = (zeros(&[1, 48])?, zeros(&[48])?, zeros(&[48])?);
//! let y = Update { d: Some(&d), ..Update::new(&x, &b, &c, &dt, &a_log) }.apply(&*kernel, &state)?;
//! assert_eq!(y.dims(), [1, 48, 64]);              // and `state` has advanced by one token
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | tensors on | run by | how |
//! |---|---|---|
//! | the CPU | any port | in place on the CPU port; a GPU's port copies to its memory and back, which is for comparisons |
//! | Metal (feature `metal`, on macOS and iOS) | the port `metal` | in candle's own encoder; never run on Apple hardware so far |
//! | CUDA (feature `cuda`) | the port `cuda` | one launch on the device's stream; captured into a graph like candle's own operations |
//!
//! Every other pairing is an error that says so. Gradients do not flow through the operation.
//!
//! # Cargo features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `cuda` | no | candle's CUDA device; needs CUDA's toolkit where it is built, and its libraries where the program starts |
//! | `metal` | no | candle's Metal device, on macOS and iOS |
//!
//! Without them the operation takes tensors on the CPU. The ports of [`ssm_update`] are all there either way.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod kernel;
#[cfg(feature = "metal")]
mod metal;
mod operand;
mod pool;
mod update;

pub use kernel::kernel_for;
pub use pool::keep_freed_memory;
pub use update::Update;
