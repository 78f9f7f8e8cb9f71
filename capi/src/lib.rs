//! The C interface of [`ssm_update`], as a shared and a static library. `include/ssm_update.h` is generated from these files, so
//! that their documentation speaks to people who write C; `docs/engines.md` shows how to build, link and call.
//!
//! - `status` is what calls answer, `fault` how an error, or a panic, becomes that and a text for the calling thread;
//! - `launch` is the struct of a call, read with the size that the caller gives it;
//! - `ports` is the table and the choice, `kernel` an open port.
//!
//! Every function takes null and nonsense as errors. What it cannot know, that pointers point to what they should, stands under
//! "The caller" in its description.

// The header has their documentation, where a heading of Rust's would be out of place.
#![allow(clippy::missing_safety_doc)]

mod abi_version;
mod fault;
mod kernel;
mod launch;
mod ports;
mod status;

pub use abi_version::SSM_UPDATE_ABI_VERSION;
pub use fault::{ssm_update_last_error, ssm_update_last_status};
pub use kernel::{
    Kernel, ssm_update_kernel_close, ssm_update_kernel_description, ssm_update_kernel_launch, ssm_update_kernel_open,
    ssm_update_kernel_port, ssm_update_kernel_prepare, ssm_update_kernel_step_host,
};
pub use launch::{Dims, Dt, Dtype, Launch, ssm_update_check, ssm_update_check_dims, ssm_update_launch_init};
pub use ports::{
    ssm_update_abi_version, ssm_update_available, ssm_update_port_count, ssm_update_port_name, ssm_update_version,
};
pub use status::Status;
