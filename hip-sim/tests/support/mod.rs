//! What the tests share: compilers, targets, devices, and random numbers.
#![allow(dead_code, reason = "every test binary compiles this file and uses its own part of it")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hip_sim::device::{Config, Device};
use hip_sim::isa::Arch;

/// Versions of clang that programs are built with, newest first.
pub const VERSIONS: [u32; 2] = [22, 19];
/// Makes an absent compiler a failure.
const REQUIRE: &str = "SSM_UPDATE_REQUIRE_HIPCC";
/// Replaces the list of targets that programs are run for; `all` is every one that is simulated.
const TARGETS: &str = "HIP_SIM_TEST_TARGETS";

/// The versions that are installed. Prints those that are not.
///
/// # Panics
///
/// When one is not and `SSM_UPDATE_REQUIRE_HIPCC` is 1.
pub fn compilers() -> Vec<u32> {
    let installed = |version: &u32| Command::new(format!("clang++-{version}")).arg("--version").output().is_ok();
    let (there, absent): (Vec<u32>, Vec<u32>) = VERSIONS.into_iter().partition(installed);
    for version in &absent {
        println!("clang++-{version}: NOT RUN (not installed)");
    }
    let required = env::var(REQUIRE).is_ok_and(|value| value == "1");
    assert!(!required || absent.is_empty(), "{REQUIRE}=1: clang++ {absent:?} not installed");
    assert!(!there.is_empty(), "no compiler is installed; scripts/setup.sh installs them on Debian 12");
    there
}

/// The targets that programs are run for.
pub fn targets() -> Vec<Arch> {
    match env::var(TARGETS) {
        Ok(value) if value == "all" => Arch::all().collect(),
        Ok(value) if !value.is_empty() => {
            value.split([',', ';']).map(|name| name.parse().unwrap_or_else(|why| panic!("{TARGETS}: {why}"))).collect()
        }
        _ => vec![Arch::Gfx1151, Arch::Gfx1100],
    }
}

/// The folder of this package.
pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder for what a test makes.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the test's folder can be made");
    folder
}

/// Compiles a source to a bare code object; none where this compiler does not know the target, which is printed.
///
/// # Panics
///
/// When it does not compile.
pub fn compile(version: u32, target: Arch, source: &Path, options: &[&str]) -> Option<PathBuf> {
    let stem = source.file_stem().expect("a source has a name").to_string_lossy();
    let object = scratch("objects").join(format!("{stem}-{target}-clang{version}{}.co", options.concat()));
    // Under a name of its own first: tests that run side by side make the same object.
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let made = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let fresh = object.with_extension(format!("{}-{}", made.0, made.1));
    let output = Command::new(format!("clang++-{version}"))
        .args(["-x", "hip", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-nogpulib", "-nogpuinc"])
        .args(["--cuda-device-only", "--no-gpu-bundle-output", "-mcode-object-version=5", "-ffp-contract=off"])
        .arg(format!("--offload-arch={target}"))
        .args(options)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&fresh)
        .output()
        .expect("the compiler starts");
    let told = text(&output);
    if told.contains("invalid target ID") || told.contains("unsupported HIP gpu architecture") {
        println!("clang {version}, {target}: NOT RUN (this compiler does not know the target)");
        return None;
    }
    assert!(output.status.success(), "clang {version}, {target}, {options:?}: {told}");
    std::fs::rename(&fresh, &object).expect("both lie in one folder");
    Some(object)
}

/// What a command said on stderr.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A device of an architecture, with a number of threads.
pub fn device(arch: Arch, threads: usize) -> Device {
    Device::new(0, Arc::new(Config { arch, threads: Some(threads), ..Config::default() }))
}

/// Random numbers that are the same every time.
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits (the generator SplitMix64).
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number in [-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// The lines `NAME(a, b, c)` of a list that C and the tests share.
pub fn list(path: &str, name: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(package().join(path)).expect("the list is there");
    let rows = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')'));
    let rows: Vec<Vec<String>> =
        rows.map(|row| row.split(',').map(|field| field.trim().to_owned()).collect()).collect();
    assert!(!rows.is_empty(), "{path} has no lines of {name}");
    rows
}

/// Bytes of words, as the device has them.
pub fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
