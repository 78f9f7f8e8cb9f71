//! Each call of the HIP runtime fails in turn, with codes known and unknown: while the port opens, in a step on host memory and in
//! a launch. Every fault ends in an error that says what failed, what the library said and what to do, and nothing is left behind.

#![cfg(all(feature = "rocm", target_os = "linux"))]

mod common;

use std::fs;
use std::path::Path;

use common::case::Case;
use common::faults::{self, Fault, arm, assert_lack_of_memory_is_told, large_launch, step_cases};
use common::fixture::Fixture;
use common::images::{good, on_board};
use common::log::take_warnings;
use common::run::slices;
use common::scripted::{Call, Script};
use ssm_update::ports::rocm::RocmKernel;
use ssm_update::{Error, Kernel, Stream, Unavailable};

/// A status, its name in HIP, and a part of the advice that comes with it; empty where there is none.
const CODES: [(i32, &str, &str); 20] = [
    (1, "hipErrorInvalidValue", ""),
    (2, "hipErrorOutOfMemory", "memory"),
    (3, "hipErrorNotInitialized", "process ends"),
    (4, "hipErrorDeinitialized", "process ends"),
    (98, "hipErrorInvalidDeviceFunction", "ROCm 7.2"),
    (100, "hipErrorNoDevice", "rocminfo"),
    (101, "hipErrorInvalidDevice", "rocminfo"),
    (200, "hipErrorInvalidImage", "ROCm 7.2"),
    (209, "hipErrorNoBinaryForGpu", "ROCm 7.2"),
    (218, "hipErrorInvalidKernelFile", "ROCm 7.2"),
    (301, "hipErrorFileNotFound", "ROCm 7.2"),
    (400, "hipErrorInvalidHandle", ""),
    (700, "hipErrorIllegalAddress", "start the process anew"),
    (709, "hipErrorContextIsDestroyed", "start the process anew"),
    (719, "hipErrorLaunchFailure", "start the process anew"),
    (900, "hipErrorStreamCaptureUnsupported", "captured"),
    // Newer than every header, beyond every header, and none that HIP has.
    (911, "", ""),
    (99_999, "", ""),
    (-7, "", ""),
    (i32::MIN, "", ""),
];

fn each_fault(good: &[Call], test: impl FnMut(usize, Fault<'_>)) -> usize {
    faults::each_fault(good, |_| CODES.map(|(code, _, advice)| (code, advice)).to_vec(), test)
}

/// A text for people that says which call failed, with which code, in whose words, and what to do.
fn assert_tells(text: &str, fault: Fault<'_>) {
    let Fault { call: Call { function, .. }, code, advice, .. } = fault;
    let parts = [
        function.clone(),
        format!("scriptedName({code})"),
        format!("({code})"),
        format!("the script's own words for {code}"),
        advice.to_owned(),
    ];
    for part in parts {
        assert!(text.contains(&part), "{fault:?}: no {part:?} in: {text}");
    }
    assert!(!text.trim_end().ends_with(';'), "{fault:?}: advice is announced and missing: {text}");
}

/// What the fault is told by, where the call is one whose failure changes no result: a warning.
fn assert_warned(fault: Fault<'_>) {
    let warnings = take_warnings();
    let warning = warnings.iter().find(|warning| warning.contains(&fault.call.function));
    assert_tells(warning.unwrap_or_else(|| panic!("{fault:?}: only {warnings:?} was logged")), fault);
}

/// The device of the threads that run these tests.
const OWN_DEVICE: i32 = 0;

/// Whether a call only gives something back, so that what was asked for is there when it fails: a handle, or the thread's own
/// device after work on another one.
fn gives_back(call: &Call) -> bool {
    match &call.function[..] {
        "hipModuleUnload" | "hipFree" => true,
        "hipSetDevice" => call.arguments[0] == OWN_DEVICE as u64,
        _ => false,
    }
}

/// What has to hold of a whole life of the port, from opening to the end.
fn opening_faults(script: &Script, device: Option<i32>) -> (Vec<String>, usize) {
    script.set_current_device(OWN_DEVICE);
    script.forget();
    drop(script.open(device, on_board()).unwrap_or_else(|why| panic!("without faults: {why}")));
    let good = script.calls();
    script.assert_clean("after a good run");

    let count = each_fault(&good, |number, fault| {
        arm(script, number, fault);
        script.set_current_device(OWN_DEVICE);
        let result = script.open(device, on_board());
        let calls = script.calls();
        match &result {
            Err(Unavailable::Driver(error)) => {
                assert_eq!(error.code, i64::from(fault.code), "{fault:?}");
                assert_tells(&error.to_string(), fault);
            }
            // Whatever the reason, a device that does not say 32 is refused for that.
            Err(why @ Unavailable::Wavefront { .. }) if fault.call.function == "hipDeviceGetAttribute" => {
                assert_tells(&why.to_string(), fault);
            }
            Ok(kernel) if fault.call.function == "hipRuntimeGetVersion" => {
                assert!(kernel.describe().contains("unknown version"), "{}", kernel.describe());
            }
            Ok(_) if gives_back(fault.call) => {}
            other => panic!("{fault:?}: {other:?}"),
        }
        drop(result);
        if gives_back(fault.call) {
            assert_warned(fault);
        } else {
            // Where every later call fails too, nothing can be put back.
            assert!(fault.lasting || script.current_device() == OWN_DEVICE, "{fault:?}");
        }
        // Nothing goes on behind a fault but giving back.
        for call in calls.iter().skip(number).filter(|_| is_refused(fault)) {
            assert!(gives_back(call), "{fault:?}: then {call:?}");
        }
        script.assert_clean(&format!("{fault:?}"));
    });
    (good.into_iter().map(|call| call.function).collect(), count)
}

/// Whether nothing is to be had after such a fault.
fn is_refused(fault: Fault<'_>) -> bool {
    fault.call.function != "hipRuntimeGetVersion" && !gives_back(fault.call)
}

#[test]
fn each_call_of_opening_fails_in_turn() {
    let kernels = ssm_update::ports::rocm::variant::names().len();
    let script = Script::new();
    let with_features = format!("{}:xnack-", good().target);
    script.set_devices(&[(good().target, 32), (&with_features, 32)]);

    let (calls, count) = opening_faults(&script, None);
    let before = ["hipGetDeviceCount", "hipInit", "hipGetDevice", "hipGetDevice", "hipDeviceGetAttribute"];
    let mut expected = before.to_vec();
    expected.extend(["hipGetDevicePropertiesR0600", "hipModuleLoadData"]);
    expected.extend(vec!["hipModuleGetFunction"; kernels]);
    expected.extend(["hipRuntimeGetVersion", "hipModuleUnload"]);
    assert_eq!(calls, expected, "what opening and closing consists of");
    println!("opening on the current device: {} calls, {count} faults", calls.len());

    // On another device than the thread's: one change there, and one back.
    let (calls, count) = opening_faults(&script, Some(1));
    assert_eq!(calls.iter().filter(|call| *call == "hipSetDevice").count(), 2, "{calls:?}");
    println!("opening on another device: {} calls, {count} faults", calls.len());

    // A runtime from before HIP 6.
    let old = Script::without(&["hipGetDevicePropertiesR0600"]);
    let (calls, count) = opening_faults(&old, None);
    assert!(calls.iter().any(|call| call == "hipGetDeviceProperties"), "{calls:?}");
    println!("opening on an older runtime: {} calls, {count} faults", calls.len());
}

#[test]
fn every_status_that_has_advice_is_among_those_tried() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/driver/hip/advice.rs");
    let text = fs::read_to_string(source).expect("the advice is there");
    let names = text.split("hipError_t::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        &rest[..end]
    });
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        let row = CODES.iter().find(|(_, tried, _)| *tried == name);
        assert!(row.is_some_and(|(_, _, advice)| !advice.is_empty()), "{name} has advice that no test has seen");
    }
}

#[test]
fn a_runtime_that_gives_no_texts_still_gives_the_code() {
    let mute = Script::new();
    mute.mute();
    let without = Script::without(&["hipGetErrorName", "hipGetErrorString"]);
    for script in [&mute, &without] {
        script.forget();
        script.fail(Some("hipModuleLoadData"), 1, 911);
        let text = script.open(None, on_board()).expect_err("the load fails").to_string();
        for part in ["hipModuleLoadData", "911", "without a name", "no text"] {
            assert!(text.contains(part), "{part} in: {text}");
        }
        script.assert_clean("after a load that failed");
    }
}

fn step_faults(script: &Script, kernel: &RocmKernel, case: &Case, device: i32) -> (Vec<Call>, usize) {
    let before = Fixture::new(case);
    let modules = script.live().0;
    script.forget();
    script.set_current_device(OWN_DEVICE);
    let mut results = before.clone();
    kernel.step(slices(&mut results)).unwrap_or_else(|error| panic!("without faults: {error}"));
    let good = script.calls();
    assert!(results.any_write(&before).is_some(), "a good run brings results back");
    assert_eq!(results.stray_write(&before), None);
    assert!(device == 0 || good.iter().any(|call| call.function == "hipSetDevice"), "{good:?}");
    let first_download = 1 + good.iter().position(Call::is_download).expect("results are copied to the host");

    let count = each_fault(&good, |number, fault| {
        arm(script, number, fault);
        script.set_current_device(OWN_DEVICE);
        let mut after = before.clone();
        match kernel.step(slices(&mut after)) {
            Err(Error::Driver(error)) => {
                assert_eq!(error.code, i64::from(fault.code), "{fault:?}");
                // Where the call only gave something back, it is the next one that stops the step.
                let told = good[number - 1..].iter().find(|call| !gives_back(call)).expect("one stops it");
                assert!(fault.lasting || !gives_back(fault.call), "{fault:?}");
                assert_tells(&error.to_string(), Fault { call: told, ..fault });
                assert!(!error.to_string().contains("unsupported shapes"), "no reason to take the graph path: {error}");
                let written = after.any_write(&before);
                // A download that fails has written nothing, the ones before it have.
                assert!(number > first_download || written.is_none(), "{fault:?} before any result, and: {written:?}");
            }
            Ok(()) if gives_back(fault.call) => {
                assert_eq!(after.any_write(&results), None, "{fault:?}: the results were there already");
                assert_warned(fault);
            }
            other => panic!("{fault:?}: {other:?}"),
        }
        assert_eq!(after.stray_write(&before), None, "{fault:?}");
        assert_eq!(script.live(), (modules, 0), "{fault:?}: memory is given back, the module stays");
        assert_eq!(script.misuses(), 0, "{fault:?}");
        if !gives_back(fault.call) && !fault.lasting {
            assert_eq!(script.current_device(), OWN_DEVICE, "{fault:?}");
        }
    });

    // The kernel is as good as before.
    script.forget();
    script.set_current_device(OWN_DEVICE);
    let mut after = before.clone();
    kernel.step(slices(&mut after)).unwrap_or_else(|error| panic!("after all faults: {error}"));
    assert_eq!(after.any_write(&results), None);
    (good, count)
}

#[test]
fn each_call_of_a_step_fails_in_turn() {
    let script = Script::new();
    script.set_devices(&[(good().target, 32); 2]);
    for device in [0, 1] {
        let kernel = script.open(Some(device), on_board()).expect("opens");
        for case in step_cases() {
            let (good, count) = step_faults(&script, &kernel, &case, device);
            println!("step on device {device}: {} calls, {count} faults", good.len());
        }
        script.forget();
        drop(kernel);
        script.assert_clean("after the kernel is gone");
    }
}

#[test]
fn memory_that_does_not_suffice_is_told_and_given_back() {
    let script = Script::new();
    let kernel = script.open(None, on_board()).expect("opens");
    assert_lack_of_memory_is_told(&script, &kernel);
}

#[test]
fn each_call_of_a_launch_fails_in_turn() {
    let script = Script::new();
    script.set_devices(&[(good().target, 32); 2]);
    for (device, calls) in [(0, 3), (1, 5)] {
        let kernel = script.open(Some(device), on_board()).expect("opens");
        let launch = large_launch();
        // SAFETY: the script reads none of the tensors.
        let run = || unsafe { kernel.launch(&launch, Stream::DEFAULT) };
        script.forget();
        script.set_current_device(OWN_DEVICE);
        run().expect("without faults");
        let good = script.calls();
        assert_eq!(good.len(), calls, "{good:?}");
        let count = each_fault(&good, |number, fault| {
            arm(&script, number, fault);
            script.set_current_device(OWN_DEVICE);
            match run() {
                Err(Error::Driver(error)) => {
                    assert_eq!(error.code, i64::from(fault.code), "{fault:?}");
                    assert_tells(&error.to_string(), fault);
                }
                Ok(()) if gives_back(fault.call) => assert_warned(fault),
                other => panic!("{fault:?}: {other:?}"),
            }
            assert_eq!(script.live(), (1, 0), "{fault:?}");
            // A part of the batch that failed is not followed by the next part.
            let launches = script.calls_of("hipModuleLaunchKernel");
            let failed = launches.iter().position(|call| call.status != 0);
            assert!(failed.is_none_or(|at| at + 1 == launches.len()), "{fault:?}: {launches:?}");
        });
        println!("launch on device {device}: {} calls, {count} faults", good.len());
        script.forget();
        drop(kernel);
        script.assert_clean("after the kernel is gone");
    }
}
