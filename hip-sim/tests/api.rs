//! The C interface, through the library as a program loads it. Each scenario runs in a process of its own, since the library
//! reads the environment once.

mod support;

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::OnceLock;

use hip_sim::api::{functions, hip_sim_launch_counters, hipDeviceProp_tR0000, hipDeviceProp_tR0600};
use hip_sim::counters::Traffic;
use hip_sim::isa::Arch;
use libloading::{Library, Symbol};
use support::{compile, compilers, package, text};

/// Names the scenario that a process of this test runs.
const SCENARIO: &str = "HIP_SIM_TEST_SCENARIO";

/// The library that cargo built beside this test.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(open)
}

fn open() -> Library {
    let mut path = std::env::current_exe().expect("a test is a file");
    path.set_file_name("libhip_sim.so");
    // SAFETY: the library runs no code when it is loaded; it is this package's own.
    unsafe { Library::new(&path) }.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A function of the library.
///
/// # Safety
///
/// The type is that of the function.
unsafe fn symbol<T>(name: &str) -> Symbol<'static, T> {
    // SAFETY: by this function's contract.
    unsafe { library().get(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Calls a function of the library: `call!(hipMalloc(*mut u64: &mut pointer, usize: 64))`.
macro_rules! call {
    ($name:ident($($type:ty: $value:expr),* $(,)?)) => {{
        // SAFETY: the types are those of the HIP header, as `src/api` has them.
        let function = unsafe { symbol::<unsafe extern "C" fn($($type),*) -> i32>(stringify!($name)) };
        // SAFETY: pointers are null where that is what is tested, and else valid.
        unsafe { function($($value),*) }
    }};
}

#[path = "api/graphs.rs"]
mod graphs;

const OK: i32 = 0;
const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const NOT_INITIALIZED: i32 = 3;
const INVALID_CONFIGURATION: i32 = 9;
const NO_DEVICE: i32 = 100;
const INVALID_DEVICE: i32 = 101;
const INVALID_IMAGE: i32 = 200;
const NO_BINARY_FOR_GPU: i32 = 209;
const INVALID_KERNEL_FILE: i32 = 218;
const INVALID_HANDLE: i32 = 400;
const NOT_FOUND: i32 = 500;
const LAUNCH_FAILURE: i32 = 719;

const TO_DEVICE: i32 = 1;
const TO_HOST: i32 = 2;

fn malloc(size: usize) -> u64 {
    let mut pointer = 0;
    assert_eq!(call!(hipMalloc(*mut u64: &mut pointer, usize: size)), OK);
    pointer
}

fn upload(to: u64, words: &[u32]) -> i32 {
    let (from, size) = (words.as_ptr().cast(), size_of_val(words));
    call!(hipMemcpy(*mut c_void: to as *mut c_void, *const c_void: from, usize: size, i32: TO_DEVICE))
}

fn download(from: u64, words: &mut [u32]) -> i32 {
    let (to, size) = (words.as_mut_ptr().cast(), size_of_val(words));
    call!(hipMemcpy(*mut c_void: to, *const c_void: from as *const c_void, usize: size, i32: TO_HOST))
}

/// A program of the tests as a loaded module.
fn module(source: &str) -> Option<u64> {
    let object = compile(*compilers().first()?, Arch::Gfx1151, &package().join(source), &["-O3"])?;
    let bytes = std::fs::read(object).expect("it was just written");
    let mut module = 0;
    let image = bytes.as_ptr().cast();
    assert_eq!(call!(hipModuleLoadData(*mut u64: &mut module, *const c_void: image)), OK);
    Some(module)
}

fn function(module: u64, name: &CStr) -> Result<u64, i32> {
    let mut function = 0;
    match call!(hipModuleGetFunction(*mut u64: &mut function, u64: module, *const c_char: name.as_ptr())) {
        OK => Ok(function),
        status => Err(status),
    }
}

fn launch(
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> i32 {
    call!(hipModuleLaunchKernel(
        u64: function, u32: grid[0], u32: grid[1], u32: grid[2], u32: block[0], u32: block[1], u32: block[2],
        u32: 0, u64: 0, *mut *mut c_void: parameters, *mut *mut c_void: extra
    ))
}

/// One of HIP's marks in `extra`: a number in the place of a pointer.
fn mark(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

fn report() -> String {
    let mut text = vec![0_u8; 8192];
    // SAFETY: the types are those of the library.
    let last = unsafe { symbol::<unsafe extern "C" fn(*mut u8, usize) -> usize>("hip_sim_last_report") };
    // SAFETY: the buffer has that many bytes.
    let size = unsafe { last(text.as_mut_ptr(), text.len()) };
    assert!(size <= text.len());
    String::from_utf8(text[..size - 1].to_vec()).expect("reports are text")
}

// --- scenarios -------------------------------------------------------------------------------------------------------

fn everything_is_exported() {
    let errors = ["hipGetErrorName", "hipGetErrorString", "hipGetLastError", "hipPeekAtLastError"];
    let own = ["hip_sim_last_report", "hip_sim_clear", "hip_sim_counters", "hip_sim_traffic"];
    for name in functions().chain(errors).chain(own) {
        // SAFETY: the address is not used.
        unsafe { symbol::<*const c_void>(name) };
    }
}

fn a_device_describes_itself() {
    let (mut count, mut version) = (0, 0);
    assert_eq!(call!(hipInit(u32: 0)), OK);
    assert_eq!(call!(hipInit(u32: 1)), INVALID_VALUE);
    assert_eq!(call!(hipGetDeviceCount(*mut i32: &mut count)), OK);
    assert_eq!(count, 2);
    assert_eq!(call!(hipDriverGetVersion(*mut i32: &mut version)), OK);
    assert_eq!(version / 10_000_000, 7);
    let mut new: Box<hipDeviceProp_tR0600> = Box::new(zeroed());
    assert_eq!(call!(hipGetDevicePropertiesR0600(*mut hipDeviceProp_tR0600: &mut *new, i32: 0)), OK);
    assert_eq!(CStr::from_bytes_until_nul(&new.gcn_arch_name), Ok(c"gfx1151"));
    assert_eq!((new.warp_size, new.major, new.minor, new.multi_processor_count), (32, 11, 5, 20));
    let mut old: Box<hipDeviceProp_tR0000> = Box::new(zeroed());
    assert_eq!(call!(hipGetDeviceProperties(*mut hipDeviceProp_tR0000: &mut *old, i32: 1)), OK);
    assert_eq!(CStr::from_bytes_until_nul(&old.gcn_arch_name), Ok(c"gfx1151"));
    assert_eq!(call!(hipGetDeviceProperties(*mut hipDeviceProp_tR0000: &mut *old, i32: 2)), INVALID_DEVICE);
    assert_eq!(call!(hipGetDevicePropertiesR0600(*mut c_void: null_mut(), i32: 0)), INVALID_VALUE);
    let mut value = 0;
    for (attribute, expected) in [(87, 32), (56, 1024), (63, 20), (29, i32::MAX), (30, 65536), (5, 2_900_000)] {
        assert_eq!(call!(hipDeviceGetAttribute(*mut i32: &mut value, i32: attribute, i32: 0)), OK);
        assert_eq!(value, expected, "attribute {attribute}");
    }
    assert_eq!(call!(hipDeviceGetAttribute(*mut i32: &mut value, i32: 9998, i32: 0)), INVALID_VALUE);
    assert_eq!(call!(hipSetDevice(i32: 1)), OK);
    assert_eq!(call!(hipGetDevice(*mut i32: &mut value)), OK);
    assert_eq!(value, 1);
    assert_eq!(call!(hipSetDevice(i32: -1)), INVALID_DEVICE);
    // Another thread begins with device 0.
    std::thread::spawn(|| {
        let mut value = 7;
        assert_eq!(call!(hipGetDevice(*mut i32: &mut value)), OK);
        assert_eq!(value, 0);
    })
    .join()
    .expect("no assertion failed");
}

fn zeroed<T: Zero>() -> T {
    T::zero()
}

/// Structures of numbers alone.
trait Zero {
    fn zero() -> Self;
}

macro_rules! zero {
    ($($type:ty),*) => {
        $(impl Zero for $type {
            fn zero() -> Self {
                // SAFETY: numbers and arrays of numbers, for all of which zero bytes are a value.
                unsafe { std::mem::zeroed() }
            }
        })*
    };
}
zero!(hipDeviceProp_tR0000, hipDeviceProp_tR0600);

fn errors_are_kept_per_thread() {
    assert_eq!(call!(hipMalloc(*mut u64: null_mut(), usize: 4)), INVALID_VALUE);
    assert_eq!(call!(hipPeekAtLastError()), INVALID_VALUE);
    let other = std::thread::spawn(|| call!(hipPeekAtLastError()));
    assert_eq!(other.join().expect("it ends"), OK);
    assert_eq!(call!(hipGetLastError()), INVALID_VALUE);
    assert_eq!(call!(hipGetLastError()), OK);
    for (status, name) in
        [(OK, c"hipSuccess"), (LAUNCH_FAILURE, c"hipErrorLaunchFailure"), (123_456, c"hipErrorUnknown")]
    {
        // SAFETY: the types are those of the HIP header.
        let text = unsafe { symbol::<unsafe extern "C" fn(i32) -> *const c_char>("hipGetErrorName") };
        // SAFETY: names are static strings.
        assert_eq!(unsafe { CStr::from_ptr(text(status)) }, name);
    }
}

fn memory_is_the_devices() {
    let (mut free, mut total, mut pointer) = (0_usize, 0_usize, 1_u64);
    assert_eq!(call!(hipMemGetInfo(*mut usize: &mut free, *mut usize: &mut total)), OK);
    assert_eq!((free, total), (1 << 20, 1 << 20));
    assert_eq!(call!(hipMalloc(*mut u64: &mut pointer, usize: 0)), OK);
    assert_eq!(pointer, 0);
    assert_eq!(call!(hipMalloc(*mut u64: &mut pointer, usize: (1 << 20) + 1)), OUT_OF_MEMORY);
    let device = malloc(1000);
    assert_eq!(call!(hipMemGetInfo(*mut usize: &mut free, *mut usize: &mut total)), OK);
    assert_eq!(free, (1 << 20) - 1000);
    assert_eq!(upload(device, &[1, 2, 3]), OK);
    let mut words = [0; 4];
    assert_eq!(download(device, &mut words), OK);
    assert_eq!(words, [1, 2, 3, u32::MAX]);
    // Beyond the end, in the wrong direction, and from nowhere.
    assert_eq!(upload(device + 992, &[1, 2, 3]), INVALID_VALUE);
    let host = words.as_mut_ptr().cast::<c_void>();
    assert_eq!(call!(hipMemcpy(*mut c_void: host, u64: device, usize: 4, i32: TO_DEVICE)), INVALID_VALUE);
    assert_eq!(call!(hipMemcpyDtoH(*mut c_void: host, u64: 0, usize: 4)), INVALID_VALUE);
    assert_eq!(call!(hipMemcpy(*mut c_void: host, u64: device, usize: 4, i32: 9)), 21);
    // The kind "default" looks at the addresses.
    assert_eq!(call!(hipMemcpy(*mut c_void: host, u64: device + 4, usize: 4, i32: 4)), OK);
    assert_eq!(words[0], 2);
    assert_eq!(call!(hipMemset(u64: device, i32: 0x1_ab, usize: 8)), OK);
    assert_eq!(call!(hipMemcpyDtoD(u64: device + 500, u64: device, usize: 12)), OK);
    assert_eq!(download(device + 500, &mut words[..3]), OK);
    assert_eq!(words[..3], [0xabab_abab, 0xabab_abab, 3]);
    assert_eq!(call!(hipFree(u64: device + 4)), INVALID_VALUE);
    assert_eq!(call!(hipFree(u64: device)), OK);
    assert_eq!(call!(hipFree(u64: device)), INVALID_VALUE);
    assert_eq!(call!(hipFree(u64: 0)), OK);
    assert_eq!(upload(device, &[1]), INVALID_VALUE);
    // Page-locked memory is the host's.
    assert_eq!(call!(hipHostMalloc(*mut u64: &mut pointer, usize: 100, u32: 0)), OK);
    assert_eq!(pointer % 4096, 0);
    assert_eq!(call!(hipHostFree(u64: pointer)), OK);
    assert_eq!(call!(hipHostFree(u64: pointer)), INVALID_VALUE);
}

fn streams_and_events() {
    let (mut stream, mut start, mut stop, mut elapsed) = (0_u64, 0_u64, 0_u64, -1.0_f32);
    assert_eq!(call!(hipStreamCreate(*mut u64: &mut stream)), OK);
    assert_eq!(call!(hipStreamQuery(u64: stream)), OK);
    assert_eq!(call!(hipStreamSynchronize(u64: 0)), OK);
    assert_eq!(call!(hipStreamSynchronize(u64: stream + 1)), INVALID_HANDLE);
    assert_eq!(call!(hipStreamCreateWithFlags(*mut u64: null_mut(), u32: 1)), INVALID_VALUE);
    assert_eq!(call!(hipStreamCreateWithFlags(*mut u64: &mut start, u32: 2)), INVALID_VALUE);
    assert_eq!(call!(hipEventCreate(*mut u64: &mut start)), OK);
    assert_eq!(call!(hipEventCreateWithFlags(*mut u64: &mut stop, u32: 1)), OK);
    assert_eq!(call!(hipEventElapsedTime(*mut f32: &mut elapsed, u64: start, u64: stop)), INVALID_HANDLE);
    assert_eq!(call!(hipEventRecord(u64: start, u64: stream)), OK);
    assert_eq!(call!(hipEventRecord(u64: stop, u64: stream)), OK);
    assert_eq!(call!(hipEventSynchronize(u64: stop)), OK);
    assert_eq!(call!(hipEventElapsedTime(*mut f32: &mut elapsed, u64: start, u64: stop)), OK);
    assert!(elapsed >= 0.0);
    assert_eq!(call!(hipEventDestroy(u64: start)), OK);
    assert_eq!(call!(hipEventDestroy(u64: start)), INVALID_HANDLE);
    assert_eq!(call!(hipEventRecord(u64: stop, u64: start)), INVALID_HANDLE);
    assert_eq!(call!(hipStreamDestroy(u64: stream)), OK);
    assert_eq!(call!(hipStreamQuery(u64: stream)), INVALID_HANDLE);
    assert_eq!(call!(hipDeviceSynchronize()), OK);
}

fn modules_and_launches() {
    let Some(module) = module("tests/programs/all.hip") else { return };
    assert_eq!(function(module, c"absent"), Err(NOT_FOUND));
    assert_eq!(function(module + 1, c"copy"), Err(INVALID_HANDLE));
    let copy = function(module, c"copy").expect("it is a program");
    let mut value = 0;
    for (attribute, expected) in [(0, 1024), (1, 0), (3, 0), (8, 65536)] {
        assert_eq!(call!(hipFuncGetAttribute(*mut i32: &mut value, i32: attribute, u64: copy)), OK);
        assert_eq!(value, expected, "attribute {attribute}");
    }
    let (mut gain, mut size) = (0_u64, 0_usize);
    let name = c"gain".as_ptr();
    assert_eq!(
        call!(hipModuleGetGlobal(*mut u64: &mut gain, *mut usize: &mut size, u64: module, *const c_char: name)),
        OK
    );
    let mut word = [0];
    assert_eq!(download(gain, &mut word), OK);
    assert_eq!((size, word), (4, [3]));

    let (input, output) = (malloc(400), malloc(400));
    let numbers: Vec<u32> = (0..100).map(|number| number * number).collect();
    assert_eq!(upload(input, &numbers), OK);
    // Each argument by its own pointer.
    let (mut a, mut b, mut n) = (input, output, 100_u32);
    let mut parameters = [(&raw mut a).cast::<c_void>(), (&raw mut b).cast::<c_void>(), (&raw mut n).cast::<c_void>()];
    let one = [1, 1, 1];
    assert_eq!(launch(copy, [4, 1, 1], [32, 1, 1], parameters.as_mut_ptr(), null_mut()), OK);
    let mut copied = vec![0; 100];
    assert_eq!(download(output, &mut copied), OK);
    assert_eq!(copied, numbers);
    let mut counters = hip_sim_launch_counters::default();
    let all = size_of_val(&counters);
    assert_eq!(call!(hip_sim_counters(*mut hip_sim_launch_counters: &mut counters, usize: all)), OK);
    assert_eq!((counters.groups, counters.waves), (4, 4));
    // Three waves of two lines of 64 bytes, and one line for the four lanes that are left.
    assert_eq!((counters.spaces[0].read.bytes, counters.spaces[0].written.bytes), (400, 400));
    assert_eq!((counters.spaces[0].read.lines64, counters.spaces[0].read.lines128), (7, 4));
    let mut traffic = Traffic::default();
    assert_eq!(call!(hip_sim_traffic(u64: output, *mut Traffic: &mut traffic, usize: 32)), OK);
    assert_eq!(traffic, Traffic { read: 0, written: 400, distinct_read: 0, distinct_written: 400 });

    // All of them in a buffer.
    assert_eq!(call!(hipMemset(u64: output, i32: 0, usize: 400)), OK);
    let mut buffer = [input.to_le_bytes(), output.to_le_bytes(), 100_u64.to_le_bytes()].concat();
    let mut size = buffer.len();
    let mut extra = [mark(1), buffer.as_mut_ptr().cast(), mark(2), (&raw mut size).cast(), mark(3)];
    assert_eq!(launch(copy, [4, 1, 1], [32, 1, 1], null_mut(), extra.as_mut_ptr()), OK);
    assert_eq!(download(output, &mut copied), OK);
    assert_eq!(copied, numbers);

    // What a launch refuses, and leaves the device usable after.
    let both = launch(copy, one, one, parameters.as_mut_ptr(), extra.as_mut_ptr());
    assert_eq!(both, INVALID_VALUE);
    assert_eq!(launch(copy, one, one, null_mut(), null_mut()), INVALID_VALUE);
    let mut short = 8_usize;
    extra[3] = (&raw mut short).cast();
    assert_eq!(launch(copy, one, one, null_mut(), extra.as_mut_ptr()), INVALID_VALUE);
    for (grid, block) in
        [([0, 1, 1], one), (one, [1, 0, 1]), (one, [1025, 1, 1]), (one, [32, 32, 2]), ([1 << 27, 1, 1], [32, 1, 1])]
    {
        let status = launch(copy, grid, block, parameters.as_mut_ptr(), null_mut());
        assert_eq!(status, INVALID_CONFIGURATION, "{grid:?} {block:?}");
    }
    assert_eq!(launch(0, one, one, parameters.as_mut_ptr(), null_mut()), INVALID_HANDLE);
    assert_eq!(launch(copy, one, one, parameters.as_mut_ptr(), null_mut()), OK);

    assert_eq!(call!(hipModuleUnload(u64: module)), OK);
    assert_eq!(call!(hipModuleUnload(u64: module)), INVALID_HANDLE);
    assert_eq!(launch(copy, one, one, parameters.as_mut_ptr(), null_mut()), INVALID_HANDLE);
}

/// Threads of a program that allocate, copy and launch at the same time do not see each other.
fn many_threads() {
    let Some(module) = module("tests/programs/all.hip") else { return };
    let copy = function(module, c"copy").expect("it is a program");
    std::thread::scope(|scope| {
        for thread in 0..6_u32 {
            scope.spawn(move || {
                for round in 0..20_u32 {
                    let numbers: Vec<u32> = (0..200).map(|index| index * (thread + 1) + round).collect();
                    let (mut input, mut output, mut n) = (malloc(800), malloc(800), 200_u32);
                    assert_eq!(upload(input, &numbers), OK);
                    let mut parameters =
                        [(&raw mut input).cast(), (&raw mut output).cast(), (&raw mut n).cast::<c_void>()];
                    assert_eq!(launch(copy, [7, 1, 1], [32, 1, 1], parameters.as_mut_ptr(), null_mut()), OK);
                    let mut copied = vec![0; 200];
                    assert_eq!(download(output, &mut copied), OK);
                    assert_eq!(copied, numbers);
                    assert_eq!(call!(hipFree(u64: input)), OK);
                    assert_eq!(call!(hipFree(u64: output)), OK);
                }
            });
        }
    });
    let (mut free, mut total) = (0_usize, 0_usize);
    assert_eq!(call!(hipModuleUnload(u64: module)), OK);
    assert_eq!(call!(hipMemGetInfo(*mut usize: &mut free, *mut usize: &mut total)), OK);
    assert_eq!(free, total);
}

/// A program that unloads the library leaves its threads their code.
fn unloading() {
    let first = open();
    let init = {
        // SAFETY: the types are those of the HIP header.
        let init = unsafe { first.get::<unsafe extern "C" fn(u32) -> i32>(b"hipInit\0") }.expect("it is exported");
        // SAFETY: the function is the library's; it takes a number.
        assert_eq!(unsafe { init(0) }, OK);
        *init
    };
    first.close().expect("it was loaded");
    std::thread::sleep(std::time::Duration::from_millis(50));
    // SAFETY: the library stays where it is when it is closed, which is what is tested.
    assert_eq!(unsafe { init(1) }, INVALID_VALUE);
}

fn images_that_are_none() {
    let mut module = 0_u64;
    let mut load = |bytes: &[u8]| {
        // The header is read before anything tells its length.
        let mut image = bytes.to_vec();
        image.resize(bytes.len().max(64), 0);
        call!(hipModuleLoadData(*mut u64: &mut module, *const c_void: image.as_ptr().cast()))
    };
    assert_eq!(load(b"not an image"), INVALID_IMAGE);
    let Some(&version) = compilers().first() else { return };
    let object = |arch| compile(version, arch, &package().join("tests/programs/all.hip"), &["-O3"]);
    let Some(other) = object(Arch::Gfx1100) else { return };
    assert_eq!(load(&std::fs::read(other).expect("it was just written")), NO_BINARY_FOR_GPU);
    let Some(own) = object(Arch::Gfx1151) else { return };
    let mut damaged = std::fs::read(own).expect("it was just written");
    damaged[18] = 62; // the machine: x86-64
    assert_eq!(load(&damaged), INVALID_KERNEL_FILE);
    assert_eq!(call!(hipModuleLoadData(*mut u64: null_mut(), *const u8: damaged.as_ptr())), INVALID_VALUE);
    assert_eq!(call!(hipModuleLoadData(*mut u64: &mut module, *const u8: std::ptr::null())), INVALID_VALUE);
}

fn a_fault_stays_until_it_is_cleared() {
    let Some(module) = module("tests/faults/faults.hip") else { return };
    let kernel = function(module, c"read_beyond").expect("it is a kernel");
    let (mut data, mut out, mut n) = (malloc(512), malloc(1024), 128_u32);
    assert_eq!(upload(data, &[3; 128]), OK);
    let mut parameters =
        [(&raw mut data).cast::<c_void>(), (&raw mut out).cast::<c_void>(), (&raw mut n).cast::<c_void>()];
    assert_eq!(report(), "");
    assert_eq!(launch(kernel, [2, 1, 1], [64, 1, 1], parameters.as_mut_ptr(), null_mut()), LAUNCH_FAILURE);
    let told = report();
    for part in [
        "access outside a live allocation",
        "read_beyond on gfx1151",
        "read_beyond+0x",
        "global_load_b32",
        "work-group [1, 0, 0], wave 1, lane 31: work-item [63, 0, 0]",
        &format!("{:#x}", data + 512),
        "0 bytes behind the end of the allocation of 512 bytes",
    ] {
        assert!(told.contains(part), "{part} is missing in\n{told}");
    }
    let mut pointer = 0_u64;
    assert_eq!(call!(hipMalloc(*mut u64: &mut pointer, usize: 4)), LAUNCH_FAILURE);
    assert_eq!(call!(hipDeviceSynchronize()), LAUNCH_FAILURE);
    assert_eq!(call!(hipStreamSynchronize(u64: 0)), LAUNCH_FAILURE);
    assert_eq!(download(out, &mut [0; 4]), LAUNCH_FAILURE);
    assert_eq!(call!(hip_sim_clear()), OK);
    assert_eq!(report(), "");
    // What was written before stays.
    let mut words = [0; 64];
    assert_eq!(download(out, &mut words), OK);
    assert_eq!(words, [3; 64]);
}

fn told_to_fail() {
    let mut pointer = 0_u64;
    let mut malloc = || call!(hipMalloc(*mut u64: &mut pointer, usize: 16));
    assert_eq!([malloc(), malloc(), malloc(), malloc()], [OK, OK, OUT_OF_MEMORY, OK]);
    assert_eq!(call!(hipDeviceSynchronize()), 999);
    assert_eq!(call!(hipDeviceSynchronize()), OK);
}

fn no_devices() {
    let mut count = 5;
    assert_eq!(call!(hipGetDeviceCount(*mut i32: &mut count)), NO_DEVICE);
    assert_eq!(count, 0);
    assert_eq!(call!(hipMalloc(*mut i32: &mut count, usize: 4)), NO_DEVICE);
    assert_eq!(call!(hipSetDevice(i32: 0)), INVALID_DEVICE);
}

fn waves_of_64_are_reported() {
    let mut value = 0;
    assert_eq!(call!(hipDeviceGetAttribute(*mut i32: &mut value, i32: 87, i32: 0)), OK);
    assert_eq!(value, 64);
}

fn bad_variables() {
    let mut count = 0;
    assert_eq!(call!(hipInit(u32: 0)), NOT_INITIALIZED);
    assert_eq!(call!(hipGetDeviceCount(*mut i32: &mut count)), NOT_INITIALIZED);
}

/// A scenario: its name, its function, and the variables that it is run with.
type Scenario = (&'static str, fn(), &'static [(&'static str, &'static str)]);

const SCENARIOS: [Scenario; 18] = [
    ("exports", everything_is_exported, &[]),
    ("properties", a_device_describes_itself, &[("HIP_SIM_DEVICES", "2")]),
    ("errors", errors_are_kept_per_thread, &[]),
    ("memory", memory_is_the_devices, &[("HIP_SIM_MEMORY", "1M")]),
    ("streams", streams_and_events, &[]),
    ("launches", modules_and_launches, &[]),
    ("graphs", graphs::graphs_are_launched, &[]),
    ("captures", graphs::captures_have_rules, &[]),
    ("rtc", graphs::sources_are_compiled, &[]),
    ("no_compiler", graphs::no_compiler, &[("HIP_SIM_COMPILER", "no-such-compiler")]),
    ("threads", many_threads, &[]),
    ("unloading", unloading, &[]),
    ("images", images_that_are_none, &[]),
    ("fault", a_fault_stays_until_it_is_cleared, &[]),
    ("told_to_fail", told_to_fail, &[("HIP_SIM_FAIL", "hipMalloc:3:2,hipDeviceSynchronize:1:999")]),
    ("no_devices", no_devices, &[("HIP_SIM_DEVICES", "0")]),
    ("wavefront", waves_of_64_are_reported, &[("HIP_SIM_WAVEFRONT", "64")]),
    ("bad_variables", bad_variables, &[("HIP_SIM_ARCH", "gfx906")]),
];

/// Runs a scenario in a process of its own; answers what it said on stderr.
fn run(name: &str, more: &[(&str, PathBuf)]) -> String {
    let (_, _, variables) = SCENARIOS.iter().find(|scenario| scenario.0 == name).expect("it is listed");
    let mut command = Command::new(std::env::current_exe().expect("a test is a file"));
    command.args(["--exact", "a_scenario", "--nocapture"]).env(SCENARIO, name);
    for variable in hip_sim::device::VARIABLES {
        command.env_remove(variable);
    }
    command.envs(variables.iter().copied()).envs(more.iter().map(|(name, value)| (*name, value)));
    let output = command.output().expect("the test starts");
    assert!(output.status.success(), "{name}:\n{}{}", String::from_utf8_lossy(&output.stdout), text(&output));
    text(&output)
}

/// The other end of [`run`]; alone, it does nothing.
#[test]
fn a_scenario() {
    let Ok(name) = std::env::var(SCENARIO) else { return };
    let scenario = SCENARIOS.iter().find(|scenario| scenario.0 == name).expect("it is listed");
    scenario.1();
}

#[test]
fn scenarios_that_say_nothing() {
    for name in [
        "exports",
        "properties",
        "errors",
        "streams",
        "told_to_fail",
        "no_devices",
        "wavefront",
        "threads",
        "unloading",
        "graphs",
        "rtc",
        "no_compiler",
    ] {
        run(name, &[]);
    }
}

#[test]
fn memory() {
    let told = run("memory", &[]);
    assert!(told.contains("hip-sim: 12 bytes at") && told.contains("a copy of kind 1"), "{told}");
}

#[test]
fn captures() {
    let told = run("captures", &[]);
    assert!(told.contains("hipEventRecord on a stream that is captured: not simulated"), "{told}");
}

#[test]
fn launches() {
    run("launches", &[]);
}

#[test]
fn images() {
    let told = run("images", &[]);
    assert!(told.contains("no code for gfx1151: the code object has gfx1100"), "{told}");
}

#[test]
fn a_fault_is_told_on_stderr_and_traced() {
    let trace = support::scratch("trace").join("trace.txt");
    let _ = std::fs::remove_file(&trace);
    let mut target = trace.clone().into_os_string();
    target.push(":1:1");
    let told = run("fault", &[("HIP_SIM_TRACE", target.into())]);
    if compilers().is_empty() {
        return;
    }
    assert!(told.contains("hip-sim: access outside a live allocation"), "{told}");
    let text = std::fs::read_to_string(trace).expect("it was written");
    assert!(text.starts_with("read_beyond: work-group 1, wave 1\n+0x00000"), "{text}");
    assert!(text.contains("exec ffffffff") && text.contains("s_load_b128"), "{text}");
    // What an instruction accessed, and what its destination then holds: n, the number of words.
    assert!(text.contains("  [load 0x") && text.contains(" = 0x80\n"), "{text}");
    assert!(text.lines().any(|line| line.trim_start().starts_with('v') && line.split(' ').count() > 32), "{text}");
}

#[test]
fn bad_values_are_refused_by_name() {
    let told = run("bad_variables", &[]);
    assert!(told.contains("hip-sim: HIP_SIM_ARCH=gfx906: gfx906: not simulated; known are gfx1030"), "{told}");
    assert_eq!(told.matches("HIP_SIM_ARCH").count(), 1, "once: {told}");
}
