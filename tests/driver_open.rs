//! Which devices the ROCm port opens on, which code object it loads there, and what it says where it does not open.

#![cfg(all(feature = "rocm", target_os = "linux"))]

mod common;

use common::images::{self, MACHINES, for_machine, good, machine, on_board};
use common::scripted::Script;
use ssm_update::ports::rocm::{Image, RocmKernel};
use ssm_update::{Kernel, Unavailable, switches};

/// Calls by which something comes to be on a device.
const MAKING: [&str; 3] = ["hipModuleLoadData", "hipMalloc", "hipModuleLaunchKernel"];

fn assert_nothing_was_made(script: &Script, when: &str) {
    assert_eq!(script.made(), 0, "{when}");
    for function in MAKING {
        assert_eq!(script.calls_of(function), [], "{when}");
    }
}

/// An image for another architecture: the same code, which the script does not run.
fn image(target: &'static str, bytes: &'static [u8]) -> Image<'static> {
    Image { target, bytes, ..good() }
}

/// Images for these architectures.
fn images_for(targets: &[&'static str]) -> Vec<Image<'static>> {
    targets.iter().map(|&target| image(target, for_machine(good().bytes, machine(target)).leak())).collect()
}

#[test]
fn the_port_opens_on_a_device_that_it_has_a_code_object_for() {
    for on_board in on_board() {
        let script = Script::new();
        script.set_devices(&[(on_board.target, 32)]);
        let kernel = script.open(None, images::on_board()).unwrap_or_else(|why| panic!("{on_board:?}: {why}"));
        assert_eq!(kernel.port(), "rocm");
        let text = kernel.describe();
        for part in [on_board.target, "Scripted GPU 0", "device 0", "HIP 7.2", on_board.compiler] {
            assert!(text.contains(part), "{part} in: {text}");
        }
        assert!(text.contains(&script.path().display().to_string()), "where the runtime comes from: {text}");
        assert_eq!(format!("{kernel:?}"), format!("RocmKernel({text})"));

        let loads = script.calls_of("hipModuleLoadData");
        assert_eq!(loads.len(), 1);
        assert_eq!(loads[0].arguments[0], on_board.bytes.as_ptr().addr() as u64, "the image itself, not a copy");
        assert_eq!(loads[0].arguments[2], on_board.bytes.len() as u64, "all of it");
        drop(kernel);
        script.assert_clean("after closing");
    }
}

/// Of two names that begin alike, neither serves for the other; features behind a colon are no part of the name.
#[test]
fn a_code_object_is_loaded_for_exactly_its_architecture() {
    let targets = ["gfx1151", "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1152", "gfx1200"];
    let script = Script::new();
    let absent = ["gfx1153", "gfx1201", "gfx90a", "gfx942:sramecc+:xnack-", "gfx11-generic", "gfx115", "gfx11510"];
    let odd = ["GFX1151", " gfx1151", "gfx1151 ", "gfx1151-", ":gfx1151", ""];
    for device in targets.into_iter().chain(absent).chain(odd) {
        for with_features in [device.to_owned(), format!("{device}:xnack-"), format!("{device}:sramecc+:xnack-")] {
            script.set_devices(&[(&with_features, 32)]);
            let name = with_features.split(':').next().unwrap_or_default();
            // All of them on board, all but the device's own, and the device's own alone.
            let (own, others): (Vec<_>, Vec<_>) = targets.iter().copied().partition(|target| *target == name);
            for on_board in [&targets[..], &others, &own] {
                script.forget();
                let result = script.open(None, &images_for(on_board));
                let loaded: Vec<u64> =
                    script.calls_of("hipModuleLoadData").iter().map(|call| call.arguments[1] & 0xff).collect();
                if on_board.contains(&name) {
                    assert!(result.is_ok(), "{with_features}: {result:?}");
                    assert_eq!(loaded, [u64::from(machine(name))], "{with_features} of {on_board:?}");
                    continue;
                }
                assert_eq!(loaded, [0; 0], "{with_features} of {on_board:?}");
                let why = result.expect_err("no code object for it");
                let Unavailable::Architecture { device: 0, architecture, on_board: listed, note } = &why else {
                    panic!("{with_features}: {why:?}")
                };
                assert_eq!((&architecture[..], &note[..]), (name, ""));
                assert_eq!(listed, on_board);
                let text = why.to_string();
                assert!(text.contains(name) && on_board.iter().all(|target| text.contains(target)), "{text}");
            }
        }
    }
    script.assert_clean("after all of them");
}

#[test]
fn the_architecture_is_read_in_the_layout_that_belongs_to_the_symbol() {
    let target = good().target;
    for (without, used) in [
        (&[][..], "hipGetDevicePropertiesR0600"),
        (&["hipGetDeviceProperties"], "hipGetDevicePropertiesR0600"),
        (&["hipGetDevicePropertiesR0600"], "hipGetDeviceProperties"),
    ] {
        let script = Script::without(without);
        script.set_devices(&[("gfx906", 32), (target, 32)]);
        let kernel = script.open(Some(1), on_board()).unwrap_or_else(|why| panic!("without {without:?}: {why}"));
        assert!(kernel.describe().contains("Scripted GPU 1"), "{}", kernel.describe());
        let asked: Vec<String> = script.called().into_iter().filter(|call| call.contains("Properties")).collect();
        assert_eq!(asked, [used], "without {without:?}");
        let why = script.open(Some(0), on_board()).expect_err("no code object for gfx906");
        assert!(matches!(&why, Unavailable::Architecture { architecture, .. } if architecture == "gfx906"), "{why}");
    }
}

#[test]
fn a_runtime_without_either_properties_function_is_refused() {
    let both = ["hipGetDevicePropertiesR0600", "hipGetDeviceProperties"];
    let script = Script::without(&both);
    let why = script.open(None, on_board()).expect_err("the architecture is not known");
    assert!(matches!(why, Unavailable::NoDevice(_)), "{why:?}");
    for name in both {
        assert!(why.to_string().contains(name), "{why}");
    }
    assert_nothing_was_made(&script, "the architecture is not known");
}

/// The fifth layer of the wave32 guard, alone: everything else about these devices is right.
#[test]
fn a_device_whose_waves_are_not_known_to_have_32_lanes_is_refused() {
    let script = Script::new();
    for lanes in [64, 0, 16, 33, -32, i32::MAX] {
        script.set_devices(&[(good().target, lanes)]);
        script.forget();
        let why = script.open(None, on_board()).expect_err("not 32 lanes");
        assert_eq!(why, Unavailable::Wavefront { device: 0, reported: lanes.to_string() });
        let text = why.to_string();
        assert!(text.contains("32 lanes") && text.contains(&lanes.to_string()), "{text}");
        assert_nothing_was_made(&script, &format!("{lanes} lanes"));
    }
    script.set_devices(&[(good().target, 32)]);
    for code in [1, 101, 911, 99_999] {
        script.forget();
        script.fail(Some("hipDeviceGetAttribute"), 1, code);
        let why = script.open(None, on_board()).expect_err("the query fails");
        let Unavailable::Wavefront { device: 0, reported } = &why else { panic!("{why:?}") };
        assert!(reported.contains(&code.to_string()) && reported.contains("the script's own words"), "{reported}");
        assert_nothing_was_made(&script, &format!("a query that fails with {code}"));
    }
    script.forget();
    assert!(script.open(None, on_board()).is_ok(), "32 lanes");
}

/// The fourth layer, alone: device and machine are right, and the note of one kernel says 64.
#[test]
fn a_code_object_with_waves_of_64_lanes_does_not_reach_the_driver() {
    let names = ["waves of 64 lanes in all kernels", "waves of 64 lanes in one kernel", "waves of unknown lanes"];
    for what in names {
        let broken = images::broken().into_iter().find(|broken| broken.what == what).expect("in the list");
        let script = Script::new();
        let why = script.open(None, &[Image { bytes: &broken.bytes, ..good() }]).expect_err(what);
        assert!(why.to_string().contains("lanes"), "{what}: {why}");
        assert_nothing_was_made(&script, what);
    }
}

#[test]
fn no_broken_image_reaches_the_driver() {
    let script = Script::new();
    let all = images::broken();
    assert!(all.len() > 40);
    for broken in all {
        script.forget();
        let image = Image { bytes: &broken.bytes, ..good() };
        // Behind a good one that is for another device: only the device's own counts.
        let other = images_for(&[if good().target == "gfx1030" { "gfx1151" } else { "gfx1030" }])[0];
        for on_board in [&[image][..], &[other, image]] {
            let why = script.open(None, on_board).expect_err(broken.what);
            let Unavailable::CodeObject { target, fault } = &why else { panic!("{}: {why:?}", broken.what) };
            assert_eq!(target, good().target, "{}", broken.what);
            assert!(fault.len() > 10 && why.to_string().contains(fault), "{}: {why}", broken.what);
            assert_nothing_was_made(&script, broken.what);
        }
    }
    // And one that is broken does not stand in the way of a good one for the device.
    let broken = Image { target: "gfx1030", bytes: b"not a code object", ..good() };
    script.forget();
    if good().target != broken.target {
        script.open(None, &[broken, good()]).expect("the device's own is good");
    }
}

#[test]
fn an_override_of_the_architecture_is_mentioned_where_loading_fails() {
    let script = Script::new();
    let set = |value: Option<&str>| switches::Rocm { hsa_override: value.map(Into::into), ..script.switches() };
    let open = |value: Option<&str>| RocmKernel::open(&set(value), None, on_board());
    for failing in ["hipModuleLoadData", "hipModuleGetFunction", "no code object"] {
        let text = |value: Option<&str>| {
            script.forget();
            if failing == "no code object" {
                script.set_devices(&[("gfx1036", 32)]);
            } else {
                script.set_devices(&[(good().target, 32)]);
                script.fail(Some(failing), 1, 209);
            }
            open(value).expect_err(failing).to_string()
        };
        let (with, without) = (text(Some("11.0.0")), text(None));
        assert!(with.contains("HSA_OVERRIDE_GFX_VERSION=11.0.0"), "{failing}: {with}");
        assert!(!without.contains("HSA_OVERRIDE"), "{failing}: {without}");
        // Besides the advice that there is anyway.
        assert!(with.starts_with(&without), "{failing}: {with}\n{without}");
    }
    script.assert_clean("after the failures");
}

/// What a runtime that is too old for a chip answers, as users reported it.
#[test]
fn a_runtime_that_refuses_the_code_object_is_told_with_the_version_that_does_not() {
    let script = Script::new();
    for (function, code) in [
        ("hipModuleLoadData", 209),
        ("hipModuleLoadData", 200),
        ("hipModuleLoadData", 301),
        ("hipModuleGetFunction", 98),
    ] {
        script.forget();
        script.fail(Some(function), 1, code);
        let text = script.open(None, on_board()).expect_err("refused").to_string();
        for part in [function, good().target, &code.to_string(), "ROCm 7.2", "the script's own words"] {
            assert!(text.contains(part), "{part} in: {text}");
        }
        script.assert_clean("after a refusal");
    }
}

#[test]
fn without_a_device_the_port_does_not_open() {
    let script = Script::new();
    script.set_devices(&[]);
    let why = script.open(None, on_board()).expect_err("no device");
    assert!(matches!(why, Unavailable::NoDevice(_)), "{why:?}");
    assert!(why.to_string().contains("no device"), "{why}");
    assert_nothing_was_made(&script, "no device");
    // The other way in which runtimes say it.
    for function in ["hipInit", "hipGetDeviceCount"] {
        script.forget();
        script.fail(Some(function), 1, 100);
        let text = script.open(None, on_board()).expect_err("no device").to_string();
        for part in [function, "(100)", "rocminfo", "render", "HIP_VISIBLE_DEVICES"] {
            assert!(text.contains(part), "{part} in: {text}");
        }
    }
}

#[test]
fn a_device_that_is_not_there_is_refused_by_its_number() {
    let script = Script::new();
    script.set_devices(&[(good().target, 32); 2]);
    for device in [2, -1, i32::MAX, i32::MIN] {
        script.forget();
        let why = script.open(Some(device), on_board()).expect_err("there are two");
        assert!(matches!(why, Unavailable::NoDevice(_)), "{why:?}");
        assert!(why.to_string().contains(&format!("device {device} of 2")), "{why}");
        assert_eq!(script.calls_of("hipSetDevice"), []);
        assert_nothing_was_made(&script, "no such device");
    }
}

#[test]
fn without_a_number_the_threads_own_device_is_taken_and_it_stays_the_threads_own() {
    let targets = ["gfx1151", "gfx1030", "gfx1100"];
    let script = Script::new();
    script.set_devices(&targets.map(|target| (target, 32)));
    let on_board = images_for(&targets);
    for own in 0..3 {
        for wanted in [None, Some(0), Some(1), Some(2)] {
            script.set_current_device(own);
            script.forget();
            let kernel = script.open(wanted, &on_board).expect("opens");
            let device = wanted.unwrap_or(own);
            assert!(kernel.describe().contains(&format!("device {device},")), "{}", kernel.describe());
            assert!(kernel.describe().starts_with(targets[device as usize]), "{}", kernel.describe());
            assert_eq!(script.current_device(), own);
            let load = &script.calls_of("hipModuleLoadData")[0];
            let flags = u64::from(machine(targets[device as usize]));
            assert_eq!((load.device, load.arguments[1] & 0xff), (device, flags), "loaded there, and its own image");
            drop(kernel);
            assert_eq!(script.current_device(), own);
        }
    }
    script.assert_clean("after closing all of them");
}

#[test]
fn every_machine_of_the_list_of_targets_can_be_tested() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("hip/targets.txt");
    let text = std::fs::read_to_string(path).expect("the list of targets is there");
    for target in text.lines().filter(|line| line.starts_with("gfx")) {
        assert!(MACHINES.iter().any(|(name, _)| *name == target), "{target} is missing in tests/common/images.rs");
    }
}
