//! What is told of a launch that went wrong.
#![deny(unsafe_code)]

use std::fmt;

use crate::exec::{FaultKind, MemoryFaultKind};
use crate::isa::Arch;

/// What ended a launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// An instruction could not be executed.
    Fault(FaultKind),
    /// A wave executed that many instructions and was not at its end.
    Endless(u64),
}

impl Problem {
    /// What the memory said, if it was the memory.
    pub fn memory(&self) -> Option<MemoryFaultKind> {
        match self {
            Self::Fault(FaultKind::Memory(fault)) => Some(fault.kind),
            _ => None,
        }
    }
}

/// An instruction's place in the source of the machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function, if a symbol covers it.
    pub function: Option<String>,
    /// Bytes from its start; without a function, from the start of the image.
    pub offset: u64,
    /// The instruction as text.
    pub text: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = self.function.as_deref().unwrap_or("code object");
        write!(f, "{function}+{:#x}: {}", self.offset, self.text)
    }
}

/// The other side of a race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its instruction.
    pub place: Place,
    /// Its work-group.
    pub group: [u32; 3],
    /// Its wave.
    pub wave: u32,
    /// Its lane.
    pub lane: Option<u8>,
}

/// The full report of a launch that went wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What happened.
    pub problem: Problem,
    /// The kernel that was launched.
    pub kernel: String,
    /// The device.
    pub arch: Arch,
    /// Work-items of the grid, and of a work-group.
    pub shape: ([u32; 3], [u32; 3]),
    /// The instruction.
    pub place: Place,
    /// The work-group.
    pub group: [u32; 3],
    /// The wave within it.
    pub wave: u32,
    /// The lane, where one is to blame.
    pub lane: Option<u8>,
    /// The work-item of that lane within the work-group.
    pub item: Option<[u32; 3]>,
    /// The address, or the offset in LDS or scratch.
    pub address: Option<u64>,
    /// With whom it races, where that is known.
    pub other: Option<Other>,
}

/// A fault in a few words.
fn what(kind: &FaultKind) -> String {
    match kind {
        FaultKind::Unknown => "unknown instruction".into(),
        FaultKind::NotImplemented => "instruction that is not implemented".into(),
        FaultKind::Memory(fault) => {
            let text = fault.to_string();
            text.strip_suffix(&format!(": {}", fault.detail)).unwrap_or(&text).to_owned()
        }
        FaultKind::Unwritten { register } => format!("use of register {register}, which nobody wrote"),
        FaultKind::BeyondRegisters => "vector register beyond those that the kernel has".into(),
        FaultKind::OutsideCode => "the program counter left the code".into(),
        FaultKind::Trap(number) => format!("trap {number}"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.problem {
            Problem::Endless(count) => format!("no end after {count} instructions of one wave"),
            Problem::Fault(kind) => what(kind),
        };
        let why = match &self.problem {
            Problem::Fault(FaultKind::Memory(fault)) => Some(&fault.detail),
            _ => None,
        };
        let (grid, block) = self.shape;
        writeln!(f, "hip-sim: {what}")?;
        writeln!(f, "  kernel       {} on {}, {grid:?} work-items in groups of {block:?}", self.kernel, self.arch)?;
        writeln!(f, "  instruction  {}", self.place)?;
        write!(f, "  who          work-group {:?}, wave {}", self.group, self.wave)?;
        if let Some(lane) = self.lane {
            write!(f, ", lane {lane}")?;
        }
        if let Some(item) = self.item {
            write!(f, ": work-item {item:?}")?;
        }
        writeln!(f)?;
        if let Some(address) = self.address {
            writeln!(f, "  address      {address:#x}")?;
        }
        if let Some(why) = why {
            writeln!(f, "  why          {why}")?;
        }
        if let Some(other) = &self.other {
            write!(f, "  other side   {} by work-group {:?}, wave {}", other.place, other.group, other.wave)?;
            if let Some(lane) = other.lane {
                write!(f, ", lane {lane}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
