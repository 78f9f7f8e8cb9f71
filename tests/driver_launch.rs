//! What a launch of the ROCm port hands to the runtime: which kernel, which parameters, which grid, which stream; and nothing else
//! besides, on any device and from any thread.

#![cfg(all(feature = "rocm", target_os = "linux"))]

mod common;

use std::collections::BTreeSet;

use common::addresses::addresses;
use common::case::{Case, Slots, StateMode, T_AND_BC};
use common::fixture::Fixture;
use common::images::{good, on_board};
use common::launches::{
    WRITE_STATE, all_different, assert_absent_is_zero, assert_rows_covered_once, assert_threads_kept_apart, contiguous,
    dims, of_size, params_of_all_different, step_of_padding, steps_of_several_threads, stream,
};
use common::run::slices;
use common::scripted::{Call, Script};
use ssm_update::ports::rocm::{RocmKernel, variant};
use ssm_update::{Dtype, Dtypes, Error, Kernel, Launch, Pointers, Problem, Stream, validate};

/// The one function of a launch, and the ones that find and restore the thread's device.
const LAUNCH: &str = "hipModuleLaunchKernel";
const GET: &str = "hipGetDevice";
const SET: &str = "hipSetDevice";

/// Launches without faults on a kernel of the script, and gives the calls.
fn launched(script: &Script, kernel: &RocmKernel, launch: &Launch, stream: Stream) -> Vec<Call> {
    script.forget();
    // SAFETY: the script reads none of the tensors.
    unsafe { kernel.launch(launch, stream) }.unwrap_or_else(|error| panic!("{launch:?}: {error}"));
    script.calls()
}

fn open(script: &Script) -> RocmKernel {
    script.open(None, on_board()).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn every_size_stride_and_pointer_arrives_in_its_own_field() {
    let script = Script::new();
    let kernel = open(&script);
    let calls = launched(&script, &kernel, &all_different(), stream(0x5eed));
    assert_eq!(calls.iter().map(|call| &call.function[..]).collect::<Vec<_>>(), [GET, LAUNCH]);
    let call = &calls[1];
    // A row has 12 pieces of 4 columns, in the next power of two of lanes: 2^4.
    assert_eq!(call.params, params_of_all_different(4, WRITE_STATE));
    assert_eq!(call.text, "ssm_update_f16_f32_f32_k1");
    // 4 waves of 4 tiles of 2 rows: one work-group has more than enough for 5 rows.
    assert_eq!((call.grid(), call.block()), ([1, 6, 3], [128, 1, 1]));
    assert_eq!(call.stream(), 0x5eed);
    let (shared_bytes, extra) = (call.arguments[6], call.arguments[8]);
    assert_eq!((shared_bytes, extra), (0, 0));
}

#[test]
fn what_is_absent_or_not_asked_for_is_zero() {
    let script = Script::new();
    let kernel = open(&script);
    let params_of = |launch: &Launch| launched(&script, &kernel, launch, Stream::DEFAULT)[1].params;
    assert_absent_is_zero(params_of, 0);
}

#[test]
fn each_per_head_dtype_has_its_own_tag() {
    let script = Script::new();
    let kernel = open(&script);
    let tag =
        |dtype| [Dtype::F32, Dtype::F16, Dtype::Bf16].iter().position(|&one| one == dtype).expect("one of three") as u8;
    for number in 0..81 {
        let nth = |place: u32| Dtype::ALL[number / 3_usize.pow(place) % 3];
        let (dt, a_log, d, dt_bias) = (nth(0), nth(1), nth(2), nth(3));
        let dtypes = Dtypes { dt, a_log, d, dt_bias, ..Dtypes::uniform(Dtype::F32) };
        let params = launched(&script, &kernel, &contiguous(dims(1, 1, 1, 1, 16), dtypes), Stream::DEFAULT)[1].params;
        let got = [params.dt_dtype, params.a_log_dtype, params.d_dtype, params.dt_bias_dtype];
        assert_eq!(got, [dt, a_log, d, dt_bias].map(tag), "{dtypes:?}");
    }
}

/// How a row of the state is spread over a wave, said again from the kernel's contract: lanes hold pieces of 16 bytes; a row gets as
/// few pieces per lane as 32 lanes allow, and as few lanes, a power of two, as that needs.
fn expected_geometry(state: Dtype, d_state: usize) -> (usize, usize) {
    let columns = 16 / state.size();
    let chunks: &[usize] = if state == Dtype::F32 { &[1, 2, 4] } else { &[1, 2] };
    let chunks = *chunks.iter().find(|&chunks| 32 * chunks * columns >= d_state).expect("512 columns at most");
    let lanes = [1, 2, 4, 8, 16, 32].into_iter().find(|lanes| lanes * chunks * columns >= d_state);
    (chunks, lanes.expect("32 do"))
}

/// Tiles of rows that a wave of a kernel has in flight, as its registers allow.
fn tiles(state: Dtype, chunks: usize) -> usize {
    match (state, chunks) {
        (Dtype::F32, 1) => 4,
        (Dtype::F32, 2) | (_, 1) => 2,
        _ => 1,
    }
}

#[test]
fn every_kernel_is_chosen_for_exactly_its_dtypes_and_sizes() {
    let script = Script::new();
    let kernel = open(&script);
    let mut chosen = BTreeSet::new();
    for (x, bc) in T_AND_BC {
        for state in Dtype::ALL {
            for d_state in (16..=512).step_by(16) {
                let (chunks, lanes) = expected_geometry(state, d_state);
                let rows = 4 * tiles(state, chunks) * (32 / lanes);
                for head_dim in [1, rows, rows + 1, 7 * rows - 1, 80] {
                    let dtypes = Dtypes { x, bc, state, ..Dtypes::uniform(Dtype::F32) };
                    let call =
                        &launched(&script, &kernel, &contiguous(dims(2, 6, head_dim, 3, d_state), dtypes), stream(1))
                            [1];
                    let what = format!("{x} {bc} {state} d_state {d_state} head_dim {head_dim}");
                    assert_eq!(call.text, format!("ssm_update_{x}_{bc}_{state}_k{chunks}"), "{what}");
                    assert_eq!(1 << call.params.row_lanes_log2, lanes, "{what}");
                    assert_eq!(call.grid(), [head_dim.div_ceil(rows) as u64, 6, 2], "{what}");
                    assert_eq!(call.block(), [128, 1, 1], "{what}");
                    assert_eq!(call.params.d_state as usize, d_state);
                    chosen.insert(call.text.clone());
                }
            }
        }
    }
    assert_eq!(chosen, variant::names().into_iter().collect(), "every kernel on board is of use");
    assert_eq!(chosen.len(), 35);
}

#[test]
fn a_batch_larger_than_a_grid_takes_several_launches_that_cover_each_row_once() {
    let script = Script::new();
    let kernel = open(&script);
    for (batch, parts) in [(1, 1), (65_534, 1), (65_535, 1), (65_536, 2), (131_070, 2), (131_071, 3), (1_000_000, 16)] {
        let launch = contiguous(dims(batch, 2, 3, 1, 16), Dtypes::uniform(Dtype::F32));
        let calls = launched(&script, &kernel, &launch, stream(77));
        let (first, launches) = calls.split_first().expect("calls");
        assert_eq!((&first.function[..], launches.len()), (GET, parts), "batch {batch}");
        for call in launches {
            assert_eq!((&call.function[..], call.stream()), (LAUNCH, 77));
        }
        assert_rows_covered_once(&launches.iter().collect::<Vec<_>>(), batch);
    }
}

#[test]
fn sizes_that_no_grid_covers_are_refused_before_any_call() {
    let script = Script::new();
    let kernel = open(&script);
    let f32 = Dtypes::uniform(Dtype::F32);
    // A work-group of this kernel has 4 rows, and the work-items of a grid are counted in 32 bits.
    let most_rows = u32::MAX as usize / 128 * 4;
    for (field, launch) in [
        ("heads", contiguous(dims(1, 65_536, 1, 1, 16), f32)),
        ("heads", contiguous(dims(2, 1 << 20, 1, 1 << 20, 16), f32)),
        ("heads", contiguous(dims(1, 1 << 32, 1, 1, 16), f32)),
        ("head_dim", contiguous(dims(1, 1, most_rows + 1, 1, 512), f32)),
        ("head_dim", contiguous(dims(1, 1, 1 << 32, 1, 16), f32)),
        ("batch", contiguous(dims(1 << 32, 1, 1, 1, 16), f32)),
    ] {
        script.forget();
        // SAFETY: the script reads none of the tensors.
        let error = unsafe { kernel.launch(&launch, Stream::DEFAULT) }.expect_err(field);
        assert!(matches!(&error, Error::Unsupported(mismatch) if mismatch.field == field), "{error}");
        assert!(error.to_string().contains("unsupported shapes"), "{error}");
        assert_eq!(script.called(), [""; 0], "{field}");
    }
    // The largest that one covers.
    for largest in [dims(1, 65_535, 1, 1, 16), dims(1, 1, most_rows, 1, 512)] {
        let call = &launched(&script, &kernel, &contiguous(largest, f32), Stream::DEFAULT)[1];
        assert!(call.grid()[0] * call.block()[0] <= u64::from(u32::MAX) && call.grid()[1] <= 65_535);
    }
}

/// The host level refuses the same sizes and leaves everything as it was.
#[test]
fn a_step_that_no_grid_covers_is_refused_with_nothing_written_and_nothing_left() {
    let script = Script::new();
    let kernel = open(&script);
    let before = Fixture::new(&Case::new(1, 65_536, 1, 1, 16));
    let mut after = before.clone();
    let error = kernel.step(slices(&mut after)).expect_err("too many heads");
    assert!(error.to_string().contains("unsupported shapes"), "{error}");
    assert_eq!(after.any_write(&before), None);
    assert_eq!(script.calls_of(LAUNCH), []);
    assert_eq!(script.live(), (1, 0));
}

#[test]
fn a_batch_of_0_takes_no_call_at_all() {
    let script = Script::new();
    let kernel = open(&script);
    let empty = Problem::contiguous(dims(0, 2, 3, 1, 16), Dtypes::uniform(Dtype::F32));
    for at in [Pointers::NULL, addresses()] {
        let launch = validate(&empty, &at).expect("a batch of 0 is legal");
        assert_eq!(launched(&script, &kernel, &launch, stream(3)), []);
    }
    let mut fixture = Fixture::new(&Case::new(0, 2, 3, 1, 16));
    script.forget();
    kernel.step(slices(&mut fixture)).expect("a batch of 0 is legal");
    assert_eq!(script.called(), [""; 0]);
}

#[test]
fn a_launch_on_another_device_than_the_threads_goes_there_and_comes_back() {
    let script = Script::new();
    script.set_devices(&[(good().target, 32); 3]);
    let kernels = [0, 1, 2].map(|device| script.open(Some(device), on_board()).expect("opens"));
    // A module for each device, loaded when the port was opened.
    let loads: Vec<i32> = script.calls_of("hipModuleLoadData").iter().map(|call| call.device).collect();
    assert_eq!(loads, [0, 1, 2]);
    let mut modules = BTreeSet::new();
    for own in 0..3 {
        for (device, kernel) in (0..).zip(&kernels) {
            script.set_current_device(own);
            let calls =
                launched(&script, kernel, &contiguous(dims(2, 3, 4, 1, 32), Dtypes::uniform(Dtype::F16)), stream(9));
            let called: Vec<&str> = calls.iter().map(|call| &call.function[..]).collect();
            let expected = if device == own { &[GET, LAUNCH][..] } else { &[GET, SET, LAUNCH, SET] };
            assert_eq!(called, expected, "device {device} from {own}");
            assert_eq!(script.current_device(), own, "device {device} from {own}");
            let launch = calls.iter().find(|call| call.function == LAUNCH).expect("launched");
            assert_eq!((launch.device, launch.stream()), (device, 9), "device {device} from {own}");
            modules.insert((device, launch.arguments[9]));
        }
    }
    assert_eq!(modules.len(), 3, "each device has a module of its own, and always the same one: {modules:?}");
    drop(kernels);
    script.assert_clean("after closing all of them");
}

#[test]
fn one_handle_serves_several_threads_with_streams_and_devices_of_their_own() {
    const THREADS: usize = 8;
    const LAUNCHES: usize = 300;
    let script = Script::new();
    script.set_devices(&[(good().target, 32); 2]);
    let kernel = script.open(Some(1), on_board()).expect("opens");
    script.forget();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (kernel, script) = (&kernel, &script);
            scope.spawn(move || {
                let own = i32::from(thread % 2 == 0);
                script.set_current_device(own);
                let launch = of_size(1 + thread);
                for _ in 0..LAUNCHES {
                    // SAFETY: the script reads none of the tensors.
                    unsafe { kernel.launch(&launch, stream(1 + thread)) }.expect("without faults");
                }
                assert_eq!(script.current_device(), own);
            });
        }
    });
    assert_threads_kept_apart(&script.calls_of(LAUNCH), THREADS, LAUNCHES);
    drop(kernel);
    script.assert_clean("after all threads");
}

/// Also steps on host memory, which allocate: each thread its own.
#[test]
fn steps_of_several_threads_do_not_meet() {
    let script = Script::new();
    let kernel = open(&script);
    steps_of_several_threads(&kernel);
    assert_eq!((script.live(), script.misuses()), ((1, 0), 0));
}

#[test]
fn everything_is_loaded_when_the_port_opens_and_nothing_later() {
    let script = Script::new();
    let kernel = open(&script);
    let functions = script.calls_of("hipModuleGetFunction");
    let names: BTreeSet<&str> = functions.iter().map(|call| &call.text[..]).collect();
    assert_eq!((functions.len(), names.len()), (35, 35), "each kernel is looked up once");
    script.forget();
    for d_state in (16..=512).step_by(16) {
        for dtype in Dtype::ALL {
            let calls =
                launched(&script, &kernel, &contiguous(dims(2, 2, 9, 1, d_state), Dtypes::uniform(dtype)), stream(5));
            assert_eq!(calls.iter().map(|call| &call.function[..]).collect::<Vec<_>>(), [GET, LAUNCH]);
        }
    }
}

/// A step brings back what is on the device, and only the slots that it used travel.
#[test]
fn a_step_copies_the_slots_that_it_uses_and_no_others() {
    let script = Script::new();
    let kernel = open(&script);
    for slots in Slots::ALL {
        for state in StateMode::ALL {
            let case = Case { state, gap: 2, ..Case::new(3, 2, 3, 1, 16).slots(slots) };
            let before = Fixture::new(&case);
            let mut after = before.clone();
            script.forget();
            kernel.step(slices(&mut after)).unwrap_or_else(|error| panic!("{case:?}: {error}"));
            assert_eq!(after.stray_write(&before), None, "{case:?}");
            let slot_bytes = (before.slot_len() * 4) as u64;
            let state_bytes = |download: bool| -> u64 {
                let copies = script.calls_of("hipMemcpy").into_iter().filter(|call| call.is_download() == download);
                copies.map(|call| call.arguments[2]).filter(|bytes| bytes.is_multiple_of(slot_bytes)).sum()
            };
            let live = (0..3).filter(|&row| before.row_slots(row).is_some()).count() as u64;
            assert_eq!(state_bytes(false), live * slot_bytes, "{case:?}");
            let written = if state == StateMode::ReadOnly { 0 } else { live };
            assert_eq!(state_bytes(true), written * slot_bytes, "{case:?}");
            assert_eq!(script.calls_of("hipStreamSynchronize").len(), 1, "{case:?}");
            assert_eq!((script.live(), script.misuses()), ((1, 0), 0), "{case:?}");
        }
    }
}

/// A pool without rows is legal where every batch row is padding.
#[test]
fn a_step_of_padding_alone_runs_on_an_empty_pool() {
    let script = Script::new();
    let kernel = open(&script);
    step_of_padding(&kernel);
    assert_eq!(script.calls_of(LAUNCH).len(), 1, "the kernel writes y");
    assert_eq!((script.live(), script.misuses()), ((1, 0), 0));
}
