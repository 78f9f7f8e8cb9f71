//! f32 instructions of a lane.

use super::float::{F16, F32, sum_to_odd};
use super::mode::Mode;
use super::valu::Env;
use crate::isa::Op;

/// `a * b` where zero times anything is zero, as Direct3D 9 had it.
fn is_dx9_zero(a: u32, b: u32) -> bool {
    [a, b].into_iter().any(|bits| F32.widen(bits) == 0.0 || F32.is_denormal(bits))
}

/// Minimum or maximum of three, and the middle one.
pub(super) struct Ordered<F: Fn(bool, u32, u32) -> u32> {
    /// Minimum (false) or maximum (true) of two.
    pub extremum: F,
}

impl<F: Fn(bool, u32, u32) -> u32> Ordered<F> {
    pub fn three(&self, max: bool, a: u32, b: u32, c: u32) -> u32 {
        (self.extremum)(max, (self.extremum)(max, a, b), c)
    }

    /// Of numbers, the middle one; with a NaN, the minimum.
    pub fn median(&self, any_nan: bool, a: u32, b: u32, c: u32) -> u32 {
        if any_nan {
            return self.three(false, a, b, c);
        }
        let most = self.three(true, a, b, c);
        if most == a {
            (self.extremum)(true, b, c)
        } else if most == b {
            (self.extremum)(true, a, c)
        } else {
            (self.extremum)(true, a, b)
        }
    }

    /// The second of two extrema taken of the first one's result.
    pub fn chain(&self, first: bool, a: u32, b: u32, c: u32) -> u32 {
        (self.extremum)(!first, (self.extremum)(first, a, b), c)
    }
}

/// Exponent field.
fn exponent(bits: u32) -> i32 {
    (bits >> 23 & 255) as i32
}

fn scaled(mode: Mode, bits: u32, power: i32) -> u32 {
    F32.round(mode.single, F32.widen(bits) * 2f64.powi(power))
}

/// Scales numerator or denominator of a division so that its steps neither overflow nor lose bits; the flag asks
/// `v_div_fmas` to undo that. `a` is the one to scale, `b` the denominator, `c` the numerator.
///
/// Where both the reciprocal and the quotient are denormal, the denominator is scaled down, without which the steps
/// that follow would overflow; the documents' text has it scaled up.
pub(super) fn scale_f32(mode: Mode, a: u32, b: u32, c: u32) -> (u32, bool) {
    let [a, b, c] = [a, b, c].map(|bits| F32.flush(bits, mode.single.flush_in));
    let (denominator, numerator) = (F32.widen(b), F32.widen(c));
    if denominator == 0.0 || numerator == 0.0 {
        return (F32.nan(), false);
    }
    let tiny = |value: f64| value.abs() < f64::from(f32::MIN_POSITIVE) && value != 0.0;
    let (reciprocal, quotient) = (1.0 / denominator, numerator / denominator);
    let only = |this: bool, power: i32| if this { scaled(mode, a, power) } else { a };
    if exponent(c) - exponent(b) >= 96 {
        (only(a == b, 64), true)
    } else if F32.is_denormal(b) {
        (scaled(mode, a, 64), false)
    } else if tiny(reciprocal) && tiny(quotient) {
        (only(a == b, -64), true)
    } else if tiny(reciprocal) {
        (scaled(mode, a, -64), false)
    } else if tiny(quotient) {
        (only(a == c, 64), true)
    } else if exponent(c) <= 23 {
        (scaled(mode, a, 64), false)
    } else {
        (a, false)
    }
}

/// The last step of a division: a product and sum, with the scaling of [`scale_f32`] undone before the only rounding.
fn div_fmas(env: &Env, a: u32, b: u32, c: u32) -> u32 {
    let mode = env.mode.single;
    let result = F32.fma(mode, a, b, c);
    if !env.vcc || F32.is_nan(result) {
        return result;
    }
    let [a, b, c] = [a, b, c].map(|bits| F32.widen(F32.flush(bits, mode.flush_in)));
    // A large intermediate quotient was scaled down, a small one up.
    let power = if c.abs() >= 2.0 { 64 } else { -64 };
    F32.round(mode, sum_to_odd(a * b, c) * 2f64.powi(power))
}

/// The quotient `a` of `c / b`, or what the special cases give.
///
/// A quotient that is no finite number has overflowed on the way, where refinement makes a NaN of it; the documents'
/// text tests the denominator in that place, which cannot be meant, since infinite denominators have been dealt with.
fn div_fixup(a: u32, b: u32, c: u32) -> u32 {
    let sign = (b ^ c) & F32.sign();
    if let Some(nan) = F32.propagate(&[c, b]) {
        return nan;
    }
    let (denominator, numerator) = (F32.widen(b).abs(), F32.widen(c).abs());
    if denominator == numerator && (denominator == 0.0 || denominator.is_infinite()) {
        return F32.nan() | F32.sign();
    }
    if denominator == 0.0 || numerator.is_infinite() {
        return sign | F32.infinity();
    }
    if denominator.is_infinite() || numerator == 0.0 || exponent(c) - exponent(b) < -150 {
        return sign;
    }
    if exponent(a) == 255 {
        return sign | F32.infinity();
    }
    sign | a & !F32.sign()
}

/// An f32 instruction of a lane.
pub(super) fn lane(op: Op, [a, b, c]: [u64; 3], env: &Env) -> Option<u64> {
    use Op::*;
    let (x, y, z) = (a as u32, b as u32, c as u32);
    let (mode, constant) = (env.mode.single, env.constant);
    let order = Ordered { extremum: |max, a, b| F32.extremum(mode, env.mode.ieee, max, a, b) };
    let strict = Ordered { extremum: |max, a, b| F32.extremum_nan(mode, max, a, b) };
    let any_nan = F32.is_nan(x) || F32.is_nan(y) || F32.is_nan(z);
    let result = match op {
        VAddF32 => F32.add(mode, x, y),
        VSubF32 => F32.add(mode, x, y ^ F32.sign()),
        VSubrevF32 => F32.add(mode, y, x ^ F32.sign()),
        VMulF32 => F32.mul(mode, x, y),
        VFmaF32 | VFmacF32 => F32.fma(mode, x, y, z),
        VFmamkF32 => F32.fma(mode, x, constant, y),
        VFmaakF32 => F32.fma(mode, x, y, constant),
        VMulDx9ZeroF32 => {
            if is_dx9_zero(x, y) {
                0
            } else {
                F32.mul(mode, x, y)
            }
        }
        VFmaDx9ZeroF32 | VFmacDx9ZeroF32 => {
            if is_dx9_zero(x, y) {
                F32.add(mode, 0, z)
            } else {
                F32.fma(mode, x, y, z)
            }
        }
        VMinF32 => (order.extremum)(false, x, y),
        VMaxF32 => (order.extremum)(true, x, y),
        VMin3F32 => order.three(false, x, y, z),
        VMax3F32 => order.three(true, x, y, z),
        VMed3F32 => order.median(any_nan, x, y, z),
        VMaxminF32 => order.chain(true, x, y, z),
        VMinmaxF32 => order.chain(false, x, y, z),
        VMinimumF32 => (strict.extremum)(false, x, y),
        VMaximumF32 => (strict.extremum)(true, x, y),
        VMinimum3F32 => strict.three(false, x, y, z),
        VMaximum3F32 => strict.three(true, x, y, z),
        VMaximumminimumF32 => strict.chain(true, x, y, z),
        VMinimummaximumF32 => strict.chain(false, x, y, z),
        VDivFixupF32 => div_fixup(x, y, z),
        VDivFmasF32 => div_fmas(env, x, y, z),
        VLdexpF32 => {
            let bits = F32.flush(x, mode.flush_in);
            F32.propagate(&[bits])
                .unwrap_or_else(|| F32.round(mode, F32.widen(bits) * 2f64.powi((y as i32).clamp(-400, 400))))
        }
        VDot2cF32F16 => dot2_f32(env.mode, [x, y], z),
        _ => return None,
    };
    Some(result.into())
}

/// A dot product of two pairs of f16, added to f32 a product at a time. Products of f16 are exact in f32.
pub(super) fn dot2_f32(mode: Mode, [x, y]: [u32; 2], z: u32) -> u32 {
    let widen = |bits: u32| super::convert::widen_half(mode, bits & 0xffff);
    let sum = F32.fma(mode.single, widen(x), widen(y), z);
    F32.fma(mode.single, widen(x >> 16), widen(y >> 16), sum)
}

/// The lowest half of a value, as f16 instructions read it.
pub(super) fn low(bits: u64) -> u32 {
    bits as u32 & (F16.sign() | (F16.sign() - 1))
}
