//! Where flat addresses are LDS and scratch: bits 63-32 of them. The values are those of the amdgpu kernel driver.

/// Bits 63-32 of flat addresses of LDS.
pub const SHARED_BASE: u32 = 0x0001_0000;
/// Bits 63-32 of flat addresses of scratch.
pub const PRIVATE_BASE: u32 = 0x0002_0000;
