//! What stops the build. Each text names the thing, what was expected, what came instead and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::code_object::Fault;
use super::compiler::Rejected;

/// What helps where no compiler can be used.
pub const INSTALL: &str = "install ROCm 6.2 or newer and set ROCM_PATH or HIPCC, or clang 18 or newer with lld of the same \
                           version (Debian, Ubuntu: clang-19 and lld-19), or name one in HIPCC";

/// Why the build stops.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A variable's value is none that it may have.
    #[error("{name} is {value:?}, expected {expected}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// An entry of a list of architectures is none.
    #[error("{list}: {item:?} {why}")]
    Target {
        /// Where the list is.
        list: &'static str,
        /// The entry.
        item: String,
        /// What is wrong with it.
        why: String,
    },
    /// The compiler that has to be used cannot be.
    #[error(
        "HIPCC names {}, which cannot compile the HIP kernel: {why}\nName another one, or unset HIPCC to search for one. \
         Its value is one program, without arguments.",
        .program.display()
    )]
    Named {
        /// The value of `HIPCC`.
        program: PathBuf,
        /// Why it cannot be used.
        why: String,
    },
    /// There is no compiler, and `because` forbids to do without one.
    #[error("no compiler for the HIP kernel, and {because}\nTried, in this order:\n{}\nWhat helps: {INSTALL}.", lines(.tried))]
    NoCompiler {
        /// What forbids it.
        because: String,
        /// What was tried.
        tried: Vec<Rejected>,
    },
    /// An architecture that was asked for is not known to the compiler.
    #[error("SSM_UPDATE_ARCHS: {target} is not known to {compiler}; leave it out, or name a newer compiler in HIPCC")]
    UnknownTarget {
        /// The architecture.
        target: String,
        /// Program and version.
        compiler: String,
    },
    /// The kernel does not compile.
    #[error("the HIP kernel does not compile for {target}: {status}\n{command}\n{}{}", text.trim_end(), hint(.advice))]
    Compile {
        /// The architecture.
        target: String,
        /// The whole command line.
        command: String,
        /// How the compiler ended.
        status: String,
        /// What it wrote.
        text: String,
        /// What can be read from that.
        advice: Option<String>,
    },
    /// A code object is not what it has to be.
    #[error("the code object for {target} ({origin}) is refused: {fault}")]
    Image {
        /// The architecture.
        target: String,
        /// Who made it.
        origin: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A code object takes too much room.
    #[error("the code object for {target} ({origin}) has {got} bytes, at most {limit} are allowed")]
    Size {
        /// The architecture.
        target: String,
        /// Who made it.
        origin: String,
        /// Its bytes.
        got: usize,
        /// The budget.
        limit: usize,
    },
    /// A committed binary or its manifest is damaged.
    #[error("{}: {why}\nRestore the folder from version control, or make it again with `make prebuilt`.", .file.display())]
    Prebuilt {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The committed binaries cannot be made again here.
    #[error(
        "prebuilt/ was made by {compiler}, which is not among the compilers found, and SSM_UPDATE_REQUIRE_HIPCC=1 asks to compare \
         the bytes: install it and unset HIPCC, or name it in HIPCC"
    )]
    OtherCompiler {
        /// The compiler of the manifest.
        compiler: String,
    },
    /// The committed binaries were made from other sources.
    #[error(
        "the kernel's sources are not those that prebuilt/ was made from, and it is all there is: {why}\nThe sources in hip/ \
         and gpu/ have the hash {got}, prebuilt/manifest.toml says {expected}.\nUndo the change there, or: {INSTALL}."
    )]
    OtherSources {
        /// Why nothing is compiled.
        why: String,
        /// The hash of the sources.
        got: String,
        /// The manifest's.
        expected: String,
    },
    /// A file or folder cannot be read or written.
    #[error("{}: cannot be {what}: {error}", .path.display())]
    File {
        /// What was tried, such as "read".
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

impl Failure {
    /// For `map_err` on a file operation.
    pub fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::File { what, path: path.to_owned(), error }
    }
}

fn lines(tried: &[impl fmt::Display]) -> String {
    tried.iter().map(|one| format!("  {one}")).collect::<Vec<_>>().join("\n")
}

fn hint(advice: &Option<String>) -> String {
    advice.as_ref().map_or_else(String::new, |advice| format!("\nWhat this may mean: {advice}"))
}
