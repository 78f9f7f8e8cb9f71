//! Properties that hold for every problem, on generated ones: agreement with the reference, and relations between runs
//! that need no reference because they hold bit for bit.
//!
//! `PROPTEST_CASES` multiplies the work. Failures are kept in `tests/properties.proptest-regressions` and tried first.

mod common;

use common::buffer::Buffer;
use common::case::{Case, Optional, Slots, StateMode, T_AND_BC, Values};
use common::check::check_case;
use common::fixture::Fixture;
use common::ports::{self, Subject, cpu_kernel};
use common::run::{Level, run, run_checked};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use ssm_update::ports::cpu::Isa;
use ssm_update::{Dims, Dt, Dtype, Dtypes, Kernel, State, Step};

/// Configuration of every property: its number of cases unless `PROPTEST_CASES` asks for another one.
fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let base = ProptestConfig::default();
    ProptestConfig {
        cases: if asked { base.cases } else { cases },
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..base
    }
}

fn dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(&Dtype::ALL[..])
}

fn dtypes() -> impl Strategy<Value = Dtypes> {
    (prop::sample::select(&T_AND_BC[..]), [dtype(), dtype(), dtype(), dtype(), dtype()])
        .prop_map(|((x, bc), [dt, a_log, d, dt_bias, state])| Dtypes { x, bc, dt, a_log, d, dt_bias, state })
}

fn dims() -> impl Strategy<Value = Dims> {
    let d_state = prop_oneof![4 => 1..=8_usize, 1 => 9..=32_usize].prop_map(|steps| 16 * steps);
    let head_dim = prop_oneof![4 => 1..=9_usize, 1 => 10..=80_usize];
    (0..=4_usize, 1..=4_usize, 1..=5_usize, head_dim, d_state).prop_map(|(batch, groups, ratio, head_dim, d_state)| {
        Dims { batch, heads: groups * ratio, head_dim, groups, d_state, slots: batch }
    })
}

fn dt_mode() -> impl Strategy<Value = Dt> {
    prop_oneof![
        Just(Dt::UNCLAMPED),
        Just(Dt::Prepared),
        (-0.1..0.5_f32, 0.0..2.0_f32).prop_map(|(min, width)| Dt::Raw { min, max: min + width }),
    ]
}

fn case(values: impl Strategy<Value = Values>) -> impl Strategy<Value = Case> {
    let modes = (prop::sample::select(&StateMode::ALL[..]), prop::sample::select(&Slots::ALL[..]), 0..20_usize);
    (dims(), dtypes(), (0..8_usize).prop_map(Optional::nth), dt_mode(), modes, values, any::<u64>()).prop_map(
        |(dims, dtypes, optional, dt, (state, slots, gap), values, seed)| {
            let base = Case::new(dims.batch, dims.heads, dims.head_dim, dims.groups, dims.d_state);
            Case { dtypes, optional, state, gap, values, seed, ..base }.dt(dt).slots(slots)
        },
    )
}

fn any_values() -> impl Strategy<Value = Values> {
    prop::sample::select(&[Values::Ordinary, Values::Tiny, Values::Huge, Values::Special][..])
}

fn ordinary_case() -> impl Strategy<Value = Case> {
    case(Just(Values::Ordinary))
}

/// One kernel of each port and path under test, and one level for each of them.
fn kernels() -> impl Iterator<Item = (&'static Subject, Level)> {
    ports::under_test().subjects.iter().zip(Level::ALL.into_iter().cycle())
}

/// Runs a fixture that must succeed.
fn outcome(subject: &Subject, fixture: &Fixture, level: Level) -> Fixture {
    run_checked(&*subject.kernel, fixture, level)
        .unwrap_or_else(|why| panic!("{} at {level:?}: {why}\n  {:?}", subject.label, fixture.case))
}

/// The bits of one batch row: its y and the state row that it used.
fn row_bits(fixture: &Fixture, batch_row: usize) -> (Vec<u32>, Vec<u32>) {
    let (y, len) = (fixture.y_ranges().swap_remove(batch_row), fixture.slot_len());
    let state = fixture.row_slots(batch_row).map_or(Vec::new(), |(from, to)| {
        let slot = if fixture.case.state == StateMode::ReadOnly { from } else { to };
        fixture.state_after().bits_of(slot * len..(slot + 1) * len)
    });
    (fixture.y.bits_of(y), state)
}

proptest! {
    #![proptest_config(config(300))]

    /// Shapes, strides, dtypes, modes, slots and values of every kind agree with the reference.
    #[test]
    fn ssm_update_parity_with_the_reference(case in case(any_values())) {
        prop_assert_eq!(check_case(&case), Ok(()));
    }
}

proptest! {
    #![proptest_config(config(64))]

    /// In place, out of place: the same bits (of NaN, that it is one).
    #[test]
    fn ssm_update_parity_in_place_equals_out_of_place(case in case(any_values())) {
        let out_of_place = Fixture::new(&Case { state: StateMode::OutOfPlace, ..case });
        let in_place = Fixture::new(&Case { state: StateMode::InPlace, ..case });
        for (subject, level) in kernels() {
            let there = outcome(subject, &out_of_place, level);
            let here = outcome(subject, &in_place, level);
            prop_assert!(there.y.same_values(&here.y), "y differs on {}", subject.label);
            let mut other = there.state_after().clone();
            for range in there.state_ranges() {
                other.copy_from(range.start, here.state_after(), range);
            }
            prop_assert!(there.state_after().same_values(&other), "the state differs on {}", subject.label);
        }
    }

    /// Without a state update: the same y, and the state bit-equal. (That the state is bit-equal is checked by every
    /// run.)
    #[test]
    fn ssm_update_parity_read_only_gives_the_same_y(case in case(any_values())) {
        // Slot lists that only the written state has would make other rows padding.
        let slots = if matches!(case.slots, Slots::MovedPadded) { Slots::Padded } else { case.slots };
        let case = case.slots(slots);
        let update = Fixture::new(&Case { state: StateMode::OutOfPlace, ..case });
        let read = Fixture::new(&Case { state: StateMode::ReadOnly, ..case });
        for (subject, level) in kernels() {
            let update = outcome(subject, &update, level);
            let read = outcome(subject, &read, level);
            prop_assert!(update.y.same_values(&read.y), "y differs on {}", subject.label);
        }
    }

    /// Shards of heads, one whole-group or part-of-a-group range at a time, equal the whole bit for bit.
    #[test]
    fn ssm_update_parity_shards_equal_the_whole(case in case(any_values()), wanted in 1..=6_usize) {
        let whole = Fixture::new(&Case { state: StateMode::OutOfPlace, ..case }.slots(Slots::Absent));
        let dims = whole.case.dims;
        let ratio = dims.heads / dims.groups;
        // A shard is a part of one group, or a number of whole groups.
        let heads = (1..=dims.heads)
            .filter(|&heads| dims.heads.is_multiple_of(heads))
            .filter(|&heads| ratio.is_multiple_of(heads) || heads.is_multiple_of(ratio))
            .nth(wanted % dims.heads)
            .unwrap_or(1);
        for subject in &ports::under_test().subjects {
            let expected = outcome(subject, &whole, Level::Slices);
            let mut sharded = whole.clone();
            for first in (0..dims.heads).step_by(heads) {
                run_shard(&*subject.kernel, &mut sharded, first, heads);
            }
            prop_assert!(sharded.y.same_bits(&expected.y), "y differs on {}, {heads} heads a shard", subject.label);
            prop_assert!(
                sharded.state_after().same_bits(expected.state_after()),
                "the state differs on {}, {heads} heads a shard", subject.label
            );
        }
    }

    /// Padding rows are inert: their inputs are not read (they are NaN in every fixture), their y is zeros, no state
    /// row changes but those of the other rows, and the other rows' results are what they are without them.
    #[test]
    fn ssm_update_parity_padding_is_inert(case in ordinary_case(), moved in any::<bool>(), in_place in any::<bool>()) {
        let state = if in_place { StateMode::InPlace } else { StateMode::OutOfPlace };
        let slots = if moved { Slots::MovedPadded } else { Slots::Padded };
        let padded = Fixture::new(&Case { state, ..case }.slots(slots));
        let live: Vec<usize> = (0..case.dims.batch).filter(|&row| padded.row_slots(row).is_some()).collect();
        for (subject, level) in kernels() {
            let outcome_padded = outcome(subject, &padded, level);
            for row in (0..case.dims.batch).filter(|row| !live.contains(row)) {
                prop_assert!(row_bits(&outcome_padded, row).0.iter().all(|&bits| bits == 0), "row {row} is not zeros");
            }
            let alone = outcome(subject, &select_rows(&padded, &live), level);
            for (at, &row) in live.iter().enumerate() {
                let (alone, padded) = (row_bits(&alone, at), row_bits(&outcome_padded, row));
                prop_assert_eq!(alone, padded, "row {} on {}", row, &subject.label);
            }
        }
    }

    /// Permuting the batch permutes the result.
    #[test]
    fn ssm_update_parity_permutation(case in case(any_values()), seed in any::<u64>()) {
        let fixture = Fixture::new(&case.slots(Slots::Permuted));
        let order = common::rng::Rng::new(seed, 1).permutation(case.dims.batch);
        for (subject, level) in kernels() {
            let straight = outcome(subject, &fixture, level);
            let permuted = outcome(subject, &select_rows(&fixture, &order), level);
            for (at, &row) in order.iter().enumerate() {
                prop_assert_eq!(row_bits(&permuted, at), row_bits(&straight, row), "row {} on {}", row, &subject.label);
            }
        }
    }

    /// A sequence in one go equals its two halves, the state carried over into another buffer, another way of updating
    /// it and another level between them.
    #[test]
    fn ssm_update_parity_halves_equal_the_sequence(case in ordinary_case(), half in 1..=4_usize) {
        let steps: Vec<Fixture> = (0..2 * half)
            .map(|step| Case { seed: case.seed ^ step as u64, state: StateMode::InPlace, ..case }.slots(Slots::Absent))
            .map(|case| Fixture::new(&case))
            .collect();
        for subject in &ports::under_test().subjects {
            let mut state = steps[0].state_in.clone();
            let mut in_one_go = Vec::new();
            for step in &steps {
                let after = outcome(subject, &Fixture { state_in: state, ..step.clone() }, Level::Slices);
                state = after.state_in;
                in_one_go.push(after.y);
            }
            let mut halves = steps[0].state_in.clone();
            for (number, step) in steps.iter().enumerate() {
                let second = number >= half;
                let mut step = Fixture { state_in: halves, ..step.clone() };
                if second {
                    step.case.state = StateMode::OutOfPlace;
                    step.state_out = Some(Buffer::new(case.dtypes.state, step.state_in.len()));
                }
                let after = outcome(subject, &step, if second { Level::Views } else { Level::Slices });
                prop_assert!(after.y.same_bits(&in_one_go[number]), "y of step {number} on {}", subject.label);
                halves = after.state_after().clone();
            }
            prop_assert!(halves.same_bits(&state), "the state at the end, on {}", subject.label);
        }
    }

    /// dt' = 0 leaves the state bit-equal, negative zeros, subnormals and NaN payloads included, whatever x and B are,
    /// and y is finite where the state, C, D and x are.
    #[test]
    fn ssm_update_parity_zero_step_keeps_the_state(
        case in case(any_values()), zero in 0..5_usize, infinite in any::<bool>(), seed in any::<u64>()
    ) {
        let nothing = Dt::Raw { min: 0.0, max: 0.0 };
        let case = case.dt([Dt::Prepared, Dt::Prepared, Dt::UNCLAMPED, Dt::UNCLAMPED, nothing][zero]);
        let state = if case.state == StateMode::InPlace { StateMode::InPlace } else { StateMode::OutOfPlace };
        let mut fixture = Fixture::new(&Case { state, ..case }.slots(Slots::Permuted));
        let mut rng = common::rng::Rng::new(seed, 2);
        for at in 0..fixture.dt.len() {
            // Raw: softplus is zero in f32 from -104 down, also with the bias that the fixture has.
            let dt = [0.0, -0.0, -9000.0, f32::NEG_INFINITY, rng.uniform(-5.0, 5.0)][zero];
            fixture.dt.set(at, dt);
        }
        if let Some(bias) = &mut fixture.dt_bias {
            (0..bias.len()).for_each(|at| bias.set(at, rng.uniform(-3.0, 3.0)));
        }
        (0..fixture.a_log.len()).for_each(|at| fixture.a_log.set(at, rng.uniform(-2.0, 3.0)));
        if infinite {
            (0..fixture.x.len()).for_each(|at| fixture.x.set(at, f32::INFINITY));
            (0..fixture.b.len()).for_each(|at| fixture.b.set(at, f32::NEG_INFINITY));
        }
        let (quiet, top) = match case.dtypes.state {
            Dtype::F32 => (0x7fc0_0000, 0x8000_0000),
            Dtype::F16 => (0x7e00, 0x8000),
            Dtype::Bf16 => (0x7fc0, 0x8000),
        };
        for range in fixture.state_ranges() {
            for at in range.filter(|at| at % 5 == 0) {
                let bits = [top, 0, 1 | top, quiet | 0x15 | top, quiet | 0x2a, quiet - 0x11][rng.below(6)];
                fixture.state_in.set_bits(at, bits);
            }
        }
        for (subject, level) in kernels() {
            let after = outcome(subject, &fixture, level);
            for range in fixture.state_ranges() {
                let (then, now) = (fixture.state_in.bits_of(range.clone()), after.state_after().bits_of(range));
                let differs = then.iter().zip(&now).position(|(then, now)| then != now);
                prop_assert!(differs.is_none(), "{}: {:x?} became {:x?}", subject.label,
                    differs.map(|at| then[at]), differs.map(|at| now[at]));
            }
        }
    }
}

proptest! {
    #![proptest_config(config(16))]

    /// Any number of threads and any pool give the bits of one thread, on problems large enough to be split.
    #[test]
    fn ssm_update_parity_threads_do_not_matter(
        (heads, head_dim, batch) in (prop::sample::select(vec![24_usize, 48, 56, 63]), 33..=80_usize, 1..=3_usize),
        dtypes in dtypes(), state in prop::sample::select(&StateMode::ALL[..]), seed in any::<u64>(),
    ) {
        let case = Case { dtypes, state, seed, ..Case::new(batch, heads, head_dim, 1, 128) }.slots(Slots::Permuted);
        let fixture = Fixture::new(&case);
        for isa in Isa::available() {
            let mut first: Option<Fixture> = None;
            for (threads, pool) in [(1, 1), (2, 2), (3, 5), (5, 3), (7, 7), (64, 2)] {
                let kernel = cpu_kernel(isa, threads, pool);
                let after = run_checked(&kernel, &fixture, Level::Slices).expect("a legal case");
                match &first {
                    None => first = Some(after),
                    Some(first) => {
                        prop_assert!(first.y.same_bits(&after.y), "y, {} with {threads} of {pool}", isa.name());
                        prop_assert!(first.state_after().same_bits(after.state_after()), "state, {threads} of {pool}");
                    }
                }
            }
        }
    }
}

/// A fixture whose batch rows are some rows of another one, in another order, on the same pool.
fn select_rows(fixture: &Fixture, rows: &[usize]) -> Fixture {
    let (case, strides) = (fixture.case, fixture.strides);
    let dims = Dims { batch: rows.len(), ..case.dims };
    let (row, group) = (dims.heads * dims.head_dim, dims.groups * dims.d_state);
    let batched = |buffer: &Buffer, stride: usize, row: usize| {
        let mut selected = Buffer::new(buffer.dtype(), common::fixture::span(rows.len(), stride, row));
        for (at, &from) in rows.iter().enumerate() {
            selected.copy_from(at * stride, buffer, from * stride..from * stride + row);
        }
        selected
    };
    let list = |list: &Option<common::buffer::Guarded<i32>>| {
        list.as_ref().map(|list| {
            let slots: Vec<i32> = rows.iter().map(|&row| list.body()[row]).collect();
            common::buffer::Guarded::of(&slots)
        })
    };
    Fixture {
        case: Case { dims, ..case },
        x: batched(&fixture.x, strides.x, row),
        z: fixture.z.as_ref().map(|z| batched(z, strides.z, row)),
        b: batched(&fixture.b, strides.b, group),
        c: batched(&fixture.c, strides.c, group),
        dt: batched(&fixture.dt, strides.dt, dims.heads),
        slots_in: list(&fixture.slots_in),
        slots_out: list(&fixture.slots_out),
        y: Buffer::new(case.dtypes.x, common::fixture::span(rows.len(), strides.y, row)),
        ..fixture.clone()
    }
}

/// Runs heads `first..first + heads` of a fixture out of place as a problem of their own: views into the whole's
/// tensors, and a state of the shard's own, as an engine that shards heads over devices has it.
fn run_shard(kernel: &dyn Kernel, whole: &mut Fixture, first: usize, heads: usize) {
    let (case, strides) = (whole.case, whole.strides);
    let ratio = case.dims.heads / case.dims.groups;
    let dims = Dims { heads, groups: (heads / ratio).max(1), ..case.dims };
    let (channel, group) = (first * dims.head_dim, first / ratio * dims.d_state);
    let (len, shard_len) = (whole.slot_len(), heads * dims.head_dim * dims.d_state);
    let offset = channel * dims.d_state;

    let mut state = Buffer::new(case.dtypes.state, dims.slots * shard_len);
    for slot in 0..dims.slots {
        state.copy_from(slot * shard_len, &whole.state_in, slot * len + offset..slot * len + offset + shard_len);
    }
    let mut after = Buffer::new(case.dtypes.state, dims.slots * shard_len);
    if dims.batch > 0 {
        // Per-head vectors have no stride: a slice of exactly the shard's heads.
        let per_head = |buffer: &Buffer| {
            let mut part = Buffer::new(buffer.dtype(), heads);
            part.copy_from(0, buffer, first..first + heads);
            part
        };
        let (a_log, d, bias) =
            (per_head(&whole.a_log), whole.d.as_ref().map(per_head), whole.dt_bias.as_ref().map(per_head));
        let step = Step {
            z: whole.z.as_ref().map(|z| z.tensor(channel).batch_stride(strides.z)),
            d: d.as_ref().map(|d| d.tensor(0)),
            dt_bias: bias.as_ref().map(|bias| bias.tensor(0)),
            dt_mode: case.dt,
            ..Step::new(
                dims,
                whole.x.tensor(channel).batch_stride(strides.x),
                whole.b.tensor(group).batch_stride(strides.b),
                whole.c.tensor(group).batch_stride(strides.c),
                whole.dt.tensor(first).batch_stride(strides.dt),
                a_log.tensor(0),
                State::out_of_place(state.tensor(0), after.tensor_mut(0)),
                whole.y.tensor_mut(channel).batch_stride(strides.y),
            )
        };
        kernel.step(step).expect("a shard is a legal problem");
    }
    let out = whole.state_out.as_mut().expect("out of place");
    for slot in 0..dims.slots {
        out.copy_from(slot * len + offset, &after, slot * shard_len..(slot + 1) * shard_len);
    }
}

/// A batch stride of zero gives every row the same x, B, C and dt: a broadcast is a legal layout of inputs.
#[test]
fn ssm_update_parity_stride_zero_broadcasts() {
    let mut fixture = Fixture::new(&Case { seed: 5, ..Case::new(3, 4, 5, 2, 32) });
    let (row, group) = (4 * 5, 2 * 32);
    for batch_row in 1..3 {
        for (buffer, row) in
            [(&mut fixture.x, row), (&mut fixture.b, group), (&mut fixture.c, group), (&mut fixture.dt, 4)]
        {
            let first = buffer.clone();
            buffer.copy_from(batch_row * row, &first, 0..row);
        }
    }
    let mut broadcast = fixture.clone();
    (broadcast.strides.x, broadcast.strides.b, broadcast.strides.c, broadcast.strides.dt) = (0, 0, 0, 0);
    for subject in &ports::under_test().subjects {
        let repeated = outcome(subject, &fixture, Level::Slices);
        let mut once = broadcast.clone();
        assert_eq!(run(&*subject.kernel, &mut once, Level::Slices), Ok(()), "{}", subject.label);
        assert!(once.y.same_bits(&repeated.y), "{}", subject.label);
        assert!(once.state_after().same_bits(repeated.state_after()), "{}", subject.label);
    }
}
