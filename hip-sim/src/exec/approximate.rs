//! Functions that the hardware approximates: reciprocals, roots, powers and logarithms of two, sine and cosine.
//!
//! The hardware is good to 1 ulp or so, in a way that is not published. Here results are rounded correctly, from f64;
//! or, on request, moved up to a few ulp away from the exact result, so that a test can show that a kernel does not depend
//! on more than it may.

use super::float::{F16, F32, Format, double};
use super::mode::FloatMode;
use super::valu::Env;
use crate::isa::Op;

/// Sine of a number of turns.
fn sin_turns(turns: f64) -> f64 {
    // Reduced first, so that whole and half turns are exact zeros.
    let turns = turns - turns.round();
    if turns == 0.0 || turns.abs() == 0.5 { 0.0f64.copysign(turns) } else { (turns * std::f64::consts::TAU).sin() }
}

fn cos_turns(turns: f64) -> f64 {
    let turns = turns - turns.round();
    if turns.abs() == 0.25 { 0.0 } else { (turns * std::f64::consts::TAU).cos() }
}

/// What is approximated.
type Function = fn(f64) -> f64;

/// The function that an instruction approximates; the second part tells its width: 16, 32 or 64.
fn function(op: Op) -> Option<(Function, u32)> {
    use Op::*;
    Some(match op {
        VRcpF32 | VRcpIflagF32 | VSRcpF32 => (|x| 1.0 / x, 32),
        VRsqF32 | VSRsqF32 => (|x| 1.0 / x.sqrt(), 32),
        VSqrtF32 | VSSqrtF32 => (f64::sqrt, 32),
        VExpF32 | VSExpF32 => (f64::exp2, 32),
        VLogF32 | VSLogF32 => (f64::log2, 32),
        VSinF32 => (sin_turns, 32),
        VCosF32 => (cos_turns, 32),
        VRcpF16 | VSRcpF16 => (|x| 1.0 / x, 16),
        VRsqF16 | VSRsqF16 => (|x| 1.0 / x.sqrt(), 16),
        VSqrtF16 | VSSqrtF16 => (f64::sqrt, 16),
        VExpF16 | VSExpF16 => (f64::exp2, 16),
        VLogF16 | VSLogF16 => (f64::log2, 16),
        VSinF16 => (sin_turns, 16),
        VCosF16 => (cos_turns, 16),
        VRcpF64 => (|x| 1.0 / x, 64),
        VRsqF64 => (|x| 1.0 / x.sqrt(), 64),
        VSqrtF64 => (f64::sqrt, 64),
        _ => return None,
    })
}

/// A number of ulp from `-most` to `most` that depends on the operand only.
fn perturbation(operand: u64, most: u32) -> i64 {
    // The finisher of a 64-bit mixing function (Stafford's variant 13).
    let mut hash = operand.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let range = 2 * u64::from(most) + 1;
    ((hash ^ hash >> 31) % range) as i64 - i64::from(most)
}

/// A result of one of the short formats. What it holds exactly is exact on hardware, too, and is not moved.
fn short(format: Format, mode: FloatMode, env: &Env, bits: u32, function: Function) -> u32 {
    let bits = format.flush(bits, mode.flush_in);
    if let Some(nan) = format.propagate(&[bits]) {
        return nan;
    }
    let value = function(format.widen(bits));
    if value.is_nan() {
        return format.nan();
    }
    let result = format.narrow(value, super::mode::Round::Even);
    let magnitude = result & (format.sign() - 1);
    let movable = env.hardware_error_ulp != 0 && magnitude != 0 && magnitude < format.infinity();
    let rounded = format.widen(result);
    let result = if movable && rounded != value {
        // Away from the exact result, and not from its rounded form: compilers divide integers by code that rests on 1 ulp of
        // the one and goes wrong within 1 ulp of the other.
        let outwards = if rounded.abs() > value.abs() { 1 } else { -1 };
        let by = match perturbation(bits.into(), env.hardware_error_ulp) {
            by if by == outwards * i64::from(env.hardware_error_ulp) => by - outwards,
            by => by,
        };
        let moved = i64::from(magnitude) + by;
        result & format.sign() | moved.clamp(1, i64::from(format.infinity()) - 1) as u32
    } else {
        result
    };
    format.flush(result, mode.flush_out)
}

/// An approximation of a lane.
///
/// Those of f32 take and give denormals as zero whatever MODE says; those of f16 and f64 obey it.
pub(super) fn lane(op: Op, [a, b, _]: [u64; 3], env: &Env) -> Option<u64> {
    if op == Op::VTrigPreopF64 {
        return Some(trig_preop(a, b as u32));
    }
    let (function, width) = function(op)?;
    Some(match width {
        32 => short(F32, FloatMode::FLUSHED, env, a as u32, function).into(),
        16 => short(F16, env.mode.other, env, a as u32 & 0xffff, function).into(),
        _ => {
            let bits = double::flush(a, env.mode.other.flush_in);
            if let Some(nan) = double::propagate(&[bits]) {
                return Some(nan);
            }
            let result = function(f64::from_bits(bits));
            if result.is_nan() { double::NAN } else { double::flush(result.to_bits(), env.mode.other.flush_out) }
        }
    })
}

/// Fraction bits of 2 / pi, the highest first: enough for the largest f64.
const TWO_OVER_PI: [u64; 19] = [
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
];

/// 53 bits of 2 / pi from where a reduction of this operand needs them, as a float of their weight.
fn trig_preop(operand: u64, part: u32) -> u64 {
    let exponent = (operand >> 52 & 0x7ff) as i32;
    let shift = (part & 31) as i32 * 53 + (exponent - 1077).max(0);
    let bits = (0..53).fold(0u64, |bits, index| {
        let place = (shift + index) as usize;
        bits << 1 | TWO_OVER_PI.get(place / 64).map_or(0, |word| word >> (63 - place % 64) & 1)
    });
    let scale = -53 - shift + if exponent >= 1968 { 128 } else { 0 };
    (bits as f64 * 2f64.powi(scale / 2) * 2f64.powi(scale - scale / 2)).to_bits()
}
