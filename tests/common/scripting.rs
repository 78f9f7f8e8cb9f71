//! Scripted libraries: what the HIP runtime of `tests/scripted_hip` and the CUDA driver of `tests/scripted_cuda` have in common.
//! They are built with the machine's C compiler, loaded by the port under test as if they were the real ones, and steered and
//! asked by the test through the functions script_* of `tests/scripted/calls.h`.
//!
//! Each one that a test plays with is a library file of its own and so has a state of its own: tests run in parallel threads.

use std::collections::hash_map::DefaultHasher;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use libloading::Library;
use ssm_update::ports::gpu::abi::Params;

/// A function of a list in `src/driver/*/functions.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The library's name of it.
    pub name: String,
    /// Whether a library without it is refused.
    pub required: bool,
}

/// The functions of a list whose names begin with one of the prefixes, read from the source: one that is added there has to be
/// scripted here.
pub fn listed(source: &str, prefixes: &[&str]) -> Vec<Listed> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let text = fs::read_to_string(&source).expect("the list of functions is there");
    let listed = text.lines().filter_map(|line| {
        let (need, rest) = line.trim().split_once(' ')?;
        let name = rest.split_once('(')?.0;
        let required = ["OPTIONAL", "REQUIRED"].iter().position(|word| *word == need)? == 1;
        let wanted = prefixes.iter().any(|prefix| name.starts_with(prefix));
        wanted.then(|| Listed { name: name.to_owned(), required })
    });
    let listed: Vec<Listed> = listed.collect();
    assert!(listed.len() >= 10, "the list in {} is not read right: {listed:?}", source.display());
    listed
}

/// Runs the C compiler.
///
/// # Panics
///
/// Where there is none, saying what to install, and where it fails.
pub fn compile(arguments: &[&OsStr]) {
    // cc asks for what Cargo tells build scripts; these are of no consequence for the compiler that it finds.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.target(&target).host(&target).opt_level(2).debug(false).cargo_metadata(false).warnings(true);
    const INSTALL: &str = "the tests of the drivers need a C compiler: install gcc or clang (Debian: apt install gcc libc6-dev), \
                           or name one in CC";
    let compiler = build.try_get_compiler().unwrap_or_else(|error| panic!("{INSTALL}: {error}"));
    let mut command: Command = compiler.to_command();
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-fPIC", "-pthread"]).args(arguments);
    let output = command.output().unwrap_or_else(|error| panic!("{INSTALL}: {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The sources of a scripted library.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    /// Its folder under `tests/`, which has a `script.c`.
    pub folder: &'static str,
    /// The texts of everything in it.
    pub texts: &'static [&'static str],
}

/// `tests/scripted/calls.h`, which all of them include.
pub const CALLS: &str = include_str!("../scripted/calls.h");

impl Sources {
    fn folder(&self) -> PathBuf {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(self.folder);
        fs::create_dir_all(&folder).expect("the tests' folder can be made");
        folder
    }

    /// A file in the tests' folder whose name holds everything it is made of. Made at most once, also by processes at once.
    fn made_once(&self, kind: &str, key: &impl Hash, suffix: &str, make: impl FnOnce(&Path)) -> PathBuf {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.folder();
        let mut hasher = DefaultHasher::new();
        (key, CALLS, self.texts).hash(&mut hasher);
        let path = folder.join(format!("{kind}-{:016x}{suffix}", hasher.finish()));
        if !path.exists() {
            let unfinished = folder.join(format!("{kind}-{}{suffix}", std::process::id()));
            make(&unfinished);
            fs::rename(&unfinished, &path).expect("a file can be renamed within its folder");
        }
        path
    }

    /// The library, compiled with some macros and exporting some functions. An object file is linked with a list of what is
    /// exported.
    pub fn library(&self, macros: &[String], exported: &[&str]) -> PathBuf {
        let exported: String = exported.iter().map(|name| format!("{name}; ")).collect();
        let object = self.made_once("script", &macros, ".o", |to| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(self.folder).join("script.c");
            let mut arguments: Vec<&OsStr> = macros.iter().map(OsStr::new).collect();
            arguments.extend(["-c".as_ref(), source.as_os_str(), "-o".as_ref(), to.as_os_str()]);
            compile(&arguments);
        });
        self.made_once("libscript", &(macros, &exported), ".so", |to| {
            let versions = to.with_extension("map");
            fs::write(&versions, format!("{{ global: script_*; {exported} local: *; }};"))
                .expect("a file can be written");
            let script = format!("-Wl,-Bsymbolic,--version-script={}", versions.display());
            compile(&["-shared".as_ref(), script.as_ref(), object.as_os_str(), "-o".as_ref(), to.as_os_str()]);
            fs::remove_file(versions).expect("the list is not needed any more");
        })
    }
}

/// `script_call`.
#[repr(C)]
struct RawCall {
    function: *const c_char,
    status: i32,
    device: i32,
    context: u64,
    thread: u64,
    arguments: [u64; 14],
    text: [u8; 64],
    params: [u8; 208],
    note: *const u8,
    note_bytes: u64,
}

/// Makes a struct of pointers to functions of a header, and its `of`.
macro_rules! control {
    ($control:ident: $($name:ident = $symbol:literal($($kind:ty),*) $(-> $result:ty)?;)*) => {
        #[derive(Debug)]
        struct $control {
            $($name: unsafe extern "C" fn($($kind),*) $(-> $result)?,)*
        }

        impl $control {
            fn of(library: &libloading::Library) -> Self {
                Self {
                    $($name: {
                        // SAFETY: the header declares the function like this.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($kind),*) $(-> $result)?>($symbol) };
                        *symbol.expect("the script has what its header declares")
                    },)*
                }
            }
        }
    };
}
pub(super) use control;

control! {
    Control:
    set_memory = b"script_set_memory"(u64);
    set_mute = b"script_set_mute"(i32);
    set_recording = b"script_set_recording"(i32);
    fail = b"script_fail"(*const c_char, u32, i32, i32);
    forget = b"script_forget"();
    calls = b"script_calls"() -> u32;
    read_call = b"script_read_call"(u32, *mut RawCall);
    live_allocations = b"script_live_allocations"() -> u32;
    made = b"script_made"() -> u32;
    misuses = b"script_misuses"() -> u32;
}

/// One recorded call. Numbers are in the order of the function's arguments, as far as the script records them.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The library's name of the function.
    pub function: String,
    /// What it returned.
    pub status: i32,
    /// The calling thread's device; -1 where it has none.
    pub device: i32,
    /// The calling thread's context.
    pub context: u64,
    /// Names the calling thread.
    pub thread: u64,
    /// Numbers and addresses.
    pub arguments: [u64; 14],
    /// The kernel's name, where one is looked for or launched.
    pub text: String,
    /// The kernel's argument, of a launch.
    pub params: Params,
    /// Longer texts, each ended by 0x1e.
    pub note: String,
}

impl Call {
    /// Grid of a launch.
    pub fn grid(&self) -> [u64; 3] {
        [self.arguments[0], self.arguments[1], self.arguments[2]]
    }

    /// Work-group, or block, of a launch.
    pub fn block(&self) -> [u64; 3] {
        [self.arguments[3], self.arguments[4], self.arguments[5]]
    }

    /// Stream of a launch.
    pub fn stream(&self) -> u64 {
        self.arguments[7]
    }

    /// Whether results are copied to the host.
    pub fn is_download(&self) -> bool {
        self.function == "cuMemcpyDtoH_v2" || self.function == "hipMemcpy" && self.arguments[3] == 2
    }

    /// The longer texts.
    pub fn notes(&self) -> Vec<&str> {
        self.note.split_terminator('\u{1e}').collect()
    }
}

/// A loaded copy of a scripted library.
#[derive(Debug)]
pub struct Base {
    path: PathBuf,
    control: Control,
    /// Keeps `control` valid. The port under test keeps the file loaded anyway.
    library: Library,
}

impl Base {
    /// A copy with a state of its own.
    pub fn copy_of(library: &Path, sources: &Sources) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = sources.folder().join(format!("libcopy-{}-{number}.so", std::process::id()));
        fs::copy(library, &path).expect("a library can be copied");
        // SAFETY: its initialisers allocate memory, no more.
        let library = unsafe { Library::new(&path) }.expect("the scripted library loads");
        Self { control: Control::of(&library), path, library }
    }

    /// The library's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The library itself, for a test that calls it.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Bytes that all allocations together may have.
    pub fn set_memory(&self, bytes: u64) {
        // SAFETY: as for every call below, calls.h asks nothing of its callers but valid pointers.
        unsafe { (self.control.set_memory)(bytes) };
    }

    /// Makes the functions for names and texts of errors return null.
    pub fn mute(&self) {
        // SAFETY: see `set_memory`.
        unsafe { (self.control.set_mute)(1) };
    }

    /// Without recording, a launch does nothing but return.
    pub fn set_recording(&self, on: bool) {
        // SAFETY: see `set_memory`.
        unsafe { (self.control.set_recording)(on.into()) };
    }

    /// The nth call from now on, counted from 1, of a function (or of any) returns `status` and does nothing.
    pub fn fail(&self, function: Option<&str>, nth: usize, status: i32) {
        self.add_fault(function, nth, status, false);
    }

    /// As [`Base::fail`], and every call after it.
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
        // SAFETY: see `set_memory`.
        unsafe { (self.control.forget)() };
    }

    /// Every recorded call, in order.
    pub fn calls(&self) -> Vec<Call> {
        // SAFETY: see `set_memory`.
        let count = unsafe { (self.control.calls)() };
        (0..count).map(|number| self.call(number)).collect()
    }

    fn call(&self, number: u32) -> Call {
        let mut raw = RawCall {
            function: std::ptr::null(),
            status: 0,
            device: 0,
            context: 0,
            thread: 0,
            arguments: [0; 14],
            text: [0; 64],
            params: [0; 208],
            note: std::ptr::null(),
            note_bytes: 0,
        };
        // SAFETY: room for one call, of the layout in calls.h.
        unsafe { (self.control.read_call)(number, &raw mut raw) };
        // SAFETY: the script's own literal.
        let function = unsafe { CStr::from_ptr(raw.function) };
        let text = raw.text.split(|&byte| byte == 0).next().unwrap_or_default();
        let note = match raw.note.is_null() {
            true => &[][..],
            // SAFETY: so many bytes, which stay until the calls are forgotten; tests do that when nobody reads.
            false => unsafe { std::slice::from_raw_parts(raw.note, raw.note_bytes as usize) },
        };
        const { assert!(size_of::<Params>() == 208, "SCRIPT_PARAMS in calls.h") };
        Call {
            function: function.to_string_lossy().into_owned(),
            status: raw.status,
            device: raw.device,
            context: raw.context,
            thread: raw.thread,
            arguments: raw.arguments,
            text: String::from_utf8_lossy(text).into_owned(),
            // SAFETY: as many bytes as the struct has (above), and any bytes are one: integers and floats.
            params: unsafe { raw.params.as_ptr().cast::<Params>().read_unaligned() },
            note: String::from_utf8_lossy(note).into_owned(),
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

    /// Allocations that are not freed.
    pub fn live_allocations(&self) -> u32 {
        // SAFETY: see `set_memory`.
        unsafe { (self.control.live_allocations)() }
    }

    /// Handles and allocations that were ever made.
    pub fn made(&self) -> u32 {
        // SAFETY: see `set_memory`.
        unsafe { (self.control.made)() }
    }

    /// What no correct caller does: freeing twice, using what is gone, copying beyond an allocation, launching elsewhere.
    pub fn misuses(&self) -> u32 {
        // SAFETY: see `set_memory`.
        unsafe { (self.control.misuses)() }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // It stays loaded; the file is not needed for that.
        let _ = fs::remove_file(&self.path);
    }
}
