//! The HIP kernel's compilers, its code objects and what is in them. Nothing is run on a GPU here.
//!
//! Both compilers whose checks differ are used: clang 19 knows the macros of the wave width, clang 22 does not.

#[path = "../../build/command.rs"]
#[allow(dead_code, reason = "the build script uses the rest")]
mod command;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use command::Invocation;
use ssm_update::code_object::{CodeObject, Kernel};

/// Versions of clang that the kernel is built with, newest first.
pub const VERSIONS: [u32; 2] = [22, 19];
/// Makes an absent compiler a failure.
const REQUIRE: &str = "SSM_UPDATE_REQUIRE_HIPCC";

/// The versions that are installed. Prints those that are not.
///
/// # Panics
///
/// When none is there, or one is not and `SSM_UPDATE_REQUIRE_HIPCC` is 1.
pub fn compilers() -> Vec<u32> {
    let installed = |version: &u32| Command::new(format!("clang++-{version}")).arg("--version").output().is_ok();
    let (there, absent): (Vec<u32>, Vec<u32>) = VERSIONS.into_iter().partition(installed);
    for version in &absent {
        println!("clang++-{version}: NOT RUN (not installed; scripts/setup.sh installs it on Debian 12)");
    }
    assert!(
        !there.is_empty(),
        "none of clang++ {VERSIONS:?} is installed; scripts/setup.sh installs them on Debian 12"
    );
    let required = env::var(REQUIRE).is_ok_and(|value| value == "1");
    assert!(!required || absent.is_empty(), "{REQUIRE}=1: clang++ {absent:?} not installed");
    there
}

/// How a compiler names itself: the first line of `--version`, without the package's revision.
pub fn banner(version: u32) -> String {
    let output = Command::new(format!("clang++-{version}")).arg("--version").output().expect("the compiler starts");
    let line = text(&output.stdout).lines().next().unwrap_or_default().to_owned();
    line.split(" (").next().unwrap_or_default().to_owned()
}

/// A file in `hip/`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hip").join(name)
}

/// The lines of `hip/targets.txt`.
pub fn targets() -> Vec<String> {
    let text = std::fs::read_to_string(source("targets.txt")).expect("hip/targets.txt is there");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// A folder of the tests' own.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the tests' folder can be made");
    folder
}

/// Compiles the kernel to a code object as the build does, but without warnings.
pub fn compile(version: u32, target: &str, extra: &[&str]) -> (Output, PathBuf) {
    let object = folder("code_objects").join(format!("{target}-clang{version}{}.co", extra.concat()));
    let program = PathBuf::from(format!("clang++-{version}"));
    let mut invocation =
        Invocation::compile(&program, &source(""), "ssm_update.hip", target, command::Form::Bare, &object);
    invocation.arguments.extend(["-Wall", "-Wextra", "-Werror"].iter().chain(extra).map(|&flag| flag.to_owned()));
    (invocation.run().expect("the compiler starts"), object)
}

/// What a program printed.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One kernel: what its metadata says and its instructions.
pub struct Disassembled {
    /// The metadata.
    pub kernel: Kernel,
    /// Bytes of instructions.
    pub bytes: u64,
    /// Mnemonic and operands of each, in the order of their addresses.
    pub instructions: Vec<String>,
}

impl Disassembled {
    /// Instructions for which this holds.
    pub fn count(&self, holds: impl Fn(&str) -> bool) -> usize {
        self.instructions.iter().filter(|instruction| holds(instruction)).count()
    }

    /// Accesses to global memory of a kind, `load` or `store`, by their bytes.
    ///
    /// # Panics
    ///
    /// At an access whose width is not known.
    pub fn accesses(&self, kind: &str) -> BTreeMap<u32, usize> {
        let mut widths = BTreeMap::new();
        for name in self.instructions.iter().filter_map(|line| line.strip_prefix("global_")?.strip_prefix(kind)) {
            let name = name.split_whitespace().next().unwrap_or_default();
            // gfx10 has other names than later ones; d16 is one half of a register.
            let width = match name.trim_start_matches("_d16").trim_start_matches("_hi") {
                "_b128" | "_dwordx4" => 16,
                "_b64" | "_dwordx2" => 8,
                "_b32" | "_dword" => 4,
                "_b16" | "_u16" | "_ushort" | "_short" | "_short_d16" | "_short_d16_hi" => 2,
                other => panic!("{}: global_{kind}{other}", self.kernel.name),
            };
            *widths.entry(width).or_default() += 1;
        }
        widths
    }
}

/// Whether an instruction waits for loads of vector registers.
pub fn waits_for_loads(instruction: &str) -> bool {
    instruction.starts_with("s_wait") && (instruction.contains("vmcnt") || instruction.contains("loadcnt"))
}

/// A code object's kernels by name.
///
/// # Errors
///
/// It is malformed, or LLVM's tools do not read it.
pub fn disassemble(version: u32, object: &Path) -> Result<BTreeMap<String, Disassembled>, String> {
    let image = std::fs::read(object).map_err(|error| error.to_string())?;
    let read = CodeObject::read(&image).map_err(|fault| fault.to_string())?;
    // Symbols with their sizes, then a listing in which a symbol's instructions follow its name, each with its address.
    let tool =
        Command::new(format!("llvm-objdump-{version}")).args(["-t", "-d", "--no-show-raw-insn"]).arg(object).output();
    let output = tool.map_err(|error| format!("llvm-objdump-{version}: {error}"))?;
    if !output.status.success() {
        return Err(format!("llvm-objdump-{version}: {}", text(&output.stderr)));
    }
    let listing = text(&output.stdout);
    let number = |hex: &str| u64::from_str_radix(hex, 16).ok();

    // value, flags and section, size, visibility, name
    let symbol = |line: &str| {
        let (value, rest) = line.split_once(" g     F .text\t")?;
        let mut fields = rest.split_whitespace();
        let (size, name) = (fields.next()?, fields.next_back()?);
        Some((name.to_owned(), (number(value)?, number(size)?)))
    };
    let symbols: BTreeMap<String, (u64, u64)> = listing.lines().filter_map(symbol).collect();

    let mut instructions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let (mut kernel, mut end) = ("", 0);
    for line in listing.lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
            kernel = name;
            end = symbols.get(name).map_or(0, |(start, size)| start + size);
        } else if let Some((instruction, address)) = line.strip_prefix('\t').and_then(|line| line.split_once("// ")) {
            // Behind the end is padding up to the next kernel.
            let address = address.split(':').next().and_then(number);
            if address.is_some_and(|address| address < end) {
                instructions.entry(kernel).or_default().push(instruction.trim().to_owned());
            }
        }
    }
    let of_kernel = |kernel: Kernel| {
        let (_, bytes) = *symbols.get(&kernel.name).ok_or_else(|| format!("{}: no symbol", kernel.name))?;
        let instructions =
            instructions.remove(kernel.name.as_str()).ok_or_else(|| format!("{}: no instruction", kernel.name))?;
        Ok((kernel.name.clone(), Disassembled { kernel, bytes, instructions }))
    };
    read.kernels.into_iter().map(of_kernel).collect()
}
