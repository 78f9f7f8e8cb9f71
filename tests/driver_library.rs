//! Which file the HIP runtime is loaded from, in which order files are tried, and what is said of each that does not do. Run-time
//! loading only: with the feature `hip-runtime-sys` there is nothing to search.

#![cfg(all(feature = "rocm", not(feature = "hip-runtime-sys"), target_os = "linux"))]

mod common;

use std::ffi::OsStr;

use common::child;
use common::folder::Folder;
use common::images::{for_machine, good, machine, on_board};
use common::scripted::{self, Script};
use ssm_update::ports::rocm::{Image, RocmKernel};
use ssm_update::switches::{CUDA_KERNEL, HIP_LIBRARY, HSA_OVERRIDE, KERNEL, PORT, ROCM_PATH, Rocm};
use ssm_update::{Kernel, SSM_PORTS, Unavailable, select_kernel_port};

/// Names in the order in which the system's search is asked for them.
const NAMES: [&str; 4] = ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];

fn open_exactly(library: impl AsRef<OsStr>) -> Result<RocmKernel, Unavailable> {
    let switches = Rocm { library: Some(library.as_ref().to_owned()), ..Rocm::default() };
    RocmKernel::open(&switches, None, on_board())
}

/// The reason why a library that was named is not taken.
fn refusal(library: impl AsRef<OsStr>) -> String {
    let library = library.as_ref();
    let why = open_exactly(library).expect_err("not a HIP runtime");
    let text = why.to_string();
    let Unavailable::Switch { variable, value, reason } = why else { panic!("{why:?}") };
    assert_eq!((variable, &value[..]), (HIP_LIBRARY, &library.to_string_lossy()[..]));
    assert!(text.contains(&format!("{variable}={value}")) && text.contains(&reason), "{text}");
    reason
}

#[test]
fn a_library_that_is_named_and_absent_is_refused_and_no_other_is_tried() {
    for name in ["/nowhere/libamdhip64.so", "libamdhip64-nowhere.so", "./libamdhip64.so.0"] {
        let reason = refusal(name);
        assert!(reason.contains("No such file"), "{reason}");
        for other in NAMES.iter().filter(|other| !name.ends_with(**other)) {
            assert!(!reason.contains(&format!("{other} ")), "{reason}");
        }
    }
}

#[test]
fn a_library_that_is_no_hip_runtime_is_refused_with_everything_that_it_lacks() {
    let reason = refusal("libc.so.6");
    let functions = scripted::functions();
    let required: Vec<&str> = functions.iter().filter(|f| f.required).map(|f| &f.name[..]).collect();
    assert!(required.len() > 10, "{required:?}");
    assert!(reason.contains(&required.join(", ")), "{reason}");
    for optional in functions.iter().filter(|f| !f.required) {
        assert!(!reason.contains(&optional.name), "{reason}");
    }
    // A file that is no library at all.
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(refusal(text).contains("invalid ELF header"), "{}", refusal(text));
}

/// One test for every function of the list, also for one that is added to it: without a script for it, this fails.
#[test]
fn each_function_is_missing_in_turn() {
    for function in scripted::functions() {
        let script = Script::without(&[&function.name]);
        if function.required {
            let reason = refusal(script.path());
            assert!(reason.contains(&function.name), "{reason}");
            for other in scripted::functions().iter().filter(|other| other.name != function.name) {
                // One name may be the beginning of another one.
                assert!(!reason.replace(&function.name, "").contains(&other.name), "only {function:?}: {reason}");
            }
            assert_eq!(script.called(), [""; 0], "nothing is called in a library that is not taken");
        } else {
            let kernel = open_exactly(script.path()).unwrap_or_else(|why| panic!("without {function:?}: {why}"));
            let version = if function.name == "hipRuntimeGetVersion" { "of unknown version" } else { "7.2" };
            assert!(kernel.describe().contains(version), "without {function:?}: {}", kernel.describe());
            drop(kernel);
            script.assert_clean(&format!("without {function:?}"));
        }
    }
}

#[test]
fn a_library_stays_loaded_and_its_devices_are_asked_each_time() {
    let script = Script::new();
    script.set_devices(&[]);
    for _ in 0..3 {
        assert!(matches!(open_exactly(script.path()), Err(Unavailable::NoDevice(_))));
    }
    // A device that comes later is seen: nothing but the library is kept.
    script.set_devices(&[(good().target, 32)]);
    let kernels = [open_exactly(script.path()), open_exactly(script.path())];
    assert!(kernels.iter().all(Result::is_ok), "{kernels:?}");
    assert_eq!(script.live().0, 2, "each handle has a module of its own");
    drop(kernels);
    script.assert_clean("after closing");
}

// --- the search, in child processes with an environment of their own ----------------------------------------------------

/// Not a test of its own: opens the port in the environment that it is given.
#[test]
#[ignore = "run by other tests as a child process with an environment of its own"]
fn child_opens_the_port() {
    // The scripted runtime's device, whatever architectures this build is for.
    let bytes = for_machine(good().bytes, machine("gfx1151"));
    let image = Image { target: "gfx1151", bytes: &bytes, ..good() };
    match RocmKernel::open(&Rocm::from_env(), None, &[image]) {
        Ok(kernel) => println!("\nANSWER opened: {}", kernel.describe()),
        Err(why) => println!("\nANSWER closed: {why}"),
    }
}

/// Not a test of its own: selects a port in the environment that it is given.
#[test]
#[ignore = "run by other tests as a child process with an environment of its own"]
fn child_selects_a_port() {
    match select_kernel_port(SSM_PORTS) {
        Ok(kernel) => println!("\nANSWER opened: {}", kernel.describe()),
        Err(why) => println!("\nANSWER closed: {why}"),
    }
}

fn ask(test: &str, system: &Folder, variables: &[(&str, &OsStr)]) -> String {
    let mut command = child::command(test);
    for variable in [HIP_LIBRARY, ROCM_PATH, HSA_OVERRIDE, PORT, KERNEL, CUDA_KERNEL] {
        command.env_remove(variable);
    }
    // The folder that the system's search looks into first.
    command.env("LD_LIBRARY_PATH", &system.0).envs(variables.iter().copied());
    child::answer(&command.output().expect("the test binary starts"), "ANSWER ")
}

fn searched(system: &Folder, rocm_path: Option<&Folder>) -> String {
    let rocm_path = rocm_path.map(|folder| (ROCM_PATH, folder.0.as_os_str()));
    ask("child_opens_the_port", system, rocm_path.as_slice())
}

#[test]
fn the_systems_names_are_tried_in_order_and_the_first_runtime_is_taken() {
    for (number, name) in NAMES.into_iter().enumerate() {
        // No library under the names before it, and runtimes under those after it.
        let mut system = Folder::new(name).with_decoys(&NAMES[..number]);
        for later in &NAMES[number..] {
            system = system.with(later, scripted::library(&[]));
        }
        let answer = searched(&system, None);
        assert!(answer.starts_with("opened: ") && answer.contains(&format!("from {name},")), "{name}: {answer}");
    }
}

#[test]
fn a_library_that_lacks_a_function_is_passed_over_for_the_next() {
    let system = Folder::new("lacking")
        .with(NAMES[0], scripted::library(&["hipInit"]))
        .with(NAMES[1], scripted::library(&["hipModuleLoadData", "hipFree"]))
        .with(NAMES[2], scripted::library(&[]))
        .with_decoys(&NAMES[3..]);
    let answer = searched(&system, None);
    assert!(answer.starts_with("opened: ") && answer.contains("from libamdhip64.so.6,"), "{answer}");
}

#[test]
fn rocms_folders_are_tried_after_the_systems_names() {
    let system = Folder::new("nothing").with_decoys(&NAMES);
    let opened_from = |rocm: &Folder, path: &str| {
        let answer = searched(&system, Some(rocm));
        let from = rocm.0.join(path);
        assert!(answer.starts_with("opened: ") && answer.contains(&format!("from {},", from.display())), "{answer}");
    };
    opened_from(&Folder::new("lib").with("lib/libamdhip64.so", scripted::library(&[])), "lib/libamdhip64.so");
    let core = "core-7.14/lib/libamdhip64.so";
    opened_from(&Folder::new("core").with(core, scripted::library(&[])), core);
    // The newest of several, by its number and not by its letters.
    let several = Folder::new("cores")
        .with("core-7.9/lib/libamdhip64.so", scripted::library(&[]))
        .with(core, scripted::library(&[]))
        .with("core-6.4/lib/libamdhip64.so", scripted::library(&[]));
    opened_from(&several, core);
    // ROCm's own `lib` before those.
    opened_from(&several.with("lib/libamdhip64.so", scripted::library(&[])), "lib/libamdhip64.so");
    // The system's own before ROCm's folder.
    let installed = Folder::new("installed").with("libamdhip64.so", scripted::library(&[]));
    let rocm = Folder::new("beside").with("lib/libamdhip64.so", scripted::library(&[]));
    let answer = searched(&installed, Some(&rocm));
    assert!(answer.contains("from libamdhip64.so,"), "{answer}");
}

#[test]
fn where_nothing_is_found_every_name_is_listed_in_order_with_its_reason() {
    let system = Folder::new("none").with_decoys(&NAMES);
    let rocm = Folder::new("empty").with("core-7.14/lib/libamdhip64.so", scripted::library(&["hipMalloc"]));
    let answer = searched(&system, Some(&rocm));
    assert!(answer.starts_with("closed: no HIP library"), "{answer}");
    let tried: Vec<&str> = answer.split_once("tried ").expect("a list").1.split("; ").collect();
    let root = rocm.0.display();
    let last = [format!("{root}/lib/libamdhip64.so"), format!("{root}/core-7.14/lib/libamdhip64.so")];
    let expected: Vec<&str> = NAMES.into_iter().chain(last.iter().map(|name| &name[..])).collect();
    assert_eq!(tried.len(), expected.len(), "{answer}");
    for (tried, name) in tried.iter().zip(expected) {
        let reason =
            tried.strip_prefix(name).and_then(|rest| rest.strip_prefix(" (")).unwrap_or_else(|| panic!("{tried}"));
        let expected = match name {
            _ if name == last[1] => "has no hipMalloc",
            _ if name == last[0] => "No such file",
            _ => "invalid ELF header",
        };
        assert!(reason.contains(expected), "{tried}");
    }
    // Where ROCm installs itself, unless it is told otherwise.
    let answer = searched(&system, None);
    assert!(answer.contains("libamdhip64.so.5 (") && answer.contains("/opt/rocm/lib/libamdhip64.so ("), "{answer}");
}

#[test]
fn a_named_library_is_taken_whatever_the_system_has() {
    let system = Folder::new("others").with(NAMES[0], scripted::library(&[]));
    let script = scripted::library(&[]);
    let answer = ask("child_opens_the_port", &system, &[(HIP_LIBRARY, script.as_os_str())]);
    assert!(answer.contains(&format!("from {},", script.display())), "{answer}");
    let absent = ask("child_opens_the_port", &system, &[(HIP_LIBRARY, "/nowhere.so".as_ref())]);
    assert!(absent.starts_with(&format!("closed: {HIP_LIBRARY}=/nowhere.so: ")), "{absent}");
    let empty = ask("child_opens_the_port", &system, &[(HIP_LIBRARY, "".as_ref())]);
    assert!(empty.contains("from libamdhip64.so,"), "empty counts as unset: {empty}");
}

#[test]
fn the_row_of_the_table_reads_the_same_switches() {
    let system = Folder::new("row").with_decoys(&NAMES);
    let rocm: (&str, &OsStr) = (PORT, "rocm".as_ref());
    let answer = ask("child_selects_a_port", &system, &[rocm, (HIP_LIBRARY, "/nowhere.so".as_ref())]);
    assert!(answer.starts_with(&format!("closed: {PORT}=rocm: {HIP_LIBRARY}=/nowhere.so: ")), "{answer}");
    let answer = ask("child_selects_a_port", &system, &[rocm]);
    assert!(answer.starts_with(&format!("closed: {PORT}=rocm: no HIP library")), "{answer}");
}
