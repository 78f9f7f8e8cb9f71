//! What a launch of the CUDA port hands to the driver: which kernel, which parameters, which grid, which stream, whether it may
//! overlap; and nothing else besides, in any context, from any thread, and while a stream is captured.

#![cfg(all(feature = "cuda", target_os = "linux"))]

mod common;

use std::collections::BTreeSet;

use common::addresses::addresses;
use common::case::{Case, Slots, StateMode, T_AND_BC};
use common::fixture::Fixture;
use common::launches::{
    WRITE_STATE, all_different, assert_absent_is_zero, assert_rows_covered_once, assert_threads_kept_apart, contiguous,
    dims, of_size, params_of_all_different, step_of_padding, steps_of_several_threads, stream,
};
use common::run::{Level, run, slices};
use common::scripted_cuda::Script;
use common::scripting::Call;
use ssm_update::ports::cuda::CudaKernel;
use ssm_update::ports::cuda::key::Key;
use ssm_update::ports::cuda::plan::Plan;
use ssm_update::ports::gpu::abi::Params;
use ssm_update::{Dims, Dtype, Dtypes, Error, Kernel, Launch, Pointers, Problem, Stream, validate};

/// The two functions of a launch, and those that find, set and restore the thread's context.
const LAUNCH: &str = "cuLaunchKernel";
const LAUNCH_EX: &str = "cuLaunchKernelEx";
const GET: &str = "cuCtxGetCurrent";
const PUSH: &str = "cuCtxPushCurrent_v2";
const POP: &str = "cuCtxPopCurrent_v2";
/// What making a kernel consists of.
const MAKING: [&str; 3] = ["nvrtcCreateProgram", "nvrtcCompileProgram", "cuModuleLoadData"];

/// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
const OVERLAP: u64 = 6;

/// Launches without faults, on a thread in the port's context, a problem whose kernel is there; gives the calls.
fn launched(script: &Script, kernel: &CudaKernel, launch: &Launch, stream: Stream) -> Vec<Call> {
    kernel.prepare(&[*launch]).unwrap_or_else(|error| panic!("{launch:?}: {error}"));
    script.forget();
    // SAFETY: the script reads none of the tensors.
    unsafe { kernel.launch(launch, stream) }.unwrap_or_else(|error| panic!("{launch:?}: {error}"));
    script.calls()
}

/// A script whose thread has a context of the device, and the port in that.
fn open_on(capability: (i32, i32)) -> (Script, CudaKernel) {
    let script = Script::new();
    script.set_devices(&[capability]);
    script.set_stack(&[script.make_context(0)]);
    let kernel = script.open(None).unwrap_or_else(|why| panic!("{why}"));
    (script, kernel)
}

fn open() -> (Script, CudaKernel) {
    open_on((9, 0))
}

fn names(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|call| &call.function[..]).collect()
}

/// A flag of the parameters.
const PREFETCH_STATE: u32 = 4;

#[test]
fn every_size_stride_and_pointer_arrives_in_its_own_field() {
    let (script, kernel) = open();
    let calls = launched(&script, &kernel, &all_different(), stream(0x5eed));
    assert_eq!(names(&calls), [GET, LAUNCH_EX]);
    let call = &calls[1];
    // How rows are spread over lanes is a constant of the kernel.
    assert_eq!(call.params, params_of_all_different(0, WRITE_STATE | PREFETCH_STATE));
    assert_eq!(call.text, "ssm_update");
    // 2 warps of 4 tiles of 2 rows: one block has more than enough for 5 rows.
    assert_eq!((call.grid(), call.block()), ([1, 6, 3], [64, 1, 1]));
    assert_eq!(call.stream(), 0x5eed);
    let (shared_bytes, extra) = (call.arguments[6], call.arguments[8]);
    assert_eq!((shared_bytes, extra), (0, 0));
}

#[test]
fn what_is_absent_or_not_asked_for_is_zero() {
    let (script, kernel) = open();
    let params_of = |launch: &Launch| launched(&script, &kernel, launch, Stream::DEFAULT)[1].params;
    assert_absent_is_zero(params_of, PREFETCH_STATE);
}

#[test]
fn each_size_has_its_grid_and_its_kernel() {
    let (script, kernel) = open();
    let mut modules = std::collections::HashMap::new();
    for (x, bc) in T_AND_BC {
        for state in Dtype::ALL {
            for d_state in (16..=512).step_by(48) {
                let dtypes = Dtypes { x, bc, state, ..Dtypes::uniform(Dtype::F32) };
                let pieces = d_state * state.size() / 16;
                let chunks = [1, 2, 4].into_iter().find(|chunks| 32 * chunks >= pieces).expect("one does");
                let lanes = [1, 2, 4, 8, 16, 32].into_iter().find(|lanes| lanes * chunks >= pieces).expect("one does");
                let rows = 2 * (4 / chunks) * (32 / lanes);
                for head_dim in [1, rows, rows + 1, 7 * rows - 1, 80] {
                    let launch = contiguous(dims(2, 6, head_dim, 3, d_state), dtypes);
                    let call = &launched(&script, &kernel, &launch, stream(1))[1];
                    let what = format!("{x} {bc} {state} d_state {d_state} head_dim {head_dim}");
                    assert_eq!(call.grid(), [head_dim.div_ceil(rows) as u64, 6, 2], "{what}");
                    assert_eq!(call.block(), [64, 1, 1], "{what}");
                    let sizes = (call.params.d_state as usize, call.params.head_dim as usize);
                    assert_eq!(sizes, (d_state, head_dim), "{what}");
                    // The kernel of this key, always the same, and no other key's.
                    let module = call.arguments[9];
                    assert_eq!(*modules.entry(Key::of(&launch)).or_insert(module), module, "{what}");
                }
            }
        }
    }
    let distinct: BTreeSet<u64> = modules.values().copied().collect();
    assert_eq!(distinct.len(), modules.len());
    assert_eq!(modules.len(), 90, "as many as there are keys among these sizes");
}

/// What was compiled for a key is what is launched with it.
#[test]
fn a_kernel_is_compiled_with_the_definitions_of_its_key() {
    let (script, kernel) = open_on((8, 6));
    for number in 0..27 {
        let nth = |place: u32| Dtype::ALL[number / 3_usize.pow(place) % 3];
        let dtypes = Dtypes { dt: nth(0), a_log: nth(1), state: nth(2), ..Dtypes::uniform(Dtype::F32) };
        let launch = contiguous(dims(2, 2, 3, 1, 64), dtypes);
        script.forget();
        kernel.prepare(&[launch]).expect("compiles");
        let compiled = script.calls_of("nvrtcCompileProgram");
        let options: Vec<&str> = compiled[0].notes();
        // For this device, without products and sums contracted, and with the key.
        for option in ["--gpu-architecture=sm_86", "--fmad=false"] {
            assert_eq!(options.iter().filter(|other| **other == option).count(), 1, "{option} in {options:?}");
        }
        let definitions: Vec<&str> = options.iter().copied().filter(|option| option.starts_with("-D")).collect();
        assert_eq!(definitions, Key::of(&launch).definitions());
        let source = &script.calls_of("nvrtcCreateProgram")[0];
        let texts = source.notes();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = |path: &str| std::fs::read_to_string(root.join(path)).expect("a file of the kernel");
        assert_eq!(texts[1], file("cuda/ssm_update.cu"));
        for (header, path) in
            [("../gpu/abi.h", "gpu/abi.h"), ("../gpu/arithmetic.h", "gpu/arithmetic.h"), ("stdint.h", "cuda/stdint.h")]
        {
            let at = texts.iter().position(|text| *text == header).unwrap_or_else(|| panic!("{header}"));
            assert_eq!(texts[at + 1], file(path), "{header}");
        }
    }
}

/// `h * multiplier >> 32` is how the kernel finds the group of head h.
#[test]
fn every_head_finds_its_group() {
    let (script, kernel) = open();
    for (heads, groups) in
        [(1, 1), (6, 1), (6, 2), (6, 3), (6, 6), (48, 1), (80, 8), (96, 4), (65_535, 1), (65_535, 13_107)]
    {
        let launch = contiguous(dims(1, heads, 1, groups, 16), Dtypes::uniform(Dtype::F32));
        let params = launched(&script, &kernel, &launch, Stream::DEFAULT)[1].params;
        for head in 0..heads {
            let expected = head / (heads / groups);
            let got = (head as u64 * params.group_multiplier) >> 32;
            assert_eq!(got, expected as u64, "head {head} of {heads} in {groups} groups");
        }
    }
}

/// Prefetching helps where the whole state stays in the L2 cache until it is used, beside what is still being written.
#[test]
fn the_state_is_prefetched_exactly_where_half_the_cache_holds_it() {
    let state_bytes = 3 * 6 * 5 * 48 * 4;
    for (l2_bytes, batch, dtype, expected) in [
        (2 * state_bytes, 3, Dtype::F32, true),
        (2 * state_bytes - 1, 3, Dtype::F32, false),
        (2 * state_bytes, 4, Dtype::F32, false),
        (2 * state_bytes, 2, Dtype::F32, true),
        (2 * state_bytes, 6, Dtype::F16, true),
        (2 * state_bytes, 7, Dtype::F16, false),
        (0, 1, Dtype::F32, false),
        (-1, 1, Dtype::F32, false),
        (i32::MAX, 4_000_000, Dtype::F32, false),
    ] {
        let script = Script::new();
        script.set_device(0, (9, 0), l2_bytes);
        script.set_stack(&[script.make_context(0)]);
        let kernel = script.open(None).expect("opens");
        let dtypes = Dtypes { state: dtype, ..Dtypes::uniform(Dtype::F32) };
        // What counts is what is used, not how large the pool is.
        let dims = Dims { slots: batch + 100, ..dims(batch, 6, 5, 2, 48) };
        for call in &launched(&script, &kernel, &contiguous(dims, dtypes), Stream::DEFAULT)[1..] {
            if call.function.starts_with(LAUNCH) {
                let prefetched = call.params.flags & PREFETCH_STATE != 0;
                assert_eq!(prefetched, expected, "{batch} rows of {dtype} in {l2_bytes} bytes");
            }
        }
    }
}

#[test]
fn a_batch_larger_than_a_grid_takes_several_launches_that_cover_each_row_once() {
    let (script, kernel) = open();
    for (batch, parts) in [(1, 1), (65_534, 1), (65_535, 1), (65_536, 2), (131_070, 2), (131_071, 3), (1_000_000, 16)] {
        let launch = contiguous(dims(batch, 2, 3, 1, 16), Dtypes::uniform(Dtype::F32));
        let calls = launched(&script, &kernel, &launch, stream(77));
        let launches: Vec<&Call> = calls.iter().filter(|call| call.function == LAUNCH_EX).collect();
        assert_eq!(launches.len(), parts, "batch {batch}");
        assert!(calls.iter().all(|call| [GET, LAUNCH_EX].contains(&&call.function[..])), "{:?}", names(&calls));
        for call in &launches {
            assert_eq!(call.stream(), 77);
            assert_eq!((call.arguments[10], call.arguments[11]), (1, OVERLAP));
        }
        assert_rows_covered_once(&launches, batch);
    }
}

#[test]
fn sizes_that_no_grid_covers_are_refused_before_any_call() {
    let (script, kernel) = open();
    let f32 = Dtypes::uniform(Dtype::F32);
    // In place: pools of terabytes, far apart or not, would overlap.
    let contiguous = |dims: Dims, dtypes| {
        let at = Pointers { state_out: addresses().state_in.cast_mut(), ..addresses() };
        validate(&Problem::contiguous(dims, dtypes), &at).unwrap_or_else(|error| panic!("{dims:?}: {error}"))
    };
    for (field, launch) in [
        ("heads", contiguous(dims(1, 65_536, 1, 1, 16), f32)),
        ("heads", contiguous(dims(2, 1 << 20, 1, 1 << 20, 16), f32)),
        ("heads", contiguous(dims(1, 1 << 32, 1, 1, 16), f32)),
        // A block of this kernel has 2 rows, and a grid 2^31 - 1 blocks.
        ("head_dim", contiguous(dims(1, 1, u32::MAX as usize, 1, 512), f32)),
        ("head_dim", contiguous(dims(1, 1, 1 << 32, 1, 16), f32)),
        ("batch", contiguous(dims(1 << 32, 1, 1, 1, 16), f32)),
    ] {
        script.forget();
        // SAFETY: the script reads none of the tensors.
        let error = unsafe { kernel.launch(&launch, Stream::DEFAULT) }.expect_err(field);
        assert!(matches!(&error, Error::Unsupported(mismatch) if mismatch.field == field), "{error}");
        assert!(error.to_string().contains("unsupported shapes") && error.to_string().contains("cuda"), "{error}");
        assert_eq!(script.called(), [""; 0], "{field}");
    }
    // The largest that one covers.
    let most =
        [dims(1, 65_535, 1, 1, 16), dims(1, 1, u32::MAX as usize - 1, 1, 512), dims(1, 1, u32::MAX as usize, 1, 256)];
    for largest in most {
        let call = &launched(&script, &kernel, &contiguous(largest, f32), Stream::DEFAULT)[1];
        assert!(call.grid()[0] <= i32::MAX as u64 && call.grid()[1] <= 65_535, "{:?}", call.grid());
    }
    assert_eq!(script.misuses(), 0);
}

/// The host level refuses the same sizes and leaves everything as it was.
#[test]
fn a_step_that_no_grid_covers_is_refused_with_nothing_written_and_nothing_left() {
    let (script, kernel) = open();
    let before = Fixture::new(&Case::new(1, 65_536, 1, 1, 16));
    let mut after = before.clone();
    script.forget();
    let error = kernel.step(slices(&mut after)).expect_err("too many heads");
    assert!(error.to_string().contains("unsupported shapes"), "{error}");
    assert_eq!(after.any_write(&before), None);
    for function in MAKING.iter().chain(&[LAUNCH, LAUNCH_EX]) {
        assert_eq!(script.calls_of(function), [], "{function}");
    }
    assert_eq!((script.live(), script.misuses()), ((0, 0, 0), 0));
}

#[test]
fn a_batch_of_0_takes_no_call_at_all() {
    let (script, kernel) = open();
    let empty = Problem::contiguous(dims(0, 2, 3, 1, 16), Dtypes::uniform(Dtype::F32));
    for at in [Pointers::NULL, addresses()] {
        let launch = validate(&empty, &at).expect("a batch of 0 is legal");
        script.forget();
        // SAFETY: the script reads none of the tensors.
        unsafe { kernel.launch(&launch, stream(3)) }.expect("nothing to do");
        assert_eq!(script.called(), [""; 0]);
    }
    let mut fixture = Fixture::new(&Case::new(0, 2, 3, 1, 16));
    script.forget();
    kernel.step(slices(&mut fixture)).expect("a batch of 0 is legal");
    assert_eq!(script.called(), [""; 0]);
}

// --- overlap ------------------------------------------------------------------------------------------------------------

#[test]
fn launches_may_overlap_exactly_where_device_and_driver_can() {
    for (capability, driver, has_ex, expected) in [
        ((9, 0), 12_030, true, true),
        ((9, 0), 12_040, true, true),
        ((10, 0), 12_080, true, true),
        ((10, 3), 13_000, true, true),
        ((12, 1), 13_000, true, true),
        // Before compute capability 9.0.
        ((8, 9), 13_000, true, false),
        ((8, 0), 12_040, true, false),
        ((7, 0), 12_040, true, false),
        // Before CUDA 12.3, whose graphs take such launches.
        ((9, 0), 12_020, true, false),
        ((9, 0), 12_000, true, false),
        ((9, 0), 12_040, false, false),
        ((12, 0), 13_000, false, false),
    ] {
        let what = format!("{capability:?}, driver {driver}, with cuLaunchKernelEx: {has_ex}");
        let script = if has_ex { Script::new() } else { Script::without(&[LAUNCH_EX]) };
        script.set_devices(&[capability]);
        script.set_driver(driver);
        script.set_architectures(&[70, 80, 89, 90, 100, 103, 120, 121]);
        for own in [true, false] {
            script.set_stack(&if own { vec![script.make_context(0)] } else { vec![] });
            let kernel = script.open(None).unwrap_or_else(|why| panic!("{what}: {why}"));
            let calls =
                launched(&script, &kernel, &contiguous(dims(2, 3, 4, 1, 32), Dtypes::uniform(Dtype::F32)), stream(9));
            let launches: Vec<&Call> = calls.iter().filter(|call| call.function.starts_with(LAUNCH)).collect();
            assert_eq!(launches.len(), 1, "{what}");
            let call = launches[0];
            let attribute = (call.arguments[10], call.arguments[11], call.arguments[12]);
            let expected = if expected { (LAUNCH_EX, (1, OVERLAP, 1)) } else { (LAUNCH, (0, 0, 0)) };
            assert_eq!((&call.function[..], attribute), expected, "{what}");
            // Either way the same launch.
            assert_eq!((call.grid(), call.block(), call.stream()), ([1, 3, 2], [64, 1, 1], 9), "{what}");
            assert_eq!((call.arguments[6], call.arguments[8]), (0, 0), "{what}");
        }
    }
}

// --- contexts and threads -----------------------------------------------------------------------------------------------

#[test]
fn a_launch_in_another_context_than_the_threads_goes_there_and_comes_back() {
    let script = Script::new();
    script.set_devices(&[(9, 0), (8, 6), (7, 0)]);
    let kernels = [0, 1, 2].map(|device| script.open(Some(device)).expect("opens"));
    let primary: Vec<u64> = script.calls_of("cuModuleLoadData").iter().map(|call| call.context).collect();
    let devices: Vec<i32> = script.calls_of("cuModuleLoadData").iter().map(|call| call.device).collect();
    assert_eq!(devices, [0, 1, 2]);
    let foreign = script.make_context(0);
    let mut modules = BTreeSet::new();
    for stack in
        [vec![], vec![primary[0]], vec![primary[1]], vec![primary[2]], vec![foreign], vec![primary[1], foreign]]
    {
        let top = stack.last().copied().unwrap_or(0);
        for (device, kernel) in (0..).zip(&kernels) {
            script.set_stack(&stack);
            let launch = contiguous(dims(2, 3, 4, 1, 32), Dtypes::uniform(Dtype::F16));
            let calls = launched(&script, kernel, &launch, stream(9));
            let function = if device == 0 { LAUNCH_EX } else { LAUNCH };
            let own = primary[device as usize];
            let expected = if top == own { vec![GET, function] } else { vec![GET, PUSH, function, POP] };
            assert_eq!(names(&calls), expected, "device {device} from {stack:?}");
            assert_eq!(script.stack(), (stack.len() as u32, top), "device {device} from {stack:?}");
            let launch = calls.iter().find(|call| call.function == function).expect("launched");
            assert_eq!((launch.device, launch.context, launch.stream()), (device, own, 9));
            modules.insert((device, launch.arguments[9]));
        }
    }
    assert_eq!(modules.len(), 3, "each device has a module of its own, and always the same one: {modules:?}");
    script.set_stack(&[]);
    drop(kernels);
    script.assert_clean("after closing all of them");
}

/// A context that the program ended takes the port's kernels along: errors, and no panic.
#[test]
fn a_context_that_has_ended_is_an_error() {
    let (script, kernel) = open();
    let launch = contiguous(dims(2, 3, 4, 1, 32), Dtypes::uniform(Dtype::F16));
    launched(&script, &kernel, &launch, Stream::DEFAULT);
    script.end_context(script.stack().1);
    for stack in [vec![script.stack().1], vec![], vec![script.make_context(0)]] {
        script.set_stack(&stack);
        // SAFETY: the script reads none of the tensors.
        let error = unsafe { kernel.launch(&launch, Stream::DEFAULT) }.expect_err("it has ended");
        assert!(matches!(&error, Error::Driver(error) if error.code == 709), "{error}");
        let error = kernel.prepare(&[contiguous(dims(2, 3, 4, 1, 512), Dtypes::uniform(Dtype::F16))]);
        assert!(error.is_err(), "it has ended");
        assert_eq!(script.stack(), (stack.len() as u32, stack.last().copied().unwrap_or(0)));
    }
    drop(kernel);
}

#[test]
fn one_handle_serves_several_threads_with_streams_and_contexts_of_their_own() {
    const THREADS: usize = 8;
    const LAUNCHES: usize = 200;
    let script = Script::new();
    script.set_devices(&[(9, 0); 2]);
    let kernel = script.open(Some(1)).expect("opens");
    script.forget();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (kernel, script) = (&kernel, &script);
            scope.spawn(move || {
                let stack = if thread % 2 == 0 { vec![] } else { vec![script.make_context(0)] };
                script.set_stack(&stack);
                let before = script.stack();
                // Some have the kernel in common, which one of them makes.
                let launch = of_size(1 + thread);
                for _ in 0..LAUNCHES {
                    // SAFETY: the script reads none of the tensors.
                    unsafe { kernel.launch(&launch, stream(1 + thread)) }.expect("without faults");
                }
                assert_eq!(script.stack(), before);
            });
        }
    });
    assert_threads_kept_apart(&script.calls_of(LAUNCH_EX), THREADS, LAUNCHES);
    let keys: BTreeSet<Vec<String>> = (1..=THREADS).map(|size| Key::of(&of_size(size)).definitions()).collect();
    assert_eq!(script.calls_of("nvrtcCompileProgram").len(), keys.len(), "each kernel once");
    drop(kernel);
    script.assert_clean("after all threads");
}

/// Also steps on host memory, which allocate: each thread its own.
#[test]
fn steps_of_several_threads_do_not_meet() {
    let script = Script::new();
    let kernel = script.open(None).expect("opens");
    steps_of_several_threads(&kernel);
    assert_eq!((script.live(), script.misuses()), ((1, 0, 0), 0));
}

// --- captured streams ---------------------------------------------------------------------------------------------------

#[test]
fn while_a_stream_is_captured_nothing_is_made_and_the_error_says_what_to_do() {
    let (script, kernel) = open();
    let launch = contiguous(dims(2, 3, 4, 1, 32), Dtypes::uniform(Dtype::F16));
    script.set_capturing(5, true);
    for _ in 0..2 {
        script.forget();
        // SAFETY: the script reads none of the tensors.
        let error = unsafe { kernel.launch(&launch, stream(5)) }.expect_err("its kernel is not there");
        assert!(matches!(&error, Error::Driver(error) if error.code == 900), "{error}");
        for part in ["Kernel::prepare", "captured", "not loaded"] {
            assert!(error.to_string().contains(part), "{part} in: {error}");
        }
        let called = script.called();
        assert_eq!(called.iter().filter(|call| *call == "cuStreamIsCapturing").count(), 1);
        assert!(called.iter().all(|call| [GET, "cuStreamIsCapturing"].contains(&&call[..])), "{called:?}");
        assert_eq!(script.calls_of("cuStreamIsCapturing")[0].arguments[0], 5, "of the launch's own stream");
    }
    script.set_capturing(5, false);
    kernel.prepare(&[launch]).expect("compiles");
    script.set_capturing(5, true);
    script.forget();
    // Other sizes, another stride: the same kernel.
    let mut problem = Problem::contiguous(dims(7, 9, 40, 3, 32), Dtypes::uniform(Dtype::F16));
    problem.strides.x += 3;
    for launch in [launch, validate(&problem, &addresses()).expect("legal")] {
        script.forget();
        // SAFETY: the script reads none of the tensors.
        unsafe { kernel.launch(&launch, stream(5)) }.expect("it is there");
        assert_eq!(script.called(), [GET, LAUNCH_EX], "whether it is captured is not asked");
    }
    // Memory is not to be had meanwhile, and the host level says why.
    let before = Fixture::new(&Case::new(2, 3, 4, 1, 32));
    let mut after = before.clone();
    let error = kernel.step(slices(&mut after)).expect_err("no memory during a capture");
    assert!(error.to_string().contains("captured"), "{error}");
    assert_eq!(after.any_write(&before), None);
    script.set_capturing(5, false);
}

/// A launch that makes its kernel, on a stream that is not captured.
#[test]
fn the_first_launch_makes_its_kernel_and_later_ones_do_not() {
    let (script, kernel) = open();
    let launch = contiguous(dims(2, 3, 4, 1, 32), Dtypes::uniform(Dtype::F16));
    script.forget();
    // SAFETY: the script reads none of the tensors.
    unsafe { kernel.launch(&launch, stream(5)) }.expect("compiles");
    for function in MAKING {
        assert_eq!(script.calls_of(function).len(), 1, "{function}");
    }
    assert_eq!(script.calls_of("cuModuleGetFunction")[0].text, "ssm_update");
    script.forget();
    // SAFETY: the script reads none of the tensors.
    unsafe { kernel.launch(&launch, stream(6)) }.expect("it is there");
    assert_eq!(script.called(), [GET, LAUNCH_EX]);
    assert_eq!(script.live(), (1, 0, 0));
}

#[test]
fn preparing_touches_no_memory_and_makes_each_kernel_once() {
    let (script, kernel) = open();
    let of = |batch, d_state| contiguous(dims(batch, 3, 4, 1, d_state), Dtypes::uniform(Dtype::F16));
    script.forget();
    kernel.prepare(&[]).expect("nothing");
    assert_eq!(script.called(), [""; 0]);
    kernel.prepare(&[of(1, 32), of(2, 32), of(9, 32), of(1, 64), of(70_000, 64)]).expect("compiles");
    assert_eq!(script.calls_of("nvrtcCompileProgram").len(), 2);
    for function in ["cuMemAlloc_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuStreamSynchronize", LAUNCH, LAUNCH_EX] {
        assert_eq!(script.calls_of(function), [], "{function}");
    }
    drop(kernel);
    assert_eq!((script.live(), script.misuses()), ((0, 0, 0), 0));
}

// --- the host level -----------------------------------------------------------------------------------------------------

/// A step brings back what is on the device, and only the slots that it used travel.
#[test]
fn a_step_copies_the_slots_that_it_uses_and_no_others() {
    let (script, kernel) = open();
    for slots in Slots::ALL {
        for state in StateMode::ALL {
            let case = Case { state, gap: 2, ..Case::new(3, 2, 3, 1, 16).slots(slots) };
            let before = Fixture::new(&case);
            let mut after = before.clone();
            kernel.step(slices(&mut after.clone())).unwrap_or_else(|error| panic!("{case:?}: {error}"));
            let modules = script.live().0;
            script.forget();
            kernel.step(slices(&mut after)).unwrap_or_else(|error| panic!("{case:?}: {error}"));
            assert_eq!(after.stray_write(&before), None, "{case:?}");
            let slot_bytes = (before.slot_len() * 4) as u64;
            let state_bytes = |function: &str| -> u64 {
                let copies = script.calls_of(function).into_iter();
                copies.map(|call| call.arguments[2]).filter(|bytes| bytes.is_multiple_of(slot_bytes)).sum()
            };
            let live = (0..3).filter(|&row| before.row_slots(row).is_some()).count() as u64;
            assert_eq!(state_bytes("cuMemcpyHtoD_v2"), live * slot_bytes, "{case:?}");
            let written = if state == StateMode::ReadOnly { 0 } else { live };
            assert_eq!(state_bytes("cuMemcpyDtoH_v2"), written * slot_bytes, "{case:?}");
            // Each upload has arrived when it returns, and so has the launch when its results are copied.
            let (mut waiting, mut waits) = (0, 0);
            for call in script.calls() {
                match &call.function[..] {
                    "cuMemcpyHtoD_v2" | LAUNCH | LAUNCH_EX => waiting += 1,
                    "cuStreamSynchronize" => (waiting, waits) = (0, waits + 1),
                    "cuMemcpyDtoH_v2" => assert_eq!(waiting, 0, "{case:?}"),
                    _ => {}
                }
            }
            assert_eq!(waits, 1 + script.calls_of("cuMemcpyHtoD_v2").len(), "{case:?}");
            assert_eq!((script.live(), script.misuses()), ((modules, 0, 0), 0), "{case:?}");
        }
    }
}

/// The launch level in the port's own memory, and the host level on views.
#[test]
fn every_level_runs_in_the_ports_memory() {
    let (script, kernel) = open();
    for level in Level::ALL {
        let before = Fixture::new(&Case::new(3, 4, 5, 2, 48).slots(Slots::Moved));
        let mut after = before.clone();
        run(&kernel, &mut after, level).unwrap_or_else(|error| panic!("{level:?}: {error}"));
        assert_eq!(after.stray_write(&before), None, "{level:?}");
        assert_eq!((script.live().1, script.misuses()), (0, 0), "{level:?}");
    }
}

/// A pool without rows is legal where every batch row is padding.
#[test]
fn a_step_of_padding_alone_runs_on_an_empty_pool() {
    let (script, kernel) = open();
    step_of_padding(&kernel);
    assert_eq!(script.calls_of(LAUNCH_EX).len(), 1, "the kernel writes y");
    assert_eq!((script.live(), script.misuses()), ((1, 0, 0), 0));
}

/// The driver allocates no 0 bytes; a buffer of that size is legal all the same.
#[test]
fn memory_of_any_size_can_be_had_and_what_does_not_fit_is_refused() {
    let (script, kernel) = open();
    let memory = kernel.memory().expect("the port has memory of its own");
    for bytes in [0, 1, 255, 256, 1000] {
        let mut buffer = memory.allocate(bytes).unwrap_or_else(|error| panic!("{bytes}: {error}"));
        assert!(!buffer.address().is_null() && buffer.address().addr().is_multiple_of(16));
        let from: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        buffer.upload(0, &from).expect("it fits");
        let mut to = vec![0; bytes / 2];
        buffer.download(bytes - bytes / 2, &mut to).expect("it fits");
        assert_eq!(to, from[bytes - bytes / 2..]);
        for (offset, len) in [(0, bytes + 1), (1, bytes), (bytes + 1, 0), (usize::MAX, 1), (usize::MAX, 2)] {
            let what = format!("{len} bytes at {offset} of {bytes}");
            script.forget();
            let attempt = std::panic::AssertUnwindSafe(|| _ = buffer.upload(offset, &vec![0; len]));
            assert!(std::panic::catch_unwind(attempt).is_err(), "{what}");
            let attempt = std::panic::AssertUnwindSafe(|| _ = buffer.download(offset, &mut vec![0; len]));
            assert!(std::panic::catch_unwind(attempt).is_err(), "{what}");
            assert_eq!(script.called(), [""; 0], "{what}");
        }
    }
    memory.synchronize().expect("nothing is queued");
    assert_eq!((script.live(), script.misuses()), ((0, 0, 0), 0));
}

/// The plan of a launch is what is launched.
#[test]
fn the_plan_says_what_is_launched() {
    let (script, kernel) = open();
    let launch = contiguous(dims(70_000, 6, 5, 2, 48), Dtypes::uniform(Dtype::Bf16));
    let plan = Plan::new(&launch, 50 << 20).expect("a grid covers it");
    assert_eq!(plan.key, Key::of(&launch));
    let calls = launched(&script, &kernel, &launch, Stream::DEFAULT);
    let launches = calls.iter().filter(|call| call.function == LAUNCH_EX);
    let got: Vec<(Params, [u64; 3])> = launches.map(|call| (call.params, call.grid())).collect();
    let planned: Vec<(Params, [u64; 3])> =
        plan.launches().map(|(params, grid)| (params, grid.map(u64::from))).collect();
    assert_eq!(got, planned);
}
