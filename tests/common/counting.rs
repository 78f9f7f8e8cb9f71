//! What the cost tests share: this program's allocations and looks at the environment, counted on each thread, and the time of one
//! run. Only for programs that are about that: it replaces their allocator and their `getenv`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::hint::black_box;
use std::time::Instant;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static LOOKS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator, which is one.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The C library's function of this name, for this program, with a count.
///
/// # Safety
///
/// As C has it: a text that ends in zero, and nobody changes the environment meanwhile.
// SAFETY: it does what C says of the function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getenv(name: *const c_char) -> *mut c_char {
    let _ = LOOKS.try_with(|count| count.set(count.get() + 1));
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    // SAFETY: the C library's list of texts, which ends in null.
    let mut entry = unsafe { environ };
    // SAFETY: within the list, up to its null.
    while !entry.is_null() && !unsafe { *entry }.is_null() {
        // SAFETY: an entry is a text that ends in zero.
        let text = unsafe { CStr::from_ptr(*entry) };
        if let Some(rest) = text.to_bytes().strip_prefix(name)
            && rest.first() == Some(&b'=')
        {
            return rest[1..].as_ptr().cast_mut().cast();
        }
        // SAFETY: not the last one.
        entry = unsafe { entry.add(1) };
    }
    std::ptr::null_mut()
}

/// Allocations and looks at the environment on this thread while something runs.
pub fn counted<T>(run: impl FnOnce() -> T) -> (T, usize, usize) {
    let (allocations, looks) = (ALLOCATIONS.get(), LOOKS.get());
    let result = run();
    (result, ALLOCATIONS.get() - allocations, LOOKS.get() - looks)
}

/// Both counts count.
///
/// # Panics
///
/// When one does not.
pub fn assert_both_counts_count() {
    // SAFETY (of both): no test of this program changes the environment.
    let (path, _, looks) = counted(|| std::env::var_os("PATH"));
    assert!(path.is_some() && looks == 1, "{looks} looks");
    let (_, allocations, looks) = counted(|| black_box(Vec::<u8>::with_capacity(black_box(100))));
    assert_eq!((allocations, looks), (1, 0));
}

/// Nanoseconds of one run, as the median of many short series.
pub fn median(mut run: impl FnMut()) -> f64 {
    const SERIES: usize = 301;
    const RUNS: usize = 1000;
    let mut times: Vec<f64> = (0..SERIES)
        .map(|_| {
            let start = Instant::now();
            (0..RUNS).for_each(|_| run());
            start.elapsed().as_nanos() as f64 / RUNS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[SERIES / 2]
}
