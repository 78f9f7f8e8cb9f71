//! How 16-bit results are rounded, bit for bit: to nearest, ties to even, as `Element::from_f32` does on every path.

mod common;

use common::ports;
use half::{bf16, f16};
use ssm_update::{Dims, Dt, Element, State, Step, Tensor, TensorMut};

/// Rows that fill several vectors and leave some over, for vectors of 8 and of 16.
const HEAD_DIM: usize = 19;
const D_STATE: usize = 48;

/// Values at the middle between two neighbours of a format with this many significand bits, one f32 step to either side,
/// and the ends of the range.
fn borderline(bits: i32, largest: f32) -> Vec<f32> {
    let step = 2_f32.powi(1 - bits);
    let mut values = vec![0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-45, -3e-39];
    // The tie between the largest number and infinity.
    values.push(largest + largest * step / 4.0);
    for k in 0..24 {
        let tie = 1.0 + (k as f32 + 0.5) * step;
        // Subnormals of f16 have ties of their own, at these multiples of 2^-25.
        let small = (k as f32 + 0.5) * 2_f32.powi(-24);
        for value in [tie, tie * 2_f32.powi(-20), small] {
            let bits = value.to_bits();
            values.extend([value, -value, f32::from_bits(bits + 1), f32::from_bits(bits - 1)]);
        }
    }
    values
}

/// One step whose state is B and whose y is D: x = 1, dt' = 1, a zero state, and C = 0.
fn check<E: Element + Into<f32>>(bits: i32, largest: f32)
where
    for<'a> Tensor<'a>: From<&'a Vec<E>>,
    for<'a> TensorMut<'a>: From<&'a mut Vec<E>>,
{
    let values = borderline(bits, largest);
    let heads = values.len();
    let groups = heads;
    let dims = Dims { batch: 1, heads, head_dim: HEAD_DIM, groups, d_state: D_STATE, slots: 1 };
    let x = vec![E::from_f32(1.0); heads * HEAD_DIM];
    // Each group has the same values, each begins elsewhere, so that each value meets each lane.
    let b: Vec<f32> =
        (0..groups * D_STATE).map(|at| values[(at / D_STATE * 7 + at % D_STATE) % values.len()]).collect();
    let finite: Vec<f32> = b.iter().map(|value| if value.is_finite() { *value } else { 1.0 }).collect();
    let (zeros, ones) = (vec![0.0_f32; groups * D_STATE], vec![1.0_f32; heads]);
    let a_log = vec![0.0_f32; heads];

    for subject in &ports::under_test().subjects {
        for (b, d) in [(&b, None), (&finite, Some(&values))] {
            let mut state = vec![E::default(); heads * HEAD_DIM * D_STATE];
            let mut y = vec![E::default(); heads * HEAD_DIM];
            let step = Step {
                d: d.map(Into::into),
                dt_mode: Dt::Prepared,
                ..Step::new(dims, &x, b, &zeros, &ones, &a_log, State::in_place(&mut state), &mut y)
            };
            subject.kernel.step(step).expect("a legal step");
            for (at, got) in state.iter().enumerate() {
                let want = E::from_f32(b[at / (HEAD_DIM * D_STATE) * D_STATE + at % D_STATE] + 0.0);
                assert_same(&subject.label, "state", at, *got, want);
            }
            for (at, got) in y.iter().enumerate().take_while(|_| d.is_some()) {
                assert_same(&subject.label, "y", at, *got, E::from_f32(values[at / HEAD_DIM] + 0.0));
            }
        }
    }
}

#[track_caller]
fn assert_same<E: Element + Into<f32>>(port: &str, name: &str, at: usize, got: E, want: E) {
    let (got, want): (f32, f32) = (got.into(), want.into());
    // Widening is exact, so that equal bits of f32 are equal bits of E.
    assert!(
        got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
        "{port}: {name} {at}: {got:e}, not {want:e}"
    );
}

#[test]
fn ssm_update_parity_rounding_to_bf16() {
    check::<bf16>(8, bf16::MAX.to_f32());
}

#[test]
fn ssm_update_parity_rounding_to_f16() {
    check::<f16>(11, f16::MAX.to_f32());
}
