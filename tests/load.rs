//! Small launches on ten thousand streams from sixteen threads, and ports opened and closed hundreds of times: neither memory nor handles
//! grow. A program of its own, since it looks at the whole process. Against scripted libraries.

#![cfg(all(feature = "cuda", feature = "rocm", target_os = "linux"))]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::thread;
use std::time::Duration;

use common::images::on_board;
use common::launches::{contiguous, dims, step_of_padding, stream};
use common::{scripted, scripted_cuda};
use ssm_update::{Dtype, Dtypes, Kernel, Launch};

const THREADS: usize = 16;
const STREAMS: usize = 10_000;
/// Launches on each stream in one round.
const PER_STREAM: usize = 4;

/// Bytes that Rust code of this program has allocated and not freed.
static LIVE: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: the system's allocator, which is one.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Bytes of Rust's allocations.
    live: isize,
    /// Bytes of memory that is resident, whoever allocated it.
    resident: isize,
    files: usize,
    threads: usize,
}

impl Held {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
        let kib: isize = line.trim().trim_end_matches(" kB").parse().expect("a number");
        let count = |folder| fs::read_dir(folder).expect("Linux has it").count();
        let (files, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
        Self { live: LIVE.load(Ordering::Relaxed), resident: kib * 1024, files, threads }
    }

    /// When the threads are gone that are just ending: to the system they are there a moment longer than to who waits for them.
    fn at_rest() -> Self {
        loop {
            let before = Self::now();
            thread::sleep(Duration::from_millis(50));
            let now = Self::now();
            if now.threads == before.threads {
                return now;
            }
        }
    }
}

/// Of several kernels.
fn launches() -> [Launch; 3] {
    [1, 2, 3].map(|size| contiguous(dims(size, size, 7, 1, 16 * size), Dtypes::uniform(Dtype::Bf16)))
}

/// Every thread launches on streams of its own.
fn round(kernel: &dyn Kernel) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let launches = launches();
                for number in (thread..STREAMS).step_by(THREADS) {
                    for launch in launches.iter().cycle().skip(number).take(PER_STREAM) {
                        // SAFETY: the script reads none of the tensors and takes any stream.
                        unsafe { kernel.launch(launch, stream(number + 1)) }.expect("without faults");
                    }
                }
            });
        }
    });
}

/// What may come and go without being a leak: in caches of the threads', and in the C library's allocator. 40,000 launches of a round that
/// kept a word each would be more.
const LIVE_SLACK: isize = 64 << 10;
const RESIDENT_SLACK: isize = 2 << 20;

/// Memory, files and threads are after many rounds what they were after a few, but for what a script keeps in each round.
fn assert_nothing_grows(what: &str, kept_by_script: isize, mut round: impl FnMut()) {
    const ROUNDS: isize = 15;
    (0..3).for_each(|_| round());
    let before = Held::at_rest();
    (0..ROUNDS).for_each(|_| round());
    let after = Held::at_rest();
    println!("{what}: {before:?}, and {after:?} after {ROUNDS} rounds more");
    let (live, resident) = (after.live - before.live, after.resident - before.resident);
    assert!(live < LIVE_SLACK, "{what}: {live} bytes more");
    assert!(resident < RESIDENT_SLACK + ROUNDS * kept_by_script, "{what}: {resident} bytes of resident memory more");
    assert_eq!((after.files, after.threads), (before.files, before.threads), "{what}: open files and threads");
}

/// Handles that are opened and closed in a round. A script remembers each module that was ever loaded, to know one that is gone.
const OPENED: isize = 20;

#[test]
fn neither_launches_nor_opening_and_closing_keep_anything() {
    let hip = scripted::Script::new();
    let cuda = scripted_cuda::Script::new();
    // What the scripts record, they keep.
    hip.set_recording(false);
    cuda.set_recording(false);
    let forget = || {
        hip.forget();
        cuda.forget();
    };
    let rocm = hip.open(None, on_board()).expect("opens");
    let cuda_kernel = cuda.open(None).expect("opens");
    let both: [(&str, &dyn Kernel); 2] = [("rocm", &rocm), ("cuda", &cuda_kernel)];
    for (name, kernel) in both {
        kernel.prepare(&launches()).expect("without faults");
        assert_nothing_grows(&format!("{name}: {STREAMS} streams from {THREADS} threads"), 0, || {
            round(kernel);
            forget();
        });
        assert_nothing_grows(&format!("{name}: steps on host memory"), 0, || {
            (0..500).for_each(|_| step_of_padding(kernel));
            forget();
        });
    }
    assert_eq!((hip.live().1, cuda.live_allocations()), (0, 0), "device memory");
    assert_nothing_grows("rocm: opened and closed by threads", OPENED * 24 * 1024, || {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..OPENED / 4).for_each(|_| drop(hip.open(None, on_board()).expect("opens"))));
            }
        });
        forget();
    });
    assert_nothing_grows("cuda: opened and closed by threads", OPENED * 1024, || {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..OPENED / 4).for_each(|_| drop(cuda.open(None).expect("opens"))));
            }
        });
        forget();
    });
    drop((rocm, cuda_kernel));
    hip.assert_clean("after everything");
    cuda.assert_clean("after everything");
}
