//! The functions of hipRTC, which AMD has in a library of its own (and before HIP 6 in HIP's): compile at run time. A clang of
//! this machine does it, so that a program's way to compile and launch is run as it is. Results are those of `hiprtcResult`.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsString, c_char};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::enter::{bytes_mut, exports, put};
use super::runtime::Runtime;
use super::status::Status;

/// `hiprtcResult`, with the names that `hiprtcGetErrorString` answers.
const RESULTS: [(Status, &CStr); 7] = [
    (Status::SUCCESS, c"HIPRTC_SUCCESS"),
    (PROGRAM_CREATION_FAILURE, c"HIPRTC_ERROR_PROGRAM_CREATION_FAILURE"),
    (INVALID_INPUT, c"HIPRTC_ERROR_INVALID_INPUT"),
    (INVALID_PROGRAM, c"HIPRTC_ERROR_INVALID_PROGRAM"),
    (COMPILATION, c"HIPRTC_ERROR_COMPILATION"),
    (BUILTIN_OPERATION_FAILURE, c"HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE"),
    (INTERNAL_ERROR, c"HIPRTC_ERROR_INTERNAL_ERROR"),
];
const PROGRAM_CREATION_FAILURE: Status = Status(2);
const INVALID_INPUT: Status = Status(3);
const INVALID_PROGRAM: Status = Status(4);
const COMPILATION: Status = Status(6);
const BUILTIN_OPERATION_FAILURE: Status = Status(7);
pub(super) const INTERNAL_ERROR: Status = Status(11);

/// Versions of clang that are looked for, newest first, where no variable names a compiler.
const CLANGS: std::ops::RangeInclusive<u32> = 18..=40;

/// What is always asked of clang: a bare code object, without the device library.
const FLAGS: &[&str] = &[
    "-x",
    "hip",
    "-O3",
    "-nogpulib",
    "-nogpuinc",
    "--cuda-device-only",
    "--no-gpu-bundle-output",
    "-mcode-object-version=5",
    "-D__HIPCC_RTC__",
];

/// What sources find declared, as with AMD's: attributes, and these two types, which are not those of <stdint.h>.
const PRELUDE: &str = "#define __global__ __attribute__((global))\n#define __device__ __attribute__((device))\n\
    typedef unsigned int uint32_t;\ntypedef unsigned long long uint64_t;\n#line 1\n";

/// A source, and what became of it.
#[derive(Debug)]
struct Program {
    source: Vec<u8>,
    /// File names and texts.
    headers: Vec<(PathBuf, Vec<u8>)>,
    log: Vec<u8>,
    code: Vec<u8>,
}

/// Programs by their handles.
static PROGRAMS: Mutex<BTreeMap<usize, Program>> = Mutex::new(BTreeMap::new());

fn programs() -> MutexGuard<'static, BTreeMap<usize, Program>> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle that no other program has or had.
fn new_handle() -> usize {
    static GIVEN: AtomicUsize = AtomicUsize::new(0);
    // Not an address, so that one that is followed as a pointer crashes.
    0x7b00 + 16 * (1 + GIVEN.fetch_add(1, Ordering::Relaxed))
}

/// A folder that is gone in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(handle: usize) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("hip-sim-rtc-{}-{handle:x}", std::process::id()));
        fs::create_dir(&path).map(|()| Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // what is left lies in the folder for temporary files
    }
}

/// Runs the compiler that is named, or else the newest clang.
fn run_compiler(named: Option<&OsString>, arguments: &[OsString]) -> io::Result<Output> {
    if let Some(program) = named {
        return Command::new(program).args(arguments).output();
    }
    let absent = io::Error::new(io::ErrorKind::NotFound, format!("no clang++-N on PATH, N from {}", CLANGS.start()));
    let starts = |version| match Command::new(format!("clang++-{version}")).args(arguments).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        other => Some(other),
    };
    CLANGS.rev().find_map(starts).unwrap_or(Err(absent))
}

/// Compiles; the log is the compiler's text. That there is no compiler is no fault of the source.
fn compile(runtime: &Runtime, handle: usize, program: &mut Program, options: &[OsString]) -> Result<(), Status> {
    let mut attempt = || -> io::Result<bool> {
        let scratch = Scratch::new(handle)?;
        let (source, object) = (scratch.0.join("source.hip"), scratch.0.join("object.co"));
        fs::write(&source, [PRELUDE.as_bytes(), &program.source].concat())?;
        for (name, text) in &program.headers {
            let file = scratch.0.join("include").join(name);
            fs::create_dir_all(file.parent().unwrap_or(&scratch.0))?;
            fs::write(file, text)?;
        }
        let mut arguments: Vec<OsString> = FLAGS.iter().map(OsString::from).collect();
        if !options.iter().any(|option| option.to_string_lossy().starts_with("--offload-arch")) {
            arguments.push(format!("--offload-arch={}", runtime.config.arch).into());
        }
        arguments.extend(options.iter().cloned());
        arguments.extend(["-I".into(), scratch.0.join("include").into(), "-c".into(), source.into()]);
        arguments.extend(["-o".into(), object.clone().into()]);
        let output = run_compiler(runtime.config.compiler.as_ref(), &arguments)?;
        program.log = output.stderr;
        if output.status.success() {
            program.code = fs::read(object)?;
        }
        Ok(output.status.success())
    };
    match attempt() {
        Ok(true) => Ok(()),
        Ok(false) => Err(COMPILATION),
        Err(error) => {
            program.log = format!("hip-sim: no compiler for hipRTC: {error}\n").into_bytes();
            Err(BUILTIN_OPERATION_FAILURE)
        }
    }
}

/// Texts of the caller.
///
/// # Safety
///
/// The pointer is null or that of `count` pointers, each null or of a string with a null at its end.
unsafe fn strings<'a>(pointers: *const *const c_char, count: i32) -> Result<Vec<&'a CStr>, Status> {
    let count = usize::try_from(count).map_err(|_| INVALID_INPUT)?;
    if count > 0 && pointers.is_null() {
        return Err(INVALID_INPUT);
    }
    // SAFETY: there are that many pointers by this function's contract.
    let at = |index| unsafe { pointers.add(index).read_unaligned() };
    (0..count)
        .map(at)
        .map(|pointer| {
            if pointer.is_null() {
                Err(INVALID_INPUT)
            } else {
                // SAFETY: not null, and then a string by this function's contract.
                Ok(unsafe { CStr::from_ptr(pointer) })
            }
        })
        .collect()
}

/// Something of a program.
fn of<T>(handle: usize, get: impl FnOnce(&mut Program) -> T) -> Result<T, Status> {
    programs().get_mut(&handle).map(get).ok_or(INVALID_PROGRAM)
}

/// The log as a C string; none where there is nothing to tell.
fn log_text(program: &Program) -> Vec<u8> {
    if program.log.is_empty() { Vec::new() } else { [&program.log[..], b"\0"].concat() }
}

/// Copies to the caller.
///
/// # Safety
///
/// The pointer is null or valid for writes of that many bytes.
unsafe fn copy_out(to: *mut c_char, from: &[u8]) -> Result<(), Status> {
    if to.is_null() {
        return Err(INVALID_INPUT);
    }
    // SAFETY: by this function's contract.
    unsafe { bytes_mut(to.cast(), from.len())? }.copy_from_slice(from);
    Ok(())
}

exports! {
    through enter_rtc:

    /// Makes a program of a source and the headers that it may include.
    fn hiprtcCreateProgram(
        program: *mut usize,
        source: *const c_char,
        name: *const c_char,
        count: i32,
        headers: *const *const c_char,
        names: *const *const c_char,
    ) |_| {
        let _ = name;
        if program.is_null() {
            return Err(INVALID_PROGRAM);
        }
        // SAFETY: by this function's contract, as below.
        let source = unsafe { strings(&raw const source, 1)? }[0].to_bytes().to_vec();
        // SAFETY: as above.
        let (headers, names) = unsafe { (strings(headers, count)?, strings(names, count)?) };
        let file = |(name, text): (&CStr, &CStr)| {
            let name = PathBuf::from(name.to_str().ok()?);
            // Nothing is written outside the folder of the compilation.
            let inside = name.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            inside.then(|| (name, text.to_bytes().to_vec()))
        };
        let headers = names.into_iter().zip(headers).map(file).collect::<Option<_>>();
        let made = Program { source, headers: headers.ok_or(PROGRAM_CREATION_FAILURE)?, log: Vec::new(), code: Vec::new() };
        let handle = new_handle();
        programs().insert(handle, made);
        // SAFETY: valid for a write by this function's contract.
        unsafe { put(program, handle) }
    };

    /// Compiles a program. Options go to clang.
    fn hiprtcCompileProgram(program: usize, count: i32, options: *const *const c_char) |runtime| {
        // SAFETY: by this function's contract.
        let options = unsafe { strings(options, count)? };
        let options: Vec<OsString> = options.iter().map(|option| option.to_string_lossy().into_owned().into()).collect();
        of(program, |known| compile(runtime, program, known, &options))?
    };

    /// Bytes of the log, with the null at its end.
    fn hiprtcGetProgramLogSize(program: usize, size: *mut usize) |_| {
        let length = of(program, |known| log_text(known).len())?;
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(size, length) }.map_err(|_| INVALID_INPUT)
    };

    /// The compiler's text.
    fn hiprtcGetProgramLog(program: usize, log: *mut c_char) |_| {
        // SAFETY: valid for the bytes that the size says, by this function's contract.
        of(program, |known| unsafe { copy_out(log, &log_text(known)) })?
    };

    /// Bytes of the code object; 0 where the program was not compiled.
    fn hiprtcGetCodeSize(program: usize, size: *mut usize) |_| {
        let length = of(program, |known| known.code.len())?;
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(size, length) }.map_err(|_| INVALID_INPUT)
    };

    /// The code object.
    fn hiprtcGetCode(program: usize, code: *mut c_char) |_| {
        // SAFETY: valid for the bytes that the size says, by this function's contract.
        of(program, |known| unsafe { copy_out(code, &known.code) })?
    };

    /// Ends a program.
    fn hiprtcDestroyProgram(program: *mut usize) |_| {
        if program.is_null() {
            return Err(INVALID_INPUT);
        }
        // SAFETY: not null, and then a handle by this function's contract.
        let handle = unsafe { program.read_unaligned() };
        programs().remove(&handle).map(drop).ok_or(INVALID_PROGRAM)
    };

    /// The version of hipRTC's interface, the number that AMD's library gives.
    fn hiprtcVersion(major: *mut i32, minor: *mut i32) |_| {
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(major, 9) }.map_err(|_| INVALID_INPUT)?;
        // SAFETY: as above.
        unsafe { put(minor, 0) }.map_err(|_| INVALID_INPUT)
    };
}

/// The name of a result.
#[unsafe(no_mangle)]
pub extern "C" fn hiprtcGetErrorString(result: i32) -> *const c_char {
    let row = RESULTS.iter().find(|(status, _)| status.0 == result);
    row.map_or(c"Invalid HIPRTC error code", |(_, name)| name).as_ptr()
}
