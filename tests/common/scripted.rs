//! The scripted HIP runtime of `tests/scripted_hip`: built with the machine's C compiler, loaded by the port under test as if it
//! were ROCm's, and steered and asked by the test through the functions of `script.h`.
//!
//! Each [`Script`] is a library file of its own and so has a state of its own: tests run in parallel threads.

use std::collections::hash_map::DefaultHasher;
use std::ffi::{CString, c_char};
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use libloading::Library;
use ssm_update::ports::rocm::abi::Params;
use ssm_update::ports::rocm::{Image, RocmKernel};
use ssm_update::{Unavailable, switches};

use super::images::good;

/// A function of the list in `src/driver/hip/functions.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// HIP's name.
    pub name: String,
    /// Whether a library without it is refused.
    pub required: bool,
}

/// The list, read from the source: a function that is added there has to be scripted here.
pub fn functions() -> Vec<Listed> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/driver/hip/functions.rs");
    let text = fs::read_to_string(&source).expect("the list of HIP functions is there");
    let listed = text.lines().filter_map(|line| {
        let (need, rest) = line.trim().split_once(' ')?;
        let name = rest.split_once('(')?.0;
        let required = ["OPTIONAL", "REQUIRED"].iter().position(|word| *word == need)? == 1;
        name.starts_with("hip").then(|| Listed { name: name.to_owned(), required })
    });
    let listed: Vec<Listed> = listed.collect();
    assert!(listed.len() >= 15, "the list in {} is not read right: {listed:?}", source.display());
    listed
}

const SOURCE: &str = include_str!("../scripted_hip/script.c");
const HEADER: &str = include_str!("../scripted_hip/script.h");

/// Runs the C compiler.
///
/// # Panics
///
/// Where there is none, saying what to install, and where it fails.
pub fn compile(arguments: &[&std::ffi::OsStr]) {
    // cc asks for what Cargo tells build scripts; these are of no consequence for the compiler that it finds.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.target(&target).host(&target).opt_level(2).debug(false).cargo_metadata(false).warnings(true);
    const INSTALL: &str = "the tests of the HIP driver need a C compiler: install gcc or clang (Debian: apt install gcc \
                           libc6-dev), or name one in CC";
    let compiler = build.try_get_compiler().unwrap_or_else(|error| panic!("{INSTALL}: {error}"));
    let mut command: Command = compiler.to_command();
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-fPIC", "-pthread"]).args(arguments);
    let output = command.output().unwrap_or_else(|error| panic!("{INSTALL}: {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A file in the tests' folder whose name holds everything it is made of. Made at most once, also by processes at once.
fn made_once(kind: &str, key: &impl Hash, suffix: &str, make: impl FnOnce(&Path)) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder();
    let mut hasher = DefaultHasher::new();
    (key, SOURCE, HEADER).hash(&mut hasher);
    let path = folder.join(format!("{kind}-{:016x}{suffix}", hasher.finish()));
    if !path.exists() {
        let unfinished = folder.join(format!("{kind}-{}{suffix}", std::process::id()));
        make(&unfinished);
        fs::rename(&unfinished, &path).expect("a file can be renamed within its folder");
    }
    path
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scripted_hip");
    fs::create_dir_all(&folder).expect("the tests' folder can be made");
    folder
}

/// The library without some functions. The one object file is linked with a list of what is exported.
pub fn library(without: &[&str]) -> PathBuf {
    let listed = functions();
    assert!(without.iter().all(|name| listed.iter().any(|f| f.name == *name)), "not in the list: {without:?}");
    let exported = listed.iter().filter(|function| !without.contains(&function.name.as_str()));
    let exported: String = exported.map(|function| format!("{}; ", function.name)).collect();
    let object = made_once("script", &"object", ".o", |to| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripted_hip/script.c");
        compile(&["-c".as_ref(), source.as_os_str(), "-o".as_ref(), to.as_os_str()]);
    });
    made_once("libscript", &exported, ".so", |to| {
        let versions = to.with_extension("map");
        fs::write(&versions, format!("{{ global: script_*; {exported} local: *; }};")).expect("a file can be written");
        let script = format!("-Wl,-Bsymbolic,--version-script={}", versions.display());
        compile(&["-shared".as_ref(), script.as_ref(), object.as_os_str(), "-o".as_ref(), to.as_os_str()]);
        fs::remove_file(versions).expect("the list is not needed any more");
    })
}

/// `script_call`.
#[repr(C)]
struct RawCall {
    function: *const c_char,
    status: i32,
    device: i32,
    thread: u64,
    arguments: [u64; 10],
    text: [u8; 64],
    params: [u8; 200],
}

macro_rules! control {
    ($($name:ident = $symbol:literal($($kind:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of `script.h`.
        #[derive(Debug)]
        struct Control {
            $($name: unsafe extern "C" fn($($kind),*) $(-> $result)?,)*
        }

        impl Control {
            fn of(library: &Library) -> Self {
                Self {
                    $($name: {
                        // SAFETY: script.h declares the function like this.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($kind),*) $(-> $result)?>($symbol) };
                        *symbol.expect("script.c has what script.h declares")
                    },)*
                }
            }
        }
    };
}

control! {
    set_devices = b"script_set_devices"(i32);
    set_device = b"script_set_device"(i32, *const c_char, i32);
    set_memory = b"script_set_memory"(u64);
    set_mute = b"script_set_mute"(i32);
    set_recording = b"script_set_recording"(i32);
    fail = b"script_fail"(*const c_char, u32, i32, i32);
    forget = b"script_forget"();
    calls = b"script_calls"() -> u32;
    read_call = b"script_read_call"(u32, *mut RawCall);
    live_modules = b"script_live_modules"() -> u32;
    live_allocations = b"script_live_allocations"() -> u32;
    made = b"script_made"() -> u32;
    misuses = b"script_misuses"() -> u32;
    current_device = b"script_current_device"() -> i32;
    set_current_device = b"script_set_current_device"(i32);
}

/// One recorded call. Numbers are in the order of the function's arguments, as far as `script.c` records them.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// HIP's name of the function.
    pub function: String,
    /// What it returned.
    pub status: i32,
    /// The calling thread's device.
    pub device: i32,
    /// Names the calling thread.
    pub thread: u64,
    /// Numbers and addresses.
    pub arguments: [u64; 10],
    /// The kernel's name, for `hipModuleGetFunction` and `hipModuleLaunchKernel`.
    pub text: String,
    /// The kernel's argument, for `hipModuleLaunchKernel`.
    pub params: Params,
}

impl Call {
    /// Grid of a launch.
    pub fn grid(&self) -> [u64; 3] {
        [self.arguments[0], self.arguments[1], self.arguments[2]]
    }

    /// Work-group of a launch.
    pub fn block(&self) -> [u64; 3] {
        [self.arguments[3], self.arguments[4], self.arguments[5]]
    }

    /// Stream of a launch.
    pub fn stream(&self) -> u64 {
        self.arguments[7]
    }

    /// Whether results are copied to the host.
    pub fn is_download(&self) -> bool {
        self.function == "hipMemcpy" && self.arguments[3] == 2
    }
}

/// A scripted runtime.
#[derive(Debug)]
pub struct Script {
    path: PathBuf,
    control: Control,
    /// Keeps `control` valid. The port under test keeps the file loaded anyway.
    library: Library,
}

impl Script {
    /// One device that there is a code object for, and every function.
    pub fn new() -> Self {
        Self::without(&[])
    }

    /// As [`Script::new`], without some functions.
    pub fn without(missing: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder().join(format!("libamdhip64-{}-{number}.so", std::process::id()));
        fs::copy(library(missing), &path).expect("a library can be copied");
        // SAFETY: its initialiser allocates memory, no more.
        let library = unsafe { Library::new(&path) }.expect("the scripted library loads");
        let script = Self { control: Control::of(&library), path, library };
        script.set_devices(&[(good().target, 32)]);
        script
    }

    /// The library's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The library itself, for a test that calls it.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Switches by which the port loads exactly this runtime.
    pub fn switches(&self) -> switches::Rocm {
        switches::Rocm { library: Some(self.path.clone().into_os_string()), ..switches::Rocm::default() }
    }

    /// Opens the port on it.
    pub fn open(&self, device: Option<i32>, images: &[Image<'_>]) -> Result<RocmKernel, Unavailable> {
        RocmKernel::open(&self.switches(), device, images)
    }

    /// Devices with their architectures and lanes.
    pub fn set_devices(&self, devices: &[(&str, i32)]) {
        // SAFETY: as for every call below, script.h asks nothing of its callers but valid pointers.
        unsafe { (self.control.set_devices)(devices.len().try_into().expect("a few")) };
        for (number, (architecture, lanes)) in (0..).zip(devices) {
            let architecture = CString::new(*architecture).expect("no zero byte");
            // SAFETY: a text that ends in zero.
            unsafe { (self.control.set_device)(number, architecture.as_ptr(), *lanes) };
        }
    }

    /// Bytes that all allocations together may have.
    pub fn set_memory(&self, bytes: u64) {
        // SAFETY: see `set_devices`.
        unsafe { (self.control.set_memory)(bytes) };
    }

    /// Makes the functions for names and texts of errors return null.
    pub fn mute(&self) {
        // SAFETY: see `set_devices`.
        unsafe { (self.control.set_mute)(1) };
    }

    /// Without recording, a launch does nothing but return.
    pub fn set_recording(&self, on: bool) {
        // SAFETY: see `set_devices`.
        unsafe { (self.control.set_recording)(on.into()) };
    }

    /// The nth call from now on, counted from 1, of a function (or of any) returns `status` and does nothing.
    pub fn fail(&self, function: Option<&str>, nth: usize, status: i32) {
        self.add_fault(function, nth, status, false);
    }

    /// As [`Script::fail`], and every call after it.
    pub fn fail_from(&self, nth: usize, status: i32) {
        self.add_fault(None, nth, status, true);
    }

    fn add_fault(&self, function: Option<&str>, nth: usize, status: i32, lasting: bool) {
        let name = function.map(|name| CString::new(name).expect("no zero byte"));
        let name = name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: null, or a text that ends in zero, which the script copies.
        unsafe { (self.control.fail)(name, nth.try_into().expect("few calls"), status, lasting.into()) };
    }

    /// No faults from now on, and nothing recorded.
    pub fn forget(&self) {
        // SAFETY: see `set_devices`.
        unsafe { (self.control.forget)() };
    }

    /// Every recorded call, in order.
    pub fn calls(&self) -> Vec<Call> {
        // SAFETY: see `set_devices`.
        let count = unsafe { (self.control.calls)() };
        (0..count).map(|number| self.call(number)).collect()
    }

    fn call(&self, number: u32) -> Call {
        let mut raw = RawCall {
            function: std::ptr::null(),
            status: 0,
            device: 0,
            thread: 0,
            arguments: [0; 10],
            text: [0; 64],
            params: [0; 200],
        };
        // SAFETY: room for one call, of the layout in script.h.
        unsafe { (self.control.read_call)(number, &raw mut raw) };
        // SAFETY: the script's own literal.
        let function = unsafe { std::ffi::CStr::from_ptr(raw.function) };
        let text = raw.text.split(|&byte| byte == 0).next().unwrap_or_default();
        const { assert!(size_of::<Params>() == 200, "SCRIPT_PARAMS in script.h") };
        Call {
            function: function.to_string_lossy().into_owned(),
            status: raw.status,
            device: raw.device,
            thread: raw.thread,
            arguments: raw.arguments,
            text: String::from_utf8_lossy(text).into_owned(),
            // SAFETY: as many bytes as the struct has (above), and any bytes are one: integers and floats.
            params: unsafe { raw.params.as_ptr().cast::<Params>().read_unaligned() },
        }
    }

    /// The names of the recorded calls.
    pub fn called(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.function).collect()
    }

    /// Recorded calls of one function.
    pub fn calls_of(&self, function: &str) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.function == function).collect()
    }

    /// Modules that are loaded and allocations that are not freed.
    pub fn live(&self) -> (u32, u32) {
        // SAFETY: see `set_devices`.
        unsafe { ((self.control.live_modules)(), (self.control.live_allocations)()) }
    }

    /// Modules and allocations that were ever made.
    pub fn made(&self) -> u32 {
        // SAFETY: see `set_devices`.
        unsafe { (self.control.made)() }
    }

    /// What no correct caller does: freeing twice, using what is gone, copying beyond an allocation, launching on another device.
    pub fn misuses(&self) -> u32 {
        // SAFETY: see `set_devices`.
        unsafe { (self.control.misuses)() }
    }

    /// The calling thread's device.
    pub fn current_device(&self) -> i32 {
        // SAFETY: see `set_devices`.
        unsafe { (self.control.current_device)() }
    }

    /// Makes a device the calling thread's, as the engine around the port may have done.
    pub fn set_current_device(&self, device: i32) {
        // SAFETY: see `set_devices`.
        unsafe { (self.control.set_current_device)(device) };
    }

    /// Nothing is left, and nothing was misused.
    ///
    /// # Panics
    ///
    /// When that is not so.
    pub fn assert_clean(&self, when: &str) {
        assert_eq!(self.live(), (0, 0), "modules and allocations that are left, {when}");
        assert_eq!(self.misuses(), 0, "handles misused, {when}");
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // It stays loaded; the file is not needed for that.
        let _ = fs::remove_file(&self.path);
    }
}
