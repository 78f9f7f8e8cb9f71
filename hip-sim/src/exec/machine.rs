//! What a wave asks of the machine around it: memory, and an observer.

use std::fmt;

use crate::isa::Inst;

/// Which memory an access goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Device memory, by 64-bit address (`global_*`).
    Global,
    /// A 64-bit address that may lie in an aperture of LDS or scratch (`flat_*`). The memory tells them apart, with the
    /// bases that the wave was given in [`WaveSetup`](super::WaveSetup).
    Flat,
    /// A lane's private segment; the address is a byte offset within it.
    Scratch,
    /// The work-group's local data share; the address is a byte offset within the group's allocation.
    Lds,
    /// Device memory, read through the scalar cache, once for the wave (`s_load_*`).
    Scalar,
}

/// One access of one lane, or of the wave where it is scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which memory.
    pub space: Space,
    /// Byte address, or byte offset for [`Space::Lds`] and [`Space::Scratch`].
    pub address: u64,
    /// Bytes.
    pub size: u32,
    /// What the address has to be a multiple of.
    ///
    /// Vector accesses of global memory and scratch need 1, since amdhsa runs with unaligned access mode on; LDS and
    /// scalar accesses of whole dwords need 4, as do narrower ones of LDS their size; atomics need their size.
    pub align: u32,
    /// The lane, absent for scalar accesses.
    pub lane: Option<u8>,
    /// Address of the instruction.
    pub pc: u64,
}

/// Why an access did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFault {
    /// What kind of mistake.
    pub kind: MemoryFaultKind,
    /// A sentence for a person: the nearest allocation, the other wave of a race.
    pub detail: String,
}

/// Kinds of [`MemoryFault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryFaultKind {
    /// Not within a live allocation.
    OutOfBounds,
    /// In an allocation that was freed.
    UseAfterFree,
    /// Not aligned as the instruction needs.
    Misaligned,
    /// Reads bytes that nobody wrote.
    Uninitialised,
    /// Two waves or lanes, one of them writing, without ordering.
    Race,
    /// A write to memory that is read-only.
    ReadOnly,
}

impl fmt::Display for MemoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            MemoryFaultKind::OutOfBounds => "access outside a live allocation",
            MemoryFaultKind::UseAfterFree => "access to freed memory",
            MemoryFaultKind::Misaligned => "misaligned access",
            MemoryFaultKind::Uninitialised => "read of memory that nobody wrote",
            MemoryFaultKind::Race => "race",
            MemoryFaultKind::ReadOnly => "write to read-only memory",
        };
        write!(f, "{kind}: {}", self.detail)
    }
}

/// The memory of the machine, as one wave sees it.
pub trait Memory {
    /// Reads `out.len()` = `access.size` bytes.
    fn load(&mut self, access: &Access, out: &mut [u8]) -> Result<(), MemoryFault>;

    /// Writes `bytes`, of length `access.size`.
    fn store(&mut self, access: &Access, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Applies `update` to the bytes at the address, in one step as seen by all waves.
    ///
    /// The closure may run more than once (an implementation may retry), and may leave the bytes as they are.
    fn atomic(&mut self, access: &Access, update: &mut dyn FnMut(&mut [u8])) -> Result<(), MemoryFault>;
}

/// An instruction that was executed, as a [`Probe`] sees it.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Its address.
    pub pc: u64,
    /// What it is; its class is [`Inst::class`].
    pub inst: &'a Inst,
    /// EXEC as it was when the instruction began.
    pub exec: u32,
    /// What it did in memory, a lane at a time, in the order of lanes.
    pub accesses: &'a [LaneAccess],
}

/// One access of a [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneAccess {
    /// Where, and how much.
    pub access: Access,
    /// What was done.
    pub kind: AccessKind,
}

/// Direction of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Read.
    Load,
    /// Written.
    Store,
    /// Read and written in one step.
    Atomic,
}

/// Observes a wave. `()` observes nothing and costs nothing.
pub trait Probe {
    /// Whether [`executed`](Self::executed) wants to be called. Where it is false, the calls are compiled away.
    const ENABLED: bool = true;

    /// Called after each instruction.
    fn executed(&mut self, step: &Step<'_>);
}

impl Probe for () {
    const ENABLED: bool = false;

    fn executed(&mut self, _: &Step<'_>) {}
}
