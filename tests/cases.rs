//! Kinds of faults that users of comparable kernels met, each with the numbers that showed it there. The number in
//! front of a test is only its place in our list.

mod common;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashSet;

use common::buffer::{Buffer, Guarded};
use common::case::{Case, Optional, Slots, StateMode};
use common::check::check_cases;
use common::drift;
use common::fixture::Fixture;
use common::ports::{self, Subject};
use common::run::{Level, run, run_checked, slices};
use half::f16;
use ssm_update::switches::Selection;
use ssm_update::{
    BatchStrides, Dims, Dt, Dtype, Dtypes, Error, NoPort, Pointers, Problem, SSM_PORTS, State, Step, Stream,
    select_with, validate,
};

fn subjects() -> &'static [Subject] {
    &ports::under_test().subjects
}

/// The usual sizes: batch 2, 4 heads, head_dim 64, d_state 128, 1 group.
fn usual() -> Case {
    Case::new(2, 4, 64, 1, 128)
}

/// Sets every element.
fn fill(buffer: &mut Buffer, value: f32) {
    (0..buffer.len()).for_each(|at| buffer.set(at, value));
}

/// Runs on a copy and gives it back.
fn after(subject: &Subject, fixture: &Fixture) -> Fixture {
    let ran = run_checked(&*subject.kernel, fixture, Level::Slices);
    ran.unwrap_or_else(|why| panic!("{}: {why}", subject.label))
}

/// Heads taken in turns from the groups instead of in blocks: only one group has input, so that exactly its heads have
/// more than the skip connection.
#[test]
fn case_01_groups_are_blocks_of_heads() {
    for (heads, groups) in [(4, 2), (8, 4), (16, 8), (4, 4), (24, 2)] {
        let mut fixture = Fixture::new(&Case { optional: Optional::nth(2), ..Case::new(2, heads, 64, groups, 128) });
        fill(&mut fixture.state_in, 0.0);
        let d = fixture.d.clone().expect("D is there");
        for live in 0..groups {
            for buffer in [&mut fixture.b, &mut fixture.c] {
                (0..buffer.len()).for_each(|at| buffer.set(at, if at / 128 % groups == live { 1.0 } else { 0.0 }));
            }
            for subject in subjects() {
                let after = after(subject, &fixture);
                for at in 0..after.y.len() {
                    let head = at / 64 % heads;
                    let skip = (d.get(head) * fixture.x.get(at)) as f32;
                    let is_skip = (after.y.get(at) as f32 - skip).abs() <= skip.abs() * 1e-6;
                    let in_group = head / (heads / groups) == live;
                    assert_eq!(
                        is_skip, !in_group,
                        "{}: head {head} of {heads}, group {live} of {groups}",
                        subject.label
                    );
                }
            }
        }
    }
}

/// The same mistake where groups are neither 1 nor heads: each group's B is its number, and each head says which it
/// had.
#[test]
fn case_02_every_head_has_the_b_of_its_group() {
    for (heads, groups) in [(16, 4), (12, 3), (10, 5)] {
        let base = Case { optional: Optional::nth(0), ..Case::new(2, heads, 64, groups, 128) };
        let mut fixture = Fixture::new(&base.dt(Dt::Prepared));
        fill(&mut fixture.state_in, 0.0);
        for buffer in [&mut fixture.x, &mut fixture.c, &mut fixture.dt] {
            fill(buffer, 1.0);
        }
        (0..fixture.b.len()).for_each(|at| fixture.b.set(at, (at / 128 % groups + 1) as f32));
        for subject in subjects() {
            let after = after(subject, &fixture);
            for at in 0..after.y.len() {
                let head = at / 64 % heads;
                assert_eq!(
                    after.y.get(at),
                    (128 * (head / (heads / groups) + 1)) as f64,
                    "{}: head {head}",
                    subject.label
                );
            }
        }
    }
}

/// dt' as it enters the state, for a pre-activation `dt + bias`.
fn step_size(subject: &Subject, dt: f32, bias: f32, mode: Dt) -> f32 {
    let dims = Dims { batch: 1, heads: 1, head_dim: 1, groups: 1, d_state: 16, slots: 1 };
    let (mut state, mut y, dt, bias) = ([0.0_f32; 16], [0.0_f32], [dt], [bias]);
    let step = Step {
        dt_bias: Some((&bias).into()),
        dt_mode: mode,
        ..Step::new(
            dims,
            &[1.0_f32],
            &[1.0_f32; 16],
            &[1.0_f32; 16],
            &dt,
            &[0.0_f32],
            State::in_place(&mut state),
            &mut y,
        )
    };
    subject.kernel.step(step).expect("a legal step");
    state[0]
}

/// A lower limit that nobody asked for: small steps became 0.001.
#[test]
fn case_03_nothing_is_clamped_unless_asked() {
    for subject in subjects() {
        for (dt, bias) in [(-12.0, 0.0), (0.0, -12.0), (-7.5, -4.5)] {
            let free = f64::from(step_size(subject, dt, bias, Dt::UNCLAMPED));
            let want = (-12.0_f64).exp().ln_1p();
            assert!((free - want).abs() < 2e-6 * want, "{}: {free:e}, not {want:e}", subject.label);
            let clamped = step_size(subject, dt, bias, Dt::Raw { min: 1e-3, max: f32::INFINITY });
            assert_eq!(clamped, 1e-3, "{}", subject.label);
        }
    }
}

/// One of two limits ignored.
#[test]
fn case_04_both_limits_are_honoured() {
    for subject in subjects() {
        for (min, max) in [(0.01, 0.1), (0.001, 100.0), (0.1, 0.1), (0.0, 0.1), (0.01, f32::INFINITY)] {
            let mode = Dt::Raw { min, max };
            for dt in [5.0_f32, -9.0, -2.9, 200.0] {
                let want = f64::from(dt).exp().ln_1p().min(200.0).clamp(min.into(), max.into());
                let got = f64::from(step_size(subject, dt, 0.0, mode));
                assert!((got - want).abs() <= 1e-6 * want, "{}: {dt} in {min}..{max}: {got}", subject.label);
            }
            assert_eq!(step_size(subject, -9.0, 0.0, mode), min.max(step_size(subject, -9.0, 0.0, Dt::UNCLAMPED)));
        }
    }
}

/// A state stored in the dtype of the activations: text fell apart after some 15 tokens.
#[test]
fn case_05_the_state_dtype_is_independent_of_x() {
    let truth = drift::truth(&[1, 16, 64], Dtype::Bf16);
    for subject in subjects() {
        let wide = drift::errors::<half::bf16>(&*subject.kernel, Dtype::F32, &truth);
        let narrow = drift::errors::<half::bf16>(&*subject.kernel, Dtype::Bf16, &truth);
        for error in &wide {
            assert!(error.state.0 < 1e-6, "{}: an f32 state stays exact under bf16 x: {wide:?}", subject.label);
        }
        assert!(narrow[2].state.0 > 1.5 * narrow[0].state.0, "{}: the known growth: {narrow:?}", subject.label);
        assert!(narrow[2].state.0 > 1000.0 * wide[2].state.0, "{}: {narrow:?} against {wide:?}", subject.label);
    }
}

/// A d_state that only some of the paths knew.
#[test]
fn case_06_every_promised_d_state_runs_and_others_are_refused() {
    let sizes = [96, 16, 32, 48, 64, 80, 256];
    check_cases("d_state of any multiple of 16", &sizes.map(|d_state| Case::new(2, 4, 64, 1, d_state)));
    for d_state in [0, 1, 8, 15, 17, 24, 100, 513, 528, 1024] {
        for subject in subjects() {
            let mut fixture = Fixture::new(&Case::new(1, 2, 3, 1, d_state));
            let error = subject.kernel.step(slices(&mut fixture)).expect_err("not a size of ours");
            assert_eq!(error.mismatch().expect("a refusal").field, "d_state");
            assert!(
                error.to_string().contains("unsupported shapes") && error.to_string().contains(&d_state.to_string())
            );
        }
    }
}

/// d_state 256 with head_dim 128: did not compile on one platform, was not there on another.
#[test]
fn case_07_and_14_d_state_256() {
    let mut cases = vec![Case::new(1, 24, 128, 1, 256)];
    for dtype in Dtype::ALL {
        cases.push(Case { dtypes: Dtypes { state: dtype, ..Dtypes::uniform(dtype) }, ..Case::new(1, 3, 128, 1, 256) });
    }
    check_cases("d_state 256", &cases);
}

/// Some ratios of heads to groups took a slow path without a word.
#[test]
fn case_08_any_ratio_and_the_path_is_named() {
    let cases: Vec<Case> = [1, 2, 3, 6, 12, 24, 48, 80, 128]
        .into_iter()
        .flat_map(|ratio| [1, 2].map(|groups| Case::new(2, ratio * groups, 8, groups, 32)))
        .collect();
    check_cases("ratios of heads to groups", &cases);
    for subject in subjects() {
        assert!(SSM_PORTS.iter().any(|port| port.name == subject.kernel.port()));
        assert!(!subject.kernel.describe().is_empty(), "the path that runs can be asked for");
    }
}

/// head_dim 80, no power of two.
#[test]
fn case_09_head_dim_80() {
    check_cases("head_dim 80", &[Case::new(1, 128, 80, 8, 128), Case { gap: 3, ..Case::new(2, 16, 80, 8, 128) }]);
}

/// Optional tensors that were not optional.
#[test]
fn case_10_optional_tensors_in_all_combinations() {
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    check_cases("optional tensors", &all.map(|number| Case { optional: Optional::nth(number), ..usual() }));
}

/// A D per channel that was silently broadcast the wrong way.
#[test]
fn case_11_d_has_one_number_per_head() {
    for wrong in [4 * 64, 64, 1, 3, 5, 0] {
        for subject in subjects() {
            let mut fixture = Fixture::new(&usual());
            fixture.d = Some(Buffer::of(Dtype::F32, vec![1.0; wrong]));
            let before = fixture.clone();
            let error = subject.kernel.step(slices(&mut fixture)).expect_err("not one per head");
            assert!(matches!(&error, Error::Unsupported(mismatch) if mismatch.field == "d"), "{error}");
            assert_eq!(fixture.any_write(&before), None);
        }
    }
}

/// Attention's head_dim taken for the SSM's: tensors of head_dim 128 for a problem of 64, and the reverse.
#[test]
fn case_12_the_wrong_head_dim_meets_a_length_check() {
    for (said, is) in [(64, 128), (128, 64)] {
        for part in ["x", "z", "y", "state_in"] {
            for subject in subjects() {
                let mut fixture = Fixture::new(&Case::new(2, 4, said, 1, 128));
                let mut other = Fixture::new(&Case::new(2, 4, is, 1, 128));
                let mut step = slices(&mut fixture);
                match part {
                    "x" => step.x = other.x.tensor(0),
                    "z" => step.z = other.z.as_ref().map(|z| z.tensor(0)),
                    "y" => step.y = other.y.tensor_mut(0),
                    _ => step.state = State::in_place(other.state_in.tensor_mut(0)),
                }
                let error = subject.kernel.step(step).expect_err(part);
                assert!(matches!(&error, Error::Unsupported(mismatch) if mismatch.field == part), "{error}");
            }
        }
    }
}

/// softplus by its textbook formula: infinite from 89 on, zero from -17 down.
#[test]
fn case_16_softplus_is_stable() {
    for subject in subjects() {
        for v in [-200.0_f32, -88.0, -20.0, -17.0, 0.0, 19.99, 20.0, 20.01, 88.0, 89.0, 200.0, 1e4] {
            for (dt, bias) in [(v, 0.0), (0.0, v), (v / 2.0, v / 2.0)] {
                let got = f64::from(step_size(subject, dt, bias, Dt::UNCLAMPED));
                let want = ssm_update::reference::softplus(v.into());
                // Below the normal range of f32, zero is as good as it gets.
                assert!(
                    got.is_finite() && (got - want).abs() <= 1e-6 * want + 1.2e-38,
                    "{}: {v}: {got}",
                    subject.label
                );
                assert!(v < 20.0 || (got - f64::from(v)).abs() <= 1e-6 * f64::from(v), "{}: {v}: {got}", subject.label);
            }
        }
    }
}

/// A default state of 16 bits that lowered the quality of text.
#[test]
fn case_17_the_default_state_is_f32() {
    for dtype in Dtype::ALL {
        assert_eq!(Dtypes::uniform(dtype).state, Dtype::F32);
    }
}

/// 4096 steps for each dtype of the state: f32 does not drift, the 16-bit ones do.
#[test]
fn case_18_drift_over_4096_steps() {
    let truth = drift::truth(&[1, 4096], Dtype::F32);
    let subject = &subjects()[0];
    let last = Dtype::ALL.map(|dtype| {
        let errors = drift::errors::<f32>(&*subject.kernel, dtype, &truth);
        println!("state {dtype} after 4096 steps: nrms {:.1e}", errors[1].state.0);
        errors[1].state.0
    });
    assert!(last[0] < 1e-6 && last[1] > 1e-4 && last[2] > 1e-3, "{last:?}");
}

/// One non-finite state that spread to everything, and outlived its sequence.
#[test]
fn case_22_nan_stays_in_its_slot_and_head() {
    let case = Case { state: StateMode::InPlace, ..usual() }.slots(Slots::Permuted);
    let clean = Fixture::new(&case);
    let head_len = 64 * 128;
    for (batch_row, head, value) in
        [(0, 0, f32::NAN), (1, 2, f32::INFINITY), (1, 3, f32::NEG_INFINITY), (0, 1, f32::NAN)]
    {
        let (slot, _) = clean.row_slots(batch_row).expect("no padding");
        let mut poisoned = clean.clone();
        let first = slot * clean.slot_len() + head * head_len;
        poisoned.state_in.set(first + 5 * 128 + 17, value);
        for subject in subjects() {
            let (good, bad) = (after(subject, &clean), after(subject, &poisoned));
            for at in 0..good.y.len() {
                let hit = at == (batch_row * 4 + head) * 64 + 5;
                assert_eq!(bad.y.get(at).is_finite(), !hit, "{}: y {at}", subject.label);
                assert!(hit || bad.y.bits(at) == good.y.bits(at), "{}: y {at}", subject.label);
            }
            for slot in (0..2).map(|row| clean.row_slots(row).expect("no padding").1) {
                for at in slot * clean.slot_len()..(slot + 1) * clean.slot_len() {
                    let hit = at == first + 5 * 128 + 17;
                    assert!(hit || bad.state_in.bits(at) == good.state_in.bits(at), "{}: state {at}", subject.label);
                }
            }
            // Zeroing the slot clears it.
            let mut reset = Fixture { y: clean.y.clone(), ..bad };
            for at in slot * clean.slot_len()..(slot + 1) * clean.slot_len() {
                reset.state_in.set(at, 0.0);
            }
            let next = after(subject, &reset);
            assert!((0..next.y.len()).all(|at| next.y.get(at).is_finite()), "{}: after the reset", subject.label);
        }
    }
}

/// NaN and infinities in the other tensors stay inside the (batch row, head) or (batch row, group) that they belong to.
#[test]
fn case_22_nan_of_the_inputs_stays_where_it_is() {
    let case = Case::new(2, 4, 6, 2, 48);
    let clean = Fixture::new(&case);
    // Tensor, element, and the (batch row, head) pairs that may see it.
    type Poison = (fn(&mut Fixture) -> &mut Buffer, usize, &'static [(usize, usize)]);
    let poisons: [Poison; 5] = [
        (|f| &mut f.x, 6 + 2, &[(0, 1)]),
        (|f| f.z.as_mut().expect("z"), (4 + 3) * 6, &[(1, 3)]),
        (|f| &mut f.b, 48 + 7, &[(0, 2), (0, 3)]),
        (|f| &mut f.c, 2 * 48 + 7, &[(1, 0), (1, 1)]),
        (|f| &mut f.dt, 4 + 2, &[(1, 2)]),
    ];
    for (tensor, element, seen_by) in poisons {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut poisoned = clean.clone();
            tensor(&mut poisoned).set(element, value);
            for subject in subjects() {
                let (good, bad) = (after(subject, &clean), after(subject, &poisoned));
                for (row, head) in (0..2).flat_map(|row| (0..4).map(move |head| (row, head))) {
                    if seen_by.contains(&(row, head)) {
                        continue;
                    }
                    let (y, state) = ((row * 4 + head) * 6, (row * 4 + head) * 6 * 48);
                    assert_eq!(bad.y.bits_of(y..y + 6), good.y.bits_of(y..y + 6), "{}", subject.label);
                    let range = state..state + 6 * 48;
                    let (bad, good) = (bad.state_after(), good.state_after());
                    assert_eq!(bad.bits_of(range.clone()), good.bits_of(range), "{}", subject.label);
                }
            }
        }
    }
}

/// Two paths of one crate that gave 31 and 38: all of them agree to twice the bound of one.
#[test]
fn case_23_all_paths_agree() {
    let fixture = Fixture::new(&usual());
    let results: Vec<Fixture> = subjects().iter().map(|subject| after(subject, &fixture)).collect();
    for (one, first) in results.iter().zip(subjects()) {
        for (two, second) in results.iter().zip(subjects()) {
            let y = common::expect::measure((0..one.y.len()).map(|at| (one.y.get(at), two.y.get(at))));
            let (a, b) = (one.state_after(), two.state_after());
            let state = common::expect::measure((0..a.len()).map(|at| (a.get(at), b.get(at))));
            assert!(y.0 < 1e-6 && y.1 < 1e-5, "{} and {}: y {y:?}", first.label, second.label);
            assert!(state.0 < 1e-6 && state.1 < 1e-5, "{} and {}: state {state:?}", first.label, second.label);
        }
    }
}

/// A default clamp that surprised users.
#[test]
fn case_24_the_default_limits_are_zero_and_infinity() {
    assert_eq!(Dt::UNCLAMPED, Dt::Raw { min: 0.0, max: f32::INFINITY });
    assert_eq!(Problem::contiguous(usual().dims, Dtypes::uniform(Dtype::F32)).dt, Dt::UNCLAMPED);
    let mut fixture = Fixture::new(&usual());
    let Fixture { x, b, c, dt, a_log, state_in, y, .. } = &mut fixture;
    let (x, b, c, dt, a_log) = (x.tensor(0), b.tensor(0), c.tensor(0), dt.tensor(0), a_log.tensor(0));
    let step = Step::new(usual().dims, x, b, c, dt, a_log, State::read_only(state_in.tensor(0)), y.tensor_mut(0));
    assert_eq!(step.dt_mode, Dt::UNCLAMPED);
}

/// States of 16 bits are there, beside every dtype of the activations.
#[test]
fn case_25_states_of_16_bits() {
    let pairs = Dtype::ALL.into_iter().flat_map(|x| [Dtype::F16, Dtype::Bf16].map(|state| (x, state)));
    let cases: Vec<Case> =
        pairs.map(|(x, state)| Case { dtypes: Dtypes { state, ..Dtypes::uniform(x) }, ..usual() }).collect();
    check_cases("states of 16 bits", &cases);
}

/// y without a write of the state, so that an engine can replay.
#[test]
fn case_26_update_state_false() {
    for dtype in Dtype::ALL {
        let case = Case { dtypes: Dtypes { state: dtype, ..Dtypes::uniform(Dtype::Bf16) }, ..usual() };
        let (write, read) = (Fixture::new(&case), Fixture::new(&Case { state: StateMode::ReadOnly, ..case }));
        for subject in subjects() {
            for level in Level::ALL {
                // `run_checked` compares every byte of the state with what it was.
                let read = run_checked(&*subject.kernel, &read, level).expect("legal");
                assert!(read.y.same_bits(&after(subject, &write).y), "{}", subject.label);
            }
        }
    }
}

/// Zeroed memory that is reserved, and only committed where it is touched.
struct Reserved {
    start: *mut f16,
    len: usize,
}

impl Reserved {
    /// `None` where the machine does not give that much address space.
    fn new(len: usize) -> Option<Self> {
        let layout = Layout::array::<f16>(len).ok()?;
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) }.cast::<f16>();
        (!start.is_null()).then_some(Self { start, len })
    }

    fn slice(&mut self) -> &mut [f16] {
        // SAFETY: `len` elements from `start` on are ours, zeroed, aligned by their layout, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let layout = Layout::array::<f16>(self.len).expect("it was allocated");
        // SAFETY: allocated in `new` with this layout, and not freed before.
        unsafe { dealloc(self.start.cast(), layout) }
    }
}

/// Offsets of 32 bits: slots on both sides of 2^31 and of 2^32 elements of state, and slot 70000. A wrapped offset
/// would land in another slot, or outside; the slots where it would land are looked at.
#[test]
fn case_27_and_28_slots_beyond_32_bit_offsets() {
    const SLOT: usize = 8 * 64 * 128; // 2^16 elements
    const USED: [i32; 7] = [70_000, 32_767, 32_768, 65_535, 65_536, 3, 40_000];
    let case = Case {
        dtypes: Dtypes { state: Dtype::F16, ..Dtypes::uniform(Dtype::F32) },
        state: StateMode::InPlace,
        ..Case::new(USED.len(), 8, 64, 2, 128)
    };
    let small = Fixture::new(&case);
    let Some(mut pool) = Reserved::new(70_001 * SLOT) else {
        println!("NOT RUN: this machine does not reserve {} bytes", 70_001 * SLOT * 2);
        return;
    };
    let mut out = Reserved::new(70_001 * SLOT);
    if out.is_none() {
        println!("out of place NOT RUN: this machine does not reserve {} bytes twice", 70_001 * SLOT * 2);
    }
    let Buffer::F16(start) = &small.state_in else { panic!("an f16 state") };
    for subject in subjects() {
        let expected = after(subject, &small);
        let Buffer::F16(wanted) = &expected.state_in else { panic!("an f16 state") };
        for in_place in [true, false] {
            for (row, &slot) in USED.iter().enumerate() {
                let at = slot as usize * SLOT;
                pool.slice()[at..at + SLOT].copy_from_slice(&start.body()[row * SLOT..(row + 1) * SLOT]);
                if let Some(out) = &mut out {
                    out.slice()[at..at + SLOT].fill(f16::NAN);
                }
            }
            let mut fixture = small.clone();
            let dims = Dims { slots: 70_001, ..case.dims };
            let Fixture { x, z, b, c, dt, a_log, d, dt_bias, y, .. } = &mut fixture;
            let state = match (in_place, &mut out) {
                (true, _) => State::in_place(pool.slice()),
                (false, Some(out)) => State::out_of_place(&*pool.slice(), out.slice()),
                (false, None) => continue,
            };
            let step = Step {
                z: z.as_ref().map(|z| z.tensor(0)),
                d: d.as_ref().map(|d| d.tensor(0)),
                dt_bias: dt_bias.as_ref().map(|bias| bias.tensor(0)),
                slots_in: Some(&USED),
                slots_out: Some(&USED),
                ..Step::new(
                    dims,
                    x.tensor(0),
                    b.tensor(0),
                    c.tensor(0),
                    dt.tensor(0),
                    a_log.tensor(0),
                    state,
                    y.tensor_mut(0),
                )
            };
            subject.kernel.step(step).expect("a legal step");
            assert!(fixture.y.same_bits(&expected.y), "{}: y, in place: {in_place}", subject.label);
            let result = if in_place { pool.slice() } else { out.as_mut().expect("it ran").slice() };
            for (row, &slot) in USED.iter().enumerate() {
                let at = slot as usize * SLOT;
                assert!(
                    result[at..at + SLOT]
                        .iter()
                        .zip(&wanted.body()[row * SLOT..])
                        .all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{}: slot {slot}, in place: {in_place}",
                    subject.label
                );
                // Where offsets of 31 or 32 bits, of elements or of bytes, would have gone.
                for bits in [30, 31, 32] {
                    let wrapped = at % (1 << bits);
                    if !USED.contains(&((wrapped / SLOT) as i32)) {
                        let untouched = result[wrapped..wrapped + SLOT].iter().all(|value| value.to_bits() == 0);
                        assert!(untouched, "{}: slot {slot} modulo 2^{bits}", subject.label);
                    }
                }
            }
        }
    }
}

/// A pool that is much larger than the batch, of which one row uses the last slot.
#[test]
fn case_29_the_last_slot_of_a_large_pool() {
    const POOL: usize = 3000;
    let dense = Fixture::new(&Case { state: StateMode::InPlace, ..Case::new(1, 2, 4, 1, 16) });
    for slot in [0, 1, POOL / 2, POOL - 1] {
        let (mut fixture, len) = (dense.clone(), dense.slot_len());
        fixture.case.dims.slots = POOL;
        fixture.state_in = Buffer::new(Dtype::F32, POOL * len);
        fixture.state_in.copy_from(slot * len, &dense.state_in, 0..len);
        fixture.slots_in = Some(Guarded::of(&[slot as i32]));
        fixture.slots_out = fixture.slots_in.clone();
        for subject in subjects() {
            for level in Level::ALL {
                let after_pool = run_checked(&*subject.kernel, &fixture, level).expect("a legal step");
                let wanted = after(subject, &dense);
                assert!(after_pool.y.same_bits(&wanted.y), "{}: slot {slot}", subject.label);
                let got = after_pool.state_in.bits_of(slot * len..(slot + 1) * len);
                assert_eq!(got, wanted.state_in.bits_of(0..len), "{}: slot {slot}", subject.label);
            }
        }
    }
}

/// Padded rows with uninitialised data that hung, wrote a phantom state, or advanced one: 2 live rows and 2 of padding,
/// first with the padding behind, then in front, then all padding.
#[test]
fn case_32_34_35_padding_is_inert() {
    let base = Fixture::new(&Case { state: StateMode::InPlace, ..Case::new(4, 4, 64, 1, 128) });
    for list in [[2, 0, -1, -1], [-1, -1, 2, 0], [-5, 1, i32::MIN, 3], [-1; 4]] {
        let mut fixture = base.clone();
        fixture.slots_in = Some(Guarded::of(&list));
        fixture.slots_out = fixture.slots_in.clone();
        for (row, &slot) in list.iter().enumerate() {
            if slot < 0 {
                for (buffer, len) in
                    [(&mut fixture.x, 4 * 64), (&mut fixture.b, 128), (&mut fixture.c, 128), (&mut fixture.dt, 4)]
                {
                    (row * len..(row + 1) * len).for_each(|at| buffer.set(at, f32::NAN));
                }
            }
        }
        for subject in subjects() {
            for level in Level::ALL {
                // `run_checked` compares the state rows that no live row uses, byte for byte.
                let after = run_checked(&*subject.kernel, &fixture, level).expect("a legal step");
                for (row, &slot) in list.iter().enumerate() {
                    let y = row * 4 * 64..(row + 1) * 4 * 64;
                    assert!(slot >= 0 || after.y.bits_of(y.clone()).iter().all(|&bits| bits == 0), "zeros");
                    assert!(y.clone().all(|at| after.y.get(at).is_finite()), "{}: row {row}", subject.label);
                }
            }
        }
    }
}

/// The inputs of a padding row are not even read: here they lie where there is no memory, so that a read ends the process.
#[allow(unsafe_code)]
#[test]
fn case_32_padding_inputs_are_not_read() {
    let dims = Dims { batch: 2, heads: 4, head_dim: 64, groups: 1, d_state: 128, slots: 1 };
    let far = 1 << 40;
    let strides = BatchStrides { x: far, z: far, b: far, c: far, dt: far, y: 4 * 64 };
    let problem = Problem { strides, ..Problem::contiguous(dims, Dtypes::uniform(Dtype::F32)) };
    let (row, group, per_head) = ([0.5_f32; 4 * 64], [0.5_f32; 128], [0.5_f32; 4]);
    for subject in subjects().iter().filter(|subject| subject.kernel.port() == "cpu") {
        let (mut state, mut y) = (vec![1.0_f32; 4 * 64 * 128], vec![9.0_f32; 2 * 4 * 64]);
        let (state_at, slots) = (state.as_mut_ptr(), [0, -1]);
        let at = Pointers {
            x: row.as_ptr().cast(),
            z: row.as_ptr().cast(),
            b: group.as_ptr().cast(),
            c: group.as_ptr().cast(),
            dt: per_head.as_ptr().cast(),
            a_log: per_head.as_ptr().cast(),
            state_in: state_at.cast(),
            state_out: state_at.cast(),
            slots_in: slots.as_ptr(),
            slots_out: slots.as_ptr(),
            y: y.as_mut_ptr().cast(),
            ..Pointers::NULL
        };
        let launch = validate(&problem, &at).expect("strides may be anything that does not overflow");
        // SAFETY: every tensor holds its first row, and of the second, padding, only y is touched.
        unsafe { subject.kernel.launch(&launch, Stream::DEFAULT) }.expect("a legal launch");
        assert!(y[..256].iter().all(|y| *y != 9.0) && y[256..].iter().all(|y| *y == 0.0), "{}", subject.label);
    }
}

/// A reused slot that kept its last tenant's state: engines zero it, and then a step is a step from nothing.
#[test]
fn case_37_a_zeroed_slot_starts_afresh() {
    let case = Case { state: StateMode::InPlace, ..usual() }.slots(Slots::Permuted);
    for subject in subjects() {
        let used = after(subject, &after(subject, &Fixture::new(&case)));
        let mut from_zeros = Fixture::new(&case);
        fill(&mut from_zeros.state_in, 0.0);
        let fresh = after(subject, &from_zeros);
        let (slot, _) = used.row_slots(1).expect("no padding");
        let (mut reset, len) = (used.clone(), used.slot_len());
        (slot * len..(slot + 1) * len).for_each(|at| reset.state_in.set(at, 0.0));
        let next = after(subject, &reset);
        let row = fresh.y_ranges()[1].clone();
        assert_eq!(next.y.bits_of(row.clone()), fresh.y.bits_of(row), "{}", subject.label);
        let slot = slot * len..(slot + 1) * len;
        assert_eq!(next.state_in.bits_of(slot.clone()), fresh.state_in.bits_of(slot), "{}", subject.label);
    }
}

/// A slot just beyond the pool, at both levels: refused, and nothing written.
#[test]
fn case_38_a_slot_beyond_the_pool() {
    for state in StateMode::ALL {
        for (list, field) in [([0, 4], "slots_in"), ([i32::MAX, 1], "slots_in"), ([5, 6], "slots_in")] {
            let mut fixture = Fixture::new(&Case { state, ..usual() }.slots(Slots::Permuted));
            assert_eq!(fixture.case.dims.slots, 4);
            fixture.slots_in = Some(Guarded::of(&list));
            let before = fixture.clone();
            for subject in subjects() {
                for level in Level::ALL {
                    // In a device's memory such a list is the caller's fault: at launch level, the host does not see it.
                    if level == Level::Launch && subject.kernel.memory().is_some() {
                        continue;
                    }
                    let error = run(&*subject.kernel, &mut fixture, level).expect_err("beyond the pool");
                    assert_eq!(error.mismatch().expect("a refusal").field, field, "{error}");
                    assert_eq!(fixture.any_write(&before), None, "{} at {level:?}", subject.label);
                }
            }
        }
    }
}

/// Slot indices frozen when a launch was prepared: they are read when it runs, from the list as it is then.
#[test]
fn case_39_a_launch_reads_its_slots_when_it_runs() {
    let case = Case { state: StateMode::InPlace, ..usual() }.slots(Slots::AbsentInPool);
    let base = Fixture::new(&case);
    for subject in subjects().iter().filter(|subject| subject.kernel.port() == "cpu") {
        let mut fixture = base.clone();
        // All four slots hold something, and all are known to differ.
        for at in 0..fixture.state_in.len() {
            fixture.state_in.set(at, (at % 97) as f32 * 0.01 + (at / base.slot_len()) as f32);
        }
        let mut expected = fixture.clone();
        let mut slots = [0_i32, 1];
        let body = |(whole, _, body): (*mut u8, usize, usize)| whole.wrapping_add(body);
        let Fixture { x, z, b, c, dt, a_log, d, dt_bias, state_in, y, .. } = &mut fixture;
        let state = body(state_in.raw()).cast::<std::ffi::c_void>();
        let slots_at = &raw mut slots;
        let at = Pointers {
            x: body(x.raw()).cast(),
            z: z.as_mut().map_or(std::ptr::null(), |z| body(z.raw()).cast()),
            b: body(b.raw()).cast(),
            c: body(c.raw()).cast(),
            dt: body(dt.raw()).cast(),
            a_log: body(a_log.raw()).cast(),
            d: d.as_mut().map_or(std::ptr::null(), |d| body(d.raw()).cast()),
            dt_bias: dt_bias.as_mut().map_or(std::ptr::null(), |bias| body(bias.raw()).cast()),
            state_in: state.cast_const(),
            state_out: state,
            slots_in: slots_at.cast(),
            slots_out: slots_at.cast(),
            y: body(y.raw()).cast(),
        };
        let launch = validate(&base.problem(), &at).expect("a legal launch");
        for list in [[0, 1], [3, 2], [1, -1]] {
            // SAFETY: `slots` is a live local, and no launch is running.
            unsafe { slots_at.write(list) };
            // SAFETY: all tensors are the fixture's own and whole, and the lists are unique and within the pool.
            unsafe { subject.kernel.launch(&launch, Stream::DEFAULT) }.expect("a legal launch");
            expected.slots_in = Some(Guarded::of(&list));
            expected.slots_out = expected.slots_in.clone();
            expected = after(subject, &expected);
        }
        assert!(fixture.y.same_bits(&expected.y), "{}", subject.label);
        assert!(fixture.state_in.same_bits(&expected.state_in), "{}", subject.label);
    }
}

/// A GPU was asked for and the CPU answered, silently.
#[test]
fn case_60_a_port_that_is_asked_for_never_falls_back() {
    for port in SSM_PORTS {
        let asked = Selection { port: Some(port.name.into()), ..Selection::default() };
        match (select_with(SSM_PORTS, &asked), (port.open)()) {
            (Ok(kernel), Ok(_)) => assert_eq!(kernel.port(), port.name),
            (Err(NoPort::NamedClosed { name, why }), Err(reason)) => assert_eq!((name, why), (port.name, reason)),
            (answer, opened) => panic!("{}: {answer:?}, though opening it gives {opened:?}", port.name),
        }
    }
}

/// A build that broke where a platform's headers were absent: every row is there in every build, with its reason.
#[test]
fn case_71_every_row_is_there_in_every_build() {
    let names: HashSet<&str> = SSM_PORTS.iter().map(|port| port.name).collect();
    assert_eq!(names, HashSet::from(["rocm", "cuda", "metal", "cpu"]));
    assert!((SSM_PORTS[3].open)().is_ok(), "the CPU port opens where nothing else does");
}

/// Rows that are a slice of a wider projection, as engines have them: x, B, C and dt from one buffer, each with its
/// stride.
#[test]
fn slices_of_one_projection() {
    let case = Case { optional: Optional::nth(6), ..Case::new(3, 4, 8, 2, 32) };
    let dense = Fixture::new(&case);
    let (row, group, heads) = (4 * 8, 2 * 32, 4);
    let width = row + 2 * group + heads;
    let mut wide = Buffer::new(Dtype::F32, 3 * width);
    for batch_row in 0..3 {
        let at = batch_row * width;
        wide.copy_from(at, &dense.x, batch_row * row..(batch_row + 1) * row);
        wide.copy_from(at + row, &dense.b, batch_row * group..(batch_row + 1) * group);
        wide.copy_from(at + row + group, &dense.c, batch_row * group..(batch_row + 1) * group);
        wide.copy_from(at + row + 2 * group, &dense.dt, batch_row * heads..(batch_row + 1) * heads);
    }
    let stride = BatchStrides { x: width, b: width, c: width, dt: width, ..dense.strides };
    for subject in subjects() {
        let mut fixture = dense.clone();
        let mut step = slices(&mut fixture);
        step.x = wide.tensor(0).batch_stride(stride.x);
        step.b = wide.tensor(row).batch_stride(stride.b);
        step.c = wide.tensor(row + group).batch_stride(stride.c);
        step.dt = wide.tensor(row + 2 * group).batch_stride(stride.dt);
        subject.kernel.step(step).expect("a legal step");
        let wanted = after(subject, &dense);
        assert!(fixture.same_results(&wanted), "{}", subject.label);
    }
}

/// More batch rows than one grid of a GPU has: ports launch several times, and each row still has its own data.
#[test]
fn batches_beyond_a_grid() {
    check_cases("batches beyond a grid", &[Case::new(65_537, 1, 1, 1, 16)]);
}

/// A NaN whose low bits are all set: rounded like a number, the carry would run through the exponent into the sign, and leave a zero.
#[test]
fn a_nan_of_all_ones_stays_a_nan_in_16_bits() {
    for dtype in [Dtype::F16, Dtype::Bf16] {
        for bits in [0x7fff_ffff, 0xffff_ffff] {
            let dtypes = Dtypes { x: dtype, state: dtype, ..Dtypes::uniform(Dtype::F32) };
            let mut fixture = Fixture::new(&Case { dtypes, ..Case::new(1, 2, 3, 1, 16) });
            fixture.b.set_bits(5, bits);
            fixture.d.as_mut().expect("D is there").set_bits(1, bits);
            for subject in subjects() {
                let after = after(subject, &fixture);
                for row in 0..6 {
                    assert!(after.state_after().get(row * 16 + 5).is_nan(), "{}: state {row}", subject.label);
                    assert!(after.y.get(row).is_nan(), "{}: y {row}", subject.label);
                }
            }
        }
    }
    // The same by D alone: y does not come through the state.
    for bits in [0x7fff_ffff, 0xffff_ffff] {
        let dtypes = Dtypes { x: Dtype::Bf16, ..Dtypes::uniform(Dtype::F32) };
        let mut fixture = Fixture::new(&Case { dtypes, ..Case::new(1, 2, 3, 1, 16) });
        fixture.d.as_mut().expect("D is there").set_bits(1, bits);
        for subject in subjects() {
            let after = after(subject, &fixture);
            let nan: Vec<bool> = (0..6).map(|at| after.y.get(at).is_nan()).collect();
            assert_eq!(nan, [false, false, false, true, true, true], "{}", subject.label);
        }
    }
}
