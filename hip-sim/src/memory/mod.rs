//! Device memory: allocations with nothing between them, pages that exist once touched, and for each byte whether somebody
//! wrote it and who touched it in the launch that runs.
//!
//! Addresses are numbers of a range of their own in which no process on x86-64 or AArch64 has memory, so that a host that
//! follows a device pointer crashes instead of reading something. Where it can, an allocation lies across a multiple of
//! 4 GiB, so that an address computed in 32 bits, or without a carry, misses it.
#![deny(unsafe_code)]

mod local;
mod page;
mod pages;
mod race;
mod table;

pub use local::{Local, LocalRefusal};
pub use page::PAGE;
pub use pages::{Conflict, Pages, Refusal, Touched};
pub use race::{Party, Role};
pub(crate) use table::DEVICES_MAX;
pub use table::{Allocation, AllocationKind, DeviceMemory, HostError};
