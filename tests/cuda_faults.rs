//! Each call of the CUDA driver and of NVRTC fails in turn, with codes known and unknown: while the port opens and closes, in
//! `prepare`, in a step on host memory and in a launch. Every fault ends in an error that says what failed, what the library
//! said and what to do, and nothing is left behind.

#![cfg(all(feature = "cuda", target_os = "linux"))]

mod common;

use std::fs;
use std::path::Path;

use common::addresses::addresses;
use common::case::Case;
use common::faults::{self, Fault, arm, assert_lack_of_memory_is_told, large_launch, step_cases};
use common::fixture::Fixture;
use common::log::take_warnings;
use common::run::slices;
use common::scripted_cuda::Script;
use common::scripting::Call;
use ssm_update::ports::cuda::CudaKernel;
use ssm_update::{Error, Kernel, Launch, Problem, Stream, Unavailable, validate};

/// A status of the driver, and a part of the advice that comes with it; empty where there is none.
const DRIVER_CODES: [(i32, &str); 32] = [
    (1, ""),
    (2, "memory"),
    (3, "process ends"),
    (4, "process ends"),
    (34, "stubs"),
    (35, "restart the machine"),
    (100, "nvidia-smi"),
    (101, "nvidia-smi"),
    (200, "update the driver"),
    (201, ""),
    (209, "update the driver"),
    (218, "update the driver"),
    (222, "update the driver"),
    (400, "stream belong"),
    (500, ""),
    (700, "start the process anew"),
    (701, "start the process anew"),
    (702, "start the process anew"),
    (709, "stream belong"),
    (710, "start the process anew"),
    (718, "start the process anew"),
    (719, "start the process anew"),
    (803, "restart the machine"),
    (900, "captured"),
    (901, "captured"),
    (906, "captured"),
    (907, "captured"),
    // Newer than every header, beyond every header, and none that CUDA has.
    (912, ""),
    (99_999, ""),
    (-7, ""),
    (i32::MIN, ""),
    (i32::MAX, ""),
];

/// The same of NVRTC.
const NVRTC_CODES: [(i32, &str); 9] =
    [(1, "memory"), (2, ""), (5, ""), (6, ""), (7, ""), (11, ""), (4711, ""), (-7, ""), (i32::MAX, "")];

fn is_nvrtc(call: &Call) -> bool {
    call.function.starts_with("nvrtc")
}

fn each_fault(good: &[Call], test: impl FnMut(usize, Fault<'_>)) -> usize {
    faults::each_fault(good, |call| if is_nvrtc(call) { NVRTC_CODES.to_vec() } else { DRIVER_CODES.to_vec() }, test)
}

/// A text for people that says which call failed, with which code, in whose words, and what to do.
fn assert_tells(text: &str, fault: Fault<'_>) {
    let Fault { call, code, advice, .. } = fault;
    let function = call.function.trim_end_matches("_v2").to_owned();
    let parts = match is_nvrtc(call) {
        true => {
            // After a fault that lasts, the log cannot be had either.
            let has_log = function == "nvrtcCompileProgram" && !fault.lasting;
            let words = if has_log { "the script wants it so" } else { "gives no text" };
            // What helps against a lost device is said by the driver.
            let advice = if fault.lasting { "" } else { advice };
            [function, format!("scriptedNvrtcName({code})"), words.to_owned(), advice.to_owned()]
        }
        false => [function, format!("scriptedName({code})"), format!("own words for {code}"), advice.to_owned()],
    };
    for part in parts.into_iter().chain([format!("({})", code as u32)]) {
        assert!(text.contains(&part), "{fault:?}: no {part:?} in: {text}");
    }
    assert!(!text.trim_end().ends_with(';'), "{fault:?}: advice is announced and missing: {text}");
}

/// What the fault is told by, where the call is one whose failure changes no result: a warning.
fn assert_warned(fault: Fault<'_>) {
    let warnings = take_warnings();
    let function = fault.call.function.trim_end_matches("_v2");
    let warning = warnings.iter().find(|warning| warning.contains(function));
    assert_tells(warning.unwrap_or_else(|| panic!("{fault:?}: only {warnings:?} was logged")), fault);
}

const GIVING_BACK: [&str; 5] =
    ["nvrtcDestroyProgram", "cuModuleUnload", "cuMemFree_v2", "cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRelease_v2"];
const ENTERING: [&str; 2] = ["cuCtxGetCurrent", "cuCtxPushCurrent_v2"];
const LOG: [&str; 2] = ["nvrtcGetProgramLogSize", "nvrtcGetProgramLog"];

fn among(call: &Call, functions: &[&str]) -> bool {
    functions.contains(&&call.function[..])
}

/// Whether a call enters a context only to free something there.
fn enters_to_free(good: &[Call], number: usize) -> bool {
    let then = good[number - 1..].iter().find(|call| !among(call, &ENTERING));
    among(&good[number - 1], &ENTERING) && then.is_some_and(|call| among(call, &["cuModuleUnload", "cuMemFree_v2"]))
}

/// Whether a call only gives something back, so that what was asked for is there when it fails.
fn gives_back(good: &[Call], number: usize) -> bool {
    among(&good[number - 1], &GIVING_BACK) || enters_to_free(good, number)
}

/// Whether a call only brings remarks of a compiler that has done its work.
fn is_log(call: &Call) -> bool {
    among(call, &LOG)
}

/// The number of the call whose fault is the run's error: the fault itself, or where that changes no result and all later calls
/// fail too, the first one that does. `None` where the run succeeds.
fn telling(good: &[Call], number: usize, fault: Fault<'_>) -> Option<usize> {
    let last = if fault.lasting { good.len() } else { number };
    (number..=last).find(|&number| !gives_back(good, number) && !is_log(&good[number - 1]))
}

/// Nothing goes on behind a fault but giving back, and asking for the compiler's remarks about it.
fn assert_stopped(calls: &[Call], number: usize, fault: Fault<'_>) {
    for call in &calls[number.min(calls.len())..] {
        assert!(
            among(call, &GIVING_BACK) || among(call, &ENTERING) || is_log(call),
            "{fault:?}: then {}",
            call.function
        );
    }
}

/// What the calling thread has before a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Thread {
    /// No context.
    Bare,
    /// A context of the program's own on the first device.
    Own,
    /// One on the second device, which the port is not to use.
    Elsewhere,
}

const THREADS: [Thread; 3] = [Thread::Bare, Thread::Own, Thread::Elsewhere];

fn set_thread(script: &Script, thread: Thread) -> (u32, u64) {
    match thread {
        Thread::Bare => script.set_stack(&[]),
        Thread::Own => script.set_stack(&[script.make_context(0)]),
        Thread::Elsewhere => script.set_stack(&[script.make_context(1)]),
    }
    script.stack()
}

fn two_devices() -> Script {
    let script = Script::new();
    script.set_devices(&[(9, 0); 2]);
    script
}

/// The thread's contexts are as before, where they could be put back.
fn assert_restored(script: &Script, stack: (u32, u64), fault: Fault<'_>) {
    if !fault.lasting && fault.call.function != "cuCtxPopCurrent_v2" {
        assert_eq!(script.stack(), stack, "{fault:?}");
    }
}

// --- opening and closing ------------------------------------------------------------------------------------------------

#[test]
fn each_call_of_opening_and_closing_fails_in_turn() {
    for thread in THREADS {
        let script = two_devices();
        set_thread(&script, thread);
        drop(script.open(Some(0)).unwrap_or_else(|why| panic!("without faults: {why}")));
        let good = script.calls();
        script.assert_clean("after a good run");
        for function in ["cuInit", "cuModuleLoadData", "nvrtcCompileProgram", "nvrtcDestroyProgram", "cuModuleUnload"] {
            assert!(good.iter().any(|call| call.function == function), "{function}");
        }
        let retains = good.iter().any(|call| call.function == "cuDevicePrimaryCtxRelease_v2");
        assert_eq!(retains, thread != Thread::Own, "the thread's own context is not released");

        let count = each_fault(&good, |number, fault| {
            let stack = set_thread(&script, thread);
            arm(&script, number, fault);
            let result = script.open(Some(0));
            let told = telling(&good, number, fault);
            match (&result, told) {
                (Err(why), Some(told)) => {
                    assert_tells(&why.to_string(), Fault { call: &good[told - 1], ..fault });
                    let refused_by_switch = matches!(why, Unavailable::Switch { .. }) && is_nvrtc(&good[told - 1]);
                    assert!(refused_by_switch || matches!(why, Unavailable::Driver(_)), "{fault:?}: {why:?}");
                    assert!(fault.lasting || told == number);
                    if !fault.lasting {
                        assert_stopped(&script.calls(), number, fault);
                    }
                }
                (Ok(_), None) => {}
                (result, told) => panic!("{fault:?}: told by call {told:?}: {result:?}"),
            }
            drop(result);
            if gives_back(&good, number) {
                assert_warned(fault);
            }
            assert_restored(&script, stack, fault);
            assert_eq!(script.misuses(), 0, "{fault:?}");
            // What cannot be entered can be freed only by whoever ends it.
            if fault.lasting || enters_to_free(&good, number) || among(fault.call, &["cuCtxPopCurrent_v2"]) {
                script.reset();
            } else {
                script.assert_clean(&format!("{fault:?}"));
            }
        });
        println!("opening on a thread with {thread:?}: {} calls, {count} faults", good.len());
    }
}

/// A module in a context that cannot be entered stays, and ends with the context: it may not be freed in another one.
#[test]
fn what_cannot_be_entered_is_not_freed_elsewhere() {
    for failing in ENTERING {
        let script = two_devices();
        script.set_stack(&[script.make_context(1)]);
        let kernel = script.open(Some(0)).expect("opens");
        kernel.prepare(&[launch(3)]).expect("compiles");
        script.forget();
        take_warnings();
        script.fail(Some(failing), 1, 709);
        drop(kernel);
        assert_eq!(script.calls_of("cuModuleUnload"), [], "{failing}");
        assert!(take_warnings().iter().any(|warning| warning.contains(failing.trim_end_matches("_v2"))), "{failing}");
        script.assert_clean("the primary context has taken it along");
    }
}

#[test]
fn every_status_that_has_advice_is_among_those_tried() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/driver/cuda/advice.rs");
    let text = fs::read_to_string(source).expect("the advice is there");
    let mut numbers = Vec::new();
    for line in text.lines().filter_map(|line| line.trim().split_once(" =>")).map(|(pattern, _)| pattern) {
        let of_digits = |c: char| !c.is_ascii_digit();
        numbers.extend(line.split(of_digits).filter_map(|number| number.parse::<i32>().ok()));
    }
    assert!(numbers.len() >= 20, "{numbers:?}");
    for number in numbers {
        let row = DRIVER_CODES.iter().find(|(tried, _)| *tried == number);
        assert!(row.is_some_and(|(_, advice)| !advice.is_empty()), "{number} has advice that no test has seen");
    }
}

#[test]
fn libraries_that_give_no_texts_still_give_the_code() {
    let script = Script::new();
    script.mute();
    for (function, code) in [("cuModuleLoadData", 912), ("nvrtcCreateProgram", 913)] {
        script.forget();
        script.fail(Some(function), 1, code);
        let text = script.open(None).expect_err("it fails").to_string();
        for part in [function, &code.to_string(), "without a name", "no text"] {
            assert!(text.contains(part), "{part} in: {text}");
        }
        script.assert_clean("after a call that failed");
    }
}

// --- kernels ------------------------------------------------------------------------------------------------------------

/// A launch whose key no other number has.
fn launch(number: usize) -> Launch {
    let case = Case::new(2, 2, 3, 1, 16 << number);
    validate(&Problem::contiguous(case.dims, case.dtypes), &addresses()).expect("a legal launch")
}

#[test]
fn each_call_of_preparing_fails_in_turn_and_preparing_again_succeeds() {
    for thread in THREADS {
        let script = two_devices();
        let make = |fault: Option<(usize, Fault<'_>)>| {
            script.forget();
            let stack = set_thread(&script, thread);
            let kernel = script.open(Some(0)).expect("opens");
            if let Some((number, fault)) = fault {
                arm(&script, number, fault);
            } else {
                script.forget();
            }
            // One key: with several, their calls come in any order.
            let result = kernel.prepare(&[launch(1)]);
            (stack, kernel, result)
        };
        let (_, kernel, result) = make(None);
        result.expect("without faults");
        let good = script.calls();
        drop(kernel);
        script.assert_clean("after a good run");
        assert!(good.iter().any(|call| call.function == "nvrtcCompileProgram"));

        let count = each_fault(&good, |number, fault| {
            let (stack, kernel, result) = make(Some((number, fault)));
            match (&result, telling(&good, number, fault)) {
                (Err(Error::Driver(error)), Some(told)) => {
                    assert_eq!(error.code, i64::from(fault.code as u32), "{fault:?}");
                    assert_tells(&error.to_string(), Fault { call: &good[told - 1], ..fault });
                    if !fault.lasting {
                        assert_stopped(&script.calls(), number, fault);
                    }
                }
                (Ok(()), None) => {}
                (result, told) => panic!("{fault:?}: told by call {told:?}: {result:?}"),
            }
            assert_restored(&script, stack, fault);
            assert_eq!(script.misuses(), 0, "{fault:?}");
            let programs = script.live().2;
            assert_eq!(programs, 0, "{fault:?}");
            if gives_back(&good, number) {
                assert_warned(fault);
            }
            if !fault.lasting {
                script.forget();
                kernel.prepare(&[launch(1)]).unwrap_or_else(|error| panic!("{fault:?}, and again: {error}"));
                assert_eq!(script.live().0, 1, "{fault:?}");
                // Once it is there, nothing is made again.
                script.forget();
                kernel.prepare(&[launch(1)]).expect("it is there");
                assert_eq!(script.called(), [""; 0], "{fault:?}");
            }
            script.forget();
            drop(kernel);
            if fault.lasting || among(fault.call, &["cuCtxPopCurrent_v2"]) {
                script.reset();
            } else {
                script.assert_clean(&format!("{fault:?}"));
            }
        });
        println!("preparing on a thread with {thread:?}: {} calls, {count} faults", good.len());
    }
}

/// Several keys at once, of which one fails: the others are there all the same, or are made when they are needed.
#[test]
fn a_key_that_fails_does_not_keep_others_from_being_made() {
    let script = Script::new();
    let kernel = script.open(None).expect("opens");
    let launches = [launch(0), launch(1), launch(2), launch(3)];
    for function in ["nvrtcCompileProgram", "cuModuleLoadData"] {
        script.forget();
        script.fail(Some(function), 2, 6);
        let error = kernel.prepare(&launches).expect_err("one of them fails");
        assert!(error.to_string().contains(function), "{error}");
    }
    script.forget();
    kernel.prepare(&launches).expect("nothing is in the way");
    assert_eq!(script.live(), (4, 0, 0));
    script.forget();
    for launch in &launches {
        // SAFETY: the script reads none of the tensors.
        unsafe { kernel.launch(launch, Stream::DEFAULT) }.expect("it is there");
    }
    assert_eq!(script.calls_of("cuModuleLoadData"), []);
    drop(kernel);
    script.assert_clean("after closing");
}

#[test]
fn each_call_of_closing_fails_in_turn() {
    for thread in THREADS {
        let script = two_devices();
        let make = || {
            script.forget();
            set_thread(&script, thread);
            let kernel = script.open(Some(0)).expect("opens");
            kernel.prepare(&[launch(0), launch(1)]).expect("compiles");
            script.forget();
            (script.stack(), kernel)
        };
        drop(make().1);
        let good = script.calls();
        script.assert_clean("after a good run");
        assert_eq!(good.iter().filter(|call| call.function == "cuModuleUnload").count(), 2);
        let count = each_fault(&good, |number, fault| {
            let (stack, kernel) = make();
            arm(&script, number, fault);
            drop(kernel);
            assert_warned(fault);
            assert_restored(&script, stack, fault);
            assert_eq!(script.misuses(), 0, "{fault:?}");
            let released = script.calls_of("cuDevicePrimaryCtxRelease_v2").len();
            assert_eq!(released, usize::from(thread != Thread::Own), "{fault:?}: whatever failed before");
            script.reset();
        });
        println!("closing on a thread with {thread:?}: {} calls, {count} faults", good.len());
    }
}

// --- steps and launches -------------------------------------------------------------------------------------------------

fn step_faults(script: &Script, kernel: &CudaKernel, case: &Case, stack: &[u64]) -> (usize, usize) {
    let before = Fixture::new(case);
    let run = |after: &mut Fixture| {
        script.set_stack(stack);
        kernel.step(slices(after))
    };
    run(&mut before.clone()).unwrap_or_else(|error| panic!("compiles: {error}"));
    script.forget();
    let mut results = before.clone();
    run(&mut results).unwrap_or_else(|error| panic!("without faults: {error}"));
    let good = script.calls();
    assert!(results.any_write(&before).is_some(), "a good run brings results back");
    assert_eq!(results.stray_write(&before), None);
    let first_download = 1 + good.iter().position(Call::is_download).expect("results are copied to the host");
    let on_stack = (stack.len() as u32, stack.last().copied().unwrap_or(0));
    let modules = script.live().0;

    let count = each_fault(&good, |number, fault| {
        let lost = script.live().1;
        arm(script, number, fault);
        let mut after = before.clone();
        match (run(&mut after), telling(&good, number, fault)) {
            (Err(Error::Driver(error)), Some(told)) => {
                assert_eq!(error.code, i64::from(fault.code as u32), "{fault:?}");
                assert_tells(&error.to_string(), Fault { call: &good[told - 1], ..fault });
                assert!(!error.to_string().contains("unsupported shapes"), "no reason to take the graph path: {error}");
                let written = after.any_write(&before);
                // A download that fails has written nothing, the ones before it have.
                assert!(number > first_download || written.is_none(), "{fault:?} before any result, and: {written:?}");
            }
            (Ok(()), None) => {
                assert_eq!(after.any_write(&results), None, "{fault:?}: the results were there already");
            }
            (result, told) => panic!("{fault:?}: told by call {told:?}: {result:?}"),
        }
        if gives_back(&good, number) {
            assert_warned(fault);
        }
        assert_eq!(after.stray_write(&before), None, "{fault:?}");
        assert_restored(script, on_stack, fault);
        assert_eq!(script.misuses(), 0, "{fault:?}");
        let (modules_now, allocations, programs) = script.live();
        assert_eq!((modules_now, programs), (modules, 0), "{fault:?}: the modules stay");
        if !fault.lasting {
            let left = u32::from(enters_to_free(&good, number));
            assert_eq!(allocations, lost + left, "{fault:?}: memory is given back");
        }
    });

    // The kernel is as good as before.
    script.forget();
    let mut after = before.clone();
    run(&mut after).unwrap_or_else(|error| panic!("after all faults: {error}"));
    assert_eq!(after.any_write(&results), None);
    (good.len(), count)
}

#[test]
fn each_call_of_a_step_fails_in_turn() {
    for thread in THREADS {
        let script = two_devices();
        set_thread(&script, thread);
        let own = script.stack().1;
        let stack = if own == 0 { vec![] } else { vec![own] };
        let kernel = script.open(Some(0)).expect("opens");
        for case in step_cases() {
            let (calls, count) = step_faults(&script, &kernel, &case, &stack);
            println!("step on a thread with {thread:?}: {calls} calls, {count} faults");
        }
        script.forget();
        drop(kernel);
        assert_eq!((script.live().0, script.misuses()), (0, 0));
    }
}

#[test]
fn memory_that_does_not_suffice_is_told_and_given_back() {
    let script = Script::new();
    let kernel = script.open(None).expect("opens");
    assert_lack_of_memory_is_told(&script, &kernel);
}

#[test]
fn each_call_of_a_launch_fails_in_turn() {
    // Devices with and without overlap, which are launched on by different functions.
    for capability in [(9, 0), (8, 0)] {
        for thread in THREADS {
            let script = Script::new();
            script.set_devices(&[capability; 2]);
            let stack = set_thread(&script, thread);
            let kernel = script.open(Some(0)).expect("opens");
            let launch = large_launch();
            let run = || {
                script.set_stack(if stack.1 == 0 { &[] } else { std::slice::from_ref(&stack.1) });
                // SAFETY: the script reads none of the tensors.
                unsafe { kernel.launch(&launch, Stream::DEFAULT) }
            };
            run().expect("compiles");
            script.forget();
            run().expect("without faults");
            let good = script.calls();
            let is_launch = |call: &&Call| call.function.starts_with("cuLaunchKernel");
            assert_eq!(good.iter().filter(is_launch).count(), 2, "{good:?}");
            let count = each_fault(&good, |number, fault| {
                arm(&script, number, fault);
                match (run(), telling(&good, number, fault)) {
                    (Err(Error::Driver(error)), Some(told)) => {
                        assert_eq!(error.code, i64::from(fault.code as u32), "{fault:?}");
                        assert_tells(&error.to_string(), Fault { call: &good[told - 1], ..fault });
                        // `cuLaunchKernel` is the beginning of the other name.
                        let part = format!("{}(", good[told - 1].function);
                        assert!(!is_launch(&&good[told - 1]) || error.to_string().contains(&part), "{error}");
                    }
                    (Ok(()), None) => assert_warned(fault),
                    (result, told) => panic!("{fault:?}: told by call {told:?}: {result:?}"),
                }
                assert_restored(&script, stack, fault);
                assert_eq!((script.live(), script.misuses()), ((1, 0, 0), 0), "{fault:?}");
                // A part of the batch that failed is not followed by the next part.
                let calls = script.calls();
                let launches: Vec<&Call> = calls.iter().filter(is_launch).collect();
                let failed = launches.iter().position(|call| call.status != 0);
                assert!(failed.is_none_or(|at| at + 1 == launches.len()), "{fault:?}: {launches:?}");
            });
            println!("launch on {capability:?}, a thread with {thread:?}: {} calls, {count} faults", good.len());
            script.forget();
            script.set_stack(&[]);
            drop(kernel);
            script.assert_clean("after the kernel is gone");
        }
    }
}

/// The first launch of a problem, which makes its kernel.
#[test]
fn each_call_of_a_first_launch_fails_in_turn_and_the_next_one_succeeds() {
    let script = two_devices();
    let kernel = || script.open(Some(0)).expect("opens");
    let run = |kernel: &CudaKernel| {
        // SAFETY: the script reads none of the tensors.
        unsafe { kernel.launch(&launch(2), Stream::DEFAULT) }
    };
    let first = kernel();
    script.forget();
    run(&first).expect("without faults");
    let good = script.calls();
    drop(first);
    for function in ["cuStreamIsCapturing", "nvrtcCompileProgram", "cuModuleLoadData", "cuLaunchKernelEx"] {
        assert!(good.iter().any(|call| call.function == function), "{function}");
    }
    let count = each_fault(&good, |number, fault| {
        script.forget();
        let kernel = kernel();
        arm(&script, number, fault);
        match (run(&kernel), telling(&good, number, fault)) {
            (Err(Error::Driver(error)), Some(told)) => {
                assert_tells(&error.to_string(), Fault { call: &good[told - 1], ..fault });
                if !fault.lasting {
                    assert_stopped(&script.calls(), number, fault);
                }
            }
            (Ok(()), None) if gives_back(&good, number) => assert_warned(fault),
            (Ok(()), None) => assert!(is_log(fault.call), "{fault:?}"),
            (result, told) => panic!("{fault:?}: told by call {told:?}: {result:?}"),
        }
        assert_eq!((script.live().2, script.misuses()), (0, 0), "{fault:?}");
        script.forget();
        script.set_stack(&[]);
        if !fault.lasting {
            run(&kernel).unwrap_or_else(|error| panic!("{fault:?}, and again: {error}"));
        }
        drop(kernel);
        script.assert_clean(&format!("{fault:?}"));
    });
    println!("a first launch: {} calls, {count} faults", good.len());
}
