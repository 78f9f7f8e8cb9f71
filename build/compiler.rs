//! Which compiler: where one may be, whether it can be used, and which is taken.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use super::code_object::CodeObject;
use super::command::{Form, Invocation};
use super::failure::Failure;
use super::files;
use super::settings::Search;

/// Where ROCm installs itself.
const ROCM: &str = "/opt/rocm";
/// The oldest clang that is taken without a name of ROCm's on it.
const OLDEST_CLANG: u32 = 18;

/// The smallest kernel that asks for what the real one needs: the architecture, the flags, waves of 32 lanes, clang's own
/// headers and the linker.
const PROBE: &str = "#include <stdint.h>\n\
    extern \"C\" __attribute__((global)) void ssm_update_probe(uint32_t *out) { *out = __builtin_amdgcn_ballot_w32(true); }\n";

/// A place where a compiler may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// How people name the place.
    pub place: String,
    /// The program, or why there is none.
    pub program: Result<PathBuf, &'static str>,
    /// The oldest version of clang that is tried.
    pub oldest: Option<u32>,
}

/// A candidate that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The place.
    pub place: String,
    /// Why it is not used.
    pub why: String,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

/// A compiler that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// The program.
    pub program: PathBuf,
    /// The line of `--version` that names clang and its version.
    pub version: String,
}

impl Compiler {
    /// What changes when the program does: path, version, size and time of the file behind any link.
    pub fn identity(&self) -> String {
        let stamp = fs::metadata(&self.program).ok().map(|file| {
            let time = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            (file.len(), time)
        });
        format!("{} {} {stamp:?}", self.program.display(), self.version)
    }
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.program.display(), self.version)
    }
}

/// Everywhere a compiler may be, in the order in which they are tried. A place that has none is in the list too, so that a
/// message can name it.
pub fn candidates(search: &Search) -> Vec<Candidate> {
    let path = &search.path;
    let candidate = |place: &str, program, oldest| Candidate { place: place.to_owned(), program, oldest };
    if let Some(program) = &search.hipcc {
        let found = if program.is_relative() { on_path(path, program.as_os_str()) } else { Some(program.clone()) };
        return vec![candidate("HIPCC", found.ok_or("not on PATH"), None)];
    }
    let rocm = search.rocm_path.as_deref().unwrap_or(Path::new(ROCM)).join("bin");
    let in_rocm = candidate(
        &rocm.join("hipcc").to_string_lossy(),
        executable(&rocm, OsStr::new("hipcc")).ok_or(if search.rocm_path.is_some() {
            "not there"
        } else {
            "not there, and ROCM_PATH names no other folder"
        }),
        None,
    );
    let named = |name: &str, oldest| {
        candidate(&format!("{name} on PATH"), on_path(path, OsStr::new(name)).ok_or("not there"), oldest)
    };
    let mut candidates = vec![in_rocm, named("hipcc", None), named("amdclang++", None)];
    let numbered = numbered(path);
    if numbered.is_empty() {
        let place = format!("clang++-N on PATH, N from {OLDEST_CLANG}");
        candidates.push(Candidate { place, program: Err("not there"), oldest: None });
    }
    candidates.extend(
        numbered.into_iter().rev().map(|(n, program)| candidate(&format!("clang++-{n} on PATH"), Ok(program), None)),
    );
    candidates.push(named("clang++", Some(OLDEST_CLANG)));
    candidates
}

/// The `clang++-N` on PATH by their number. Of two with the same number the first counts, as for a shell.
fn numbered(path: &[PathBuf]) -> BTreeMap<u32, PathBuf> {
    let mut found = BTreeMap::new();
    for entry in path.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let number = name.strip_suffix(std::env::consts::EXE_SUFFIX).and_then(|name| name.strip_prefix("clang++-"));
        if let Some(number) = number.and_then(|number| number.parse().ok())
            && number >= OLDEST_CLANG
            && is_executable(&entry.path())
        {
            found.entry(number).or_insert_with(|| entry.path());
        }
    }
    found
}

fn on_path(path: &[PathBuf], name: &OsStr) -> Option<PathBuf> {
    path.iter().find_map(|folder| executable(folder, name))
}

fn executable(folder: &Path, name: &OsStr) -> Option<PathBuf> {
    let plain = folder.join(name);
    let with_suffix = plain.with_added_extension(std::env::consts::EXE_EXTENSION);
    [plain, with_suffix].into_iter().find(|file| is_executable(file))
}

#[cfg(unix)]
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(file).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(file: &Path) -> bool {
    file.is_file()
}

/// Tries the candidates in turn, and takes the first that compiles for `target`.
///
/// # Errors
///
/// Every one of them with its reason; where `HIPCC` names one, that is an error that stops the build.
pub fn choose(search: &Search, target: &str, scratch: &Path) -> Result<Result<Compiler, Vec<Rejected>>, Failure> {
    fs::create_dir_all(scratch).map_err(Failure::file("made", scratch))?;
    let mut rejected = Vec::new();
    for candidate in candidates(search) {
        match probe(&candidate, target, scratch)? {
            Ok(compiler) => return Ok(Ok(compiler)),
            Err(why) => rejected.push(Rejected { place: candidate.place, why }),
        }
    }
    match (&search.hipcc, rejected.pop()) {
        (Some(program), Some(last)) => Err(Failure::Named { program: program.clone(), why: last.why }),
        (_, last) => {
            rejected.extend(last);
            Ok(Err(rejected))
        }
    }
}

/// Whether a candidate compiles for an architecture; else why not, in one line.
///
/// # Errors
///
/// The folder `scratch` cannot be written to.
pub fn probe(candidate: &Candidate, target: &str, scratch: &Path) -> Result<Result<Compiler, String>, Failure> {
    let program = match &candidate.program {
        Ok(program) => program,
        Err(why) => return Ok(Err((*why).to_owned())),
    };
    let version = match version(program) {
        Ok(version) => version,
        Err(why) => return Ok(Err(why)),
    };
    if candidate.oldest.is_some_and(|oldest| major(&version).is_none_or(|major| major < oldest)) {
        return Ok(Err(format!("too old: {version}, wanted is clang {OLDEST_CLANG} or newer")));
    }
    files::write(&scratch.join("probe.hip"), PROBE.as_bytes())?;
    let object = scratch.join("probe.co");
    if object.exists() {
        fs::remove_file(&object).map_err(Failure::file("removed", &object))?;
    }
    let output = match Invocation::compile(program, scratch, "probe.hip", target, Form::Bare, &object).run() {
        Ok(output) => output,
        Err(error) => return Ok(Err(format!("{version} does not start: {error}"))),
    };
    let text = String::from_utf8_lossy(&output.stderr);
    if is_unknown_target(&text, target) {
        return Ok(Err(format!("{version} does not know {target}")));
    }
    if !output.status.success() {
        let reason = explain(&text).or_else(|| first_error(&text)).unwrap_or_else(|| "without a word".to_owned());
        return Ok(Err(format!(
            "{version} fails to compile a small kernel for {target} ({}): {reason}",
            output.status
        )));
    }
    let made = fs::read(&object).unwrap_or_default();
    Ok(match CodeObject::read(&made) {
        Ok(object) if object.target == target => Ok(Compiler { program: program.clone(), version }),
        Ok(object) => Err(format!("{version}, asked for {target}, compiles for {}", object.target)),
        Err(fault) => {
            Err(format!("{version} says that it compiled a small kernel, but what it wrote is wrong: {fault}"))
        }
    })
}

/// The line of `--version` that names clang: hipcc prints one of its own before.
///
/// # Errors
///
/// Why it does not print one.
pub fn version(program: &Path) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output().map_err(|error| format!("does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        let reason = first_error(&told).or_else(|| first_error(&text)).unwrap_or_else(|| "without a word".to_owned());
        return Err(format!("--version fails ({}): {reason}", output.status));
    }
    let line = text.lines().map(str::trim).find(|line| line.contains("clang version"));
    line.map(str::to_owned)
        .ok_or_else(|| format!("--version names no clang, but {:?}", text.lines().next().unwrap_or_default()))
}

fn major(version: &str) -> Option<u32> {
    let (_, after) = version.split_once("clang version ")?;
    after.split('.').next()?.parse().ok()
}

/// Whether a compiler's text says that it does not know the architecture. The words of clang, of several years.
pub fn is_unknown_target(text: &str, target: &str) -> bool {
    const WORDS: &[&str] = &[
        "invalid target ID",
        "unsupported HIP gpu architecture",
        "unsupported CUDA gpu architecture",
        "unknown target CPU",
    ];
    text.lines().any(|line| line.contains(target) && WORDS.iter().any(|words| line.contains(words)))
}

/// Causes that are not obvious from a compiler's text.
pub fn explain(text: &str) -> Option<String> {
    if let Some(header) = text.lines().find_map(hip_header) {
        return Some(format!(
            "it takes in {header}, though this kernel uses no HIP header: headers and compiler come from different \
             installations (look at CPATH, CPLUS_INCLUDE_PATH, HIPCC_COMPILE_FLAGS_APPEND, and at what the compiler's name \
             stands for)"
        ));
    }
    let linker = text.lines().find(|line| {
        line.contains("lld")
            && ["doesn't exist", "not found", "unable to execute", "invalid linker"]
                .iter()
                .any(|words| line.contains(words))
    });
    linker.map(|line| format!("its linker is missing: install lld of the same version ({})", line.trim()))
}

/// The header of HIP, or of a compiler's support for it, that a line of a compiler's text names.
fn hip_header(line: &str) -> Option<&str> {
    const NAMES: &[&str] =
        &["/hip/amd_detail/", "/hip/hip_", "/hip/nvidia_detail/", "__clang_hip_", "amd_warp_functions.h"];
    let token =
        line.split([' ', '\'', '"', '<', '>', '(', ')']).find(|token| NAMES.iter().any(|name| token.contains(name)))?;
    // A path is followed by line and column; a drive letter has a colon too.
    let end = token.match_indices(':').map(|(at, _)| at).find(|&at| at > 1).unwrap_or(token.len());
    Some(&token[..end])
}

/// The line that says most.
fn first_error(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines.clone().find(|line| line.contains("error"));
    error.or_else(|| lines.next()).map(str::to_owned)
}
