//! What a launch of the CUDA port costs the host besides the driver's own call: less than a microsecond, no heap, no look at the
//! environment.
//!
//! This program counts both on its own threads: its allocator is the system's with a count, and its `getenv` stands in for the C
//! library's, which Rust's standard library calls.

#![cfg(all(feature = "cuda", target_os = "linux"))]

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::ffi::{c_uint, c_void};
use std::hint::black_box;

use common::launches::token_and_large_batch;
use common::scripted_cuda::Script;
use counting::{assert_both_counts_count, counted, median};
use ssm_update::ports::gpu::abi::Params;
use ssm_update::{Kernel, Stream};

#[test]
fn both_counts_count() {
    assert_both_counts_count();
}

#[test]
fn a_launch_takes_no_heap_and_does_not_look_at_the_environment() {
    // With overlap and without; in the thread's own context, in none, and on another device.
    for capability in [(9, 0), (8, 0)] {
        let script = Script::new();
        script.set_devices(&[capability; 2]);
        let context = script.make_context(0);
        script.set_stack(&[context]);
        let own = script.open(None).expect("opens");
        let other = script.open(Some(1)).expect("opens");
        for kernel in [&own, &other] {
            kernel.prepare(&token_and_large_batch()).expect("compiles");
            for stack in [&[context][..], &[]] {
                script.set_stack(stack);
                for launch in token_and_large_batch() {
                    script.forget();
                    // SAFETY: the script reads none of the tensors.
                    let run = || unsafe { kernel.launch(&launch, Stream::DEFAULT) };
                    let (result, allocations, looks) = counted(run);
                    result.expect("without faults");
                    assert_eq!((allocations, looks), (0, 0), "{launch:?}");
                    let launches = script.called().iter().filter(|call| call.starts_with("cuLaunch")).count();
                    assert_eq!(launches, launch.problem().dims.batch.div_ceil(65_535));
                }
            }
        }
    }
}

type GetCurrent = unsafe extern "C" fn(*mut *mut c_void) -> c_uint;
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
) -> c_uint;

/// Against a driver whose launch only returns. With optimisation the time is held to the contract; without, it is printed.
#[test]
fn a_launch_costs_the_host_less_than_a_microsecond() {
    for capability in [(9, 0), (8, 0)] {
        let script = Script::new();
        script.set_devices(&[capability]);
        let context = script.make_context(0);
        script.set_stack(&[context]);
        let kernel = script.open(None).expect("opens");
        let elsewhere = {
            script.set_stack(&[]);
            script.open(None).expect("opens")
        };
        let launch = token_and_large_batch()[0];
        for kernel in [&kernel, &elsewhere] {
            kernel.prepare(&[launch]).expect("compiles");
        }
        let library = script.library();
        // SAFETY: the driver's functions of these names have these types.
        let (current, call) = unsafe {
            let current = *library.get::<GetCurrent>(b"cuCtxGetCurrent").expect("scripted");
            (current, *library.get::<LaunchKernel>(b"cuLaunchKernel").expect("scripted"))
        };
        script.set_recording(false);

        let mut params = Params::default();
        let null = std::ptr::null_mut();
        let bare = median(|| {
            let mut arguments = [(&raw mut params).cast::<c_void>()];
            let list = arguments.as_mut_ptr();
            // SAFETY: without recording, the script looks at none of its arguments.
            let status = unsafe { call(null, 16, 48, 1, 64, 1, 1, 0, null, black_box(list), null.cast()) };
            assert_eq!(status, 0);
        });
        let context_asked = median(|| {
            let mut context = std::ptr::null_mut();
            // SAFETY: writes one pointer.
            assert_eq!(unsafe { current(&raw mut context) }, 0);
        });
        for (kernel, stack, what) in [
            (&kernel, &[context][..], "in the thread's context"),
            (&elsewhere, &[], "on a thread without a context"),
            (&elsewhere, &[context], "on a thread with another context"),
        ] {
            script.set_stack(stack);
            let whole = median(|| {
                // SAFETY: without recording, the script looks at none of its arguments.
                unsafe { kernel.launch(black_box(&launch), Stream::DEFAULT) }.expect("without faults");
            });
            let optimised = !cfg!(debug_assertions);
            let held = if optimised { "held to less than 1000 ns" } else { "not held to a limit without optimisation" };
            let above = whole - bare;
            println!(
                "a launch on {capability:?} {what}: {whole:.0} ns, of which {bare:.0} ns in the driver's empty call and \
                 {context_asked:.0} ns in each question for the context; {above:.0} ns above the call, {held}"
            );
            assert!(!optimised || above < 1000.0, "{above:.0} ns above the driver's own call");
        }
        script.set_recording(true);
    }
}
