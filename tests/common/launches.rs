//! Launches that each driver's port is asked for, and what has to hold of them on both.

use std::collections::BTreeSet;
use std::ffi::c_void;

use ssm_update::ports::gpu::abi::Params;
use ssm_update::{
    BatchStrides, Dims, Dt, Dtype, Dtypes, Kernel, Launch, Pointers, Problem, State, Step, Stream, validate,
};

use super::addresses::addresses;
use super::case::Case;
use super::fixture::Fixture;
use super::run::slices;
use super::scripting::Call;

/// Flags of the parameters that the ports have in common, as `gpu/abi.h` numbers them.
pub const PREPARED_DT: u32 = 1;
/// See [`PREPARED_DT`].
pub const WRITE_STATE: u32 = 2;

/// A stream that is not the default one.
pub fn stream(number: usize) -> Stream {
    Stream(std::ptr::without_provenance_mut::<c_void>(number))
}

/// A step on contiguous tensors with every optional one.
pub fn contiguous(dims: Dims, dtypes: Dtypes) -> Launch {
    validate(&Problem::contiguous(dims, dtypes), &addresses()).unwrap_or_else(|error| panic!("{dims:?}: {error}"))
}

/// As many slots as batch rows.
pub fn dims(batch: usize, heads: usize, head_dim: usize, groups: usize, d_state: usize) -> Dims {
    Dims { batch, heads, head_dim, groups, d_state, slots: batch }
}

/// A launch in which no two sizes, strides and pointers are the same.
pub fn all_different() -> Launch {
    let mut problem = Problem::contiguous(
        Dims { batch: 3, heads: 6, head_dim: 5, groups: 2, d_state: 48, slots: 11 },
        Dtypes {
            x: Dtype::F16,
            bc: Dtype::F32,
            dt: Dtype::Bf16,
            a_log: Dtype::F32,
            d: Dtype::F16,
            dt_bias: Dtype::Bf16,
            state: Dtype::F32,
        },
    );
    problem.strides = BatchStrides { x: 101, z: 103, b: 1 << 33, c: 109, dt: 113, y: 127 };
    problem.dt = Dt::Raw { min: 0.25, max: 8.5 };
    validate(&problem, &addresses()).expect("a legal problem")
}

/// The parameters of [`all_different`], with the lanes of a row and the flags as the port has them.
pub fn params_of_all_different(row_lanes_log2: u32, flags: u32) -> Params {
    Params {
        x: 1 << 40,
        z: 2 << 40,
        b: 3 << 40,
        c: 4 << 40,
        dt: 5 << 40,
        a_log: 6 << 40,
        d: 7 << 40,
        dt_bias: 8 << 40,
        state_in: 9 << 40,
        state_out: 10 << 40,
        slots_in: 11 << 40,
        slots_out: 12 << 40,
        y: 13 << 40,
        x_stride: 101,
        z_stride: 103,
        b_stride: 1 << 33,
        c_stride: 109,
        dt_stride: 113,
        y_stride: 127,
        slots: 11,
        heads: 6,
        head_dim: 5,
        group_multiplier: 1_431_655_766, // 2^32 / 3, rounded up: three heads of a group
        d_state: 48,
        row_lanes_log2,
        dt_min: 0.25,
        dt_max: 8.5,
        dt_dtype: 2,
        a_log_dtype: 0,
        d_dtype: 1,
        dt_bias_dtype: 2,
        flags,
        first_batch: 0,
        unused: 0,
    }
}

/// What is absent or not asked for is zero in the parameters; `always` is a flag that the port sets in each of these launches.
pub fn assert_absent_is_zero(params_of: impl Fn(&Launch) -> Params, always: u32) {
    let mut problem = Problem::contiguous(dims(1, 2, 3, 1, 16), Dtypes::uniform(Dtype::F32));
    problem.dt = Dt::Prepared;
    problem.update_state = false;
    let null = Pointers::NULL;
    let (z, d, dt_bias, slots_in) = (null.z, null.d, null.dt_bias, null.slots_in);
    // What a read-only step must not hand on: the caller may leave anything in these two.
    let at = Pointers { z, d, dt_bias, slots_in, ..addresses() };
    assert!(!at.state_out.is_null() && !at.slots_out.is_null());
    let params = params_of(&validate(&problem, &at).expect("legal"));
    assert_eq!((params.z, params.d, params.dt_bias, params.slots_in), (0, 0, 0, 0));
    assert_eq!((params.state_out, params.slots_out), (0, 0));
    assert_eq!(params.flags, PREPARED_DT | always, "prepared, and nothing is written");
    // One row has no next one.
    let strides =
        [params.x_stride, params.z_stride, params.b_stride, params.c_stride, params.dt_stride, params.y_stride];
    assert_eq!(strides, [0; 6]);

    problem.update_state = true;
    let params = params_of(&validate(&problem, &at).expect("legal"));
    assert_eq!((params.state_out, params.slots_out), (10 << 40, 12 << 40));
    assert_eq!(params.flags, PREPARED_DT | WRITE_STATE | always);
    problem.dt = Dt::UNCLAMPED;
    let params = params_of(&validate(&problem, &at).expect("legal"));
    assert_eq!((params.flags, params.dt_min, params.dt_max), (WRITE_STATE | always, 0.0, f32::INFINITY));
}

/// The launches of a batch that is larger than a grid cover each of its rows once, and are the same otherwise.
pub fn assert_rows_covered_once(launches: &[&Call], batch: usize) {
    let mut next = 0;
    for call in launches {
        assert_eq!(u64::from(call.params.first_batch), next, "batch {batch}");
        assert!((1..=65_535).contains(&call.grid()[2]), "{:?}", call.grid());
        next += call.grid()[2];
        // Apart from where they begin, the parts are the same.
        let same = Params { first_batch: 0, ..call.params };
        assert_eq!(same, launches[0].params);
    }
    assert_eq!(next, batch as u64);
}

/// What a thread launches on `stream(size)`. Different sizes, so that a parameter of one thread in the launch of another one shows.
pub fn of_size(size: usize) -> Launch {
    contiguous(dims(size, size, 7, 1, 16 * size), Dtypes::uniform(Dtype::Bf16))
}

/// Each launch of several threads with [`of_size`] went to device 1 and has its own thread's sizes and stream.
pub fn assert_threads_kept_apart(calls: &[Call], threads: usize, launches: usize) {
    assert_eq!(calls.len(), threads * launches);
    for call in calls {
        let size = call.stream();
        let got = (call.grid()[2], u64::from(call.params.heads), u64::from(call.params.d_state), call.device);
        assert_eq!(got, (size, size, 16 * size, 1), "{call:?}");
    }
    let pairs: BTreeSet<(u64, u64)> = calls.iter().map(|call| (call.thread, call.stream())).collect();
    assert_eq!(pairs.len(), threads, "each stream from one thread");
}

/// Steps on host memory, which allocate, on several threads at once.
pub fn steps_of_several_threads(kernel: &dyn Kernel) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let before = Fixture::new(&Case::new(1 + thread, 2, 3, 1, 16));
                for _ in 0..20 {
                    let mut after = before.clone();
                    kernel.step(slices(&mut after)).expect("without faults");
                    assert_eq!(after.stray_write(&before), None);
                }
            });
        }
    });
}

/// A step whose batch rows are all padding, on a pool without rows.
pub fn step_of_padding(kernel: &dyn Kernel) {
    let dims = Dims { batch: 2, heads: 1, head_dim: 2, groups: 1, d_state: 16, slots: 0 };
    let (x, bc, head) = ([0.0_f32; 4], [0.0_f32; 32], [0.0_f32; 2]);
    let (mut y, mut state): ([f32; 4], [f32; 0]) = ([7.0; 4], []);
    let step = Step {
        slots_in: Some(&[-1, -1]),
        slots_out: Some(&[-1, -1]),
        ..Step::new(dims, &x, &bc, &bc, &head, &head[..1], State::in_place(&mut state), &mut y)
    };
    kernel.step(step).expect("legal");
}

/// A token of Granite-4.0-H tiny, and a batch that takes several launches.
pub fn token_and_large_batch() -> [Launch; 2] {
    let dims = Dims { batch: 1, heads: 48, head_dim: 64, groups: 1, d_state: 128, slots: 1 };
    [dims, Dims { batch: 200_000, slots: 200_000, ..dims }].map(|dims| {
        let problem = Problem::contiguous(dims, Dtypes::uniform(Dtype::Bf16));
        validate(&problem, &addresses()).expect("a legal problem")
    })
}
