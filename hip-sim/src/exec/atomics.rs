//! What atomic instructions make of the value in memory.

use super::float::{BF16, F16, F32, double};
use super::mode::{FloatMode, Round};
use crate::isa::Op;

/// The change that an atomic instruction makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Swap,
    CompareSwap,
    CompareSwapFloat,
    Add,
    Sub,
    ReverseSub,
    /// Down to zero, and stays there.
    SubClamp,
    /// Only where the result is not negative.
    CondSub,
    MinSigned,
    MinUnsigned,
    MaxSigned,
    MaxUnsigned,
    And,
    Or,
    Xor,
    /// Up to the operand, then zero.
    Increment,
    /// Down to zero, then the operand.
    Decrement,
    MaskedOr,
    AddFloat,
    MinFloat,
    MaxFloat,
    AddPackedHalf,
    AddPackedBrain,
}

/// An atomic instruction: what it changes, and bytes.
pub(super) fn atomic(op: Op) -> Option<(Change, u32)> {
    use Change::*;
    use Op::*;
    Some(match op {
        AtomicSwapB32 | DsStorexchgRtnB32 => (Swap, 4),
        AtomicSwapB64 | DsStorexchgRtnB64 => (Swap, 8),
        AtomicCmpswapB32 | DsCmpstoreB32 | DsCmpstoreRtnB32 => (CompareSwap, 4),
        AtomicCmpswapB64 | DsCmpstoreB64 | DsCmpstoreRtnB64 => (CompareSwap, 8),
        AtomicCmpswapF32 | DsCmpstoreF32 | DsCmpstoreRtnF32 => (CompareSwapFloat, 4),
        AtomicCmpswapF64 | DsCmpstoreF64 | DsCmpstoreRtnF64 => (CompareSwapFloat, 8),
        AtomicAddU32 | DsAddU32 | DsAddRtnU32 => (Add, 4),
        AtomicAddU64 | DsAddU64 | DsAddRtnU64 => (Add, 8),
        AtomicSubU32 | DsSubU32 | DsSubRtnU32 => (Sub, 4),
        AtomicSubU64 | DsSubU64 | DsSubRtnU64 => (Sub, 8),
        DsRsubU32 | DsRsubRtnU32 => (ReverseSub, 4),
        DsRsubU64 | DsRsubRtnU64 => (ReverseSub, 8),
        AtomicSubClampU32 | DsSubClampU32 | DsSubClampRtnU32 => (SubClamp, 4),
        AtomicCondSubU32 | DsCondSubU32 | DsCondSubRtnU32 => (CondSub, 4),
        AtomicMinI32 | DsMinI32 | DsMinRtnI32 => (MinSigned, 4),
        AtomicMinI64 | DsMinI64 | DsMinRtnI64 => (MinSigned, 8),
        AtomicMinU32 | DsMinU32 | DsMinRtnU32 => (MinUnsigned, 4),
        AtomicMinU64 | DsMinU64 | DsMinRtnU64 => (MinUnsigned, 8),
        AtomicMaxI32 | DsMaxI32 | DsMaxRtnI32 => (MaxSigned, 4),
        AtomicMaxI64 | DsMaxI64 | DsMaxRtnI64 => (MaxSigned, 8),
        AtomicMaxU32 | DsMaxU32 | DsMaxRtnU32 => (MaxUnsigned, 4),
        AtomicMaxU64 | DsMaxU64 | DsMaxRtnU64 => (MaxUnsigned, 8),
        AtomicAndB32 | DsAndB32 | DsAndRtnB32 => (And, 4),
        AtomicAndB64 | DsAndB64 | DsAndRtnB64 => (And, 8),
        AtomicOrB32 | DsOrB32 | DsOrRtnB32 => (Or, 4),
        AtomicOrB64 | DsOrB64 | DsOrRtnB64 => (Or, 8),
        AtomicXorB32 | DsXorB32 | DsXorRtnB32 => (Xor, 4),
        AtomicXorB64 | DsXorB64 | DsXorRtnB64 => (Xor, 8),
        AtomicIncU32 | DsIncU32 | DsIncRtnU32 => (Increment, 4),
        AtomicIncU64 | DsIncU64 | DsIncRtnU64 => (Increment, 8),
        AtomicDecU32 | DsDecU32 | DsDecRtnU32 => (Decrement, 4),
        AtomicDecU64 | DsDecU64 | DsDecRtnU64 => (Decrement, 8),
        DsMskorB32 | DsMskorRtnB32 => (MaskedOr, 4),
        DsMskorB64 | DsMskorRtnB64 => (MaskedOr, 8),
        AtomicAddF32 | DsAddF32 | DsAddRtnF32 => (AddFloat, 4),
        AtomicMinF32 | DsMinF32 | DsMinRtnF32 => (MinFloat, 4),
        AtomicMinF64 | DsMinF64 | DsMinRtnF64 => (MinFloat, 8),
        AtomicMaxF32 | DsMaxF32 | DsMaxRtnF32 => (MaxFloat, 4),
        AtomicMaxF64 | DsMaxF64 | DsMaxRtnF64 => (MaxFloat, 8),
        AtomicPkAddF16 | DsPkAddF16 | DsPkAddRtnF16 => (AddPackedHalf, 4),
        AtomicPkAddBf16 | DsPkAddBf16 | DsPkAddRtnBf16 => (AddPackedBrain, 4),
        _ => return None,
    })
}

/// Atomic units round to nearest and keep denormals, whatever MODE says.
const EXACT: FloatMode = FloatMode { round: Round::Even, flush_in: false, flush_out: false };

/// Sign-extends a value of `size` bytes.
fn signed(value: u64, size: u32) -> i64 {
    if size == 4 { i64::from(value as u32 as i32) } else { value as i64 }
}

/// The new value. `data` is the operand, `second` the other one: what is compared with, or what is put where a mask
/// clears.
pub(super) fn apply(change: Change, size: u32, old: u64, data: u64, second: u64) -> u64 {
    use Change::*;
    let packed = |format: super::float::Format| {
        let half = |shift: u32| format.add(EXACT, (old >> shift) as u32 & 0xffff, (data >> shift) as u32 & 0xffff);
        u64::from(half(0) | half(16) << 16)
    };
    let extremum = |max: bool| {
        if size == 4 {
            F32.extremum(EXACT, false, max, old as u32, data as u32).into()
        } else {
            double::extremum(EXACT, false, max, old, data)
        }
    };
    let equal = || {
        if size == 4 {
            f32::from_bits(old as u32) == f32::from_bits(second as u32)
        } else {
            f64::from_bits(old) == f64::from_bits(second)
        }
    };
    match change {
        Swap => data,
        CompareSwap => {
            if old == second {
                data
            } else {
                old
            }
        }
        CompareSwapFloat => {
            if equal() {
                data
            } else {
                old
            }
        }
        Add => old.wrapping_add(data),
        Sub => old.wrapping_sub(data),
        ReverseSub => data.wrapping_sub(old),
        SubClamp => old.saturating_sub(data),
        CondSub => {
            if old >= data {
                old - data
            } else {
                old
            }
        }
        MinSigned => {
            if signed(data, size) < signed(old, size) {
                data
            } else {
                old
            }
        }
        MaxSigned => {
            if signed(data, size) >= signed(old, size) {
                data
            } else {
                old
            }
        }
        MinUnsigned => old.min(data),
        MaxUnsigned => old.max(data),
        And => old & data,
        Or => old | data,
        Xor => old ^ data,
        Increment => {
            if old >= data {
                0
            } else {
                old + 1
            }
        }
        Decrement => {
            if old == 0 || old > data {
                data
            } else {
                old - 1
            }
        }
        MaskedOr => old & !data | second,
        AddFloat => F32.add(EXACT, old as u32, data as u32).into(),
        MinFloat => extremum(false),
        MaxFloat => extremum(true),
        AddPackedHalf => packed(F16),
        AddPackedBrain => packed(BF16),
    }
}
