//! f16 and bf16 instructions of a lane.

use super::float::{BF16, F16, F32};
use super::mode::FloatMode;
use super::valu::Env;
use super::valu_single::{Ordered, low};
use crate::isa::Op;

/// The quotient `a` of `c / b`, or what the special cases give.
fn div_fixup(a: u32, b: u32, c: u32) -> u32 {
    let sign = (b ^ c) & F16.sign();
    if let Some(nan) = F16.propagate(&[c, b]) {
        return nan;
    }
    let (denominator, numerator) = (F16.widen(b).abs(), F16.widen(c).abs());
    if denominator == numerator && (denominator == 0.0 || denominator.is_infinite()) {
        return F16.nan() | F16.sign();
    }
    if denominator == 0.0 || numerator.is_infinite() {
        return sign | F16.infinity();
    }
    if denominator.is_infinite() || numerator == 0.0 {
        return sign;
    }
    sign | a & !F16.sign()
}

/// A dot product of two pairs of bf16, added to f32.
pub(super) fn dot2_f32_bf16(a: u32, b: u32, c: u32) -> u32 {
    let mode = FloatMode::FLUSHED;
    let sum = F32.fma(mode, a << 16, b << 16, c);
    F32.fma(mode, a & 0xffff_0000, b & 0xffff_0000, sum)
}

/// An f16 or bf16 instruction of a lane.
pub(super) fn lane(op: Op, [a, b, c]: [u64; 3], env: &Env) -> Option<u64> {
    use Op::*;
    let (x, y, z) = (low(a), low(b), low(c));
    let mode = env.mode.other;
    let constant = env.constant & 0xffff;
    let order = Ordered { extremum: |max, a, b| F16.extremum(mode, env.mode.ieee, max, a, b) };
    let strict = Ordered { extremum: |max, a, b| F16.extremum_nan(mode, max, a, b) };
    let any_nan = F16.is_nan(x) || F16.is_nan(y) || F16.is_nan(z);
    let result = match op {
        VAddF16 => F16.add(mode, x, y),
        VSubF16 => F16.add(mode, x, y ^ F16.sign()),
        VSubrevF16 => F16.add(mode, y, x ^ F16.sign()),
        VMulF16 => F16.mul(mode, x, y),
        VFmaF16 | VFmacF16 => F16.fma(mode, x, y, z),
        VFmamkF16 => F16.fma(mode, x, constant, y),
        VFmaakF16 => F16.fma(mode, x, y, constant),
        VMinF16 => (order.extremum)(false, x, y),
        VMaxF16 => (order.extremum)(true, x, y),
        VMin3F16 => order.three(false, x, y, z),
        VMax3F16 => order.three(true, x, y, z),
        VMed3F16 => order.median(any_nan, x, y, z),
        VMaxminF16 => order.chain(true, x, y, z),
        VMinmaxF16 => order.chain(false, x, y, z),
        VMinimumF16 => (strict.extremum)(false, x, y),
        VMaximumF16 => (strict.extremum)(true, x, y),
        VMinimum3F16 => strict.three(false, x, y, z),
        VMaximum3F16 => strict.three(true, x, y, z),
        VMaximumminimumF16 => strict.chain(true, x, y, z),
        VMinimummaximumF16 => strict.chain(false, x, y, z),
        VDivFixupF16 => div_fixup(x, y, z),
        VLdexpF16 => {
            let bits = F16.flush(x, mode.flush_in);
            let power = i32::from(y as u16 as i16).clamp(-60, 60);
            F16.propagate(&[bits]).unwrap_or_else(|| F16.round(mode, F16.widen(bits) * 2f64.powi(power)))
        }
        VPkFmacF16 => {
            let high = F16.fma(mode, low(a >> 16), low(b >> 16), low(c >> 16));
            F16.fma(mode, x, y, z) | high << 16
        }
        VDot2F16F16 => {
            let sum = F16.fma(mode, x, y, z);
            F16.fma(mode, low(a >> 16), low(b >> 16), sum)
        }
        VDot2Bf16Bf16 => {
            let mode = FloatMode::FLUSHED;
            let sum = BF16.fma(mode, x, y, z);
            BF16.fma(mode, low(a >> 16), low(b >> 16), sum)
        }
        _ => return None,
    };
    Some(result.into())
}
