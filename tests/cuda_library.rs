//! Which files the CUDA driver and NVRTC are loaded from, in which order files are tried, and what is said of each that does not
//! do.

#![cfg(all(feature = "cuda", target_os = "linux"))]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use common::child;
use common::folder::Folder;
use common::scripted_cuda::{NVRTC, Script, driver_functions, library, library_of, nvrtc_functions};
use common::scripting::Listed;
use ssm_update::ports::cuda::CudaKernel;
use ssm_update::switches::{CACHE_DIR, CUDA_HOME, CUDA_KERNEL, CUDA_LIBRARY, Cuda, KERNEL, NVRTC_LIBRARY, PORT};
use ssm_update::{Kernel, SSM_PORTS, Unavailable, select_kernel_port};

/// Names in the order in which the system's search is asked for them.
const DRIVER_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
const NVRTC_NAMES: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"];

fn open(library: impl AsRef<OsStr>, nvrtc: impl AsRef<OsStr>) -> Result<CudaKernel, Unavailable> {
    let (library, nvrtc) = (Some(library.as_ref().to_owned()), Some(nvrtc.as_ref().to_owned()));
    CudaKernel::open(&Cuda { library, nvrtc, toolkit: None, cache_dir: Some("".into()) }, None)
}

/// The reason why a library that a switch names is not taken.
fn refusal(variable: &'static str, name: impl AsRef<OsStr>) -> String {
    let (name, script) = (name.as_ref(), Script::new());
    let result = match variable {
        CUDA_LIBRARY => open(name, script.path()),
        _ => open(script.path(), name),
    };
    let why = result.expect_err("not to be used");
    let text = why.to_string();
    let Unavailable::Switch { variable: named, value, reason } = why else { panic!("{why:?}") };
    assert_eq!((named, &value[..]), (variable, &name.to_string_lossy()[..]));
    assert!(text.contains(&format!("{variable}={value}")) && text.contains(&reason), "{text}");
    script.assert_clean("after a refusal");
    reason
}

const BOTH: [&str; 2] = [CUDA_LIBRARY, NVRTC_LIBRARY];

#[test]
fn a_library_that_is_named_and_absent_is_refused_and_no_other_is_tried() {
    for variable in BOTH {
        for name in ["/nowhere/libcuda.so", "libnvrtc-nowhere.so", "./libcuda.so.0"] {
            let reason = refusal(variable, name);
            assert!(reason.contains("No such file"), "{reason}");
            for other in DRIVER_NAMES.iter().chain(&NVRTC_NAMES).filter(|other| !name.ends_with(**other)) {
                assert!(!reason.contains(&format!("{other} ")), "{reason}");
            }
        }
    }
}

#[test]
fn a_library_that_is_another_one_is_refused_with_everything_that_it_lacks() {
    for (variable, functions, kind) in
        [(CUDA_LIBRARY, driver_functions(), "CUDA driver"), (NVRTC_LIBRARY, nvrtc_functions(), "NVRTC")]
    {
        let reason = refusal(variable, "libc.so.6");
        let required: Vec<&str> = functions.iter().filter(|f| f.required).map(|f| &f.name[..]).collect();
        assert!(required.len() >= 10, "{required:?}");
        assert!(reason.contains(&required.join(", ")) && reason.contains(&format!("not a {kind}")), "{reason}");
        for optional in functions.iter().filter(|f| !f.required) {
            assert!(!reason.contains(&optional.name), "{reason}");
        }
        // A file that is no library at all.
        let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(refusal(variable, text).contains("invalid ELF header"), "{}", refusal(variable, text));
    }
    // Each in the other's place.
    let names = |listed: Vec<Listed>| -> Vec<String> { listed.into_iter().map(|f| f.name).collect() };
    let (driver, nvrtc) = (names(driver_functions()), names(nvrtc_functions()));
    let without = |names: &[String]| library(&names.iter().map(|name| &name[..]).collect::<Vec<_>>(), NVRTC);
    let (only_driver, only_nvrtc) = (without(&nvrtc), without(&driver));
    assert!(refusal(CUDA_LIBRARY, &only_nvrtc).contains("cuInit"));
    assert!(refusal(NVRTC_LIBRARY, &only_driver).contains("nvrtcVersion"));
    // And apart, as on a real machine.
    open(only_driver, only_nvrtc).expect("opens");
}

/// One test for every function of the two lists, also for one that is added to them: without a script for it, this fails.
#[test]
fn each_function_is_missing_in_turn() {
    let mut optional = Vec::new();
    let all = [driver_functions(), nvrtc_functions()].concat();
    for function in &all {
        let script = Script::without(&[&function.name]);
        if function.required {
            let variable = if function.name.starts_with("nvrtc") { NVRTC_LIBRARY } else { CUDA_LIBRARY };
            let reason = refusal(variable, script.path());
            assert!(reason.contains(&function.name), "{reason}");
            for other in all.iter().filter(|other| other.name != function.name) {
                // One name may be the beginning of another one.
                let rest = reason.replace(&format!("no {}:", function.name), "");
                assert!(!rest.contains(&other.name), "only {function:?}: {reason}");
            }
            assert_eq!(script.called(), [""; 0], "nothing is called in a library that is not taken");
        } else {
            let kernel = open(script.path(), script.path()).unwrap_or_else(|why| panic!("without {function:?}: {why}"));
            optional.push(&function.name[..]);
            drop(kernel);
            script.assert_clean(&format!("without {function:?}"));
        }
    }
    assert_eq!(optional, ["cuLaunchKernelEx"], "what else a driver may lack needs a test of its own");
}

#[test]
fn a_library_stays_loaded_and_its_devices_are_asked_each_time() {
    let script = Script::new();
    script.set_devices(&[]);
    for _ in 0..3 {
        assert!(matches!(open(script.path(), script.path()), Err(Unavailable::NoDevice(_))));
    }
    // A device that comes later is seen: nothing but the library is kept.
    script.set_devices(&[(9, 0)]);
    let kernels = [open(script.path(), script.path()), open(script.path(), script.path())];
    assert!(kernels.iter().all(Result::is_ok), "{kernels:?}");
    assert_eq!(script.primary_references(0), 2, "each handle keeps the context alive for itself");
    drop(kernels);
    script.assert_clean("after closing");
}

/// NVRTC looks for a second library when it compiles, by the system's search, which does not know the folder of an NVRTC that is
/// named by its path.
#[test]
fn the_second_library_of_nvrtc_is_loaded_from_the_folder_of_the_first() {
    let script = Script::new();
    let is_loaded = |path: &Path| {
        let maps = fs::read_to_string("/proc/self/maps").expect("the system lists what is loaded");
        maps.contains(&path.display().to_string())
    };
    let (named, other) = ("libnvrtc-builtins.so.12.4", "libnvrtc-builtins.so.12.3");
    let folder = Folder::new("builtins")
        .with("libnvrtc.so.12", library(&[], NVRTC))
        .with(named, library(&[], NVRTC))
        .with(other, library(&[], NVRTC));
    let nvrtc = folder.0.join("libnvrtc.so.12");
    assert!(!is_loaded(&folder.0.join(named)));
    open(script.path(), nvrtc).expect("opens");
    assert!(is_loaded(&folder.0.join(named)), "of the same version");
    assert!(!is_loaded(&folder.0.join(other)));
    // Where it is absent or no library, NVRTC itself says so, if it needs it.
    let folder = Folder::new("no-builtins").with("libnvrtc.so.12", library(&[], NVRTC));
    open(script.path(), folder.0.join("libnvrtc.so.12")).expect("opens");
    let folder = Folder::new("broken-builtins").with("libnvrtc.so.12", library(&[], NVRTC)).with_decoys(&[named]);
    open(script.path(), folder.0.join("libnvrtc.so.12")).expect("opens");
}

// --- the search, in child processes with an environment of their own ----------------------------------------------------

/// Not a test of its own: opens the port in the environment that it is given.
#[test]
#[ignore = "run by other tests as a child process with an environment of its own"]
fn child_opens_the_port() {
    match CudaKernel::open(&Cuda::from_env(), None) {
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
    for variable in [CUDA_LIBRARY, NVRTC_LIBRARY, PORT, KERNEL, CUDA_KERNEL] {
        command.env_remove(variable);
    }
    // An empty folder in place of the toolkit that the machine may have.
    command.env(CUDA_HOME, system.0.join("no-toolkit")).env(CACHE_DIR, "");
    // The folder that the system's search looks into first.
    command.env("LD_LIBRARY_PATH", &system.0).envs(variables.iter().copied());
    child::answer(&command.output().expect("the test binary starts"), "ANSWER ")
}

fn searched(system: &Folder, toolkit: Option<&Folder>) -> String {
    let toolkit = toolkit.map(|folder| (CUDA_HOME, folder.0.as_os_str()));
    ask("child_opens_the_port", system, toolkit.as_slice())
}

/// Names and reasons, in the order of the search.
fn tried(answer: &str) -> Vec<(&str, &str)> {
    let list = answer.split_once("tried ").unwrap_or_else(|| panic!("no list in: {answer}")).1;
    let entries = list.split("; ").map(|entry| entry.split_once(" (").unwrap_or_else(|| panic!("{entry}")));
    entries.map(|(name, reason)| (name, reason.trim_end_matches(')'))).collect()
}

#[test]
fn the_systems_names_are_tried_in_order_and_the_first_driver_is_taken() {
    for (number, name) in DRIVER_NAMES.into_iter().enumerate() {
        // No library under the names before it, and drivers under those after it.
        let mut system =
            Folder::new(name).with_decoys(&DRIVER_NAMES[..number]).with("libnvrtc.so.13", library(&[], NVRTC));
        for later in &DRIVER_NAMES[number..] {
            system = system.with(later, library(&[], NVRTC));
        }
        let answer = searched(&system, None);
        assert!(answer.starts_with("opened: ") && answer.contains(&format!("from {name},")), "{name}: {answer}");
    }
}

#[test]
fn without_a_driver_every_name_is_listed_with_its_reason() {
    let system = Folder::new("no-driver")
        .with_decoys(&DRIVER_NAMES[..1])
        .with(DRIVER_NAMES[1], library(&["cuInit", "cuMemFree_v2"], NVRTC));
    let answer = searched(&system, None);
    assert!(answer.starts_with("closed: no CUDA driver library"), "{answer}");
    let tried = tried(&answer);
    assert_eq!(tried.iter().map(|(name, _)| *name).collect::<Vec<_>>(), DRIVER_NAMES);
    assert!(tried[0].1.contains("invalid ELF header"), "{answer}");
    assert!(tried[1].1.contains("has no cuInit, cuMemFree_v2"), "{answer}");
}

#[test]
fn the_names_of_nvrtc_are_tried_newest_first_and_then_in_the_toolkits_folder() {
    let driver = |name: &str| Folder::new(name).with(DRIVER_NAMES[0], library(&[], NVRTC));
    for (number, name) in NVRTC_NAMES.into_iter().enumerate() {
        // Versions tell which one was taken.
        let mut system = driver(name).with_decoys(&NVRTC_NAMES[..number]);
        for (minor, later) in (0..).zip(NVRTC_NAMES).skip(number) {
            system = system.with(later, library(&[], (12, minor)));
        }
        let answer = searched(&system, None);
        let expected = format!("NVRTC 12.{number} from {name},");
        assert!(answer.starts_with("opened: ") && answer.contains(&expected), "{expected} in: {answer}");
    }
    for name in NVRTC_NAMES {
        let system = driver("toolkit").with_decoys(&NVRTC_NAMES);
        let toolkit = Folder::new("cuda").with(&format!("lib64/{name}"), library(&[], (12, 2)));
        let answer = searched(&system, Some(&toolkit));
        let from = toolkit.0.join("lib64").join(name);
        assert!(answer.contains(&format!("NVRTC 12.2 from {},", from.display())), "{answer}");
    }
    // The system's own before the toolkit's.
    let system = driver("before").with("libnvrtc.so", library(&[], (12, 1)));
    let toolkit = Folder::new("behind").with("lib64/libnvrtc.so.13", library(&[], (12, 2)));
    assert!(searched(&system, Some(&toolkit)).contains("NVRTC 12.1 from libnvrtc.so,"));
}

/// The driver serves CUDA 12: of several compilers, the newest that it can load from is taken.
#[test]
fn an_nvrtc_that_is_too_new_or_does_not_know_the_device_is_passed_over_for_the_next() {
    let driver = |name: &str| Folder::new(name).with(DRIVER_NAMES[0], library(&[], NVRTC));
    let system =
        driver("newer").with(NVRTC_NAMES[0], library(&[], (13, 0))).with(NVRTC_NAMES[1], library(&[], (12, 9)));
    let answer = searched(&system, None);
    assert!(answer.contains("NVRTC 12.9 from libnvrtc.so.12,"), "{answer}");

    let system = driver("lacking")
        .with(NVRTC_NAMES[0], library(&["nvrtcGetCUBIN"], (12, 9)))
        .with_decoys(&NVRTC_NAMES[1..2])
        .with(NVRTC_NAMES[2], library(&[], (11, 8)));
    let answer = searched(&system, None);
    assert!(answer.contains("NVRTC 11.8 from libnvrtc.so.11.2,"), "{answer}");
    // In the toolkit's folder too.
    let system = driver("only-newer").with_decoys(&NVRTC_NAMES[1..]).with(NVRTC_NAMES[0], library(&[], (13, 0)));
    let toolkit = Folder::new("older").with("lib64/libnvrtc.so.12", library(&[], (12, 0)));
    let answer = searched(&system, Some(&toolkit));
    assert!(answer.contains("NVRTC 12.0 from ") && answer.contains("lib64/libnvrtc.so.12,"), "{answer}");
}

#[test]
fn without_an_nvrtc_every_candidate_is_listed_in_order_with_its_reason() {
    let system = Folder::new("no-nvrtc")
        .with(DRIVER_NAMES[0], library(&[], NVRTC))
        .with(NVRTC_NAMES[0], library(&[], (13, 1)))
        .with(NVRTC_NAMES[1], library(&["nvrtcCompileProgram"], (12, 4)))
        .with_decoys(&NVRTC_NAMES[2..]);
    let toolkit = Folder::new("newer-toolkit").with("lib64/libnvrtc.so.13", library(&[], (13, 2)));
    let answer = searched(&system, Some(&toolkit));
    assert!(answer.starts_with("closed: no NVRTC library"), "{answer}");
    let in_toolkit = NVRTC_NAMES.map(|name| toolkit.0.join("lib64").join(name).display().to_string());
    let expected: Vec<&str> = NVRTC_NAMES.into_iter().chain(in_toolkit.iter().map(|name| &name[..])).collect();
    let tried = tried(&answer);
    assert_eq!(tried.iter().map(|(name, _)| *name).collect::<Vec<_>>(), expected, "{answer}");
    let reasons = [
        "NVRTC 13.1 is newer than the driver, which serves CUDA 12.4",
        "has no nvrtcCompileProgram",
        "invalid ELF header",
        "invalid ELF header",
        "NVRTC 13.2 is newer than the driver, which serves CUDA 12.4",
        "No such file",
        "No such file",
        "No such file",
    ];
    for ((name, reason), expected) in tried.iter().zip(reasons) {
        assert!(reason.contains(expected), "{name}: {expected} in: {reason}");
    }
}

/// Where a toolkit installs itself, unless it is told otherwise. The driver is older than any toolkit that the machine may have there.
#[test]
fn the_toolkits_folder_has_a_usual_place() {
    let system = Folder::new("usual").with_decoys(&NVRTC_NAMES).with(DRIVER_NAMES[0], library_of(1000, &[], NVRTC));
    // Empty counts as unset.
    let answer = ask("child_opens_the_port", &system, &[(CUDA_HOME, "".as_ref())]);
    let names: Vec<&str> = tried(&answer).into_iter().map(|(name, _)| name).collect();
    let usual = NVRTC_NAMES.map(|name| format!("/usr/local/cuda/lib64/{name}"));
    assert_eq!(names[NVRTC_NAMES.len()..], usual, "{answer}");
}

#[test]
fn named_libraries_are_taken_whatever_the_system_has() {
    let system =
        Folder::new("others").with(DRIVER_NAMES[0], library(&[], NVRTC)).with(NVRTC_NAMES[0], library(&[], (12, 1)));
    let script = library(&[], (12, 3));
    let path = script.as_os_str();
    let answer = ask("child_opens_the_port", &system, &[(CUDA_LIBRARY, path)]);
    assert!(answer.contains(&format!("from {},", script.display())) && answer.contains("NVRTC 12.1"), "{answer}");
    let answer = ask("child_opens_the_port", &system, &[(NVRTC_LIBRARY, path)]);
    assert!(answer.contains("from libcuda.so.1,") && answer.contains("NVRTC 12.3"), "{answer}");
    for variable in BOTH {
        let absent = ask("child_opens_the_port", &system, &[(variable, "/nowhere.so".as_ref())]);
        assert!(absent.starts_with(&format!("closed: {variable}=/nowhere.so: ")), "{absent}");
        let empty = ask("child_opens_the_port", &system, &[(variable, "".as_ref())]);
        assert!(empty.contains("from libcuda.so.1,") && empty.contains("NVRTC 12.1"), "empty counts as unset: {empty}");
    }
}

#[test]
fn the_row_of_the_table_reads_the_same_switches() {
    let system = Folder::new("row").with_decoys(&DRIVER_NAMES);
    let cuda: (&str, &OsStr) = (PORT, "cuda".as_ref());
    let answer = ask("child_selects_a_port", &system, &[cuda, (CUDA_LIBRARY, "/nowhere.so".as_ref())]);
    assert!(answer.starts_with(&format!("closed: {PORT}=cuda: {CUDA_LIBRARY}=/nowhere.so: ")), "{answer}");
    let answer = ask("child_selects_a_port", &system, &[cuda]);
    assert!(answer.starts_with(&format!("closed: {PORT}=cuda: no CUDA driver library")), "{answer}");
    let script = library(&[], NVRTC);
    let both: [(&str, &OsStr); 3] = [cuda, (CUDA_LIBRARY, script.as_os_str()), (NVRTC_LIBRARY, script.as_os_str())];
    let answer = ask("child_selects_a_port", &system, &both);
    assert!(answer.starts_with("opened: Scripted GPU 0"), "{answer}");
}
