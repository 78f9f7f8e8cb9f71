//! f64 instructions of a lane.

use super::float::double;
use super::mode::{Mode, Round};
use super::valu::Env;
use crate::isa::Op;

const SIGN: u64 = 1 << 63;

/// Exponent field.
fn exponent(bits: u64) -> i32 {
    (bits >> 52 & 0x7ff) as i32
}

/// Times a power of two, rounded once.
fn ldexp(mode: Mode, bits: u64, power: i32) -> u64 {
    let bits = double::flush(bits, mode.other.flush_in);
    if let Some(nan) = double::propagate(&[bits]) {
        return nan;
    }
    // Steps that stay exact until the last one: away from the limits first.
    let mut value = f64::from_bits(bits);
    let mut rest = power.clamp(-2300, 2300);
    while rest.abs() > 1000 {
        let step = if rest > 0 { 1000 } else { -900 };
        // Scaling down in several steps could round twice; the significand is kept above the denormals until the last
        // one.
        if step < 0 && value.abs() < 2f64.powi(-60) {
            break;
        }
        value *= 2f64.powi(step);
        rest -= step;
    }
    let rest = rest.clamp(-1022 - 60, 1023);
    let result = if rest < -1022 { value * 2f64.powi(rest + 60) * 2f64.powi(-60) } else { value * 2f64.powi(rest) };
    double::flush(result.to_bits(), mode.other.flush_out)
}

/// As for f32: scales numerator or denominator of a division. `a` is the one to scale, `b` the denominator, `c` the
/// numerator.
pub(super) fn scale_f64(mode: Mode, a: u64, b: u64, c: u64) -> (u64, bool) {
    let [a, b, c] = [a, b, c].map(|bits| double::flush(bits, mode.other.flush_in));
    let (denominator, numerator) = (f64::from_bits(b), f64::from_bits(c));
    if denominator == 0.0 || numerator == 0.0 {
        return (double::NAN, false);
    }
    let tiny = |value: f64| value.abs() < f64::MIN_POSITIVE;
    // The quotient may be far below what f64 holds: zero counts as tiny.
    let (reciprocal, quotient) = (1.0 / denominator, numerator / denominator);
    let only = |this: bool, power: i32| if this { ldexp(mode, a, power) } else { a };
    let denormal = b & !SIGN < 1 << 52;
    if exponent(c) - exponent(b) >= 768 {
        (only(a == b, 128), true)
    } else if denormal {
        (ldexp(mode, a, 128), false)
    } else if tiny(reciprocal) && tiny(quotient) {
        (only(a == b, -128), true)
    } else if tiny(reciprocal) {
        (ldexp(mode, a, -128), false)
    } else if tiny(quotient) {
        (only(a == c, 128), true)
    } else if exponent(c) <= 53 {
        (ldexp(mode, a, 128), false)
    } else {
        (a, false)
    }
}

/// As for f32: a product and sum, with the scaling undone before the only rounding.
fn div_fmas(env: &Env, a: u64, b: u64, c: u64) -> u64 {
    let mode = env.mode.other;
    let result = double::fma(mode, a, b, c);
    if !env.vcc || double::is_nan(result) {
        return result;
    }
    if exponent(c) > 1023 {
        return ldexp(env.mode, result, 128);
    }
    let denormal = exponent(result) <= 128 && result & !SIGN != 0;
    if !denormal || mode.round != Round::Even {
        return ldexp(env.mode, result, -128);
    }
    // What the first rounding lost decides where the second one would see a tie.
    let [x, y, z] = [a, b, c].map(f64::from_bits);
    let lost = double::fma_error(x, y, z) * f64::from_bits(result).signum();
    let significand = result & ((1 << 52) - 1) | 1 << 52;
    // The scaled result counts units of 2^-1074.
    let shift = (129 - exponent(result)).min(60) as u32;
    let (kept, rest, half) = (significand >> shift, significand & ((1 << shift) - 1), 1u64 << (shift - 1));
    let up = rest > half || rest == half && (lost > 0.0 || lost == 0.0 && kept & 1 == 1);
    double::flush(result & SIGN | (kept + u64::from(up)), mode.flush_out)
}

/// The quotient `a` of `c / b`, or what the special cases give; as for f32.
fn div_fixup(a: u64, b: u64, c: u64) -> u64 {
    let sign = (b ^ c) & SIGN;
    if let Some(nan) = double::propagate(&[c, b]) {
        return nan;
    }
    let (denominator, numerator) = (f64::from_bits(b).abs(), f64::from_bits(c).abs());
    if denominator == numerator && (denominator == 0.0 || denominator.is_infinite()) {
        return double::NAN | SIGN;
    }
    if denominator == 0.0 || numerator.is_infinite() {
        return sign | double::INFINITY;
    }
    if denominator.is_infinite() || numerator == 0.0 || exponent(c) - exponent(b) < -1075 {
        return sign;
    }
    if exponent(a) == 0x7ff {
        return sign | double::INFINITY;
    }
    sign | a & !SIGN
}

/// An f64 instruction of a lane.
pub(super) fn lane(op: Op, [a, b, c]: [u64; 3], env: &Env) -> Option<u64> {
    use Op::*;
    let (mode, ieee) = (env.mode.other, env.mode.ieee);
    Some(match op {
        VAddF64 => double::add(mode, a, b),
        VMulF64 => double::mul(mode, a, b),
        VFmaF64 => double::fma(mode, a, b, c),
        VMinF64 => double::extremum(mode, ieee, false, a, b),
        VMaxF64 => double::extremum(mode, ieee, true, a, b),
        VMinimumF64 => double::extremum_nan(mode, false, a, b),
        VMaximumF64 => double::extremum_nan(mode, true, a, b),
        VLdexpF64 => ldexp(env.mode, a, b as u32 as i32),
        VDivFixupF64 => div_fixup(a, b, c),
        VDivFmasF64 => div_fmas(env, a, b, c),
        _ => return None,
    })
}
