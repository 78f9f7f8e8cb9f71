//! Vector instructions with a mask as second result, or as a third operand: carries, 64-bit products, scaling for
//! division.

use super::registers::Lanes;
use super::valu::{Sources, each_lane};
use super::valu_double::scale_f64;
use super::valu_single::scale_f32;
use super::wave::Wave;
use crate::isa::{Inst, Op, Ty};

/// A carry out of each lane.
struct Sums {
    values: Lanes,
    mask: u32,
}

/// Runs the instruction, if it is one of these.
pub(super) fn execute(wave: &mut Wave, inst: &Inst, sources: &Sources) -> bool {
    use Op::*;
    let [a, b, c] = &sources.values;
    let carry_in = wave.registers.mask(inst.src[2]);
    let clamp = inst.mods.clamp;
    // A result and a carry, lane by lane.
    let each = |compute: &dyn Fn(usize) -> (u64, bool)| {
        let mut sums = Sums { values: [0; 32], mask: 0 };
        for lane in each_lane(sources.lanes) {
            let (value, carry) = compute(lane);
            sums.values[lane] = value;
            sums.mask |= u32::from(carry) << lane;
        }
        sums
    };
    let add = |x: u64, y: u64, carry: u64| {
        let sum = (x & 0xffff_ffff) + (y & 0xffff_ffff) + carry;
        let carried = sum >> 32 != 0;
        (if clamp && carried { 0xffff_ffff } else { sum & 0xffff_ffff }, carried)
    };
    let subtract = |x: u64, y: u64, borrow: u64| {
        let (x, y) = (x & 0xffff_ffff, (y & 0xffff_ffff) + borrow);
        (if clamp && y > x { 0 } else { x.wrapping_sub(y) & 0xffff_ffff }, y > x)
    };
    let carry = |lane: usize| u64::from(carry_in >> lane & 1);
    let mode = wave.registers.mode;
    let sums = match inst.op {
        VAddCoU32 => each(&|lane| add(a[lane], b[lane], 0)),
        VSubCoU32 => each(&|lane| subtract(a[lane], b[lane], 0)),
        VSubrevCoU32 => each(&|lane| subtract(b[lane], a[lane], 0)),
        VAddCoCiU32 => each(&|lane| add(a[lane], b[lane], carry(lane))),
        VSubCoCiU32 => each(&|lane| subtract(a[lane], b[lane], carry(lane))),
        VSubrevCoCiU32 => each(&|lane| subtract(b[lane], a[lane], carry(lane))),
        VMadU64U32 => each(&|lane| {
            let product = (a[lane] & 0xffff_ffff) * (b[lane] & 0xffff_ffff);
            product.overflowing_add(c[lane])
        }),
        VMadI64I32 => each(&|lane| {
            let product = i64::from(a[lane] as i32) * i64::from(b[lane] as i32);
            let (sum, overflow) = product.overflowing_add(c[lane] as i64);
            (sum as u64, overflow)
        }),
        VDivScaleF32 => each(&|lane| {
            let (value, scaled) = scale_f32(mode, a[lane] as u32, b[lane] as u32, c[lane] as u32);
            (value.into(), scaled)
        }),
        VDivScaleF64 => each(&|lane| scale_f64(mode, a[lane], b[lane], c[lane])),
        _ => return false,
    };
    wave.write_lanes(inst, &sums.values, sources.lanes);
    wave.registers.set_scalar(inst.sdst, Ty::B32, sums.mask.into());
    true
}
