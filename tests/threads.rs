//! What threads share: launches on one handle, ports opened and closed, and the folder of compiled kernels, all at once. Whatever goes
//! wrong shows under ThreadSanitizer (scripts/sanitize.sh), of which this is the program; without it, it is one more test of threads.

#![cfg(all(feature = "cuda", feature = "rocm", target_os = "linux"))]

mod common;

use std::thread;

use common::folder::Folder;
use common::images::on_board;
use common::launches::{contiguous, dims, of_size, stream};
use common::{scripted, scripted_cuda};
use ssm_update::ports::cuda::CudaKernel;
use ssm_update::switches::Cuda;
use ssm_update::{Dtype, Dtypes, Kernel};

const THREADS: usize = 8;

/// Runs this on threads with numbers from 1, and joins them.
fn at_once(run: impl Fn(usize) + Copy + Send + 'static) {
    let threads: Vec<_> = (1..=THREADS).map(|number| thread::spawn(move || run(number))).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
}

fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Launches on one handle: the same problems and different ones, so that keys are made while others are used.
fn launches_at_once(kernel: &'static dyn Kernel) {
    at_once(move |number| {
        for round in 0..200 {
            let d_state = 16 * (1 + (number + round) % 5);
            let launch = contiguous(dims(1, 2, 3, 1, d_state), Dtypes::uniform(Dtype::F16));
            // SAFETY: the scripts read none of the tensors and take any stream.
            unsafe { kernel.launch(&launch, stream(number)) }.expect("without faults");
            assert!(!kernel.describe().is_empty());
        }
    });
}

#[test]
fn launches_on_one_handle() {
    let (hip, cuda) = (leaked(scripted::Script::new()), leaked(scripted_cuda::Script::new()));
    hip.set_recording(false);
    cuda.set_recording(false);
    launches_at_once(leaked(hip.open(None, on_board()).expect("opens")));
    launches_at_once(leaked(cuda.open(None).expect("opens")));
}

#[test]
fn ports_opened_and_closed() {
    let (hip, cuda) = (leaked(scripted::Script::new()), leaked(scripted_cuda::Script::new()));
    hip.set_recording(false);
    cuda.set_recording(false);
    at_once(|number| {
        for _ in 0..5 {
            let (rocm, other) = (hip.open(None, on_board()).expect("opens"), cuda.open(None).expect("opens"));
            for kernel in [&rocm as &dyn Kernel, &other] {
                // SAFETY: as above.
                unsafe { kernel.launch(&of_size(1 + number % 4), stream(number)) }.expect("without faults");
            }
        }
    });
    assert_eq!((hip.live(), cuda.live_allocations()), ((0, 0), 0));
}

#[test]
fn a_folder_of_kernels() {
    let folder = Folder::new("threads");
    let path = leaked(folder.0.join("cache").into_os_string());
    let cuda = leaked(scripted_cuda::Script::new());
    at_once(|number| {
        for round in 0..5 {
            let switches = Cuda { cache_dir: Some(path.clone()), ..cuda.switches() };
            let kernel = CudaKernel::open(&switches, None).expect("opens");
            // SAFETY: as above.
            unsafe { kernel.launch(&of_size(1 + (number + round) % 4), stream(number)) }.expect("without faults");
        }
    });
    assert_eq!(folder.names().len(), 5, "the kernel that is tried and four others");
}
