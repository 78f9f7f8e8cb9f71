//! Code of one code object, decoded as it is reached.

use std::sync::OnceLock;

use crate::isa::{Arch, Inst, Unknown, decode};

/// The text section of a code object.
///
/// Each instruction is decoded when a wave first reaches it and kept for all waves, on all threads.
#[derive(Debug)]
pub struct Program {
    arch: Arch,
    base: u64,
    words: Vec<u32>,
    decoded: Vec<OnceLock<Result<Box<Inst>, Unknown>>>,
}

impl Program {
    /// Code whose first dword lies at `base`, the address that the program counter counts in.
    pub fn new(arch: Arch, base: u64, words: Vec<u32>) -> Self {
        let decoded = words.iter().map(|_| OnceLock::new()).collect();
        Self { arch, base, words, decoded }
    }

    /// The architecture it is decoded for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Address of the first dword.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The instruction at an address: none outside the code.
    pub fn fetch(&self, pc: u64) -> Option<Result<&Inst, &Unknown>> {
        let offset = pc.wrapping_sub(self.base);
        let index = usize::try_from(offset / 4).ok()?;
        let slot = self.decoded.get(index).filter(|_| offset.is_multiple_of(4))?;
        Some(slot.get_or_init(|| decode(self.arch, &self.words[index..]).map(Box::new)).as_deref())
    }
}
