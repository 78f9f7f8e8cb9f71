//! Which instruction set the CPU port uses.

use std::ffi::OsStr;

use crate::{Unavailable, switches};

/// An instruction set that this processor has: a value exists only where detection found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

/// Each level and whether this processor has it; best first. AArch64 takes the portable path, which the compiler turns into
/// NEON.
#[cfg(target_arch = "x86_64")]
fn levels() -> [(Level, bool); 4] {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    let bf16 = avx512 && is_x86_feature_detected!("avx512bf16");
    [(Level::Avx512Bf16, bf16), (Level::Avx512, avx512), (Level::Avx2, avx2), (Level::Portable, true)]
}

#[cfg(not(target_arch = "x86_64"))]
fn levels() -> [(Level, bool); 1] {
    [(Level::Portable, true)]
}

impl Isa {
    /// The instruction sets of this processor, best first. The last one is the portable path, which is always there.
    pub fn available() -> Vec<Self> {
        levels().into_iter().filter(|&(_, there)| there).map(|(level, _)| Self(level)).collect()
    }

    /// The best one.
    pub(super) fn detect() -> Self {
        Self::available()[0]
    }

    /// The name that `SSM_UPDATE_CPU_ISA` takes.
    pub const fn name(self) -> &'static str {
        self.0.name()
    }

    pub(super) const fn level(self) -> Level {
        self.0
    }

    /// The one that the switch names, exactly: no other is taken in its place.
    pub(super) fn from_switch(wanted: &OsStr) -> Result<Self, Unavailable> {
        let reason = match levels().into_iter().find(|(level, _)| wanted == level.name()) {
            Some((level, true)) => return Ok(Self(level)),
            Some((_, false)) => "this processor does not have these instructions".to_owned(),
            None => "no such instruction set on this platform".to_owned(),
        };
        let here: Vec<_> = Self::available().into_iter().map(Self::name).collect();
        let reason = format!("{reason}; available are {}", here.join(", "));
        Err(Unavailable::Switch { variable: switches::CPU_ISA, value: wanted.to_string_lossy().into_owned(), reason })
    }
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => "avx512bf16",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            Self::Portable => "portable",
        }
    }
}
