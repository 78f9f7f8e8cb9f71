//! Compiles the shim: one library with the kernel of every key, kept from one test binary to the next.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use ssm_update::ports::metal::key::Key;
use ssm_update::ports::metal::source;

/// Compilers that are tried, in this order: versions that the HIP kernel is built with too, then whatever is there.
pub const COMPILERS: [&str; 3] = ["clang++-22", "clang++-19", "clang++"];

/// Flags of kernels and runtime. Attributes are the language's own.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-gline-tables-only",
    "-fdebug-compilation-dir=.",
    "-fPIC",
    "-ffp-contract=off",
    "-U_FORTIFY_SOURCE",
    "-Wno-unknown-attributes",
];

/// Warnings that the kernel has to be free of. Not part of [`FLAGS`]: with a fault that leaves a variable unused it still has to run.
const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsyntax-only"];

/// Flags of the kernels alone: a call in front of each access to memory, and checks of alignment, local arrays and shifts.
const CHECKS: &[&str] = &[
    "-O1",
    "-fsanitize=kernel-address",
    "-fsanitize=alignment,bounds,shift",
    "-mllvm",
    "-asan-instrumentation-with-call-threshold=0",
    "-mllvm",
    "-asan-stack=0",
    "-mllvm",
    "-asan-globals=0",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metal_shim")
}

/// The compilers that are installed, with what they say of themselves.
pub fn compilers() -> Vec<(&'static str, String)> {
    let banner = |name: &'static str| {
        let output = Command::new(name).arg("--version").output().ok().filter(|output| output.status.success())?;
        let text = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned();
        Some((name, text))
    };
    COMPILERS.into_iter().filter_map(banner).collect()
}

/// The library, built unless one of the same sources, compiler and flags is there.
///
/// # Errors
///
/// No compiler is installed.
///
/// # Panics
///
/// When the compiler fails, with its text.
pub fn library() -> Result<PathBuf, String> {
    let Some((compiler, banner)) = compilers().into_iter().next() else {
        return Err(format!("none of {} is installed", COMPILERS.join(", ")));
    };
    Ok(build(compiler, &banner, &keys_source(&Key::all().collect::<Vec<_>>(), source::of)))
}

/// Builds the library of some kernels.
///
/// # Panics
///
/// When the compiler fails, with its text.
pub fn build(compiler: &str, banner: &str, kernels: &str) -> PathBuf {
    let mut hash = DefaultHasher::new();
    for name in ["metal_stdlib", "runtime.h", "runtime.cpp"] {
        fs::read(folder().join(name)).expect("the shim's sources are there").hash(&mut hash);
    }
    (kernels, FLAGS, CHECKS, banner).hash(&mut hash);
    let version = compiler.trim_start_matches("clang++").trim_start_matches('-');
    let stem = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("metal-shim-{:016x}-clang{version}", hash.finish()));
    let library = stem.with_extension("so");
    if library.exists() {
        return library;
    }
    // Under a name of this process's own, since others may build the same at this time.
    let own = |extension: &str| stem.with_extension(format!("{}.{extension}", std::process::id()));
    let (source, objects, built) = (own("cpp"), [own("kernels.o"), own("runtime.o")], own("so"));
    fs::write(&source, kernels).expect("the tests' folder can be written");
    compile(
        compiler,
        FLAGS.iter().chain(CHECKS),
        &["-c".as_ref(), source.as_ref(), "-o".as_ref(), objects[0].as_ref()],
    );
    let runtime = folder().join("runtime.cpp");
    compile(
        compiler,
        FLAGS.iter().chain(&["-O2"]),
        &["-c".as_ref(), runtime.as_ref(), "-o".as_ref(), objects[1].as_ref()],
    );
    let link: [&Path; 5] = ["-shared".as_ref(), &objects[0], &objects[1], "-o".as_ref(), &built];
    compile(compiler, [].iter(), &link);
    fs::rename(&built, &library).expect("the tests' folder can be written");
    for file in objects.iter().chain([&source]) {
        fs::remove_file(file).expect("a file of ours");
    }
    library
}

/// Compiles some kernels with warnings as errors, and keeps nothing.
///
/// # Panics
///
/// When the compiler complains, with its text.
pub fn check(compiler: &str, kernels: &str) {
    let source =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("metal-check-{compiler}.{}.cpp", std::process::id()));
    fs::write(&source, kernels).expect("the tests' folder can be written");
    compile(compiler, FLAGS.iter().chain(WARNINGS), &[&source]);
    compile(compiler, FLAGS.iter().chain(WARNINGS), &[&folder().join("runtime.cpp")]);
    fs::remove_file(source).expect("a file of ours");
}

fn compile<'a>(compiler: &str, flags: impl Iterator<Item = &'a &'a str>, arguments: &[&Path]) {
    let mut command = Command::new(compiler);
    command.args(flags).arg("-isystem").arg(folder()).arg("-I").arg(folder()).args(arguments);
    let output = command.output().expect("the compiler starts");
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// A source with some keys' kernels, each in a namespace of its own, and the table of them.
pub fn keys_source(keys: &[Key], source: impl Fn(&Key) -> String) -> String {
    let mut text = String::from("#include <metal_stdlib>\n");
    let mut table = String::from("const shim_kernel shim_kernels[] = {\n");
    for key in keys {
        let kernel = source(key);
        // The language that the port asks for.
        let (version, bfloat) = if key.needs_bfloat() { (310, "shim_bfloat") } else { (240, "no_bfloat_before_3_1") };
        let _ = write!(
            text,
            "#undef bfloat\n#define bfloat {bfloat}\n#define __METAL_VERSION__ {version}\nnamespace {key} {{\n{kernel}}}\n"
        );
        let arguments: Vec<String> = attributes(&kernel).iter().map(|attribute| argument(key, attribute)).collect();
        let _ = writeln!(
            table,
            "    {{\"{key}\", [](const shim_thread &told) {{ {key}::{}({}); }}}},",
            source::FUNCTION,
            arguments.join(", ")
        );
        let names = kernel.lines().filter_map(|line| line.strip_prefix("#define ")?.split([' ', '(']).next());
        for name in names.chain(["__METAL_VERSION__"]) {
            let _ = writeln!(text, "#undef {name}");
        }
    }
    // A value that the runtime hands to a kernel's pointer or reference, whatever its type.
    let convert = "struct shim_argument {\n    void *at;\n    template <typename E> operator E *() const { return static_cast<E *>(at); }\n};\n";
    format!("{text}#line 1 \"table of kernels\"\n{convert}{table}    {{nullptr, nullptr}},\n}};\n")
}

/// The attribute of each argument of the kernel, in their order.
fn attributes(kernel: &str) -> Vec<String> {
    let list = kernel.split_once("kernel void ").expect("a kernel").1.split_once("\n{").expect("its body").0;
    list.split("[[").skip(1).map(|rest| rest.split_once("]]").expect("an attribute ends").0.to_owned()).collect()
}

/// What the runtime hands over for an attribute.
fn argument(key: &Key, attribute: &str) -> String {
    use ssm_update::ports::metal::abi::at;
    let number = |name: &str| match name {
        "SSM_AT_X" => at::X,
        "SSM_AT_Z" => at::Z,
        "SSM_AT_B" => at::B,
        "SSM_AT_C" => at::C,
        "SSM_AT_DT" => at::DT,
        "SSM_AT_A_LOG" => at::A_LOG,
        "SSM_AT_D" => at::D,
        "SSM_AT_DT_BIAS" => at::DT_BIAS,
        "SSM_AT_STATE_IN" => at::STATE_IN,
        "SSM_AT_STATE_OUT" => at::STATE_OUT,
        "SSM_AT_SLOTS_IN" => at::SLOTS_IN,
        "SSM_AT_SLOTS_OUT" => at::SLOTS_OUT,
        "SSM_AT_Y" => at::Y,
        other => panic!("the shim knows no buffer {other}"),
    };
    match attribute {
        "buffer(SSM_AT_CONSTANTS)" => {
            format!("*static_cast<const {key}::ssm_update_constants *>(told.constants)")
        }
        "threadgroup_position_in_grid" | "simdgroup_index_in_threadgroup" | "thread_index_in_simdgroup" => {
            format!("told.{attribute}")
        }
        other => {
            let name = other.strip_prefix("buffer(").and_then(|rest| rest.strip_suffix(')'));
            format!(
                "shim_argument{{told.buffers[{}]}}",
                number(name.unwrap_or_else(|| panic!("the shim knows no [[{other}]]")))
            )
        }
    }
}

/// Where a library begins in memory, from the address at which one of its functions is.
pub fn start_of(library: &Path, function: usize) -> usize {
    let name = library.file_name().expect("a file").to_string_lossy().into_owned();
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let start = |line: &str| usize::from_str_radix(line.split('-').next()?, 16).ok();
    // Mapped in parts, of which the first has the lowest address.
    let lines = maps.lines().filter(|line| line.ends_with(&name)).filter_map(start);
    lines.min().filter(|start| *start <= function).unwrap_or(0)
}

/// File and line of an offset in a library; the offset where no tool tells.
pub fn place(library: &Path, offset: usize) -> String {
    let (_, version) = library
        .file_stem()
        .and_then(|stem| stem.to_str())
        .and_then(|stem| stem.rsplit_once("-clang"))
        .unwrap_or_default();
    for tool in [format!("llvm-symbolizer-{version}"), "llvm-symbolizer".to_owned(), "addr2line".to_owned()] {
        let mut command = Command::new(tool);
        command.arg("-e").arg(library).arg(format!("{offset:#x}"));
        let Ok(output) = command.output() else { continue };
        // The last line that has one: those in front of it may be a function's name.
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains(".metal:") || line.contains(".h:"));
        if let Some(line) = line {
            return line.trim_start_matches("./").to_owned();
        }
    }
    format!("offset {offset:#x} of the shim")
}

/// The compiler of a library, from its name.
pub fn compiler_of(library: &Path) -> String {
    let stem = library.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
    stem.rsplit_once("-clang").map_or(stem.clone(), |(_, version)| format!("clang {version}"))
}
