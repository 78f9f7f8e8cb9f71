//! What a launch of the ROCm port costs the host besides the runtime's own call: less than a microsecond, no heap, no look at
//! the environment.
//!
//! This program counts both on its own threads: its allocator is the system's with a count, and its `getenv` stands in for the C
//! library's, which Rust's standard library calls.

#![cfg(all(feature = "rocm", target_os = "linux"))]

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::ffi::{c_int, c_uint, c_void};
use std::hint::black_box;

use common::images::{good, on_board};
use common::launches::token_and_large_batch;
use common::scripted::Script;
use counting::{assert_both_counts_count, counted, median};
use ssm_update::ports::gpu::abi::Params;
use ssm_update::{Kernel, Stream};

#[test]
fn both_counts_count() {
    assert_both_counts_count();
}

#[test]
fn a_launch_takes_no_heap_and_does_not_look_at_the_environment() {
    let script = Script::new();
    script.set_devices(&[(good().target, 32); 2]);
    let own = script.open(None, on_board()).expect("opens");
    let other = script.open(Some(1), on_board()).expect("opens");
    for kernel in [&own, &other] {
        for launch in token_and_large_batch() {
            // SAFETY: the script reads none of the tensors.
            let run = || unsafe { kernel.launch(&launch, Stream::DEFAULT) };
            let (result, allocations, looks) = counted(run);
            result.expect("without faults");
            assert_eq!((allocations, looks), (0, 0), "{launch:?}");
        }
    }
}

type Get = unsafe extern "C" fn(*mut c_int) -> c_int;
type LaunchKernel = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

/// Against a runtime whose launch only returns. With optimisation the time is held to the contract; without, it is printed.
#[test]
fn a_launch_costs_the_host_less_than_a_microsecond() {
    let script = Script::new();
    let kernel = script.open(None, on_board()).expect("opens");
    let launch = token_and_large_batch()[0];
    let library = script.library();
    // SAFETY: HIP's functions of these names have these types.
    let (get, call) = unsafe {
        let get = *library.get::<Get>(b"hipGetDevice").expect("scripted");
        (get, *library.get::<LaunchKernel>(b"hipModuleLaunchKernel").expect("scripted"))
    };
    script.set_recording(false);

    let mut params = Params::default();
    let null = std::ptr::null_mut();
    let bare = median(|| {
        let mut arguments = [(&raw mut params).cast::<c_void>()];
        let list = arguments.as_mut_ptr();
        // SAFETY: without recording, the script looks at none of its arguments.
        let status = unsafe { call(null, 16, 48, 1, 128, 1, 1, 0, null, black_box(list), null.cast()) };
        assert_eq!(status, 0);
    });
    let device = median(|| {
        let mut device = 0;
        // SAFETY: writes one int.
        assert_eq!(unsafe { get(&raw mut device) }, 0);
    });
    let whole = median(|| {
        // SAFETY: without recording, the script looks at none of its arguments.
        unsafe { kernel.launch(black_box(&launch), Stream::DEFAULT) }.expect("without faults");
    });
    script.set_recording(true);

    let optimised = !cfg!(debug_assertions);
    let held = if optimised { "held to less than 1000 ns" } else { "not held to a limit without optimisation" };
    let above = whole - bare;
    println!(
        "a launch: {whole:.0} ns, of which {bare:.0} ns in the runtime's empty call and {device:.0} ns in asking for the \
         device; {above:.0} ns above the call, {held}"
    );
    assert!(!optimised || above < 1000.0, "{above:.0} ns above the runtime's own call");
}
