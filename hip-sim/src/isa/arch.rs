//! Architectures, by name and by ELF machine number.

use std::fmt;
use std::str::FromStr;

/// A GPU architecture that is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Arch {
    Gfx1030,
    Gfx1100,
    Gfx1101,
    Gfx1102,
    Gfx1103,
    Gfx1150,
    Gfx1151,
    Gfx1152,
    Gfx1153,
    Gfx1200,
    Gfx1201,
}

/// What architectures share: encodings and most semantics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Generation {
    /// gfx103x.
    Rdna2,
    /// gfx110x.
    Rdna3,
    /// gfx115x: RDNA3 with a scalar float unit.
    Rdna35,
    /// gfx120x.
    Rdna4,
}

/// Name, and EF_AMDGPU_MACH: bits 0-7 of the ELF header's `e_flags` (LLVM's "User Guide for AMDGPU Backend", "ELF
/// Header").
const ARCHS: [(Arch, &str, u8); 11] = [
    (Arch::Gfx1030, "gfx1030", 0x36),
    (Arch::Gfx1100, "gfx1100", 0x41),
    (Arch::Gfx1101, "gfx1101", 0x46),
    (Arch::Gfx1102, "gfx1102", 0x47),
    (Arch::Gfx1103, "gfx1103", 0x44),
    (Arch::Gfx1150, "gfx1150", 0x43),
    (Arch::Gfx1151, "gfx1151", 0x4a),
    (Arch::Gfx1152, "gfx1152", 0x55),
    (Arch::Gfx1153, "gfx1153", 0x58),
    (Arch::Gfx1200, "gfx1200", 0x48),
    (Arch::Gfx1201, "gfx1201", 0x4e),
];

impl Arch {
    /// Every architecture that is simulated.
    pub fn all() -> impl Iterator<Item = Self> {
        ARCHS.iter().map(|row| row.0)
    }

    /// Such as `gfx1151`.
    pub fn name(self) -> &'static str {
        ARCHS.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// From `e_flags` of the ELF header; the flags beside the machine are ignored.
    pub fn from_elf_flags(flags: u32) -> Option<Self> {
        ARCHS.iter().find(|row| u32::from(row.2) == flags & 0xff).map(|row| row.0)
    }

    /// What it shares with others.
    pub fn generation(self) -> Generation {
        match self {
            Self::Gfx1030 => Generation::Rdna2,
            Self::Gfx1100 | Self::Gfx1101 | Self::Gfx1102 | Self::Gfx1103 => Generation::Rdna3,
            Self::Gfx1150 | Self::Gfx1151 | Self::Gfx1152 | Self::Gfx1153 => Generation::Rdna35,
            Self::Gfx1200 | Self::Gfx1201 => Generation::Rdna4,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        ARCHS.iter().find(|row| row.1 == name).map(|row| row.0).ok_or_else(|| {
            let known: Vec<&str> = ARCHS.iter().map(|row| row.1).collect();
            format!("{name}: not simulated; known are {}", known.join(", "))
        })
    }
}
