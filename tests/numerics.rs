//! How exact dt' and the decay are over their whole range, and how errors grow over 20,000 steps.
//!
//! `docs/numerics.md` records what the run prints; `cargo test --release --test numerics -- --nocapture` prints it.

mod common;

use common::drift;
use common::expect::{DT, EXP, U, ceilings};
use common::ports::{self, Subject};
use rayon::prelude::*;
use ssm_update::reference::softplus;
use ssm_update::{Dims, Dt, Dtype, State, Step};

/// One kernel of each group: the others give the same bits.
fn distinct() -> Vec<&'static Subject> {
    let mut kernels: Vec<&Subject> = Vec::new();
    for subject in &ports::under_test().subjects {
        if kernels.iter().all(|known| known.group != subject.group) {
            kernels.push(subject);
        }
    }
    kernels
}

/// The first state column of each head after one step of one-row heads with B = (1, 0, 0, ...):
/// `decay * state + dt' * x`, where dt' is what the kernel makes of `dt` and `bias`.
fn observe(
    subject: &Subject,
    dt: &[f32],
    bias: Option<&[f32]>,
    a_log: &[f32],
    mode: Dt,
    state: f32,
    x: f32,
) -> Vec<f32> {
    let mut b = [0.0_f32; 16];
    b[0] = 1.0;
    let mut columns = Vec::with_capacity(dt.len());
    // A launch on a GPU has no more heads.
    for first in (0..dt.len()).step_by(65_535) {
        let heads = first..dt.len().min(first + 65_535);
        let dims = Dims { batch: 1, heads: heads.len(), head_dim: 1, groups: 1, d_state: 16, slots: 1 };
        let (x, mut y) = (vec![x; heads.len()], vec![0.0_f32; heads.len()]);
        let mut pool = vec![state; 16 * heads.len()];
        let (dt, a_log) = (&dt[heads.clone()], &a_log[heads.clone()]);
        let step = Step {
            dt_bias: bias.map(|bias| (&bias[heads]).into()),
            dt_mode: mode,
            ..Step::new(dims, &x, &b, &[0.0_f32; 16], dt, a_log, State::in_place(&mut pool), &mut y)
        };
        subject.kernel.step(step).expect("a legal step");
        columns.extend(pool.iter().step_by(16));
    }
    columns
}

/// The range that is promised: evenly from -80 to 100, geometrically to 1e4, and every number next to the places where
/// implementations change their formula or overflow.
fn arguments() -> Vec<f32> {
    let mut all: Vec<f32> = (0..=180_000).map(|step| -80.0 + step as f32 * 1e-3).collect();
    all.extend((0..=20_000).map(|step| 10_f32.powf(step as f32 * 4.0 / 20_000.0).min(1e4)));
    all.extend((0..=20_000).flat_map(|step| {
        let small = 10_f32.powf(step as f32 * -0.002);
        [small, -small]
    }));
    for center in [
        -80.0_f32,
        -17.0,
        -16.64,
        -15.94,
        -1.0,
        -std::f32::consts::LN_2,
        0.5,
        1.0,
        17.0,
        20.0,
        88.0,
        88.722_84,
        89.0,
        1e4,
    ] {
        let (low, high) = (center.to_bits() - 1000, center.to_bits() + 1000);
        all.extend((low..=high).map(f32::from_bits).filter(|v| (-80.0..=1e4).contains(v)));
    }
    all.extend([0.0, -0.0, f32::MIN_POSITIVE, -f32::MIN_POSITIVE, 1e-45, -1e-45, 1e-8, -1e-8, 19.99, 20.01]);
    all
}

#[test]
fn the_step_size_is_within_one_millionth() {
    let arguments = arguments();
    let a_log = vec![-100.0_f32; arguments.len()];
    for subject in distinct() {
        let got = observe(subject, &arguments, None, &a_log, Dt::UNCLAMPED, 0.0, 1.0);
        let worst = arguments.iter().zip(&got).map(|(&v, &dt)| {
            let want = softplus(v.into());
            ((f64::from(dt) - want).abs() / want, v, dt)
        });
        let (error, v, dt) =
            worst.fold((0.0, 0.0, 0.0), |worst, this| if this.0 >= worst.0 || this.0.is_nan() { this } else { worst });
        println!("{}: dt' of {} arguments, worst {error:.2e} at {v} (dt' {dt:e})", subject.label, arguments.len());
        assert!(error <= 1e-6, "{}: dt' = {dt:e} at {v} is off by {error:e}", subject.label);
        // What the comparison with the reference counts on.
        assert!(error <= DT * U, "{}: {} roundings at {v}", subject.label, error / U);
    }
}

#[test]
fn the_step_size_with_a_bias_that_adds_exactly() {
    let arguments: Vec<f32> = (-1280..=1600).map(|step| step as f32 / 16.0).collect();
    let a_log = vec![-100.0_f32; arguments.len()];
    for bias in [-16.0_f32, 0.25, 31.5] {
        let dt: Vec<f32> = arguments.iter().map(|v| v - bias).collect();
        for subject in distinct() {
            let got = observe(subject, &dt, Some(&vec![bias; dt.len()]), &a_log, Dt::UNCLAMPED, 0.0, 1.0);
            let plain = observe(subject, &arguments, None, &a_log, Dt::UNCLAMPED, 0.0, 1.0);
            assert_eq!(got, plain, "{}: dt + bias is what counts", subject.label);
        }
    }
}

/// Beyond the promised range: still numbers, from zero up, and never less for a larger argument by more than the error.
#[test]
fn the_step_size_beyond_the_range() {
    let arguments: Vec<f32> =
        (0..=40_000).map(|step| -200.0 + step as f32 * 3e-3).chain([1e5, 1e10, 1e20, 3e38, f32::MAX]).collect();
    let a_log = vec![-100.0_f32; arguments.len()];
    for subject in distinct() {
        let got = observe(subject, &arguments, None, &a_log, Dt::UNCLAMPED, 0.0, 1.0);
        for (&v, &dt) in arguments.iter().zip(&got) {
            let want = softplus(v.into());
            let lost = f64::from(f32::MIN_POSITIVE); // below the normal range dt' may be cut to zero
            assert!(dt >= 0.0 && (f64::from(dt) - want).abs() <= 1e-6 * want + lost, "{}: {v}: {dt:e}", subject.label);
        }
        let far = observe(subject, &[-f32::MAX, f32::NEG_INFINITY], None, &[0.0; 2], Dt::UNCLAMPED, 3.0, 1.0);
        assert_eq!(far, [3.0, 3.0], "{}: no step at all", subject.label);
    }
}

#[test]
fn the_decay_is_exact_to_a_few_roundings() {
    let (mut dt, mut a_log) = (Vec::new(), Vec::new());
    for a_step in 0..=60 {
        for dt_step in 0..=400 {
            a_log.push(-3.0 + 0.1 * a_step as f32);
            dt.push(10_f32.powf(-7.0 + dt_step as f32 * 0.02));
        }
    }
    for subject in distinct() {
        let got = observe(subject, &dt, None, &a_log, Dt::Prepared, 1.0, 0.0);
        let mut worst = 0.0_f64;
        for ((&dt, &a_log), &decay) in dt.iter().zip(&a_log).zip(&got) {
            let t = f64::from(a_log).exp() * f64::from(dt);
            let want = (-t).exp();
            let error = (f64::from(decay) - want).abs();
            let bound = U * want * (EXP + 1.0 + t * (EXP + 1.0)) + f64::from(f32::MIN_POSITIVE);
            assert!(error <= bound, "{}: decay at A_log {a_log}, dt' {dt}: {decay:e}, not {want:e}", subject.label);
            worst = worst.max(error / bound);
        }
        println!("{}: decay uses up to {worst:.2} of its bound", subject.label);
    }
}

/// 20,000 steps for each dtype of the state, every path. The state in f32 keeps the contract to the end.
#[test]
fn errors_over_20000_steps() {
    const AT: [usize; 6] = [1, 10, 100, 1000, 10_000, 20_000];
    let truth = drift::truth(&AT, Dtype::F32);
    let runs: Vec<_> = distinct().into_iter().flat_map(|subject| Dtype::ALL.map(|dtype| (subject, dtype))).collect();
    let results: Vec<_> = runs
        .par_iter()
        .map(|&(subject, dtype)| (subject, dtype, drift::errors::<f32>(&*subject.kernel, dtype, &truth)))
        .collect();
    for (subject, dtype, errors) in &results {
        for error in errors {
            println!(
                "{}, state {dtype}, step {}: state nrms {:.1e} max {:.1e}, y nrms {:.1e} max {:.1e}",
                subject.label, error.step, error.state.0, error.state.1, error.y.0, error.y.1
            );
        }
        let (half, last) = (errors[4], errors[5]);
        let what = format!("{}, state {dtype}: {errors:?}", subject.label);
        if *dtype == Dtype::F32 {
            let ceiling = ceilings(Dtype::F32);
            for error in errors {
                assert!(error.state.0 < ceiling.0 && error.state.1 < ceiling.1, "{what}");
                assert!(error.y.0 < ceiling.0 && error.y.1 < ceiling.1, "{what}");
            }
            // Old errors decay like the state that they are in: after the longest memory nothing grows any more.
            assert!(last.state.0 < 1.5 * half.state.0 && last.state.0 < F32_AFTER, "{what}");
        } else {
            // The reason for the advice: a 16-bit state loses what is added to it, and more of it with every token.
            let (low, high) = if *dtype == Dtype::F16 { F16_AFTER } else { BF16_AFTER };
            assert!(last.state.0 > low && last.state.0 < high, "{what}");
            assert!(last.state.0 > 2.0 * errors[0].state.0, "{what}");
        }
    }
}

/// nrms of an f32 state after 20,000 steps: about twice what was measured (3.2e-7, the portable path 4.3e-7).
const F32_AFTER: f64 = 1e-6;
/// The same of an f16 state, at least and at most: half and twice of 2.3e-3.
const F16_AFTER: (f64, f64) = (1e-3, 5e-3);
/// The same of a bf16 state, at least and at most: half and twice of 2.7e-2.
const BF16_AFTER: (f64, f64) = (1e-2, 6e-2);
