//! What belongs to a whole process: the environment, a panic of the library's, and the faults of a driver. Each in a process of its own.

#[path = "../../tests/common/child.rs"]
mod child;
mod common;

use common::call::Open;
#[cfg(all(feature = "rocm", target_os = "linux"))]
use common::call::{Data, last_error};
use ssm_update::switches::{CUDA_KERNEL, HIP_LIBRARY, KERNEL, PORT};

/// Opens the port that the environment chooses, and each by its name.
#[test]
#[ignore = "run by other tests as a child process with an environment of its own"]
fn child_opens() {
    println!("\nCHOICE {:?}", Open::new("").map(|kernel| common::call::text(port(&kernel))));
    println!("CPU {:?}", Open::new("cpu").map(drop));
    // SAFETY: null is the library's choice.
    let available = unsafe { ssm_update_capi::ssm_update_available(std::ptr::null()) };
    println!("AVAILABLE {available}");
}

fn port(kernel: &Open) -> *const std::ffi::c_char {
    // SAFETY: open.
    unsafe { ssm_update_capi::ssm_update_kernel_port(kernel.0) }
}

/// What the child answers under these variables: the choice, the CPU port by its name, and whether a port is available.
fn ask(variables: &[(&str, &str)]) -> (String, String, String) {
    let mut command = child::command("child_opens");
    for variable in [KERNEL, CUDA_KERNEL, PORT, HIP_LIBRARY] {
        command.env_remove(variable);
    }
    let output = command.envs(variables.iter().copied()).output().expect("the test binary starts");
    let line = |word| child::answer(&output, word);
    (line("CHOICE "), line("CPU "), line("AVAILABLE "))
}

#[test]
fn the_environment_decides_the_library_s_choice_and_not_what_is_named() {
    assert_eq!(ask(&[(PORT, "cpu")]), ("Ok(\"cpu\")".to_owned(), "Ok(())".to_owned(), "true".to_owned()));
    for (variables, part) in [
        ([(KERNEL, "0")], "switched off by MLXCEL_SSM_KERNEL=0"),
        ([(CUDA_KERNEL, "0")], "switched off by MLXCEL_SSM_CUDA_KERNEL=0"),
        ([(PORT, "hip")], "no such port; the ports are rocm, cuda, metal, cpu"),
        #[cfg(target_os = "linux")]
        ([(PORT, "metal")], "SSM_UPDATE_PORT=metal: not built"),
    ] {
        let (choice, cpu, available) = ask(&variables);
        assert!(choice.starts_with("Err((Unavailable, ") && choice.contains(part), "{part} in: {choice}");
        assert_eq!((&cpu[..], &available[..]), ("Ok(())", "false"));
    }
}

/// A logger with a fault of its own, as a program may bring one: a panic inside of the library.
struct Panics;

impl log::Log for Panics {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        panic!("a planted fault");
    }

    fn flush(&self) {}
}

#[test]
#[ignore = "run by another test as a child process with a logger of its own"]
fn child_panics() {
    log::set_logger(&Panics).expect("the first logger");
    log::set_max_level(log::LevelFilter::Trace);
    println!("\nPANIC {:?}", Open::new("").map(drop));
    log::set_max_level(log::LevelFilter::Off);
    println!("AFTER {:?}", Open::new("cpu").map(drop));
}

#[test]
fn a_panic_does_not_cross_the_border() {
    let output = child::command("child_panics").env(PORT, "cpu").output().expect("the test binary starts");
    assert_eq!(
        child::answer(&output, "PANIC "),
        "Err((Internal, \"a fault of the library ssm_update: a planted fault\"))"
    );
    assert_eq!(child::answer(&output, "AFTER "), "Ok(())");
}

#[cfg(all(feature = "rocm", target_os = "linux"))]
#[test]
#[ignore = "run by another test as a child process with a simulated GPU"]
fn child_meets_faults_of_a_driver() {
    let kernel = Open::new("rocm").expect("the port opens on the simulated GPU");
    let before = Data::new(1);
    let mut data = before.clone();
    let launch = data.launch();
    // SAFETY: whole tensors of the host's.
    let step = || unsafe { ssm_update_capi::ssm_update_kernel_step_host(kernel.0, &launch) };
    println!("\nFIRST {:?} {}", step(), last_error());
    println!("SECOND {:?} {}", step(), last_error());
    // The launch's stream is the one that the driver is asked for: here one that it does not have.
    let stream = ssm_update_capi::Launch { stream: std::ptr::without_provenance_mut(0x40), ..launch };
    // SAFETY: the driver refuses the stream before it looks at anything else.
    println!("STREAM {:?} {}", unsafe { ssm_update_capi::ssm_update_kernel_launch(kernel.0, &stream) }, last_error());
    assert_ne!(data.state, before.state);
    assert!(data.y.iter().all(|y| y.is_finite()));
}

/// The second allocation of the process fails, and nothing after it.
#[cfg(all(feature = "rocm", target_os = "linux"))]
#[test]
fn a_fault_of_the_driver_is_told_in_its_words() {
    let mut simulator = std::env::current_exe().expect("a test is a file");
    simulator.set_file_name("libhip_sim.so");
    let mut command = child::command("child_meets_faults_of_a_driver");
    let output = command.env(HIP_LIBRARY, simulator).env("HIP_SIM_FAIL", "hipMalloc:2:2").output();
    let output = output.expect("the test binary starts");
    let first = child::answer(&output, "FIRST ");
    assert!(first.starts_with("Driver the fused SSM step failed: hipMalloc"), "{first}");
    assert!(first.contains("(2)"), "{first}");
    assert_eq!(child::answer(&output, "SECOND ").trim(), "Ok");
    let stream = child::answer(&output, "STREAM ");
    assert!(stream.starts_with("Driver the fused SSM step failed: hipModuleLaunchKernel"), "{stream}");
}
