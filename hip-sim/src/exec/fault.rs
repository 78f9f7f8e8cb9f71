//! Why a wave stopped before its end.

use std::fmt;

use super::{Access, MemoryFault, MemoryFaultKind};

/// A wave that cannot go on, with the place.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// Address of the instruction.
    pub pc: u64,
    /// The instruction as text, or its encoding where it is not known.
    pub text: String,
    /// The lane, where one is to blame.
    pub lane: Option<u8>,
    /// Address of the access, where there is one.
    pub address: Option<u64>,
}

/// Kinds of [`Fault`].
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// An encoding that is no instruction of this architecture, as far as the tables know.
    Unknown,
    /// An instruction that can be decoded and not executed.
    NotImplemented,
    /// The memory refused.
    Memory(MemoryFault),
    /// A register that nobody wrote decides something: an address, stored data, or a branch.
    Unwritten {
        /// Its name, such as `v7`.
        register: String,
    },
    /// A vector register beyond those that the kernel descriptor grants.
    BeyondRegisters,
    /// The program counter left the code.
    OutsideCode,
    /// `s_trap` was executed.
    Trap(u16),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            FaultKind::Unknown => write!(f, "unknown instruction")?,
            FaultKind::NotImplemented => write!(f, "instruction that is not implemented")?,
            FaultKind::Memory(fault) => write!(f, "{fault}")?,
            FaultKind::Unwritten { register } => write!(f, "use of register {register} that nobody wrote")?,
            FaultKind::BeyondRegisters => write!(f, "vector register beyond those that the kernel has")?,
            FaultKind::OutsideCode => write!(f, "the program counter left the code")?,
            FaultKind::Trap(number) => write!(f, "trap {number}")?,
        }
        write!(f, "; pc {:#x}: {}", self.pc, self.text)?;
        if let Some(lane) = self.lane {
            write!(f, "; lane {lane}")?;
        }
        if let Some(address) = self.address {
            write!(f, "; address {address:#x}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// The same, before place and text are known.
#[derive(Debug)]
pub(super) struct Stop {
    pub kind: FaultKind,
    pub lane: Option<u8>,
    pub address: Option<u64>,
}

impl Stop {
    pub fn new(kind: FaultKind) -> Self {
        Self { kind, lane: None, address: None }
    }

    pub fn unwritten(register: String) -> Self {
        Self::new(FaultKind::Unwritten { register })
    }

    pub fn is_uninitialised(&self) -> bool {
        matches!(&self.kind, FaultKind::Memory(fault) if fault.kind == MemoryFaultKind::Uninitialised)
    }

    pub fn memory(fault: MemoryFault, access: &Access) -> Self {
        Self { kind: FaultKind::Memory(fault), lane: access.lane, address: Some(access.address) }
    }
}
