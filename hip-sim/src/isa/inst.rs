//! A decoded instruction.

use super::{Generation, Op, Ty};

/// Microcode format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the ISA documents")]
pub enum Encoding {
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
    Global,
    Scratch,
    Mubuf,
    Ds,
}

/// What an instruction does, coarsely: for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Scalar arithmetic.
    Salu,
    /// Vector arithmetic; a dual-issue instruction counts once.
    Valu,
    /// Scalar loads.
    ScalarMemory,
    /// `global_*` and `buffer_*`.
    Global,
    /// `flat_*`.
    Flat,
    /// `scratch_*`.
    Scratch,
    /// Local data share, and permutations of lanes through it.
    Lds,
    /// Branches and calls.
    Branch,
    /// Waits, hints, barriers, messages, the end.
    Control,
}

/// Where an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// There is none.
    None,
    /// A scalar register by number: 0-105 SGPRs, 106 and 107 VCC, 108-123 TTMPs, 124 null, 125 M0, 126 and 127 EXEC.
    /// The numbers are those of RDNA3; RDNA2 exchanges null and M0, which decoding undoes.
    Sgpr(u8),
    /// A vector register.
    Vgpr(u8),
    /// An inline constant by its source code: 128-192 for 0 to 64, 193-208 for -1 to -16, 240-248 for floats.
    Inline(u8),
    /// A value of the wave by its source code: 235-238 aperture bases and limits, 251 VCCZ, 252 EXECZ, 253 SCC.
    Special(u8),
    /// A 32-bit constant that follows the instruction.
    Literal(u32),
}

impl Operand {
    /// A scalar register that reads as zero and ignores writes.
    pub const NULL: Self = Self::Sgpr(124);
    /// VCC, the lower half.
    pub const VCC: Self = Self::Sgpr(106);

    /// Whether there is one.
    pub fn is_some(self) -> bool {
        self != Self::None
    }
}

/// Modifiers of vector instructions. Bits 0-2 stand for the sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mods {
    /// Negated sources; of packed ones, the lower half.
    pub neg: u8,
    /// Absolute values of sources.
    pub abs: u8,
    /// Negated upper halves of packed sources; absolute values where the instruction mixes precisions.
    pub neg_hi: u8,
    /// Sources read from the upper half; bit 3: the destination is the upper half.
    pub op_sel: u8,
    /// For the upper result of packed instructions: sources read from the upper half.
    pub op_sel_hi: u8,
    /// The result is clamped to 0..1, or saturated where it is an integer.
    pub clamp: bool,
    /// The result is multiplied: 1 by 2, 2 by 4, 3 by 1/2.
    pub omod: u8,
}

/// How the first source is taken from other lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dpp {
    /// Within groups of eight lanes: the lane that each one reads.
    Eight {
        /// A lane per lane of the group.
        select: [u8; 8],
        /// Inactive lanes are read, too.
        fetch_inactive: bool,
    },
    /// Within rows of 16 lanes.
    Row {
        /// DPP_CTRL.
        control: u16,
        /// Inactive lanes are read, too.
        fetch_inactive: bool,
        /// Lanes without a source read 0 instead of not being written.
        bound_ctrl: bool,
        /// Groups of four lanes in each row that are written.
        bank_mask: u8,
        /// Rows that are written.
        row_mask: u8,
    },
}

/// Part of a register that RDNA2's SDWA form reads or writes: 0-3 a byte, 4 and 5 a half, 6 all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sdwa {
    /// Part of the destination that is written.
    pub dst_sel: u8,
    /// What becomes of the rest: 0 zero, 1 sign, 2 kept.
    pub dst_unused: u8,
    /// Parts of the sources.
    pub src_sel: [u8; 2],
    /// Sources that are sign-extended; bit per source.
    pub sext: u8,
}

/// Fields of memory instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mem {
    /// Per-lane address, or offset beside a scalar address.
    pub vaddr: Operand,
    /// Scalar address.
    pub saddr: Operand,
    /// Scalar offset (SMEM, MUBUF).
    pub soffset: Operand,
    /// Offset in bytes; of DS instructions with two addresses, see `offsets`.
    pub offset: i32,
    /// The two offsets of DS instructions.
    pub offsets: [u8; 2],
    /// Cache bits: GLC 1, SLC 2, DLC 4. On RDNA4 the temporal hint, and the scope in bits 4-5.
    pub cache: u8,
    /// MUBUF: the address has an offset (1), an index (2).
    pub addressing: u8,
    /// DS: global data share.
    pub gds: bool,
}

/// A decoded instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// What it does.
    pub op: Op,
    /// Its name, without the suffix of the encoding.
    pub name: &'static str,
    /// How it was encoded.
    pub encoding: Encoding,
    /// For which generation.
    pub generation: Generation,
    /// Bytes.
    pub size: u8,
    /// Types of `dst` and `sdst`.
    pub dst_ty: &'static [Ty],
    /// Types of `src`.
    pub src_ty: &'static [Ty],
    /// Destination.
    pub dst: Operand,
    /// Second destination, scalar.
    pub sdst: Operand,
    /// Sources; of memory instructions, the data.
    pub src: [Operand; 3],
    /// 16-bit constant of SOPK and SOPP, zero-extended; the constant of `fmamk`, `fmaak` and `s_setreg_imm32`.
    pub imm: u32,
    /// Modifiers.
    pub mods: Mods,
    /// Data-parallel primitive.
    pub dpp: Option<Dpp>,
    /// Sub-dword addressing.
    pub sdwa: Option<Sdwa>,
    /// Of memory instructions.
    pub mem: Option<Mem>,
    /// The other half of a dual-issue instruction.
    pub second: Option<Box<Inst>>,
}

impl Inst {
    /// What it does, coarsely.
    pub fn class(&self) -> Class {
        use Op::*;
        match self.encoding {
            Encoding::Sopp => match self.op {
                SBranch | SCbranchScc0 | SCbranchScc1 | SCbranchVccz | SCbranchVccnz | SCbranchExecz
                | SCbranchExecnz => Class::Branch,
                _ => Class::Control,
            },
            Encoding::Sop1 | Encoding::Sopk if matches!(self.op, SSetpcB64 | SSwappcB64 | SCallB64) => Class::Branch,
            Encoding::Sopk if matches!(self.op, SWaitcntVscnt | SWaitcntVmcnt | SWaitcntExpcnt | SWaitcntLgkmcnt) => {
                Class::Control
            }
            Encoding::Sop1 if matches!(self.op, SBarrierSignal | SBarrierSignalIsfirst | SSleepVar) => Class::Control,
            Encoding::Sop1 | Encoding::Sop2 | Encoding::Sopc | Encoding::Sopk => Class::Salu,
            Encoding::Smem => Class::ScalarMemory,
            Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc | Encoding::Vop3 | Encoding::Vop3p | Encoding::Vopd => {
                Class::Valu
            }
            Encoding::Global | Encoding::Mubuf => Class::Global,
            Encoding::Flat => Class::Flat,
            Encoding::Scratch => Class::Scratch,
            Encoding::Ds => Class::Lds,
        }
    }

    /// Type of the first destination; 32 bits where there is none.
    pub fn result(&self) -> Ty {
        self.dst_ty.first().copied().unwrap_or(Ty::B32)
    }

    /// Whether a source or the destination (3) is the upper half of its register.
    pub fn is_high(&self, index: usize) -> bool {
        self.mods.op_sel >> index & 1 == 1
    }
}

/// The inline constants of floats, as f64: codes 240 to 248.
const FLOATS: [f64; 9] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, std::f64::consts::FRAC_1_PI / 2.0];
/// The same in f16.
const HALVES: [u16; 9] = [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118];
/// The same in bf16.
const BRAINS: [u16; 9] = [0x3f00, 0xbf00, 0x3f80, 0xbf80, 0x4000, 0xc000, 0x4080, 0xc080, 0x3e23];

/// The bits of an inline constant, as an operand of a type reads it. Integers are sign-extended.
pub(crate) fn inline(code: u8, ty: Ty) -> u64 {
    match code {
        128..=192 => u64::from(code - 128),
        193..=208 => (192 - i64::from(code)) as u64,
        _ => {
            let index = usize::from(code - 240);
            match ty {
                Ty::F64 | Ty::B64 => FLOATS[index].to_bits(),
                Ty::F16 | Ty::B16 | Ty::Pf16 => HALVES[index].into(),
                Ty::Bf16 | Ty::Pbf16 => BRAINS[index].into(),
                _ => (FLOATS[index] as f32).to_bits().into(),
            }
        }
    }
}
