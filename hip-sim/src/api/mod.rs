//! The functions of the HIP library, with the names and numbers of AMD's headers (HIP 7.1, and 5.2 where it differs).
//!
//! This is the only part with `unsafe`: it follows the caller's pointers. Each function is entered through `enter.rs`, which
//! reads the environment once, lets a call fail that was told to, and keeps the thread's last error. Everything runs to its
//! end within the call: a stream is always idle, so that a missing wait is not found here.
#![allow(non_snake_case, reason = "the names are HIP's")]

mod copies;
mod devices;
mod enter;
mod errors;
mod events;
mod graphs;
mod memory;
mod modules;
mod properties;
mod rtc;
mod runtime;
mod simulator;
mod status;
mod streams;

pub use copies::*;
pub use devices::*;
pub use errors::*;
pub use events::*;
pub use graphs::*;
pub use memory::*;
pub use modules::*;
pub use properties::{hipDeviceArch_t, hipDeviceProp_tR0000, hipDeviceProp_tR0600};
pub use rtc::*;
pub use simulator::*;
pub use status::Status;
pub use streams::*;

/// Every HIP function that is exported.
pub fn functions() -> impl Iterator<Item = &'static str> {
    let lists = [
        copies::NAMES,
        devices::NAMES,
        errors::NAMES,
        events::NAMES,
        graphs::NAMES,
        memory::NAMES,
        modules::NAMES,
        rtc::NAMES,
        streams::NAMES,
    ];
    lists.into_iter().flatten().copied()
}
