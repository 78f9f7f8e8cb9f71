//! From a step to key, constants, grid and bindings of the Metal port, for every size and dtype: no kernel is run.

#![cfg(feature = "metal")]

#[path = "common/addresses.rs"]
mod addresses;

use std::collections::HashMap;

use addresses::addresses;
use ssm_update::ports::gpu::params::GRID_YZ_MAX as GRID_Z_MAX;
use ssm_update::ports::metal::abi::{at, flags};
use ssm_update::ports::metal::bindings::{self, NAMES};
use ssm_update::ports::metal::key::{COLUMNS, Key, WAVE, WAVES, X_AND_BC};
use ssm_update::ports::metal::plan::{Plan, THREADS};
use ssm_update::{BatchStrides, Dims, Dt, Dtype, Dtypes, Error, Launch, Pointers, Problem, validate};

fn dims() -> Dims {
    Dims { batch: 2, heads: 6, head_dim: 5, groups: 3, d_state: 48, slots: 4 }
}

fn launch(problem: &Problem, at: &Pointers) -> Launch {
    validate(problem, at).expect("a legal step")
}

fn plan(dims: Dims, dtypes: Dtypes) -> Plan {
    Plan::new(&launch(&Problem::contiguous(dims, dtypes), &addresses())).expect("a step that fits")
}

/// Every legal combination of dtypes.
fn combinations() -> Vec<Dtypes> {
    let mut all = Vec::new();
    for (x, bc) in X_AND_BC {
        for number in 0..3_usize.pow(5) {
            let dtype = |place: u32| Dtype::ALL[number / 3_usize.pow(place) % 3];
            all.push(Dtypes { x, bc, dt: dtype(0), a_log: dtype(1), d: dtype(2), dt_bias: dtype(3), state: dtype(4) });
        }
    }
    all
}

/// What the GPU gets to know of the dtypes.
type Seen = (Key, [u8; 4]);

fn seen(dtypes: Dtypes) -> Seen {
    let Plan { key, constants, .. } = plan(dims(), dtypes);
    (key, [constants.dt_dtype, constants.a_log_dtype, constants.d_dtype, constants.dt_bias_dtype])
}

/// Two combinations that look the same through `see`.
fn confused(see: impl Fn(Seen) -> Seen) -> Option<(Dtypes, Dtypes)> {
    let mut first: HashMap<Seen, Dtypes> = HashMap::new();
    combinations().into_iter().find_map(|dtypes| first.insert(see(seen(dtypes)), dtypes).map(|other| (other, dtypes)))
}

/// No two combinations of dtypes look the same to the GPU; without any part of what it is told, two would.
#[test]
fn ssm_update_kernel_keys_of_metal_hold_every_dtype() {
    assert_eq!(combinations().len(), 5 * 3_usize.pow(5));
    assert_eq!(confused(|seen| seen), None);
    for tag in 0..4 {
        let without = confused(|(key, mut tags)| {
            tags[tag] = 0;
            (key, tags)
        });
        assert!(without.is_some(), "tag {tag}");
    }
    let of = Dtype::F32;
    assert!(confused(|(key, tags)| (Key { x: of, ..key }, tags)).is_some());
    assert!(confused(|(key, tags)| (Key { bc: of, ..key }, tags)).is_some());
    assert!(confused(|(key, tags)| (Key { state: of, ..key }, tags)).is_some());
}

/// The lanes of a row, with their pieces, cover its columns and are no more than needed; the grid covers the rows.
#[test]
fn lanes_and_grid_cover_what_there_is() {
    for dtype in Dtype::ALL {
        for d_state in (16..=512).step_by(16) {
            for head_dim in [1, 2, 31, 32, 33, 64, 80, 127, 128, 129, 1000] {
                let dtypes = Dtypes { state: dtype, ..Dtypes::uniform(Dtype::F32) };
                let plan = plan(Dims { head_dim, d_state, ..dims() }, dtypes);
                let lanes = 1 << plan.constants.row_lanes_log2;
                let reach = lanes * plan.key.chunks * COLUMNS;
                assert!(lanes <= WAVE && reach >= d_state as u32, "{d_state}");
                assert!(reach / 2 < d_state as u32, "{d_state}: half of the lanes, or of the pieces, would be enough");
                let rows = WAVES * plan.key.tiles() * (WAVE / lanes);
                assert_eq!(plan.groups_x, (head_dim as u32).div_ceil(rows), "{d_state}, {head_dim}");
            }
        }
    }
}

#[test]
fn a_batch_beyond_a_grid_takes_several_dispatches() {
    let rows = GRID_Z_MAX as usize;
    for (batch, wanted) in [
        (1, vec![(0, 1)]),
        (rows, vec![(0, GRID_Z_MAX)]),
        (rows + 1, vec![(0, GRID_Z_MAX), (GRID_Z_MAX, 1)]),
        (2 * rows + 5, vec![(0, GRID_Z_MAX), (GRID_Z_MAX, GRID_Z_MAX), (2 * GRID_Z_MAX, 5)]),
    ] {
        let plan = plan(Dims { batch, slots: batch, ..dims() }, Dtypes::uniform(Dtype::F32));
        let dispatches: Vec<_> = plan.dispatches().collect();
        assert_eq!(dispatches.iter().map(|(c, grid)| (c.first_batch, grid[2])).collect::<Vec<_>>(), wanted);
        assert!(dispatches.iter().all(|(_, grid)| grid[0] == plan.groups_x && grid[1] == 6));
    }
}

#[test]
fn sizes_that_no_grid_covers_are_refused_by_name() {
    let refused = |dims: Dims, field: &str| {
        let launch = launch(&Problem::contiguous(dims, Dtypes::uniform(Dtype::F32)), &far_apart());
        let error = Plan::new(&launch).expect_err(field);
        assert!(matches!(&error, Error::Unsupported(mismatch) if mismatch.field == field), "{error}");
        assert!(error.to_string().contains("metal port"), "{error}");
    };
    let one = Dims { batch: 1, heads: 1, head_dim: 1, groups: 1, d_state: 16, slots: 1 };
    refused(Dims { heads: 1 << 32, ..one }, "heads");
    refused(Dims { head_dim: (u32::MAX / THREADS) as usize + 1, ..one }, "head_dim");
    refused(Dims { batch: 1 << 32, slots: 1 << 32, ..one }, "batch");
    for dims in [Dims { heads: (1 << 32) - 1, ..one }, Dims { head_dim: (u32::MAX / THREADS) as usize, ..one }] {
        let launch = launch(&Problem::contiguous(dims, Dtypes::uniform(Dtype::F32)), &far_apart());
        assert!(Plan::new(&launch).is_ok(), "{dims:?}");
    }
}

/// Pointers between whose states there is room for a very large one.
fn far_apart() -> Pointers {
    Pointers { state_out: addresses().state_in.cast_mut(), ..addresses() }
}

/// Every value of the problem arrives in its own constant: all of them differ.
#[test]
fn constants_are_those_of_the_problem() {
    let strides = BatchStrides { x: 101, z: 103, b: 207, c: 209, dt: 11, y: 113 };
    let dtypes = Dtypes {
        dt: Dtype::Bf16,
        a_log: Dtype::F16,
        d: Dtype::F32,
        dt_bias: Dtype::F16,
        ..Dtypes::uniform(Dtype::F32)
    };
    let problem = Problem {
        strides,
        dt: Dt::Raw { min: 0.25, max: 4.0 },
        ..Problem::contiguous(Dims { slots: 7, ..dims() }, dtypes)
    };
    let constants = Plan::new(&launch(&problem, &addresses())).expect("a small step").constants;
    assert_eq!(
        [
            constants.x_stride,
            constants.z_stride,
            constants.b_stride,
            constants.c_stride,
            constants.dt_stride,
            constants.y_stride
        ],
        [101, 103, 207, 209, 11, 113]
    );
    assert_eq!((constants.slots, constants.heads, constants.head_dim), (7, 6, 5));
    assert_eq!((constants.heads_per_group, constants.d_state, constants.first_batch), (2, 48, 0));
    assert_eq!((constants.dt_min, constants.dt_max), (0.25, 4.0));
    assert_eq!([constants.dt_dtype, constants.a_log_dtype, constants.d_dtype, constants.dt_bias_dtype], [2, 1, 0, 1]);

    // One row has no next one: its strides may be anything, also beyond what a constant holds.
    let problem = Problem { strides: BatchStrides { x: usize::MAX, ..strides }, ..problem };
    let one = Problem { dims: Dims { batch: 1, ..problem.dims }, ..problem };
    assert_eq!(Plan::new(&launch(&one, &addresses())).expect("a small step").constants.x_stride, 0);
}

#[test]
fn flags_say_what_is_there() {
    let problem = Problem::contiguous(dims(), Dtypes::uniform(Dtype::F32));
    let of = |problem: &Problem, at: &Pointers| Plan::new(&launch(problem, at)).expect("a small step").constants.flags;
    let all = addresses();
    let every = flags::WRITE_STATE
        | flags::HAS_Z
        | flags::HAS_D
        | flags::HAS_DT_BIAS
        | flags::HAS_SLOTS_IN
        | flags::HAS_SLOTS_OUT;
    assert_eq!(of(&problem, &all), every);
    let null = std::ptr::null();
    for (at, flag) in [
        (Pointers { z: null, ..all }, flags::HAS_Z),
        (Pointers { d: null, ..all }, flags::HAS_D),
        (Pointers { dt_bias: null, ..all }, flags::HAS_DT_BIAS),
        (Pointers { slots_in: null.cast(), ..all }, flags::HAS_SLOTS_IN),
        (Pointers { slots_out: null.cast(), ..all }, flags::HAS_SLOTS_OUT),
    ] {
        assert_eq!(of(&problem, &at), every & !flag);
    }
    // Where the state is not written, the slots to write are not read.
    let read_only = Problem { update_state: false, ..problem };
    assert_eq!(of(&read_only, &all), every & !flags::WRITE_STATE & !flags::HAS_SLOTS_OUT);
    let prepared = Problem { dt: Dt::Prepared, ..problem };
    assert_eq!(of(&prepared, &Pointers { dt_bias: null, ..all }), every & !flags::HAS_DT_BIAS | flags::PREPARED_DT);
}

/// Each tensor is bound at its own number, with the bytes up to its last element.
#[test]
fn bindings_reach_to_the_last_element() {
    let strides = BatchStrides { x: 101, z: 103, b: 207, c: 209, dt: 11, y: 113 };
    let dtypes = Dtypes {
        dt: Dtype::Bf16,
        a_log: Dtype::F16,
        d: Dtype::F32,
        dt_bias: Dtype::F16,
        bc: Dtype::F32,
        x: Dtype::F16,
        state: Dtype::Bf16,
    };
    let problem = Problem { strides, ..Problem::contiguous(dims(), dtypes) };
    let all = addresses();
    let bound = bindings::of(&launch(&problem, &all));
    for (number, address, bytes) in [
        (at::X, all.x.addr(), (101 + 30) * 2),
        (at::Z, all.z.addr(), (103 + 30) * 2),
        (at::B, all.b.addr(), (207 + 144) * 4),
        (at::C, all.c.addr(), (209 + 144) * 4),
        (at::DT, all.dt.addr(), (11 + 6) * 2),
        (at::A_LOG, all.a_log.addr(), 6 * 2),
        (at::D, all.d.addr(), 6 * 4),
        (at::DT_BIAS, all.dt_bias.addr(), 6 * 2),
        (at::STATE_IN, all.state_in.addr(), 4 * 6 * 5 * 48 * 2),
        (at::STATE_OUT, all.state_out.addr(), 4 * 6 * 5 * 48 * 2),
        (at::SLOTS_IN, all.slots_in.addr(), 8),
        (at::SLOTS_OUT, all.slots_out.addr(), 8),
        (at::Y, all.y.addr(), (113 + 30) * 2),
    ] {
        assert_eq!((bound[number].address, bound[number].bytes), (address, bytes), "{}", NAMES[number]);
    }
    let read_only = bindings::of(&launch(&Problem { update_state: false, ..problem }, &all));
    for number in [at::STATE_OUT, at::SLOTS_OUT] {
        assert_eq!((read_only[number].address, read_only[number].bytes), (0, 0), "{}", NAMES[number]);
    }
    let absent = bindings::of(&launch(&problem, &Pointers { z: std::ptr::null(), ..all }));
    assert_eq!((absent[at::Z].address, absent[at::Z].bytes), (0, 0));
}

/// The row of the table says why it does not open where there is no Metal.
#[cfg(not(any(target_os = "macos", target_os = "ios")))]
#[test]
fn the_row_says_that_this_is_no_apple_system() {
    let why = (ssm_update::ports::metal::PORT.open)().expect_err("no Metal here").to_string();
    for part in ["not built", "macOS and iOS only", std::env::consts::OS] {
        assert!(why.contains(part), "{part} in: {why}");
    }
}
