//! A device that is lost in mid-launch, a library that goes away, and many processes at once: the error says what happened, and whoever
//! is not concerned goes on. Against scripted libraries.

#![cfg(all(feature = "cuda", feature = "rocm", not(feature = "hip-runtime-sys"), target_os = "linux"))]

mod common;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, thread};

use common::child;
use common::folder::Folder;
use common::images::on_board;
use common::launches::{of_size, stream};
use common::log::take_warnings;
use common::scripting::Base;
use common::{scripted, scripted_cuda};
use ssm_update::ports::cuda::CudaKernel;
use ssm_update::ports::rocm::RocmKernel;
use ssm_update::switches::{CACHE_DIR, CUDA_LIBRARY, Cuda, HIP_LIBRARY, NVRTC_LIBRARY, Rocm};
use ssm_update::{Error, Kernel, Stream, Unavailable};

/// One launch on a stream.
fn launch(kernel: &dyn Kernel, size: usize) -> Result<(), Error> {
    // SAFETY: the scripts read none of the tensors and take any stream.
    unsafe { kernel.launch(&of_size(size), stream(size)) }
}

/// What a driver answers to everything once a kernel has faulted.
const LOST: i32 = 719;

/// Threads launch on two handles, of two drivers, when the device of the first is lost: each of its launches from then on is an error
/// that says so, none of the second's is; and the first can be closed, and what is opened beside it works.
fn assert_others_go_on(lost: &Base, first: Box<dyn Kernel>, second: &dyn Kernel, open: &dyn Fn() -> Box<dyn Kernel>) {
    const EACH: usize = 400;
    for kernel in [&*first, second] {
        (1..=4).for_each(|size| launch(kernel, size).expect("without faults"));
    }
    let (refused, start) = (AtomicUsize::new(0), Barrier::new(8));
    thread::scope(|scope| {
        for thread in 0..8 {
            let (first, refused, start) = (&first, &refused, &start);
            scope.spawn(move || {
                let size = 1 + thread / 2;
                start.wait();
                let mut is_lost = false;
                for number in 0..EACH {
                    if thread == 0 && number == EACH / 4 {
                        lost.fail_from(1, LOST);
                    }
                    if thread % 2 == 1 {
                        launch(second, size).expect("another device");
                        continue;
                    }
                    match launch(&**first, size) {
                        Ok(()) => assert!(!is_lost, "what is lost stays lost"),
                        Err(Error::Driver(error)) => {
                            is_lost = true;
                            refused.fetch_add(1, Ordering::Relaxed);
                            let text = error.to_string();
                            assert_eq!(error.code, i64::from(LOST));
                            assert!(text.contains("start the process anew"), "{text}");
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                assert!(thread != 0 || is_lost);
            });
        }
    });
    assert!(refused.into_inner() >= EACH * 3 / 4, "at least those of the thread that saw it first");
    take_warnings();
    drop(first);
    let warnings = take_warnings();
    assert!(
        warnings.iter().any(|warning| warning.contains("719")),
        "what could not be given back is told: {warnings:?}"
    );
    launch(second, 2).expect("another device");
    // A driver that has recovered, as after the engine reset it: the same library serves a new handle.
    lost.forget();
    launch(&*open(), 3).expect("a new handle");
}

#[test]
fn a_device_lost_in_mid_launch_on_rocm() {
    let (lost, other) = (scripted::Script::new(), scripted::Script::new());
    let second = other.open(None, on_board()).expect("opens");
    let open = || -> Box<dyn Kernel> { Box::new(lost.open(None, on_board()).expect("opens")) };
    assert_others_go_on(&lost, open(), &second, &open);
    drop(second);
    other.assert_clean("beside a lost device");
}

#[test]
fn a_device_lost_in_mid_launch_on_cuda() {
    let (lost, other) = (scripted_cuda::Script::new(), scripted_cuda::Script::new());
    let second = other.open(None).expect("opens");
    let open = || -> Box<dyn Kernel> { Box::new(lost.open(None).expect("opens")) };
    assert_others_go_on(&lost, open(), &second, &open);
    drop(second);
    other.assert_clean("beside a lost device");
}

// --- a library that goes away ---------------------------------------------------------------------------------------------

type Opened = Result<Box<dyn Kernel>, Unavailable>;

/// A library's file is removed, and then another one is put in its place, as an update does: what is open goes on, also when it is
/// opened again in this process. A file that nobody has loaded yet is refused with its name and what the system says.
fn assert_survives(library: &Path, open: impl Fn(&Path) -> Opened) {
    let folder = Folder::new(&format!("gone-{}", library.file_name().expect("a name").to_string_lossy()));
    let (path, never) = (folder.0.join("library.so"), folder.0.join("never.so"));
    fs::copy(library, &path).expect("a library can be copied");
    fs::copy(library, &never).expect("a library can be copied");
    let kernel = open(&path).expect("opens");
    launch(&*kernel, 1).expect("without faults");

    fs::remove_file(&path).expect("it is there");
    launch(&*kernel, 2).expect("it is loaded");
    launch(&*open(&path).expect("it is loaded"), 3).expect("a second handle");

    let next = folder.0.join("next");
    fs::write(&next, "not a library").expect("a file can be written");
    fs::rename(&next, &path).expect("within a folder");
    launch(&*kernel, 2).expect("it is loaded");
    launch(&*open(&path).expect("it is loaded"), 3).expect("a third handle");
    drop(kernel);

    fs::remove_file(&never).expect("it is there");
    let why = open(&never).map(drop).expect_err("it is gone").to_string();
    assert!(why.contains("never.so") && why.contains("No such file"), "{why}");
    fs::write(&never, "not a library").expect("a file can be written");
    let why = open(&never).map(drop).expect_err("no library").to_string();
    assert!(why.contains("never.so"), "{why}");
}

#[test]
fn a_hip_library_that_goes_away() {
    assert_survives(&scripted::library(&[]), |path| {
        let switches = Rocm { library: Some(path.into()), ..Rocm::default() };
        Ok(Box::new(RocmKernel::open(&switches, None, on_board())?))
    });
}

#[test]
fn a_cuda_library_that_goes_away() {
    assert_survives(&scripted_cuda::library(&[], scripted_cuda::NVRTC), |path| {
        let path = || Some(OsString::from(path));
        let switches = Cuda { library: path(), nvrtc: path(), toolkit: None, cache_dir: Some("".into()) };
        Ok(Box::new(CudaKernel::open(&switches, None)?))
    });
}

// --- many processes at once -------------------------------------------------------------------------------------------------

const PROCESSES: usize = 64;

/// Not a test of its own: waits until all are there, opens both ports as the environment has them, and launches.
#[test]
#[ignore = "run by another test as a child process with an environment of its own"]
fn child_opens_both() {
    io::read_to_string(io::stdin()).expect("the parent closes it");
    take_warnings();
    let rocm = RocmKernel::open(&Rocm::from_env(), None, on_board()).unwrap_or_else(|why| panic!("{why}"));
    let cuda = CudaKernel::open(&Cuda::from_env(), None).unwrap_or_else(|why| panic!("{why}"));
    for size in 1..=3 {
        launch(&rocm, size).expect("without faults");
        launch(&cuda, size).expect("without faults");
    }
    // SAFETY: as in `launch`.
    unsafe { cuda.launch(&of_size(2), Stream::DEFAULT) }.expect("without faults");
    println!("\nANSWER {:?}", take_warnings());
}

#[test]
fn many_processes_open_the_ports_at_once() {
    let (home, shared) = (Folder::new("many-home"), Folder::new("many"));
    let (hip, cuda) = (scripted::library(&[]), scripted_cuda::library(&[], scripted_cuda::NVRTC));
    let start = || -> Child {
        let mut command = child::command("child_opens_both");
        command.env(HIP_LIBRARY, &hip).env(CUDA_LIBRARY, &cuda).env(NVRTC_LIBRARY, &cuda).env("HOME", &home.0);
        // A folder that is not there yet: all of them make it.
        command.env(CACHE_DIR, shared.0.join("made/by/all"));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the test binary starts")
    };
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| start()).collect();
    children.iter_mut().for_each(|child| drop(child.stdin.take()));
    for child in children {
        let output = child.wait_with_output().expect("the child ends");
        assert_eq!(child::answer(&output, "ANSWER "), "[]", "nobody saw half a file");
    }
    let names = shared.names();
    assert_eq!(names.len(), 4, "the kernel that is tried and three others, each once: {names:?}");
    assert!(names.iter().all(|name| name.extension() == Some("cubin".as_ref())), "{names:?}");
    assert!(home.names().is_empty());
}
