//! What is refused, how the refusal reads, and that no byte of any buffer changes by it. Nothing panics.

mod common;

use std::ffi::c_void;
use std::ptr::without_provenance_mut;

use common::addresses::addresses;
use common::buffer::{Buffer, Guarded};
use common::case::{Case, Optional, Slots, StateMode};
use common::fixture::Fixture;
use common::ports;
use common::run::slices;
use ndarray::{Array1, Array2, Array3, Array4, Array5, Axis, s};
use proptest::prelude::*;
use ssm_update::{
    BatchStrides, Dims, Dt, Dtype, Dtypes, Error, Pointers, Problem, State, Step, validate, validate_slots,
};

/// Which of the two errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unsupported,
    Invalid,
}
use Kind::{Invalid, Unsupported};

/// Asks for this kind of error about this field, with a text that says what was expected and what came.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>, kind: Kind, field: &str, what: &str) {
    let error = result.expect_err(what);
    let (got_kind, mismatch) = match &error {
        Error::Unsupported(mismatch) => (Unsupported, mismatch),
        Error::Invalid(mismatch) => (Invalid, mismatch),
        other => panic!("{what}: an unknown kind of error: {other:?}"),
    };
    let text = error.to_string();
    assert_eq!((got_kind, mismatch.field), (kind, field), "{what}: {text}");
    assert_eq!(Some(mismatch), error.mismatch());
    assert!(!mismatch.expected.is_empty() && !mismatch.got.is_empty(), "{what}: {text}");
    assert!(
        text.contains(field) && text.contains(&mismatch.expected) && text.contains(&mismatch.got),
        "{what}: the text tells field, expected and got: {text}"
    );
    assert_eq!(text.contains("unsupported shapes"), kind == Unsupported, "{what}: engines look for this: {text}");
}

/// Sizes that are all different, and a pool that is larger than the batch.
fn case() -> Case {
    Case { state: StateMode::OutOfPlace, ..Case::new(2, 4, 3, 2, 48) }.slots(Slots::Permuted)
}

/// The step on slices without batch strides: every length has to fit exactly.
fn exact(fixture: &mut Fixture) -> Step<'_> {
    let Fixture { case, .. } = *fixture;
    let to = fixture.state_out.as_mut().expect("out of place");
    Step {
        z: fixture.z.as_ref().map(|z| z.tensor(0)),
        d: fixture.d.as_ref().map(|d| d.tensor(0)),
        dt_bias: fixture.dt_bias.as_ref().map(|bias| bias.tensor(0)),
        slots_in: fixture.slots_in.as_ref().map(Guarded::body),
        slots_out: fixture.slots_out.as_ref().map(Guarded::body),
        dt_mode: case.dt,
        ..Step::new(
            case.dims,
            fixture.x.tensor(0),
            fixture.b.tensor(0),
            fixture.c.tensor(0),
            fixture.dt.tensor(0),
            fixture.a_log.tensor(0),
            State::out_of_place(fixture.state_in.tensor(0), to.tensor_mut(0)),
            fixture.y.tensor_mut(0),
        )
    }
}

type Build = for<'a> fn(&'a mut Fixture) -> Step<'a>;

/// Changes a legal fixture, runs the step on every port, and asks for the refusal and for untouched buffers.
#[track_caller]
fn refuses(what: &str, change: impl Fn(&mut Fixture), build: Build, kind: Kind, field: &str) {
    let mut fixture = Fixture::new(&case());
    for subject in &ports::under_test().subjects {
        let mut legal = fixture.clone();
        assert_eq!(subject.kernel.step(build(&mut legal)), Ok(()), "{what}: legal before the change");
    }
    change(&mut fixture);
    for subject in &ports::under_test().subjects {
        let mut after = fixture.clone();
        let result = subject.kernel.step(build(&mut after));
        assert_refused(result, kind, field, what);
        assert_eq!(after.any_write(&fixture), None, "{what} on {}", subject.label);
    }
}

/// A tensor of the fixture by name.
fn tensor<'a>(fixture: &'a mut Fixture, name: &str) -> &'a mut Buffer {
    match name {
        "x" => &mut fixture.x,
        "z" => fixture.z.as_mut().expect("all tensors are there"),
        "b" => &mut fixture.b,
        "c" => &mut fixture.c,
        "dt" => &mut fixture.dt,
        "a_log" => &mut fixture.a_log,
        "d" => fixture.d.as_mut().expect("all tensors are there"),
        "dt_bias" => fixture.dt_bias.as_mut().expect("all tensors are there"),
        "state_in" => &mut fixture.state_in,
        "state_out" => fixture.state_out.as_mut().expect("out of place"),
        "y" => &mut fixture.y,
        other => panic!("no tensor {other}"),
    }
}

const TENSORS: [&str; 11] = ["x", "z", "b", "c", "dt", "a_log", "d", "dt_bias", "state_in", "state_out", "y"];

#[test]
fn wrong_lengths_are_refused_for_every_tensor() {
    for name in TENSORS {
        let len = tensor(&mut Fixture::new(&case()), name).len();
        for wrong in [0, 1, len - 1, len + 1, 2 * len] {
            let resize = |fixture: &mut Fixture| {
                let buffer = tensor(fixture, name);
                *buffer = Buffer::new(buffer.dtype(), wrong);
            };
            let what = format!("{name} of {wrong} elements instead of {len}");
            refuses(&what, resize, exact, Unsupported, name);
            // With a batch stride a slice may be longer, never shorter; tensors without a batch have no stride.
            if wrong < len {
                refuses(&format!("{what}, strided"), resize, slices, Unsupported, name);
            }
        }
    }
}

/// Two states of half the promised length side by side are too short; they do not overlap.
#[test]
fn a_short_state_is_not_called_an_overlap() {
    let case = Case { state: StateMode::OutOfPlace, ..case() };
    let mut fixture = Fixture::new(&case);
    let mut halves = vec![0.0_f32; fixture.state_in.len()];
    let middle = halves.len() / 2;
    let (from, to) = halves.split_at_mut(middle);
    let step = Step { state: State::out_of_place(&*from, to), ..exact(&mut fixture) };
    assert_refused(ports::under_test().subjects[0].kernel.step(step), Unsupported, "state_in", "half a state");
    assert!(halves.iter().all(|&value| value == 0.0));
}

#[test]
fn a_strided_slice_must_reach_to_the_end_of_its_last_row() {
    for (name, set) in [
        ("x", (|f: &mut Fixture| f.strides.x += 1) as fn(&mut Fixture)),
        ("z", |f| f.strides.z += 1),
        ("b", |f| f.strides.b += 1),
        ("c", |f| f.strides.c += 1),
        ("dt", |f| f.strides.dt += 1),
        ("y", |f| f.strides.y += 1),
    ] {
        refuses(&format!("{name} with a stride beyond its end"), set, slices, Unsupported, name);
    }
}

#[test]
fn overlapping_rows_of_y_are_refused() {
    refuses("y with a stride below its row", |f| f.strides.y -= 1, slices, Unsupported, "strides.y");
    refuses("y with stride 0", |f| f.strides.y = 0, slices, Unsupported, "strides.y");
}

#[test]
fn a_stride_for_a_tensor_without_batch_is_refused() {
    for name in ["a_log", "d", "dt_bias", "state_in", "state_out"] {
        let mut fixture = Fixture::new(&case());
        let before = fixture.clone();
        let mut other = Fixture::new(&case());
        let mut step = exact(&mut fixture);
        let buffer = tensor(&mut other, name);
        match (name, &mut step.state) {
            ("a_log", _) => step.a_log = buffer.tensor(0).batch_stride(4),
            ("d", _) => step.d = Some(buffer.tensor(0).batch_stride(4)),
            ("dt_bias", _) => step.dt_bias = Some(buffer.tensor(0).batch_stride(4)),
            ("state_in", State::OutOfPlace { from, .. }) => *from = buffer.tensor(0).batch_stride(4),
            (_, State::OutOfPlace { to, .. }) => *to = buffer.tensor_mut(0).batch_stride(4),
            (name, state) => panic!("{name} of {state:?}"),
        }
        assert_refused(ports::under_test().subjects[0].kernel.step(step), Unsupported, name, name);
        assert_eq!(fixture.any_write(&before), None, "{name}");
        assert_eq!(other.any_write(&before), None, "{name}");
    }
}

#[test]
fn wrong_dtypes_are_refused() {
    // f16 everywhere that has a partner, so that both other dtypes are wrong.
    for (name, field) in [("y", "y"), ("z", "z"), ("c", "c"), ("state_out", "state_out"), ("bc", "dtypes.bc")] {
        for wrong in [Dtype::F32, Dtype::Bf16] {
            if name == "bc" && wrong == Dtype::F32 {
                continue; // legal
            }
            let mut fixture =
                Fixture::new(&Case { dtypes: Dtypes { state: Dtype::F16, ..Dtypes::uniform(Dtype::F16) }, ..case() });
            let names: &[&str] = if name == "bc" { &["b", "c"] } else { &[name] };
            for name in names {
                let buffer = tensor(&mut fixture, name);
                *buffer = Buffer::new(wrong, buffer.len());
            }
            let before = fixture.clone();
            for subject in &ports::under_test().subjects {
                assert_refused(subject.kernel.step(exact(&mut fixture)), Unsupported, field, name);
                assert_eq!(fixture.any_write(&before), None, "{name} in {wrong}");
            }
        }
    }
}

#[test]
fn sizes_without_a_kernel_are_refused() {
    type Change = fn(&mut Dims);
    let changes: [(&str, Change); 14] = [
        ("heads", |d| d.heads = 0),
        ("head_dim", |d| d.head_dim = 0),
        ("groups", |d| d.groups = 0),
        ("groups", |d| d.groups = 3),
        ("groups", |d| d.groups = 8), // more groups than heads
        ("groups", |d| d.groups = usize::MAX),
        ("d_state", |d| d.d_state = 0),
        ("d_state", |d| d.d_state = 8),
        ("d_state", |d| d.d_state = 24),
        ("d_state", |d| d.d_state = 47),
        ("d_state", |d| d.d_state = 513),
        ("d_state", |d| d.d_state = 528),
        ("d_state", |d| d.d_state = usize::MAX),
        ("d_state", |d| d.d_state = usize::MAX - 15), // a multiple of 16
    ];
    for (field, change) in changes {
        refuses(field, |fixture| change(&mut fixture.case.dims), exact, Unsupported, field);
        // Also without a batch: what a port can do does not depend on it.
        refuses(
            &format!("{field}, batch 0"),
            |fixture| {
                fixture.case.dims.batch = 0;
                change(&mut fixture.case.dims);
            },
            exact,
            Unsupported,
            field,
        );
    }
}

#[test]
fn sizes_that_overflow_are_refused() {
    let half = 1 << 32;
    for dims in [
        Dims { batch: usize::MAX, ..case().dims },
        Dims { batch: usize::MAX / 2, ..case().dims },
        Dims { batch: 1 << 60, ..case().dims },
        Dims { heads: usize::MAX - 1, ..case().dims },
        Dims { heads: half, head_dim: half, ..case().dims },
        Dims { head_dim: usize::MAX, ..case().dims },
        Dims { head_dim: (1 << 62) + 3, ..case().dims },
        Dims { heads: half, groups: half, d_state: 512, slots: half, ..case().dims },
        Dims { slots: usize::MAX, ..case().dims },
        Dims { slots: 1 << 54, ..case().dims },
    ] {
        for subject in &ports::under_test().subjects {
            let mut fixture = Fixture::new(&case());
            fixture.case.dims = dims;
            let before = fixture.clone();
            for build in [exact as Build, slices] {
                let error = subject.kernel.step(build(&mut fixture)).expect_err("beyond the address space");
                assert!(matches!(error, Error::Unsupported(_)), "{dims:?}: {error}");
                assert_eq!(fixture.any_write(&before), None, "{dims:?}");
            }
        }
    }
}

#[test]
fn limits_out_of_order_are_refused() {
    for (min, max) in [
        (f32::NAN, 1.0),
        (0.0, f32::NAN),
        (f32::NAN, f32::NAN),
        (0.2, 0.1),
        (f32::INFINITY, 0.0),
        (0.0, f32::NEG_INFINITY),
    ] {
        refuses("limits", |fixture| fixture.case.dt = Dt::Raw { min, max }, exact, Invalid, "dt.min, dt.max");
    }
}

#[test]
fn prepared_dt_with_a_bias_is_refused() {
    refuses("prepared with bias", |fixture| fixture.case.dt = Dt::Prepared, exact, Invalid, "dt_bias");
}

#[test]
fn a_pool_smaller_than_the_batch_is_refused_without_slots() {
    let mut fixture =
        Fixture::new(&Case { state: StateMode::InPlace, ..Case::new(3, 2, 3, 1, 16) }.slots(Slots::AbsentInPool));
    fixture.case.dims.slots = 2;
    fixture.state_in = Buffer::new(Dtype::F32, 2 * fixture.slot_len());
    let before = fixture.clone();
    for subject in &ports::under_test().subjects {
        assert_refused(subject.kernel.step(slices(&mut fixture)), Unsupported, "slots", "a pool of 2 for a batch of 3");
        assert_eq!(fixture.any_write(&before), None);
    }
}

#[test]
fn wrong_slots_are_refused() {
    type Lists = (Option<&'static [i32]>, Option<&'static [i32]>);
    let wrong: [(&str, Lists, Kind, &str); 12] = [
        ("short list", (Some(&[0]), Some(&[0, 1])), Unsupported, "slots_in"),
        ("long list", (Some(&[0, 1]), Some(&[0, 1, 2])), Unsupported, "slots_out"),
        ("empty list", (Some(&[]), None), Unsupported, "slots_in"),
        ("slot = pool", (Some(&[0, 4]), Some(&[0, 1])), Invalid, "slots_in"),
        ("written slot = pool", (Some(&[0, 1]), Some(&[4, 1])), Invalid, "slots_out"),
        ("slot far beyond the pool", (Some(&[i32::MAX, 1]), Some(&[0, 1])), Invalid, "slots_in"),
        ("slot beyond the pool beside padding", (Some(&[-1, 4]), Some(&[0, 1])), Invalid, "slots_in"),
        ("one slot read twice", (Some(&[2, 2]), Some(&[0, 1])), Invalid, "slots_in"),
        ("one slot written twice", (Some(&[0, 1]), Some(&[3, 3])), Invalid, "slots_out"),
        ("one slot read twice, rows written", (Some(&[1, 1]), None), Invalid, "slots_in"),
        ("one slot written twice, rows read", (None, Some(&[1, 1])), Invalid, "slots_out"),
        ("beyond the pool in a row that the other list pads", (Some(&[-1, 1]), Some(&[9, 0])), Invalid, "slots_out"),
    ];
    for (what, (from, to), kind, field) in wrong {
        let set = |fixture: &mut Fixture| {
            fixture.slots_in = from.map(Guarded::of);
            fixture.slots_out = to.map(Guarded::of);
        };
        refuses(what, set, exact, kind, field);
        assert_refused(validate_slots(&case().dims, from, to, true, false), kind, field, what);
    }
}

#[test]
fn slots_crossed_in_one_buffer_are_refused() {
    let dims = case().dims;
    for (what, from, to, field) in [
        ("row 1 reads what row 0 writes", Some(&[0, 1][..]), Some(&[1, 2][..]), "slots_out"),
        ("row 0 reads what row 1 writes", Some(&[2, 1]), Some(&[3, 2]), "slots_out"),
        ("a swap", Some(&[0, 1]), Some(&[1, 0]), "slots_out"),
        ("row 1 writes slot 1 for want of a list, which row 0 reads", Some(&[1, 3]), None, "slots_out"),
        ("row 1 reads slot 1 for want of a list, which row 0 writes", None, Some(&[1, 3]), "slots_out"),
    ] {
        let error = validate_slots(&dims, from, to, true, true).expect_err(what);
        assert!(matches!(error, Error::Invalid(_)), "{what}: {error}");
        assert!([field, "slots_in"].contains(&error.mismatch().expect("a refusal").field), "{what}: {error}");
        // Legal in two buffers, and where nothing is written.
        assert_eq!(validate_slots(&dims, from, to, true, false), Ok(()), "{what}, in two buffers");
        assert_eq!(validate_slots(&dims, from, to, false, false), Ok(()), "{what}, read only");

        let mut fixture = Fixture::new(&Case { state: StateMode::InPlace, ..case() });
        fixture.slots_in = from.map(Guarded::of);
        fixture.slots_out = to.map(Guarded::of);
        let before = fixture.clone();
        for subject in &ports::under_test().subjects {
            let error = subject.kernel.step(slices(&mut fixture)).expect_err(what);
            assert!(matches!(error, Error::Invalid(_)), "{what}: {error}");
            assert_eq!(fixture.any_write(&before), None, "{what}");
        }
    }
}

#[test]
fn legal_slots_are_not_refused() {
    let dims = case().dims;
    for (what, from, to, in_place) in [
        ("no lists", None, None, true),
        ("its own slot again", Some(&[3, 1][..]), Some(&[3, 1][..]), true),
        ("apart", Some(&[0, 1]), Some(&[2, 3]), true),
        ("all padding", Some(&[-1, -1]), Some(&[-1, -1]), true),
        ("padding uses no slot", Some(&[2, 2]), Some(&[-1, 2]), true),
        ("padding in the other list", Some(&[-1, 0]), Some(&[0, 0]), true),
        ("the least index", Some(&[i32::MIN, 0]), None, true),
        ("crossed in two buffers", Some(&[0, 1]), Some(&[1, 0]), false),
    ] {
        assert_eq!(validate_slots(&dims, from, to, true, in_place), Ok(()), "{what}");
    }
    let empty = Dims { batch: 0, ..dims };
    assert_eq!(validate_slots(&empty, Some(&[]), Some(&[]), true, true), Ok(()));
}

#[test]
fn slots_of_a_large_batch_are_checked_within_reason() {
    let dims = Dims { batch: 100_000, heads: 1, head_dim: 1, groups: 1, d_state: 16, slots: 200_000 };
    let mut list: Vec<i32> = (0..100_000).map(|row| 199_999 - row).collect();
    assert_eq!(validate_slots(&dims, Some(&list), Some(&list), true, true), Ok(()));
    list[77] = list[99_000];
    assert_refused(
        validate_slots(&dims, Some(&list), Some(&list), true, true),
        Invalid,
        "slots_in",
        "a late duplicate",
    );
}

/// A view that is refused, in the place of a tensor of a legal step.
#[track_caller]
fn refuses_view<'a>(what: &str, field: &str, put: impl Fn(&mut Step<'a>), fixture: &'a mut Fixture) {
    let mut step = exact(fixture);
    put(&mut step);
    assert_refused(ports::under_test().subjects[0].kernel.step(step), Unsupported, field, what);
}

#[test]
fn views_of_the_wrong_layout_are_refused() {
    let case = case();
    let Dims { batch, heads, head_dim, groups, d_state, slots } = case.dims;
    let x = Array3::<f32>::zeros((batch, heads, head_dim));
    let transposed = Array3::<f32>::zeros((head_dim, heads, batch));
    let wide = Array3::<f32>::zeros((batch, heads, 2 * head_dim));
    let taller = Array3::<f32>::zeros((batch + 1, heads, head_dim));
    let wider = Array3::<f32>::zeros((batch, heads + 1, head_dim));
    let bc = Array3::<f32>::zeros((batch, d_state, groups));
    let rank5 = Array5::<f32>::zeros((1, batch, heads, head_dim, 1));
    let rank2 = Array2::<f32>::zeros((batch * heads, head_dim));
    let heads2 = Array2::<f32>::zeros((heads, 1));
    let vector = Array1::<f32>::zeros(2 * heads);
    let state = Array4::<f32>::zeros((slots, heads, d_state, head_dim));
    let tall = Array4::<f32>::zeros((2 * slots, heads, head_dim, d_state));

    let mut fixture = Fixture::new(&case);
    let before = fixture.clone();
    let fixture = &mut fixture;
    refuses_view("reversed batch", "x", |s| s.x = x.slice(s![..;-1, .., ..]).into(), &mut fixture.clone());
    refuses_view("reversed batch", "z", |s| s.z = Some(x.slice(s![..;-1, .., ..]).into()), &mut fixture.clone());
    refuses_view("reversed heads", "x", |s| s.x = x.slice(s![.., ..;-1, ..]).into(), &mut fixture.clone());
    refuses_view("reversed rows", "x", |s| s.x = x.slice(s![.., .., ..;-1]).into(), &mut fixture.clone());
    refuses_view("transposed", "x", |s| s.x = transposed.t().into(), &mut fixture.clone());
    refuses_view("every second row", "x", |s| s.x = wide.slice(s![.., .., ..;2]).into(), &mut fixture.clone());
    refuses_view("gaps between heads", "x", |s| s.x = wide.slice(s![.., .., ..head_dim]).into(), &mut fixture.clone());
    refuses_view("wrong shape", "x", |s| s.x = wide.view().into(), &mut fixture.clone());
    refuses_view("one row more", "x", |s| s.x = taller.view().into(), &mut fixture.clone());
    refuses_view("one head more", "x", |s| s.x = wider.view().into(), &mut fixture.clone());
    refuses_view("one head more", "a_log", |s| s.a_log = vector.slice(s![..=heads]).into(), &mut fixture.clone());
    refuses_view("one head less", "d", |s| s.d = Some(vector.slice(s![1..heads]).into()), &mut fixture.clone());
    refuses_view("rank 5", "x", |s| s.x = rank5.view().into(), &mut fixture.clone());
    refuses_view("rank 2", "x", |s| s.x = rank2.view().into(), &mut fixture.clone());
    refuses_view("transposed", "b", |s| s.b = bc.view().permuted_axes([0, 2, 1]).into(), &mut fixture.clone());
    refuses_view("transposed", "c", |s| s.c = bc.view().permuted_axes([0, 2, 1]).into(), &mut fixture.clone());
    refuses_view("rank 3", "dt", |s| s.dt = x.view().into(), &mut fixture.clone());
    refuses_view("rank 2", "a_log", |s| s.a_log = heads2.view().into(), &mut fixture.clone());
    refuses_view("strided", "a_log", |s| s.a_log = vector.slice(s![..;2]).into(), &mut fixture.clone());
    refuses_view("strided", "d", |s| s.d = Some(vector.slice(s![..;2]).into()), &mut fixture.clone());
    refuses_view("reversed", "d", |s| s.d = Some(vector.slice(s![..heads;-1]).into()), &mut fixture.clone());
    refuses_view("strided", "dt_bias", |s| s.dt_bias = Some(vector.slice(s![..;2]).into()), &mut fixture.clone());
    let state_in = |view: ssm_update::Tensor<'_>, what: &str| {
        let mut fixture = fixture.clone();
        let mut to = fixture.state_in.clone();
        let step = Step { state: State::out_of_place(view, to.tensor_mut(0)), ..exact(&mut fixture) };
        assert_refused(ports::under_test().subjects[0].kernel.step(step), Unsupported, "state_in", what);
        assert!(to.same_bits(&before.state_in), "{what}");
    };
    state_in(state.view().permuted_axes([0, 1, 3, 2]).into(), "columns and rows exchanged");
    state_in(tall.slice(s![..;2, .., .., ..]).into(), "gaps between slots");
    state_in(tall.slice(s![..slots;-1, .., .., ..]).into(), "reversed slots");
    state_in(tall.view().into(), "another pool size");
    assert_eq!(fixture.any_write(&before), None);
}

#[test]
fn outputs_of_the_wrong_layout_are_refused_and_untouched() {
    let case = case();
    let Dims { batch, heads, head_dim, d_state, slots, .. } = case.dims;
    let mut y = Array3::<f32>::from_elem((2 * batch, 2 * heads, 2 * head_dim), 7.0);
    let mut state = Array4::<f32>::from_elem((slots, heads, 2 * head_dim, d_state), 7.0);
    let kernel = &*ports::under_test().subjects[0].kernel;
    let mut fixture = Fixture::new(&case);

    let view = y.slice_mut(s![..batch, ..heads, ..;2]);
    let step = Step { y: view.into(), ..exact(&mut fixture) };
    assert_refused(kernel.step(step), Unsupported, "y", "every second row");
    let view = y.slice_mut(s![..batch;-1, ..heads, ..head_dim]);
    assert_refused(kernel.step(Step { y: view.into(), ..exact(&mut fixture) }), Unsupported, "y", "reversed batch");
    let view = y.slice_mut(s![0, ..heads, ..head_dim]);
    let error = kernel.step(Step { y: view.into(), ..exact(&mut fixture) }).expect_err("rank 2");
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    let mut swapped = y.slice_mut(s![..head_dim, ..heads, ..batch]);
    swapped.swap_axes(0, 2);
    let error = kernel.step(Step { y: swapped.into(), ..exact(&mut fixture) }).expect_err("transposed");
    assert!(matches!(error, Error::Unsupported(_)), "{error}");

    let view = state.slice_mut(s![.., .., ..;2, ..]);
    let from = Fixture::new(&case).state_in;
    let step = Step { state: State::out_of_place(from.tensor(0), view), ..exact(&mut fixture) };
    assert_refused(kernel.step(step), Unsupported, "state_out", "gaps between rows");
    let view = state.slice_mut(s![.., .., ..head_dim, ..]).into_shape_with_order((slots, heads, head_dim, d_state));
    drop(view);
    let step = Step { state: State::in_place(state.index_axis_mut(Axis(0), 0)), ..exact(&mut fixture) };
    assert_refused(kernel.step(step), Unsupported, "state_in", "rank 3, in place");
    assert!(y.iter().chain(&state).all(|&value| value == 7.0), "nothing was written");
}

/// A legal problem and pointers to nowhere: `validate` looks at addresses only.
fn nowhere() -> (Problem, Pointers) {
    let dims = Dims { batch: 2, heads: 4, head_dim: 3, groups: 2, d_state: 48, slots: 5 };
    (Problem::contiguous(dims, Dtypes::uniform(Dtype::F32)), addresses())
}

/// One pointer of a launch by its field's name, as the address it holds.
fn point(at: &mut Pointers, field: &str, address: usize) {
    let to = without_provenance_mut::<c_void>(address);
    match field {
        "x" => at.x = to,
        "z" => at.z = to,
        "b" => at.b = to,
        "c" => at.c = to,
        "dt" => at.dt = to,
        "a_log" => at.a_log = to,
        "d" => at.d = to,
        "dt_bias" => at.dt_bias = to,
        "state_in" => at.state_in = to,
        "state_out" => at.state_out = to,
        "slots_in" => at.slots_in = to.cast(),
        "slots_out" => at.slots_out = to.cast(),
        "y" => at.y = to,
        other => panic!("no pointer {other}"),
    }
}

#[test]
fn null_pointers_are_refused_where_required() {
    let (problem, at) = nowhere();
    assert!(validate(&problem, &at).is_ok());
    for field in ["x", "b", "c", "dt", "a_log", "state_in", "state_out", "y"] {
        let mut at = at;
        point(&mut at, field, 0);
        assert_refused(validate(&problem, &at), Invalid, field, "null");
        let empty = Problem { dims: Dims { batch: 0, ..problem.dims }, ..problem };
        assert!(validate(&empty, &at).is_ok(), "{field}: a batch of 0 reads nothing");
    }
    for field in ["z", "d", "dt_bias", "slots_in", "slots_out"] {
        let mut at = at;
        point(&mut at, field, 0);
        assert!(validate(&problem, &at).is_ok(), "{field} is optional");
    }
    let read_only = Problem { update_state: false, ..problem };
    for address in [0, 1, 9 << 20, (9 << 20) + 4] {
        let mut at = at;
        point(&mut at, "state_out", address);
        assert!(validate(&read_only, &at).is_ok(), "state_out at {address:#x} is not looked at");
    }
    let empty = Problem { dims: Dims { batch: 0, slots: 0, ..problem.dims }, ..problem };
    assert!(validate(&empty, &Pointers::NULL).is_ok());
}

#[test]
fn misaligned_pointers_are_refused() {
    for dtype in Dtype::ALL {
        let (mut problem, at) = nowhere();
        problem.dtypes = Dtypes { state: dtype, ..Dtypes::uniform(dtype) };
        for (field, number, size) in [
            ("x", 1, dtype.size()),
            ("z", 2, dtype.size()),
            ("b", 3, dtype.size()),
            ("c", 4, dtype.size()),
            ("dt", 5, dtype.size()),
            ("a_log", 6, dtype.size()),
            ("d", 7, dtype.size()),
            ("dt_bias", 8, dtype.size()),
            ("state_in", 9, dtype.size()),
            ("state_out", 10, dtype.size()),
            ("slots_in", 11, 4),
            ("slots_out", 12, 4),
            ("y", 13, dtype.size()),
        ] {
            for off in 1..=4_usize {
                let mut at = at;
                point(&mut at, field, (number << 20) + off);
                if off % size == 0 {
                    assert!(validate(&problem, &at).is_ok(), "{field} at +{off} is aligned to {size}");
                } else {
                    assert_refused(validate(&problem, &at), Invalid, field, "misaligned");
                }
            }
        }
    }
}

#[test]
fn a_partial_overlap_of_the_states_is_refused() {
    let (problem, at) = nowhere();
    let bytes = 5 * 4 * 3 * 48 * 4;
    let from = at.state_in.addr();
    for (distance, legal) in [(0, true), (4, false), (16, false), (bytes - 4, false), (bytes, true), (bytes + 4, true)]
    {
        for to in [from + distance, from - distance] {
            let mut at = at;
            point(&mut at, "state_out", to);
            let result = validate(&problem, &at);
            match legal {
                true => assert_eq!(result.map(|launch| launch.in_place()), Ok(distance == 0), "{distance}"),
                false => assert_refused(result, Invalid, "state_out", "partial overlap"),
            }
        }
    }
}

#[test]
fn a_launch_carries_what_was_checked() {
    let (problem, at) = nowhere();
    let launch = validate(&problem, &at).expect("legal");
    assert_eq!(launch.problem(), &problem);
    assert_eq!(launch.at().y, at.y);
    assert!(!launch.in_place());
    let read_only = Problem { update_state: false, ..problem };
    let same = Pointers { state_out: at.state_in.cast_mut(), ..at };
    assert!(!validate(&read_only, &same).expect("legal").in_place(), "nothing is written, so nothing is in place");
}

#[test]
fn strides_that_overflow_are_refused() {
    let (problem, at) = nowhere();
    type Set = fn(&mut Problem, usize);
    let strides: [(&str, Set); 6] = [
        ("x", |p, s| p.strides.x = s),
        ("z", |p, s| p.strides.z = s),
        ("b", |p, s| p.strides.b = s),
        ("c", |p, s| p.strides.c = s),
        ("dt", |p, s| p.strides.dt = s),
        ("y", |p, s| p.strides.y = s),
    ];
    for (field, set) in strides {
        for stride in [usize::MAX, usize::MAX / 2, usize::MAX / 4, (isize::MAX as usize) / 4] {
            let mut problem = problem;
            set(&mut problem, stride);
            assert_refused(validate(&problem, &at), Unsupported, field, "stride");
        }
    }
}

#[test]
fn the_launch_level_refuses_what_the_host_level_refuses() {
    let (problem, at) = nowhere();
    let with = |change: fn(&mut Problem)| {
        let mut problem = problem;
        change(&mut problem);
        validate(&problem, &at)
    };
    assert_refused(with(|p| p.dims.heads = 0), Unsupported, "heads", "");
    assert_refused(with(|p| p.dims.head_dim = 0), Unsupported, "head_dim", "");
    assert_refused(with(|p| p.dims.groups = 3), Unsupported, "groups", "");
    assert_refused(with(|p| p.dims.d_state = 24), Unsupported, "d_state", "");
    assert_refused(with(|p| p.dtypes.bc = Dtype::F16), Unsupported, "dtypes.bc", "");
    assert_refused(with(|p| p.dt = Dt::Prepared), Invalid, "dt_bias", "");
    assert_refused(with(|p| p.dt = Dt::Raw { min: f32::NAN, max: 0.0 }), Invalid, "dt.min, dt.max", "");
    assert_refused(with(|p| p.strides.y = 11), Unsupported, "strides.y", "");
    assert_refused(with(|p| p.dims.slots = usize::MAX), Unsupported, "slots", "");
    // Rows without elements of their own, but each with a slot: 2^61 indices of four bytes are no list.
    let huge = |p: &mut Problem| {
        p.dtypes = Dtypes { state: Dtype::F16, ..Dtypes::uniform(Dtype::F16) };
        p.dims = Dims { batch: 1 << 61, heads: 1, head_dim: 1, groups: 1, d_state: 16, slots: 5 };
        p.strides = BatchStrides { x: 0, z: 0, b: 0, c: 0, dt: 0, y: 1 };
    };
    assert_refused(with(huge), Unsupported, "batch", "");
    for field in ["slots_in", "slots_out"] {
        let (mut problem, mut at) = (problem, at);
        problem.dims.slots = 1;
        point(&mut at, field, 0);
        assert_refused(validate(&problem, &at), Unsupported, "slots", "a pool of 1 for a batch of 2");
    }
}

/// Sizes from anywhere, the edges of the number range among them.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0..=5_usize,
        2 => (0..=34_usize).prop_map(|steps| 16 * steps),
        1 => prop::sample::select(vec![1 << 16, 1 << 31, 1 << 32, 1 << 60]),
        1 => prop::sample::select(vec![usize::MAX / 2, usize::MAX - 15, usize::MAX]),
        1 => any::<usize>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    /// Whatever the sizes, lengths, strides, dtypes and slots: an answer and no panic; on refusal nothing is written,
    /// and otherwise nothing that must not be.
    #[test]
    fn no_input_panics(
        dims in (size(), size(), size(), size(), size(), size()),
        lens in prop::collection::vec(prop_oneof![3 => Just(None), 1 => (0..200_usize).prop_map(Some)], 11),
        strides in prop::collection::vec(size(), 6),
        contiguous in 0..4_usize,
        optional in (0..8_usize).prop_map(Optional::nth),
        slots in prop::collection::vec(prop_oneof![4 => -1..6_i32, 1 => any::<i32>()], 0..6),
        with_slots in any::<bool>(),
        (min, max) in (any::<f32>(), any::<f32>()),
        raw in 0..3_usize,
        dtype in prop::sample::select(&Dtype::ALL[..]),
        state in prop::sample::select(&StateMode::ALL[..]),
        level in any::<bool>(),
    ) {
        let (batch, heads, head_dim, groups, d_state, pool) = dims;
        let dims = Dims { batch, heads, head_dim, groups, d_state, slots: pool };
        let mut fixture = Fixture::new(&Case { optional, state, ..Case::new(1, 1, 1, 1, 16) });
        // Lengths that fit where they are small enough to exist, others at random.
        let product = |factors: &[usize]| {
            factors.iter().try_fold(1_usize, |all, &factor| all.checked_mul(factor)).filter(|&len| len <= 1 << 16)
        };
        let (row, group) = (product(&[batch, heads, head_dim]), product(&[batch, groups, d_state]));
        let states = product(&[pool, heads, head_dim, d_state]);
        let fits = [row, row, group, group, product(&[batch, heads]), Some(heads).filter(|&h| h < 1 << 16),
            Some(heads).filter(|&h| h < 1 << 16), Some(heads).filter(|&h| h < 1 << 16), states, states, row];
        for (at, name) in TENSORS.iter().enumerate() {
            let len = lens[at].or(fits[at]).unwrap_or(0);
            let buffer = match *name {
                "z" if !optional.z => continue,
                "d" if !optional.d => continue,
                "dt_bias" if !optional.dt_bias => continue,
                "state_out" if state != StateMode::OutOfPlace => continue,
                name => tensor(&mut fixture, name),
            };
            *buffer = Buffer::new(dtype, len);
        }
        fixture.case.dims = dims;
        fixture.case.dt = [Dt::UNCLAMPED, Dt::Prepared, Dt::Raw { min, max }][raw];
        if contiguous > 0 {
            let (row, group) = (heads.wrapping_mul(head_dim), groups.wrapping_mul(d_state));
            let strides = &mut fixture.strides;
            (strides.x, strides.z, strides.b, strides.c) = (row, row, group, group);
            (strides.dt, strides.y) = (heads, row);
        } else {
            let to = &mut fixture.strides;
            (to.x, to.z, to.b, to.c, to.dt, to.y) =
                (strides[0], strides[1], strides[2], strides[3], strides[4], strides[5]);
        }
        if with_slots {
            fixture.slots_in = Some(Guarded::of(&slots));
            fixture.slots_out = level.then(|| Guarded::of(&slots));
        }
        let before = fixture.clone();
        let subjects = &ports::under_test().subjects;
        let subject = &subjects[(batch ^ heads ^ pool) % subjects.len()];
        match subject.kernel.step(slices(&mut fixture)) {
            Err(why) => {
                prop_assert_eq!(fixture.any_write(&before), None, "{}", why);
                prop_assert!(!why.to_string().is_empty());
            }
            Ok(()) => prop_assert_eq!(fixture.stray_write(&before), None),
        }
    }
}
