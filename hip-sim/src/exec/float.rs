//! Floating point as the hardware has it: formats, rounding in any direction, denormals, NaN.
//!
//! f16, bf16 and directed rounding are computed in f64, which holds products of two f32 exactly; sums are rounded to
//! odd there, so that the second rounding is right ("When double rounding is odd", Boldo and Melquiond, 2005).

use super::mode::{FloatMode, Round};

/// A binary format of 16 or 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Bits of the fraction.
    pub fraction: u32,
    /// Bits of the exponent.
    pub exponent: u32,
}

pub(super) const F16: Format = Format { fraction: 10, exponent: 5 };
pub(super) const BF16: Format = Format { fraction: 7, exponent: 8 };
pub(super) const F32: Format = Format { fraction: 23, exponent: 8 };

impl Format {
    pub fn sign(self) -> u32 {
        1 << (self.fraction + self.exponent)
    }

    pub fn infinity(self) -> u32 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    /// What an invalid operation gives.
    pub fn nan(self) -> u32 {
        self.infinity() | self.quiet()
    }

    fn quiet(self) -> u32 {
        1 << (self.fraction - 1)
    }

    pub fn is_nan(self, bits: u32) -> bool {
        bits & (self.sign() - 1) > self.infinity()
    }

    pub fn is_signalling(self, bits: u32) -> bool {
        self.is_nan(bits) && bits & self.quiet() == 0
    }

    pub fn quieten(self, bits: u32) -> u32 {
        bits | self.quiet()
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    pub fn is_denormal(self, bits: u32) -> bool {
        let magnitude = bits & (self.sign() - 1);
        magnitude != 0 && magnitude < 1 << self.fraction
    }

    /// A denormal becomes zero of its sign.
    pub fn flush(self, bits: u32, flush: bool) -> u32 {
        if flush && self.is_denormal(bits) { bits & self.sign() } else { bits }
    }

    /// The value, exactly. NaN stays one.
    pub fn widen(self, bits: u32) -> f64 {
        if self == F32 {
            return f32::from_bits(bits).into();
        }
        if self == BF16 {
            return f32::from_bits(bits << 16).into();
        }
        let (exponent, fraction) = (bits >> self.fraction & 31, bits & 0x3ff);
        let value = match exponent {
            0 => f64::from(fraction) * 2f64.powi(-24),
            31 if fraction == 0 => f64::INFINITY,
            31 => f64::NAN,
            // Through the bits of f32, whose exponent is biased by 112 more.
            _ => f64::from(f32::from_bits((exponent + 112) << 23 | fraction << 13)),
        };
        if bits & self.sign() != 0 { -value } else { value }
    }

    /// Rounds a value that is no NaN.
    pub fn narrow(self, value: f64, round: Round) -> u32 {
        if self == F32 && round == Round::Even {
            return (value as f32).to_bits();
        }
        let negative = value.is_sign_negative();
        let sign = if negative { self.sign() } else { 0 };
        if value.is_infinite() {
            return sign | self.infinity();
        }
        let bits = value.abs().to_bits();
        let biased = (bits >> 52) as i32;
        if bits == 0 {
            return sign;
        }
        // The value is significand * 2^(exponent - 52). What is denormal in f64 is far below every format here.
        let (significand, exponent) = (bits & ((1 << 52) - 1) | u64::from(biased != 0) << 52, biased.max(1) - 1023);
        let least = 1 - self.bias();
        let quantum = exponent.max(least) - self.fraction as i32;
        let shift = (quantum - (exponent - 52)).min(60) as u32;
        let (kept, lost, half) = (significand >> shift, significand & ((1 << shift) - 1), 1u64 << (shift - 1));
        let up = match round {
            Round::Even => lost > half || lost == half && kept & 1 == 1,
            Round::Up => lost != 0 && !negative,
            Round::Down => lost != 0 && negative,
            Round::Zero => false,
        };
        let rounded = kept as u32 + u32::from(up);
        // A carry out of the fraction moves into the exponent, as it should.
        let magnitude = if exponent < least {
            rounded
        } else {
            let field = (exponent - least + 1).min(1 << self.exponent) as u32;
            (field << self.fraction) + (rounded - (1 << self.fraction))
        };
        if magnitude < self.infinity() {
            return sign | magnitude;
        }
        let to_infinity = match round {
            Round::Even => true,
            Round::Up => !negative,
            Round::Down => negative,
            Round::Zero => false,
        };
        sign | if to_infinity { self.infinity() } else { self.infinity() - 1 }
    }

    /// The NaN that an operation on these operands gives, if one of them is NaN: the first one, made quiet.
    pub fn propagate(self, operands: &[u32]) -> Option<u32> {
        operands.iter().find(|&&bits| self.is_nan(bits)).map(|&bits| self.quieten(bits))
    }

    /// `a * b + c`, rounded once.
    pub fn fma(self, mode: FloatMode, a: u32, b: u32, c: u32) -> u32 {
        let [a, b, c] = [a, b, c].map(|bits| self.flush(bits, mode.flush_in));
        if let Some(nan) = self.propagate(&[a, b, c]) {
            return nan;
        }
        if self == F32 && mode.round == Round::Even {
            let result = f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c));
            return if result.is_nan() { self.nan() } else { self.flush(result.to_bits(), mode.flush_out) };
        }
        let product = self.widen(a) * self.widen(b);
        self.finish(mode, sum_to_odd(product, self.widen(c)), is_exact_zero_sum(product, self.widen(c)))
    }

    pub fn add(self, mode: FloatMode, a: u32, b: u32) -> u32 {
        let [a, b] = [a, b].map(|bits| self.flush(bits, mode.flush_in));
        if let Some(nan) = self.propagate(&[a, b]) {
            return nan;
        }
        if self == F32 && mode.round == Round::Even {
            let result = f32::from_bits(a) + f32::from_bits(b);
            return if result.is_nan() { self.nan() } else { self.flush(result.to_bits(), mode.flush_out) };
        }
        let (a, b) = (self.widen(a), self.widen(b));
        self.finish(mode, sum_to_odd(a, b), is_exact_zero_sum(a, b))
    }

    pub fn mul(self, mode: FloatMode, a: u32, b: u32) -> u32 {
        let [a, b] = [a, b].map(|bits| self.flush(bits, mode.flush_in));
        if let Some(nan) = self.propagate(&[a, b]) {
            return nan;
        }
        self.finish(mode, self.widen(a) * self.widen(b), false)
    }

    /// Rounds and flushes a result; a sum that cancels to zero is negative when rounding down.
    fn finish(self, mode: FloatMode, value: f64, cancelled: bool) -> u32 {
        if value.is_nan() {
            return self.nan();
        }
        if cancelled {
            return if mode.round == Round::Down { self.sign() } else { 0 };
        }
        self.flush(self.narrow(value, mode.round), mode.flush_out)
    }

    /// A value from elsewhere, rounded as the mode has it.
    pub fn round(self, mode: FloatMode, value: f64) -> u32 {
        self.finish(mode, value, false)
    }

    /// Less-than with -0 below +0; no NaN.
    fn is_less(self, a: u32, b: u32) -> bool {
        let (x, y) = (self.widen(a), self.widen(b));
        x < y || x == y && a & self.sign() != 0 && b & self.sign() == 0
    }

    /// Minimum or maximum that prefers numbers to NaN.
    pub fn extremum(self, mode: FloatMode, ieee: bool, max: bool, a: u32, b: u32) -> u32 {
        let [a, b] = [a, b].map(|bits| self.flush(bits, mode.flush_in));
        if let Some(&nan) = [a, b].iter().find(|&&bits| ieee && self.is_signalling(bits)) {
            return self.quieten(nan);
        }
        let result = match (self.is_nan(a), self.is_nan(b)) {
            (true, true) => self.quieten(a),
            (true, false) => b,
            (false, true) => a,
            _ if self.is_less(a, b) == max => b,
            _ => a,
        };
        self.flush(result, mode.flush_out)
    }

    /// Minimum or maximum of IEEE 754-2019, which prefers NaN.
    pub fn extremum_nan(self, mode: FloatMode, max: bool, a: u32, b: u32) -> u32 {
        let [a, b] = [a, b].map(|bits| self.flush(bits, mode.flush_in));
        match self.propagate(&[a, b]) {
            Some(nan) => nan,
            None => self.flush(if self.is_less(a, b) == max { b } else { a }, mode.flush_out),
        }
    }

    /// Output modifier, then clamping.
    pub fn modify(self, bits: u32, omod: u8, clamp: bool, dx10_clamp: bool, mode: FloatMode) -> u32 {
        let mut bits = bits;
        if omod != 0 && !self.is_nan(bits) {
            let factor = [1.0, 2.0, 4.0, 0.5][usize::from(omod)];
            bits = self.flush(self.narrow(self.widen(bits) * factor, mode.round), mode.flush_out);
        }
        if !clamp {
            return bits;
        }
        if self.is_nan(bits) {
            return if dx10_clamp { 0 } else { bits };
        }
        let value = self.widen(bits);
        if value <= 0.0 {
            0
        } else if value > 1.0 {
            (self.bias() as u32) << self.fraction
        } else {
            bits
        }
    }
}

/// Whether a sum of two values is zero although one of them is not, or their signs differ: its sign then depends on the
/// rounding.
fn is_exact_zero_sum(a: f64, b: f64) -> bool {
    a + b == 0.0 && !(a == 0.0 && b == 0.0 && a.is_sign_negative() == b.is_sign_negative())
}

/// `a + b`, rounded to the nearest, and if that is inexact, to the neighbour with an odd significand.
pub(super) fn sum_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() || sum == 0.0 {
        return sum;
    }
    // Knuth's exact error of an addition.
    let shadow = sum - a;
    let error = (a - (sum - shadow)) + (b - shadow);
    if error == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// Operations on f64.
pub(super) mod double {
    use crate::exec::mode::{FloatMode, Round};

    const SIGN: u64 = 1 << 63;
    const QUIET: u64 = 1 << 51;
    pub const INFINITY: u64 = 0x7ff << 52;
    pub const NAN: u64 = INFINITY | QUIET;

    pub fn is_nan(bits: u64) -> bool {
        bits & !SIGN > INFINITY
    }

    pub fn is_signalling(bits: u64) -> bool {
        is_nan(bits) && bits & QUIET == 0
    }

    pub fn quieten(bits: u64) -> u64 {
        bits | QUIET
    }

    pub fn flush(bits: u64, flush: bool) -> u64 {
        if flush && bits & !SIGN < 1 << 52 { bits & SIGN } else { bits }
    }

    pub fn propagate(operands: &[u64]) -> Option<u64> {
        operands.iter().find(|&&bits| is_nan(bits)).map(|&bits| quieten(bits))
    }

    /// Moves a result that was rounded to nearest, given the sign of exact minus rounded.
    fn direct(result: f64, error: f64, round: Round) -> f64 {
        if round == Round::Even || error == 0.0 || error.is_nan() {
            return result;
        }
        let up = match round {
            Round::Up => true,
            Round::Down => false,
            _ => result < 0.0,
        };
        match (up, error > 0.0) {
            (true, true) => result.next_up(),
            (false, false) => result.next_down(),
            _ => result,
        }
    }

    fn finish(mode: FloatMode, result: f64) -> u64 {
        if result.is_nan() { NAN } else { flush(result.to_bits(), mode.flush_out) }
    }

    pub fn fma(mode: FloatMode, a: u64, b: u64, c: u64) -> u64 {
        let [a, b, c] = [a, b, c].map(|bits| flush(bits, mode.flush_in));
        if let Some(nan) = propagate(&[a, b, c]) {
            return nan;
        }
        let [a, b, c] = [a, b, c].map(f64::from_bits);
        let result = a.mul_add(b, c);
        if mode.round == Round::Even || !result.is_finite() {
            return finish(mode, result);
        }
        finish(mode, direct(result, fma_error(a, b, c), mode.round))
    }

    /// What rounding `a * b + c` to nearest lost: exact minus rounded, of the right sign.
    pub fn fma_error(a: f64, b: f64, c: f64) -> f64 {
        let result = a.mul_add(b, c);
        let product = a * b;
        let rest = a.mul_add(b, -product);
        let sum = product + c;
        let shadow = sum - product;
        let carried = (product - (sum - shadow)) + (c - shadow);
        (sum - result) + (carried + rest)
    }

    pub fn add(mode: FloatMode, a: u64, b: u64) -> u64 {
        fma(mode, a, 1f64.to_bits(), b)
    }

    pub fn mul(mode: FloatMode, a: u64, b: u64) -> u64 {
        let [a, b] = [a, b].map(|bits| flush(bits, mode.flush_in));
        if let Some(nan) = propagate(&[a, b]) {
            return nan;
        }
        let [a, b] = [a, b].map(f64::from_bits);
        let result = a * b;
        if mode.round == Round::Even || !result.is_finite() {
            return finish(mode, result);
        }
        finish(mode, direct(result, a.mul_add(b, -result), mode.round))
    }

    fn is_less(a: u64, b: u64) -> bool {
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        x < y || x == y && a & SIGN != 0 && b & SIGN == 0
    }

    pub fn extremum(mode: FloatMode, ieee: bool, max: bool, a: u64, b: u64) -> u64 {
        let [a, b] = [a, b].map(|bits| flush(bits, mode.flush_in));
        if let Some(&nan) = [a, b].iter().find(|&&bits| ieee && is_signalling(bits)) {
            return quieten(nan);
        }
        match (is_nan(a), is_nan(b)) {
            (true, true) => quieten(a),
            (true, false) => b,
            (false, true) => a,
            _ if is_less(a, b) == max => b,
            _ => a,
        }
    }

    pub fn extremum_nan(mode: FloatMode, max: bool, a: u64, b: u64) -> u64 {
        let [a, b] = [a, b].map(|bits| flush(bits, mode.flush_in));
        propagate(&[a, b]).unwrap_or(if is_less(a, b) == max { b } else { a })
    }

    pub fn modify(bits: u64, omod: u8, clamp: bool, dx10_clamp: bool, mode: FloatMode) -> u64 {
        let mut bits = bits;
        if omod != 0 {
            bits = mul(mode, bits, [1.0f64, 2.0, 4.0, 0.5][usize::from(omod)].to_bits());
        }
        if !clamp {
            return bits;
        }
        if is_nan(bits) {
            return if dx10_clamp { 0 } else { bits };
        }
        let value = f64::from_bits(bits);
        if value <= 0.0 { 0 } else { value.min(1.0).to_bits() }
    }
}
