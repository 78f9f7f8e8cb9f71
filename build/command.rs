//! The command that compiles the kernel.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Flags of every compilation. No device library and no HIP header is looked for, since the kernel needs none. The identifier
/// that clang gives to each compilation unit is a hash of the source's path: without one, the same sources make the same bytes
/// in any folder.
pub const FLAGS: &[&str] = &[
    "-x",
    "hip",
    "-std=c++17",
    "-O3",
    "-nogpulib",
    "-nogpuinc",
    "--cuda-device-only",
    "-mcode-object-version=5",
    "-fuse-cuid=none",
];

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One code object.
    Bare,
    /// A bundle of one code object and an empty entry for the host.
    Bundle,
}

impl Form {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Bare => &["--no-gpu-bundle-output"],
            // The host entry is named after the host that is compiled for: always the same one, here.
            Self::Bundle => &["--gpu-bundle-output", "--no-offload-compress", "--target=x86_64-unknown-linux-gnu"],
        }
    }
}

/// The flags that decide about a code object's bytes, architecture aside.
pub fn flags(form: Form) -> String {
    [FLAGS, form.flags()].concat().join(" ")
}

/// A program with its arguments, run in a folder.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The compiler.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it runs. The source is named relative to it.
    pub folder: PathBuf,
}

impl Invocation {
    /// Compiles `source`, a file of `folder`, for one architecture.
    pub fn compile(program: &Path, folder: &Path, source: &str, target: &str, form: Form, object: &Path) -> Self {
        let mut arguments: Vec<String> = [FLAGS, form.flags()].concat().into_iter().map(str::to_owned).collect();
        arguments.push(format!("--offload-arch={target}"));
        // OUT_DIR is UTF-8 for include_bytes! to find it.
        arguments.extend(["-c".into(), source.into(), "-o".into(), object.to_string_lossy().into_owned()]);
        Self { program: program.to_owned(), arguments, folder: folder.to_owned() }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn run(&self) -> std::io::Result<Output> {
        Command::new(&self.program).args(&self.arguments).current_dir(&self.folder).output()
    }
}

impl fmt::Display for Invocation {
    /// As a shell takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cd {} && {}", quoted(&self.folder.to_string_lossy()), quoted(&self.program.to_string_lossy()))?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", quoted(argument)))
    }
}

fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
