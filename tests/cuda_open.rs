//! Which devices the CUDA port opens on, for which architecture it compiles there, in which context it works, and what it says
//! where it does not open. Against a scripted driver and a scripted NVRTC.

#![cfg(all(feature = "cuda", target_os = "linux"))]

mod common;

use common::scripted_cuda::{DRIVER, NVRTC, Script};
use common::scripting::Call;
use ssm_update::{Kernel, Unavailable};

/// Calls by which something comes to be on a device.
const MAKING: [&str; 5] =
    ["cuDevicePrimaryCtxRetain", "cuModuleLoadData", "cuMemAlloc_v2", "cuLaunchKernel", "cuLaunchKernelEx"];

fn assert_nothing_was_made(script: &Script, when: &str) {
    for function in MAKING {
        assert_eq!(script.calls_of(function), [], "{when}");
    }
    script.assert_clean(when);
}

fn refused(script: &Script, device: Option<i32>, when: &str) -> Unavailable {
    match script.open(device) {
        Ok(kernel) => panic!("{when}: opened as {}", kernel.describe()),
        Err(why) => why,
    }
}

/// The architecture that a compilation was asked for.
fn architecture(compilation: &Call) -> i32 {
    let wanted: Vec<i32> = compilation
        .notes()
        .iter()
        .filter_map(|option| option.strip_prefix("--gpu-architecture=sm_")?.parse().ok())
        .collect();
    assert_eq!(wanted.len(), 1, "{compilation:?}");
    wanted[0]
}

#[test]
fn the_port_opens_and_says_what_it_found() {
    let script = Script::new();
    let kernel = script.open(None).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(kernel.port(), "cuda");
    let text = kernel.describe();
    let path = script.path().display().to_string();
    for part in ["Scripted GPU 0", "sm_90", "device 0", "12.4", "NVRTC 12.4", "not kept"] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    assert_eq!(text.matches(&path).count(), 2, "where driver and NVRTC come from: {text}");
    assert_eq!(format!("{kernel:?}"), format!("CudaKernel({text})"));
    // What was tried stays tried: a small kernel, compiled and loaded, of which nothing is left.
    assert_eq!(script.calls_of("nvrtcCompileProgram").len(), 1);
    assert_eq!(script.calls_of("cuModuleLoadData").len(), 1);
    assert_eq!(script.live(), (0, 0, 0));
    drop(kernel);
    script.assert_clean("after closing");
}

/// A CUBIN runs on its own architecture and on later ones of the same major number, and on no other.
#[test]
fn the_newest_architecture_that_the_device_runs_is_compiled_for() {
    let of_12 = [50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90];
    let of_13 = [120, 75, 80, 86, 87, 88, 89, 90, 100, 110, 103, 121];
    for (known, capability, expected) in [
        (&of_12[..], (7, 0), 70),
        (&of_12, (7, 2), 72),
        (&of_12, (7, 5), 75),
        (&of_12, (8, 0), 80),
        (&of_12, (8, 6), 86),
        (&of_12, (8, 7), 87),
        (&of_12, (8, 9), 89),
        (&of_12, (9, 0), 90),
        // Newer than the compiler, of a major number that it knows.
        (&of_12, (7, 4), 72),
        (&of_12, (8, 8), 87),
        (&of_12, (9, 9), 90),
        // In whatever order it names them.
        (&of_13, (7, 5), 75),
        (&of_13, (8, 8), 88),
        (&of_13, (10, 0), 100),
        (&of_13, (10, 2), 100),
        (&of_13, (10, 3), 103),
        (&of_13, (11, 0), 110),
        (&of_13, (12, 0), 120),
        (&of_13, (12, 1), 121),
    ] {
        let script = Script::new();
        script.set_architectures(known);
        script.set_devices(&[capability]);
        let kernel = script.open(None).unwrap_or_else(|why| panic!("{capability:?}: {why}"));
        let (major, minor) = capability;
        for part in [format!("sm_{major}{minor}"), format!("compiled for sm_{expected} ")] {
            assert!(kernel.describe().contains(&part), "{part} in: {}", kernel.describe());
        }
        assert_eq!(architecture(&script.calls_of("nvrtcCompileProgram")[0]), expected, "{capability:?}");
        assert_eq!(script.calls_of("cuModuleLoadData")[0].arguments[1], expected as u64, "{capability:?}");
        drop(kernel);
        script.assert_clean(&format!("{capability:?}"));
    }
}

#[test]
fn an_architecture_that_nvrtc_does_not_know_is_told_with_those_that_it_knows() {
    for (known, capability, name) in [
        (&[75, 80, 86, 90][..], (10, 0), "sm_100"),
        (&[75, 80, 86, 90], (12, 1), "sm_121"),
        // Of the same major number, and newer than the device.
        (&[75, 80, 86, 90], (7, 0), "sm_70"),
        (&[75, 80, 86, 90], (7, 2), "sm_72"),
        (&[86, 90], (8, 0), "sm_80"),
    ] {
        let script = Script::new();
        script.set_architectures(known);
        script.set_devices(&[capability]);
        let text = refused(&script, None, name).to_string();
        let known: Vec<String> = known.iter().map(|known| format!("sm_{known}")).collect();
        for part in ["NVRTC 12.4", name, &known.join(", ")] {
            assert!(text.contains(part), "{part} in: {text}");
        }
        assert_nothing_was_made(&script, name);
    }
    // A compiler that names none at all.
    let script = Script::new();
    script.set_architectures(&[]);
    assert!(refused(&script, None, "no architecture").to_string().contains("sm_90"));
    assert_nothing_was_made(&script, "no architecture");
}

#[test]
fn a_device_that_the_source_is_not_written_for_is_refused() {
    let script = Script::new();
    for capability in [(6, 1), (6, 2), (6, 0), (5, 2), (3, 5), (0, 0), (6, 9)] {
        script.forget();
        script.set_devices(&[capability]);
        let why = refused(&script, None, "too old");
        assert!(matches!(why, Unavailable::NoDevice(_)), "{why:?}");
        for part in ["Scripted GPU 0", "device 0", &format!("{}.{}", capability.0, capability.1), "7.0"] {
            assert!(why.to_string().contains(part), "{part} in: {why}");
        }
        assert_nothing_was_made(&script, "too old");
        let called = script.called();
        assert!(!called.iter().any(|call| call.starts_with("nvrtc")), "no compiler is asked: {called:?}");
    }
    script.set_devices(&[(7, 0)]);
    script.open(None).expect("the oldest that it is written for");
}

#[test]
fn without_a_device_the_port_does_not_open() {
    let script = Script::new();
    script.set_devices(&[]);
    let why = refused(&script, None, "no device");
    assert!(matches!(why, Unavailable::NoDevice(_)), "{why:?}");
    for part in ["no device", "nvidia-smi", "CUDA_VISIBLE_DEVICES", &script.path().display().to_string()] {
        assert!(why.to_string().contains(part), "{part} in: {why}");
    }
    assert_nothing_was_made(&script, "no device");
    // The way in which drivers really say it.
    for (function, code) in [("cuInit", 100), ("cuDeviceGetCount", 100), ("cuInit", 101)] {
        script.forget();
        script.fail(Some(function), 1, code);
        let text = refused(&script, None, "no device").to_string();
        for part in [function, &format!("({code})"), "nvidia-smi", "/dev/nvidia", "CUDA_VISIBLE_DEVICES"] {
            assert!(text.contains(part), "{part} in: {text}");
        }
        assert_nothing_was_made(&script, "no device");
    }
}

#[test]
fn a_device_that_is_not_there_is_refused_by_its_number() {
    let script = Script::new();
    script.set_devices(&[(9, 0); 2]);
    for device in [2, -1, i32::MAX, i32::MIN] {
        script.forget();
        let why = refused(&script, Some(device), "there are two");
        assert!(matches!(why, Unavailable::NoDevice(_)), "{why:?}");
        assert!(why.to_string().contains(&format!("device {device} of 2")), "{why}");
        assert_nothing_was_made(&script, "no such device");
    }
}

/// A driver loads what any compiler of its own major version makes, or an older one.
#[test]
fn an_nvrtc_newer_than_the_driver_is_refused_with_both_versions() {
    for (driver, nvrtc, taken) in [
        (11_080, (12, 0), false),
        (11_080, (12, 4), false),
        (12_080, (13, 0), false),
        (9_020, (10, 0), false),
        (12_000, (12, 9), true),
        (12_080, (11, 8), true),
        (13_000, (12, 4), true),
        (13_020, (13, 2), true),
    ] {
        let script = Script::new();
        script.set_driver(driver);
        script.set_nvrtc(nvrtc);
        let result = script.open(None);
        if taken {
            let kernel = result.unwrap_or_else(|why| panic!("driver {driver}, NVRTC {nvrtc:?}: {why}"));
            let part = format!("NVRTC {}.{}", nvrtc.0, nvrtc.1);
            assert!(kernel.describe().contains(&part), "{part} in: {}", kernel.describe());
            continue;
        }
        let text = result.expect_err("the driver is older").to_string();
        let dotted = format!("{}.{}", driver / 1000, driver % 1000 / 10);
        for part in [format!("NVRTC {}.{}", nvrtc.0, nvrtc.1), format!("CUDA {dotted}"), "driver".to_owned()] {
            assert!(text.contains(&part), "{part} in: {text}");
        }
        // What to do: another driver, or another NVRTC.
        assert!(text.contains("update") && text.contains(&format!("NVRTC {}", driver / 1000)), "{text}");
        assert_nothing_was_made(&script, "the driver is older");
    }
    assert_eq!((DRIVER, NVRTC), (12_040, (12, 4)), "what the other tests take for granted");
}

#[test]
fn a_compiler_that_compiles_nothing_is_told_with_its_own_words() {
    for (log, words, advice) in [
        ("ssm.cu(3): error: identifier \"x\" is undefined\n", "identifier \"x\" is undefined", ""),
        (
            "nvrtc: error: failed to open libnvrtc-builtins.so.12.4.\n  Make sure that it is installed correctly.",
            "failed to open libnvrtc-builtins.so.12.4",
            "LD_LIBRARY_PATH",
        ),
        ("", "NVRTC gives no text", ""),
    ] {
        for code in [6, 7, 11, 77] {
            let script = Script::new();
            script.set_log(log);
            script.fail(Some("nvrtcCompileProgram"), 1, code);
            let why = refused(&script, None, "nothing compiles");
            let Unavailable::Driver(error) = &why else { panic!("{why:?}") };
            assert_eq!(error.code, i64::from(code));
            let text = why.to_string();
            let of_nvrtc = format!("scriptedNvrtcName({code})");
            for part in ["nvrtcCompileProgram", "sm_90", &of_nvrtc, &format!("({code})"), words, advice] {
                assert!(text.contains(part), "{part} in: {text}");
            }
            assert!(!text.trim_end().ends_with(';'), "advice is announced and missing: {text}");
            assert_eq!(script.calls_of("cuModuleLoadData"), []);
            script.assert_clean("nothing compiles");
            // Another attempt may find it mended.
            script.forget();
            script.open(None).expect("it compiles now");
        }
    }
}

#[test]
fn a_compiler_whose_log_cannot_be_had_still_gives_the_code() {
    for function in ["nvrtcGetProgramLogSize", "nvrtcGetProgramLog"] {
        let script = Script::new();
        script.fail(Some("nvrtcCompileProgram"), 1, 6);
        script.fail(Some(function), 1, 4);
        let text = refused(&script, None, "nothing compiles").to_string();
        assert!(text.contains("nvrtcCompileProgram") && text.contains("(6)") && text.contains("no text"), "{text}");
        script.assert_clean("no log");
    }
}

/// As for a virtual architecture, of which there is only PTX: a driver that was handed no bytes would read others.
#[test]
fn a_compiler_that_gives_no_code_is_told_and_the_driver_is_not_asked() {
    let script = Script::new();
    script.set_cubin_bytes(0);
    let text = refused(&script, None, "no code").to_string();
    assert!(text.contains("nvrtcGetCUBINSize") && text.contains("sm_90"), "{text}");
    assert_eq!(script.calls_of("cuModuleLoadData"), []);
    script.assert_clean("no code");
}

/// What a driver answers to a CUBIN that it does not take.
#[test]
fn a_driver_that_refuses_the_image_is_told_with_what_may_help() {
    let script = Script::new();
    for (function, code) in [
        ("cuModuleLoadData", 200),
        ("cuModuleLoadData", 209),
        ("cuModuleLoadData", 218),
        ("cuModuleLoadData", 222),
        ("cuModuleGetFunction", 500),
    ] {
        script.forget();
        script.fail(Some(function), 1, code);
        let text = refused(&script, None, "refused").to_string();
        let words = format!("the script's own words for {code}");
        for part in [function, &format!("({code})"), &format!("scriptedName({code})"), &words] {
            assert!(text.contains(part), "{part} in: {text}");
        }
        if code != 500 {
            assert!(text.contains("NVRTC") && text.contains("update the driver"), "{text}");
        }
        script.assert_clean("after a refusal");
    }
}

/// What one thread's stack of contexts is before the port opens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    /// None at all.
    Empty,
    /// One of the program's own, on this device.
    Own(i32),
    /// The primary context of this device, as CUDA's runtime has it.
    Primary(i32),
    /// One of the program's own on the first device, above one on the second.
    Two,
}

impl Before {
    const ALL: [Self; 6] = [Self::Empty, Self::Own(0), Self::Own(1), Self::Primary(0), Self::Primary(1), Self::Two];

    /// Makes the contexts; gives the stack and the device of its top.
    fn set(self, script: &Script) -> (Vec<u64>, Option<i32>) {
        let (stack, device) = match self {
            Self::Empty => (vec![], None),
            Self::Own(device) => (vec![script.make_context(device)], Some(device)),
            Self::Primary(device) => (vec![script.retain_primary(device)], Some(device)),
            Self::Two => (vec![script.make_context(1), script.make_context(0)], Some(0)),
        };
        script.set_stack(&stack);
        (stack, device)
    }

    fn unset(self, script: &Script) {
        script.set_stack(&[]);
        if let Self::Primary(device) = self {
            script.release_primary(device);
        }
    }
}

#[test]
fn the_threads_context_is_worked_in_where_it_is_of_the_device_and_stays_the_threads() {
    let script = Script::new();
    script.set_devices(&[(9, 0), (8, 6)]);
    for before in Before::ALL {
        for wanted in [None, Some(0), Some(1)] {
            let (stack, own) = before.set(&script);
            let depth_and_top = (stack.len() as u32, stack.last().copied().unwrap_or(0));
            script.forget();
            let what = format!("{before:?}, device {wanted:?}");
            let kernel = script.open(wanted).unwrap_or_else(|why| panic!("{what}: {why}"));
            assert_eq!(script.stack(), depth_and_top, "{what}");
            let device = wanted.or(own).unwrap_or(0);
            assert!(kernel.describe().contains(&format!("device {device},")), "{what}: {}", kernel.describe());

            let load = &script.calls_of("cuModuleLoadData")[0];
            assert_eq!(load.device, device, "{what}");
            let retained = script.calls_of("cuDevicePrimaryCtxRetain");
            if own == Some(device) {
                assert_eq!(load.context, stack[stack.len() - 1], "{what}: in the thread's own");
                assert_eq!(retained, [], "{what}");
            } else {
                assert_eq!(retained.len(), 1, "{what}");
                assert_eq!(retained[0].arguments[0], device as u64, "{what}");
                assert!(!stack.contains(&load.context), "{what}");
            }
            assert_eq!(script.calls_of("cuDevicePrimaryCtxRelease_v2"), [], "{what}: as long as the port is open");
            drop(kernel);
            assert_eq!(script.stack(), depth_and_top, "{what}, after closing");
            let released = script.calls_of("cuDevicePrimaryCtxRelease_v2");
            assert_eq!(released.len(), retained.len(), "{what}");
            assert!(released.iter().all(|call| call.arguments[0] == device as u64), "{what}");
            before.unset(&script);
            script.assert_clean(&what);
        }
    }
}

#[test]
fn where_opening_fails_the_threads_contexts_are_as_before_and_nothing_is_retained() {
    let script = Script::new();
    script.set_devices(&[(9, 0), (8, 6)]);
    for before in Before::ALL {
        for wanted in [None, Some(0), Some(1)] {
            for failing in
                ["nvrtcCompileProgram", "cuModuleLoadData", "cuModuleGetFunction", "cuDevicePrimaryCtxRetain"]
            {
                let (stack, own) = before.set(&script);
                script.forget();
                script.fail(Some(failing), 1, 6);
                let what = format!("{before:?}, device {wanted:?}, {failing} fails");
                let retains = own != wanted.or(own).or(Some(0));
                match script.open(wanted) {
                    Err(Unavailable::Driver(error)) => assert!(error.call.contains(failing), "{what}: {error}"),
                    Ok(_) if failing == "cuDevicePrimaryCtxRetain" && !retains => {}
                    other => panic!("{what}: {other:?}"),
                }
                assert_eq!(script.stack(), (stack.len() as u32, stack.last().copied().unwrap_or(0)), "{what}");
                before.unset(&script);
                script.assert_clean(&what);
            }
        }
    }
}

/// Devices differ, and a port is opened for each: every one is asked for its own properties.
#[test]
fn each_device_is_compiled_for_by_its_own_architecture() {
    let script = Script::new();
    let capabilities = [(9, 0), (7, 0), (8, 6), (7, 5)];
    script.set_devices(&capabilities);
    let kernels: Vec<_> = (0..4).map(|device| script.open(Some(device)).expect("opens")).collect();
    let compiled: Vec<i32> = script.calls_of("nvrtcCompileProgram").iter().map(architecture).collect();
    assert_eq!(compiled, [90, 70, 86, 75]);
    assert_eq!((0..4).map(|device| script.primary_references(device)).collect::<Vec<_>>(), [1; 4]);
    drop(kernels);
    script.assert_clean("after closing all of them");
}
