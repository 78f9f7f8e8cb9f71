//! The fused Mamba2 single-token decode step (state update) for AMD, NVIDIA, Apple and CPU hardware.
//!
//! Hybrid state-space models (Granite-4.0-H, Falcon-H1, PLaMo-2, Nemotron-H) run one small recurrence per layer and
//! decoded token. As a graph of tensor operations it is about 55 launches; here it is one:
//!
//! ```text
//! dt'   = prepared ? dt : clamp(softplus(dt + dt_bias), dt_min, dt_max)
//! decay = exp(-exp(A_log) * dt')
//! s'    = decay * s + (dt' * x) * B
//! y     = sum over d_state of s' * C  +  D * x          with z: y *= z * sigmoid(z)
//! ```
//!
//! # How the parts fit
//!
//! ```text
//!  host level                      launch level
//!  Step (slices, ndarray views)    Problem + Pointers (raw pointers, strides)
//!        |  lengths, slot indices        |
//!        +--------------+----------------+
//!                       v
//!              validate() -> Launch            one check above every port
//!                       v
//!   SSM_PORTS:   rocm | cuda | metal | cpu     one table; select_kernel_port() opens a row
//! ```
//!
//! [`select_kernel_port`] gives a [`Kernel`], [`Kernel::step`] is the host level, [`Kernel::launch`] the launch level.
//! [`reference`](mod@reference) is the definition in `f64` that every port is tested against.
//!
//! # Example
//!
//! One head of four rows, `d_state` 16, in place:
//!
//! ```
//! use ssm_update::{Dims, State, Step, SSM_PORTS, select_kernel_port};
//!
//! let dims = Dims { batch: 1, heads: 1, head_dim: 4, groups: 1, d_state: 16, slots: 1 };
//! let (x, bc, mut state, mut y) = ([1.0_f32, 2.0, 3.0, 4.0], [0.5_f32; 16], [0.0_f32; 64], [0.0_f32; 4]);
//!
//! let kernel = select_kernel_port(SSM_PORTS)?;
//! kernel.step(Step {
//!     d: Some((&[1.0_f32]).into()),
//!     ..Step::new(dims, &x, &bc, &bc, &[0.0_f32], &[0.0_f32], State::in_place(&mut state), &mut y)
//! })?;
//!
//! // dt' = softplus(0) = ln 2, the state was zero: y = x * (ln 2 * sum of B*C + D).
//! assert!((y[3] - 4.0 * (2.0_f32.ln() * 4.0 + 1.0)).abs() < 1e-5);
//! println!("computed by {}", kernel.port());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Cargo features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `rocm` | yes | the port for AMD GPUs: code objects that are compiled with this crate, or its prebuilt ones where there is no compiler |
//! | `cuda` | yes | the port for NVIDIA GPUs, whose kernel is compiled at run time |
//! | `metal` | yes | the port for Apple GPUs, whose kernel is compiled at run time; nothing on other systems |
//! | `hip-runtime-sys` | no | the HIP runtime linked instead of loaded, for engines that link ROCm anyway; needs its headers and library where this crate is built |
//!
//! Drivers are looked for at run time, so that the default features cost nothing where the platform is absent and exist only to slim a
//! build down. The port for the CPU is always there, and so is a row in the table for each port that is not: it opens with a reason.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

/// The README's example is compiled and run like the one above.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// As above, of the page for engines in Rust.
#[cfg(doctest)]
#[doc = include_str!("../docs/rust.md")]
struct RustPage;

#[cfg(feature = "rocm")]
pub mod code_object;
mod driver;
mod dtype;
mod error;
#[cfg(feature = "cuda")]
mod hash;
mod host;
mod memory;
mod port;
pub mod ports;
mod problem;
pub mod reference;
mod staging;
pub mod switches;

pub use dtype::{Dtype, Element};
pub use error::{DriverError, Error, Failed, Mismatch, NoPort, Unavailable};
pub use host::{State, Step, Tensor, TensorMut, step_at};
pub use memory::{Buffer, Memory};
pub use port::{
    Kernel, Port, SSM_PORTS, Stream, has_kernel_port, select_kernel_port, select_with, ssm_kernel_available,
};
pub use problem::{BatchStrides, Dims, Dt, Dtypes, Launch, Pointers, Problem, validate, validate_slots};
