//! The scalar float unit of RDNA3.5 and RDNA4: arithmetic, conversions and comparisons of f32 and f16 in SGPRs.

use super::compare::{Relation, relation};
use super::convert::{float_to_i32, float_to_u32, round_to_integer};
use super::float::{F16, F32, Format};
use super::mode::{FloatMode, Round};
use super::wave::Wave;
use crate::isa::{Inst, Op};

impl Wave {
    /// The result of a scalar float instruction.
    pub(super) fn scalar_float(&self, inst: &Inst, a: u32, b: u32) -> Option<u64> {
        use Op::*;
        let mode = self.registers.mode;
        let old = self.registers.scalar(inst, inst.dst, inst.result()) as u32;
        let (single, other) = (mode.single, mode.other);
        let ieee = mode.ieee;
        let result = match inst.op {
            SAddF32 => F32.add(single, a, b),
            SSubF32 => F32.add(single, a, b ^ F32.sign()),
            SMulF32 => F32.mul(single, a, b),
            SFmacF32 => F32.fma(single, a, b, old),
            SFmaakF32 => F32.fma(single, a, b, inst.imm),
            SFmamkF32 => F32.fma(single, a, inst.imm, b),
            SMinF32 => F32.extremum(single, ieee, false, a, b),
            SMaxF32 => F32.extremum(single, ieee, true, a, b),
            SMinimumF32 => F32.extremum_nan(single, false, a, b),
            SMaximumF32 => F32.extremum_nan(single, true, a, b),
            SAddF16 => F16.add(other, a & 0xffff, b & 0xffff),
            SSubF16 => F16.add(other, a & 0xffff, (b ^ 0x8000) & 0xffff),
            SMulF16 => F16.mul(other, a & 0xffff, b & 0xffff),
            SFmacF16 => F16.fma(other, a & 0xffff, b & 0xffff, old & 0xffff),
            SMinF16 => F16.extremum(other, ieee, false, a & 0xffff, b & 0xffff),
            SMaxF16 => F16.extremum(other, ieee, true, a & 0xffff, b & 0xffff),
            SMinimumF16 => F16.extremum_nan(other, false, a & 0xffff, b & 0xffff),
            SMaximumF16 => F16.extremum_nan(other, true, a & 0xffff, b & 0xffff),
            SCeilF32 => round_to_integer(F32, single, a, Round::Up),
            SFloorF32 => round_to_integer(F32, single, a, Round::Down),
            STruncF32 => round_to_integer(F32, single, a, Round::Zero),
            SRndneF32 => round_to_integer(F32, single, a, Round::Even),
            SCeilF16 => round_to_integer(F16, other, a & 0xffff, Round::Up),
            SFloorF16 => round_to_integer(F16, other, a & 0xffff, Round::Down),
            STruncF16 => round_to_integer(F16, other, a & 0xffff, Round::Zero),
            SRndneF16 => round_to_integer(F16, other, a & 0xffff, Round::Even),
            SCvtF32I32 => F32.round(single, f64::from(a as i32)),
            SCvtF32U32 => F32.round(single, f64::from(a)),
            SCvtI32F32 => float_to_i32(F32.widen(F32.flush(a, single.flush_in))) as u32,
            SCvtU32F32 => float_to_u32(F32.widen(F32.flush(a, single.flush_in))),
            SCvtF16F32 => super::convert::narrow_half(mode, a, other.round),
            SCvtF32F16 => super::convert::widen_half(mode, a & 0xffff),
            SCvtHiF32F16 => super::convert::widen_half(mode, a >> 16),
            SCvtPkRtzF16F32 => {
                let part = |bits| super::convert::narrow_half(mode, bits, Round::Zero);
                part(a) | part(b) << 16
            }
            _ => return None,
        };
        Some(result.into())
    }

    pub(super) fn float_compare(&self, op: Op, a: u32, b: u32) -> Option<bool> {
        let mode = self.registers.mode;
        let related = |format: Format, mode: FloatMode| {
            let mask = format.sign() | (format.sign() - 1);
            relation(format, mode, a & mask, b & mask)
        };
        use Op::*;
        let (single, other) = (related(F32, mode.single), related(F16, mode.other));
        let is = |relation: Relation, wanted: &[Relation]| wanted.contains(&relation);
        use Relation::{Equal, Greater, Less, Unordered};
        Some(match op {
            SCmpLtF32 => is(single, &[Less]),
            SCmpEqF32 => is(single, &[Equal]),
            SCmpLeF32 => is(single, &[Less, Equal]),
            SCmpGtF32 => is(single, &[Greater]),
            SCmpLgF32 => is(single, &[Less, Greater]),
            SCmpGeF32 => is(single, &[Greater, Equal]),
            SCmpOF32 => single != Unordered,
            SCmpUF32 => single == Unordered,
            SCmpNgeF32 => !is(single, &[Greater, Equal]),
            SCmpNlgF32 => !is(single, &[Less, Greater]),
            SCmpNgtF32 => !is(single, &[Greater]),
            SCmpNleF32 => !is(single, &[Less, Equal]),
            SCmpNeqF32 => !is(single, &[Equal]),
            SCmpNltF32 => !is(single, &[Less]),
            SCmpLtF16 => is(other, &[Less]),
            SCmpEqF16 => is(other, &[Equal]),
            SCmpLeF16 => is(other, &[Less, Equal]),
            SCmpGtF16 => is(other, &[Greater]),
            SCmpLgF16 => is(other, &[Less, Greater]),
            SCmpGeF16 => is(other, &[Greater, Equal]),
            SCmpOF16 => other != Unordered,
            SCmpUF16 => other == Unordered,
            SCmpNgeF16 => !is(other, &[Greater, Equal]),
            SCmpNlgF16 => !is(other, &[Less, Greater]),
            SCmpNgtF16 => !is(other, &[Greater]),
            SCmpNleF16 => !is(other, &[Less, Equal]),
            SCmpNeqF16 => !is(other, &[Equal]),
            SCmpNltF16 => !is(other, &[Less]),
            _ => return None,
        })
    }
}
