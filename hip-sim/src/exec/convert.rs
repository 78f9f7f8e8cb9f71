//! Conversions between floats and integers, and roundings to whole numbers.

use super::float::{F16, F32, Format, double};
use super::mode::{FloatMode, Mode, Round};
use super::valu::Env;
use crate::isa::Op;

/// Towards zero, saturating; NaN gives 0.
pub(super) fn float_to_i32(value: f64) -> i32 {
    value as i32
}

/// Towards zero, saturating; NaN gives 0.
pub(super) fn float_to_u32(value: f64) -> u32 {
    value as u32
}

/// A whole number in the given direction, of the sign of the operand.
fn whole(value: f64, round: Round) -> f64 {
    match round {
        Round::Even => value.round_ties_even(),
        Round::Up => value.ceil(),
        Round::Down => value.floor(),
        Round::Zero => value.trunc(),
    }
}

pub(super) fn round_to_integer(format: Format, mode: FloatMode, bits: u32, round: Round) -> u32 {
    let bits = format.flush(bits, mode.flush_in);
    match format.propagate(&[bits]) {
        Some(nan) => nan,
        // A whole number of the format is exact.
        None => format.narrow(whole(format.widen(bits), round), Round::Even),
    }
}

/// f32 to f16. Operands obey the mode of f32, results that of f16.
pub(super) fn narrow_half(mode: Mode, bits: u32, round: Round) -> u32 {
    let bits = F32.flush(bits, mode.single.flush_in);
    if F32.is_nan(bits) {
        // The upper bits of the fraction stay.
        return bits >> 16 & 0x8000 | 0x7e00 | bits >> 13 & 0x3ff;
    }
    F16.flush(F16.narrow(F32.widen(bits), round), mode.other.flush_out)
}

/// f16 to f32, exactly.
pub(super) fn widen_half(mode: Mode, bits: u32) -> u32 {
    let bits = F16.flush(bits, mode.other.flush_in);
    if F16.is_nan(bits) {
        return (bits & 0x8000) << 16 | 0x7fc0_0000 | (bits & 0x3ff) << 13;
    }
    (F16.widen(bits) as f32).to_bits()
}

fn narrow_double(mode: Mode, bits: u64) -> u32 {
    let bits = double::flush(bits, mode.other.flush_in);
    if double::is_nan(bits) {
        return (bits >> 32) as u32 & 0x8000_0000 | 0x7fc0_0000 | (bits >> 29) as u32 & 0x7f_ffff;
    }
    F32.flush(F32.narrow(f64::from_bits(bits), mode.single.round), mode.single.flush_out)
}

fn widen_single(mode: Mode, bits: u32) -> u64 {
    let bits = F32.flush(bits, mode.single.flush_in);
    if F32.is_nan(bits) {
        return u64::from(bits & 0x8000_0000) << 32 | double::NAN | u64::from(bits & 0x7f_ffff) << 29;
    }
    F32.widen(bits).to_bits()
}

/// To a fraction of `most`, the value of 1.0; rounded to nearest.
fn normalized(value: f64, most: f64, least: f64) -> u64 {
    if value.is_nan() {
        return 0;
    }
    (value.clamp(least, 1.0) * most).round_ties_even() as i64 as u64 & 0xffff
}

/// Position of the leading bit of the significand: the value is below 2 to this power.
fn exponent(value: f64) -> i32 {
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    if value.abs() < f64::MIN_POSITIVE {
        return exponent(value * 2f64.powi(54)) - 54;
    }
    (value.abs().to_bits() >> 52) as i32 - 1022
}

/// A significand from 0.5 up to 1.
fn mantissa(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    // Denormals of f64 are made normal first.
    let value = if value.abs() < f64::MIN_POSITIVE { value * 2f64.powi(54) } else { value };
    f64::from_bits(value.to_bits() & !(0x7ff << 52) | 1022 << 52)
}

/// The value of an f32 operand with its denormals as the mode has them.
fn single(mode: Mode, bits: u64) -> f64 {
    F32.widen(F32.flush(bits as u32, mode.single.flush_in))
}

fn half(mode: Mode, bits: u64) -> f64 {
    F16.widen(F16.flush(bits as u32 & 0xffff, mode.other.flush_in))
}

fn whole_f64(mode: Mode, bits: u64, round: Round) -> u64 {
    let bits = double::flush(bits, mode.other.flush_in);
    double::propagate(&[bits]).unwrap_or_else(|| whole(f64::from_bits(bits), round).to_bits())
}

/// The fractional part, below 1 in its own precision.
fn fraction(format: Format, mode: FloatMode, bits: u32) -> u32 {
    let bits = format.flush(bits, mode.flush_in);
    if let Some(nan) = format.propagate(&[bits]) {
        return nan;
    }
    let value = format.widen(bits);
    if value.is_infinite() {
        return format.nan();
    }
    let most = format.bias_of_one() - 1;
    format.flush(format.narrow(value - value.floor(), mode.round), mode.flush_out).min(most)
}

impl Format {
    /// The bits of 1.0.
    fn bias_of_one(self) -> u32 {
        ((1 << (self.exponent - 1)) - 1) << self.fraction
    }
}

/// Conversions of a lane.
pub(super) fn lane(op: Op, [a, b, c]: [u64; 3], env: &Env) -> Option<u64> {
    use Op::*;
    let mode = env.mode;
    let x = a as u32;
    let f32_of = |value: f64| u64::from(F32.round(mode.single, value));
    let f16_of = |value: f64| u64::from(F16.round(mode.other, value));
    let signed = |value: i32| u64::from(value as u32);
    Some(match op {
        VCvtF32I32 => f32_of(f64::from(x as i32)),
        VCvtF32U32 => f32_of(f64::from(x)),
        VCvtF32Ubyte0 => f32_of(f64::from(x & 255)),
        VCvtF32Ubyte1 => f32_of(f64::from(x >> 8 & 255)),
        VCvtF32Ubyte2 => f32_of(f64::from(x >> 16 & 255)),
        VCvtF32Ubyte3 => f32_of(f64::from(x >> 24)),
        VCvtOffF32I4 => f32_of(f64::from((x << 28) as i32 >> 28) / 16.0),
        VCvtI32F32 => signed(float_to_i32(single(mode, a))),
        VCvtU32F32 => float_to_u32(single(mode, a)).into(),
        VCvtNearestI32F32 => signed(float_to_i32((single(mode, a) + 0.5).floor())),
        VCvtFloorI32F32 => signed(float_to_i32(single(mode, a).floor())),
        VCvtF16F32 => narrow_half(mode, x, mode.other.round).into(),
        VCvtF32F16 => widen_half(mode, x & 0xffff).into(),
        VCvtF32F64 => narrow_double(mode, a).into(),
        VCvtF64F32 => widen_single(mode, x),
        VCvtF64I32 => f64::from(x as i32).to_bits(),
        VCvtF64U32 => f64::from(x).to_bits(),
        VCvtI32F64 => signed(float_to_i32(f64::from_bits(a))),
        VCvtU32F64 => float_to_u32(f64::from_bits(a)).into(),
        VCvtF16U16 => f16_of(f64::from(x as u16)),
        VCvtF16I16 => f16_of(f64::from(x as i16)),
        VCvtU16F16 => u64::from(half(mode, a) as u16),
        VCvtI16F16 => u64::from(half(mode, a) as i16 as u16),
        VCvtI32I16 => signed(i32::from(x as i16)),
        VCvtU32U16 => u64::from(x as u16),
        VCvtNormI16F16 => normalized(half(mode, a), 32767.0, -1.0),
        VCvtNormU16F16 => normalized(half(mode, a), 65535.0, 0.0),
        VCvtPkNormI16F32 => {
            normalized(single(mode, a), 32767.0, -1.0) | normalized(single(mode, b), 32767.0, -1.0) << 16
        }
        VCvtPkNormU16F32 => normalized(single(mode, a), 65535.0, 0.0) | normalized(single(mode, b), 65535.0, 0.0) << 16,
        VCvtPkNormI16F16 => normalized(half(mode, a), 32767.0, -1.0) | normalized(half(mode, b), 32767.0, -1.0) << 16,
        VCvtPkNormU16F16 => normalized(half(mode, a), 65535.0, 0.0) | normalized(half(mode, b), 65535.0, 0.0) << 16,
        VCvtPkRtzF16F32 => (narrow_half(mode, x, Round::Zero) | narrow_half(mode, b as u32, Round::Zero) << 16).into(),
        VCvtPkI16F32 => u64::from(single(mode, a) as i16 as u16) | u64::from(single(mode, b) as i16 as u16) << 16,
        VCvtPkU16F32 => u64::from(single(mode, a) as u16) | u64::from(single(mode, b) as u16) << 16,
        VCvtPkI16I32 => {
            let part = |bits: u64| (bits as u32 as i32).clamp(-32768, 32767) as u16;
            u64::from(part(a)) | u64::from(part(b)) << 16
        }
        VCvtPkU16U32 => u64::from((a as u32).min(0xffff)) | u64::from((b as u32).min(0xffff)) << 16,
        VCvtPkU8F32 => {
            let shift = 8 * (b & 3);
            c & !(255 << shift) | u64::from(single(mode, a).round_ties_even() as u8) << shift
        }
        VSatPkU8I16 => {
            let part = |bits: u64| u64::from((bits as i16).clamp(0, 255) as u8);
            part(a) | part(a >> 16) << 8
        }
        VTruncF32 => round_to_integer(F32, mode.single, x, Round::Zero).into(),
        VCeilF32 => round_to_integer(F32, mode.single, x, Round::Up).into(),
        VFloorF32 => round_to_integer(F32, mode.single, x, Round::Down).into(),
        VRndneF32 => round_to_integer(F32, mode.single, x, Round::Even).into(),
        VTruncF16 => round_to_integer(F16, mode.other, x & 0xffff, Round::Zero).into(),
        VCeilF16 => round_to_integer(F16, mode.other, x & 0xffff, Round::Up).into(),
        VFloorF16 => round_to_integer(F16, mode.other, x & 0xffff, Round::Down).into(),
        VRndneF16 => round_to_integer(F16, mode.other, x & 0xffff, Round::Even).into(),
        VTruncF64 => whole_f64(mode, a, Round::Zero),
        VCeilF64 => whole_f64(mode, a, Round::Up),
        VFloorF64 => whole_f64(mode, a, Round::Down),
        VRndneF64 => whole_f64(mode, a, Round::Even),
        VFractF32 => fraction(F32, mode.single, x).into(),
        VFractF16 => fraction(F16, mode.other, x & 0xffff).into(),
        VFractF64 => {
            let value = f64::from_bits(double::flush(a, mode.other.flush_in));
            match double::propagate(&[a]) {
                Some(nan) => nan,
                None if value.is_infinite() => double::NAN,
                None => (value - value.floor()).min(1f64.next_down()).to_bits(),
            }
        }
        VFrexpExpI32F32 => signed(exponent(single(mode, a))),
        VFrexpExpI16F16 => u64::from(exponent(half(mode, a)) as i16 as u16),
        VFrexpExpI32F64 => signed(exponent(f64::from_bits(double::flush(a, mode.other.flush_in)))),
        VFrexpMantF32 => F32.propagate(&[x]).unwrap_or_else(|| (mantissa(single(mode, a)) as f32).to_bits()).into(),
        VFrexpMantF16 => {
            let bits = x & 0xffff;
            F16.propagate(&[bits]).unwrap_or_else(|| F16.narrow(mantissa(half(mode, a)), Round::Even)).into()
        }
        VFrexpMantF64 => double::propagate(&[a])
            .unwrap_or_else(|| mantissa(f64::from_bits(double::flush(a, mode.other.flush_in))).to_bits()),
        _ => return None,
    })
}
