//! Tables of opcodes: a row per instruction, encoding and spelling, with the opcode of each generation.
//!
//! Sources: AMD's "RDNA 2", "RDNA3", "RDNA3.5" and "RDNA4 Instruction Set Architecture" reference guides, the sections
//! on microcode formats. Adding an instruction is adding a row (and a variant of [`Op`], where it is new).

mod ds;
mod flat;
mod mubuf;
mod smem;
mod sop1;
mod sop2;
mod sopc;
mod sopk;
mod sopp;
mod vop1;
mod vop2;
mod vop3;
mod vop3p;
mod vopc;
mod vopd;

use std::sync::LazyLock;

use super::{Generation, Op};

/// Type of an operand: its width, and how an inline constant is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "a kind of bits and their number; those that are not plain are described")]
pub enum Ty {
    B16,
    B32,
    B64,
    B96,
    B128,
    B256,
    B512,
    F16,
    Bf16,
    F32,
    F64,
    /// Two 16-bit integers.
    P16,
    /// Two f16.
    Pf16,
    /// Two bf16.
    Pbf16,
    /// A bit per lane, in scalar registers.
    Mask,
    /// 32 bits in a scalar register, as the destination of a vector instruction.
    S32,
}

impl Ty {
    /// Registers that it takes.
    pub fn dwords(self) -> u8 {
        match self {
            Self::B64 | Self::F64 => 2,
            Self::B96 => 3,
            Self::B128 => 4,
            Self::B256 => 8,
            Self::B512 => 16,
            _ => 1,
        }
    }

    /// Whether it is half a register.
    pub fn is_half(self) -> bool {
        matches!(self, Self::B16 | Self::F16 | Self::Bf16)
    }
}

/// An instruction in one encoding.
#[derive(Debug)]
pub(super) struct Row {
    pub op: Op,
    pub name: &'static str,
    /// Opcodes for RDNA2, RDNA3, RDNA3.5 and RDNA4; [`NO`] where there is none.
    pub codes: [u16; 4],
    pub dst: &'static [Ty],
    pub src: &'static [Ty],
}

const NO: u16 = u16::MAX;

const fn row(op: Op, name: &'static str, codes: [u16; 4], dst: &'static [Ty], src: &'static [Ty]) -> Row {
    Row { op, name, codes, dst, src }
}

/// A family of opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Sop1,
    Sop2,
    Sopc,
    Sopk,
    Sopp,
    Smem,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3p,
    Vopd,
    Flat,
    Mubuf,
    Ds,
}

/// In the order of [`Table`].
const TABLES: [&[Row]; 15] = [
    sop1::SOP1,
    sop2::SOP2,
    sopc::SOPC,
    sopk::SOPK,
    sopp::SOPP,
    smem::SMEM,
    vop1::VOP1,
    vop2::VOP2,
    vopc::VOPC,
    vop3::VOP3,
    vop3p::VOP3P,
    vopd::VOPD,
    flat::FLAT,
    mubuf::MUBUF,
    ds::DS,
];

type Index = Vec<Option<&'static Row>>;

/// By generation, family and opcode.
static INDEX: LazyLock<[[Index; 15]; 4]> = LazyLock::new(|| {
    std::array::from_fn(|generation| {
        TABLES.map(|rows| {
            let mut index = Vec::new();
            for row in rows {
                let code = usize::from(row.codes[generation]);
                if code == usize::from(NO) {
                    continue;
                }
                if index.len() <= code {
                    index.resize(code + 1, None);
                }
                assert!(index[code].is_none(), "{}: opcode {code:#x} is taken", row.name);
                index[code] = Some(row);
            }
            index
        })
    })
});

/// The row of an opcode.
pub(super) fn find(generation: Generation, table: Table, opcode: u32) -> Option<&'static Row> {
    INDEX[generation as usize][table as usize].get(opcode as usize).copied().flatten()
}

/// Whether a family has the instruction.
pub(super) fn has(generation: Generation, table: Table, op: Op) -> bool {
    TABLES[table as usize].iter().any(|row| row.op == op && row.codes[generation as usize] != NO)
}
