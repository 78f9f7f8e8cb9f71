//! What the reference says about a fixture, how far a port may be from it, and the comparison.
//!
//! Two limits hold at once. The table of the contract (nrms and max by dtype) is the ceiling for whole tensors. The
//! bound per element is what f32 arithmetic really reaches, and it is derived, not measured:
//!
//! Let `u = 2^-24`, the relative error of one f32 rounding. Counting roundings in units of `u`:
//!
//! - dt': `DT` for softplus. With a bias, rounding the sum `v = dt + bias` moves it by `|v| u`, which `softplus` turns
//!   into a relative error of at most `|v| u` where v is negative (there dt' is close to e^v) and `u` where it is not.
//! - decay = exp(-t) with t = exp(A_log) dt': the exponent has the relative error of dt', of one exp and of a product,
//!   and exp turns a relative error of t into t times as much; one more exp on top.
//! - s' = decay s + (dt' x) B: one product more for each term, and one sum.
//! - y: the errors of s', weighted by |C|, and a sum of d_state products. Rounding errors of a sum of n terms grow like
//!   sqrt(n) where they are independent, and every port adds in several chains, so that `2 sqrt(n)` is generous; a port
//!   that accumulates in 16 bits is far outside.
//! - D x and its sum: two more. The gate: `GATE` for the sigmoid and its two products.
//!
//! Every term is relative to the magnitude of its own operands, so that a fault in a small term shows even where a
//! large one dominates. Results below the normal range round absolutely, and dt', decay or sigmoid may come out as zero
//! where they are below it: both enter as absolute terms. Last comes half an ulp of the dtype that is stored.

use ndarray::{Array1, Array2, Array3, Array4, s};
use ssm_update::reference::{Inputs, softplus, ssm_update};
use ssm_update::{Dt, Dtype};

use super::buffer::{Buffer, Guarded};
use super::case::{StateMode, Values};
use super::fixture::Fixture;

/// One f32 rounding.
pub const U: f64 = 1.0 / (1_u64 << 24) as f64;
/// Roundings in softplus: an exp, a logarithm and the sum of two terms.
pub const DT: f64 = 5.0;
/// Roundings in exp: a polynomial after an exact reduction.
pub const EXP: f64 = 2.5;
/// Roundings in the gate: exp, one sum, one quotient, two products.
pub const GATE: f64 = 6.5;
/// Smallest normal f32.
const MIN_NORMAL: f64 = f32::MIN_POSITIVE as f64;
/// Smallest subnormal f32.
const MIN_SUBNORMAL: f64 = 1.401_298_464_324_817e-45;

/// The contract's ceilings for a stored dtype: nrms and max.
pub fn ceilings(dtype: Dtype) -> (f64, f64) {
    match dtype {
        Dtype::F32 => (1e-5, 1e-4),
        Dtype::F16 => (2e-3, 1.2e-2),
        Dtype::Bf16 => (1.6e-2, 7e-2),
    }
}

/// Significand bits, smallest normal exponent and the smallest magnitude that rounds to infinity.
fn format(dtype: Dtype) -> (i32, i32, f64) {
    match dtype {
        Dtype::F32 => (24, -126, 2_f64.powi(128) - 2_f64.powi(103)),
        Dtype::F16 => (11, -14, 65520.0),
        Dtype::Bf16 => (8, -126, 2_f64.powi(128) - 2_f64.powi(119)),
    }
}

/// Half an ulp of a dtype at this magnitude.
pub fn half_ulp(dtype: Dtype, magnitude: f64) -> f64 {
    let (bits, min_exponent, _) = format(dtype);
    // Exponents are read and written as bits: exact, and much cheaper than a logarithm and a power.
    let exponent = (magnitude.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    f64::from_bits(((exponent.max(min_exponent) - bits + 1023) as u64) << 52)
}

/// The reference's results with the permitted error of each element.
#[derive(Clone, Debug)]
pub struct Expected {
    y: Array3<f64>,
    y_error: Array3<f64>,
    state: Array4<f64>,
    state_error: Array4<f64>,
    /// Written state rows.
    written: Vec<usize>,
}

/// A batched tensor without its stride, widened.
fn batched(buffer: &Buffer, (batch, inner, last): (usize, usize, usize), stride: usize) -> Array3<f64> {
    Array3::from_shape_fn((batch, inner, last), |(b, i, l)| buffer.get(b * stride + i * last + l))
}

fn per_head(buffer: &Buffer) -> Array1<f64> {
    Array1::from_shape_fn(buffer.len(), |h| buffer.get(h))
}

/// Largest finite magnitude.
fn largest<'a>(values: impl IntoIterator<Item = &'a f64>) -> f64 {
    values.into_iter().map(|value| value.abs()).filter(|value| value.is_finite()).fold(0.0, f64::max)
}

impl Expected {
    /// Runs the reference on a fixture (before its step) and derives the bounds.
    pub fn of(fixture: &Fixture) -> Self {
        let (case, strides) = (&fixture.case, &fixture.strides);
        let dims = case.dims;
        let (row, group) = ((dims.batch, dims.heads, dims.head_dim), (dims.batch, dims.groups, dims.d_state));
        let pool = (dims.slots, dims.heads, dims.head_dim, dims.d_state);
        let state =
            |buffer: &Buffer| Array4::from_shape_vec(pool, (0..buffer.len()).map(|at| buffer.get(at)).collect());

        let x = batched(&fixture.x, row, strides.x);
        let z = fixture.z.as_ref().map(|z| batched(z, row, strides.z));
        let b = batched(&fixture.b, group, strides.b);
        let c = batched(&fixture.c, group, strides.c);
        let dt = Array2::from_shape_fn((dims.batch, dims.heads), |(b, h)| fixture.dt.get(b * strides.dt + h));
        let (a_log, d, bias) =
            (per_head(&fixture.a_log), fixture.d.as_ref().map(per_head), fixture.dt_bias.as_ref().map(per_head));
        let state_in = state(&fixture.state_in).expect("the state fills its pool");
        let inputs = Inputs {
            x: x.view(),
            z: z.as_ref().map(|z| z.view()),
            b: b.view(),
            c: c.view(),
            dt: dt.view(),
            a_log: a_log.view(),
            d: d.as_ref().map(|d| d.view()),
            dt_bias: bias.as_ref().map(|bias| bias.view()),
            limits: match case.dt {
                Dt::Raw { min, max } => Some((min.into(), max.into())),
                Dt::Prepared => None,
            },
            state_in: state_in.view(),
            slots_in: fixture.slots_in.as_ref().map(Guarded::body),
            slots_out: fixture.slots_out.as_ref().map(Guarded::body),
            update_state: case.state != StateMode::ReadOnly,
        };
        let out = match &fixture.state_out {
            Some(buffer) => state(buffer).expect("the state fills its pool"),
            None => state_in.clone(),
        };
        let (y, state) = ssm_update(&inputs, out);
        let (y_error, state_error) = errors(fixture, &inputs);
        let written = (0..dims.batch).filter_map(|b| fixture.row_slots(b)).map(|(_, to)| to);
        let written = if inputs.update_state { written.collect() } else { Vec::new() };
        Self { y, y_error, state, state_error, written }
    }

    /// Holds the results in a fixture after its step to the reference.
    ///
    /// # Errors
    ///
    /// The first element of the wrong class or beyond its bound, or the tensor beyond the contract's ceiling.
    pub fn check(&self, after: &Fixture) -> Result<(), String> {
        let dims = after.case.dims;
        let row = dims.heads * dims.head_dim;
        let y_of = |at: usize| after.y.get(at / row * after.strides.y + at % row);
        let y = self.y.iter().zip(&self.y_error).enumerate().map(|(at, (&want, &error))| (at, y_of(at), want, error));
        // The ceilings are for numbers of a model. Where one element outweighs all others, its correct rounding to bf16
        // is already max = sqrt(count) / 512, and only the bound per element can judge.
        let ceilings = (after.case.values == Values::Ordinary).then_some(ceilings as fn(Dtype) -> (f64, f64));
        compare("y", after.case.dtypes.x, ceilings, y)?;

        let (state, len) = (after.state_after(), after.slot_len());
        let written = self.written.iter().flat_map(|&slot| {
            let (want, error) = (self.state.slice(s![slot, .., .., ..]), self.state_error.slice(s![slot, .., .., ..]));
            let (want, error) = (want.to_slice().expect("one slot"), error.to_slice().expect("one slot"));
            (0..len).map(move |at| (slot * len + at, state.get(slot * len + at), want[at], error[at]))
        });
        compare("state", after.case.dtypes.state, ceilings, written)
    }
}

/// Half an ulp of what is stored, beyond the f32 result; an f32 store adds nothing.
fn half_ulp16(dtype: Dtype, magnitude: f64) -> f64 {
    if dtype == Dtype::F32 { 0.0 } else { half_ulp(dtype, magnitude) }
}

/// Permitted errors of y and of the state before they are rounded to their dtype; see the head of this file.
fn errors(fixture: &Fixture, inputs: &Inputs<'_>) -> (Array3<f64>, Array4<f64>) {
    let dims = fixture.case.dims;
    let (mut y_error, mut state_error) = (Array3::zeros(inputs.x.dim()), Array4::zeros(inputs.state_in.dim()));
    let (x_max, b_max, c_max) = (largest(inputs.x), largest(inputs.b), largest(inputs.c));
    // What may be lost where dt' or decay is below the normal range, and where a product is.
    let lost = MIN_NORMAL * (largest(inputs.state_in) + x_max * b_max) + MIN_SUBNORMAL * (3.0 + b_max);
    for b in 0..dims.batch {
        let Some((from, to)) = fixture.row_slots(b) else { continue };
        for h in 0..dims.heads {
            let g = h / (dims.heads / dims.groups);
            let bias = inputs.dt_bias.map(|bias| bias[h]);
            let v = inputs.dt[[b, h]] + bias.unwrap_or(0.0);
            let (dt, dt_error) = match inputs.limits {
                None => (inputs.dt[[b, h]], 0.0),
                Some((min, max)) => (softplus(v).clamp(min, max), DT + bias.map_or(0.0, |_| (-v).clamp(1.0, 200.0))),
            };
            let t = inputs.a_log[h].exp() * dt;
            let decay = (-t).exp();
            let decay_error = EXP + if decay > 0.0 { t.abs() * (dt_error + EXP + 1.0) } else { 0.0 };
            let (b_row, c_row) = (inputs.b.slice(s![b, g, ..]), inputs.c.slice(s![b, g, ..]));
            let (b_row, c_row) = (b_row.to_slice().expect("contiguous"), c_row.to_slice().expect("contiguous"));
            for p in 0..dims.head_dim {
                let old_row = inputs.state_in.slice(s![from, h, p, ..]);
                let old_row = old_row.to_slice().expect("contiguous");
                let mut error_row = state_error.slice_mut(s![to, h, p, ..]);
                let error_row = error_row.as_slice_mut().expect("contiguous");
                let x = inputs.x[[b, h, p]];
                let (mut magnitude, mut error) = (0.0, 0.0);
                for n in 0..dims.d_state {
                    let kept = decay * old_row[n].abs();
                    let added = (dt * x * b_row[n]).abs();
                    let (size, new_error) = if dt == 0.0 {
                        (old_row[n].abs(), 0.0)
                    } else {
                        let relative = (decay_error + 2.0) * kept + (dt_error + 3.0) * added;
                        (kept + added, U * relative + lost)
                    };
                    error_row[n] = new_error;
                    magnitude += size * c_row[n].abs();
                    error += new_error * c_row[n].abs();
                }
                let skip = inputs.d.map_or(0.0, |d| (d[h] * x).abs());
                error += U * (2.0 * (dims.d_state as f64).sqrt() * magnitude + 2.0 * skip + magnitude);
                error += MIN_SUBNORMAL * (dims.d_state as f64 + 2.0 + c_max);
                if let Some(z) = inputs.z.map(|z| z[[b, h, p]]) {
                    let gate = (z / (1.0 + (-z).exp())).abs();
                    error = error * gate + U * GATE * gate * (magnitude + skip);
                    // sigmoid or its product with z may underflow to zero: z below -87.
                    error += 256.0 * MIN_NORMAL * (magnitude + skip) + 2.0 * MIN_SUBNORMAL;
                }
                y_error[[b, h, p]] = error;
            }
        }
    }
    (y_error, state_error)
}

/// Compares `(position, got, wanted, permitted f32 error)`: class first, then each bound, then the contract's ceilings.
fn compare(
    name: &str,
    dtype: Dtype,
    ceilings: Option<fn(Dtype) -> (f64, f64)>,
    elements: impl Iterator<Item = (usize, f64, f64, f64)> + Clone,
) -> Result<(), String> {
    let infinite_from = format(dtype).2;
    let bound = |want: f64, error: f64| error + half_ulp16(dtype, want.abs() + error);
    for (at, got, want, error) in elements.clone() {
        let same_class = if want.is_nan() {
            got.is_nan()
        } else if want.is_infinite() {
            got == want
        } else if got.is_infinite() {
            // Finite in f64, beyond the dtype.
            got.signum() == want.signum() && want.abs() + bound(want, error) >= infinite_from
        } else {
            !got.is_nan()
        };
        if !same_class {
            return Err(format!("{name} ({dtype}) element {at}: got {got:e}, reference {want:e}: not the same class"));
        }
    }
    let (mut count, mut square, mut reference, mut max) = (0.0_f64, 0.0, 0.0, 0.0_f64);
    for (at, got, want, error) in elements {
        if !got.is_finite() || !want.is_finite() {
            continue;
        }
        let (off, bound) = ((got - want).abs(), bound(want, error));
        // Negated, so that a bound that is NaN fails.
        #[allow(clippy::neg_cmp_op_on_partial_ord)]
        if !(off <= bound) {
            return Err(format!(
                "{name} ({dtype}) element {at}: got {got:e}, reference {want:e}: off by {off:e} > {bound:e}"
            ));
        }
        count += 1.0;
        square += off * off;
        reference += want * want;
        max = max.max(off);
    }
    if let Some(ceilings) = ceilings.filter(|_| count > 0.0) {
        let rms = (reference / count).sqrt().max(1e-20);
        let (nrms, max) = ((square / count).sqrt() / rms, max / rms);
        let ceiling = ceilings(dtype);
        if nrms >= ceiling.0 || max >= ceiling.1 {
            return Err(format!("{name} ({dtype}): nrms {nrms:e}, max {max:e} reach the ceiling {ceiling:?}"));
        }
    }
    Ok(())
}

/// The error of a result by the contract's measures, for reports: nrms and max.
pub fn measure(pairs: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let (mut count, mut square, mut reference, mut max) = (0.0_f64, 0.0, 0.0, 0.0_f64);
    for (got, want) in pairs {
        count += 1.0;
        square += (got - want) * (got - want);
        reference += want * want;
        max = max.max((got - want).abs());
    }
    let rms = (reference / count).sqrt().max(1e-20);
    ((square / count).sqrt() / rms, max / rms)
}
