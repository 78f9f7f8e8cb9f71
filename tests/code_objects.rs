//! The HIP kernel as its compilers see it: which variants a code object holds, what each may use, and that a wrong wave
//! width does not compile. Nothing is run here.
//!
//! Both compilers whose checks differ are used: clang 19 knows the macros of the wave width, clang 22 does not.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rayon::prelude::*;

/// Versions of clang that the kernel is built with, newest first.
const VERSIONS: [u32; 2] = [22, 19];
/// Makes an absent compiler a failure.
const REQUIRE: &str = "SSM_UPDATE_REQUIRE_HIPCC";
/// Bytes that the code objects of one architecture may have.
const SIZE_MAX: u64 = 512 * 1024;
/// Vector registers that a kernel may use: with more, fewer waves share a processor's registers.
const VGPRS_MAX: u64 = 64;

/// The versions that are installed. Prints those that are not.
///
/// # Panics
///
/// When none is there, or one is not and `SSM_UPDATE_REQUIRE_HIPCC` is 1.
fn compilers() -> Vec<u32> {
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

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hip").join(name)
}

/// The lines of `hip/targets.txt`.
fn targets() -> Vec<String> {
    let text = std::fs::read_to_string(source("targets.txt")).expect("hip/targets.txt is there");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// Compiles the kernel to a code object in a folder of this test.
fn compile(version: u32, target: &str, extra: &[&str]) -> (Output, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("code_objects");
    std::fs::create_dir_all(&folder).expect("the test's folder can be made");
    let object = folder.join(format!("{target}-clang{version}{}.co", extra.concat()));
    let output = Command::new(format!("clang++-{version}"))
        .args(["-x", "hip", "-std=c++17", "-O3", "-Wall", "-Wextra", "-Werror", "-nogpulib", "-nogpuinc"])
        .args(["--cuda-device-only", "--no-gpu-bundle-output", "-mcode-object-version=5"])
        .arg(format!("--offload-arch={target}"))
        .args(extra)
        .arg("-c")
        .arg(source("ssm_update.hip"))
        .arg("-o")
        .arg(&object)
        .output()
        .expect("the compiler starts");
    (output, object)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a tool of LLVM prints.
fn tool(name: &str, version: u32, arguments: &[&str], object: &Path) -> String {
    let output =
        Command::new(format!("{name}-{version}")).args(arguments).arg(object).output().expect("LLVM's tools start");
    assert!(output.status.success(), "{name}-{version}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Kernel name to its numbers in the metadata note.
fn kernels(version: u32, object: &Path) -> BTreeMap<String, BTreeMap<String, u64>> {
    let notes = tool("llvm-readelf", version, &["--notes"], object);
    let mut kernels = BTreeMap::new();
    // The note is a list of kernels, each of which begins with its arguments.
    for part in notes.split("- .args:").skip(1) {
        let fields =
            part.lines().filter_map(|line| line.trim().split_once(':')).map(|(key, value)| (key, value.trim()));
        let fields: BTreeMap<&str, &str> = fields.collect();
        let numbers = fields.iter().filter_map(|(key, value)| Some(((*key).to_owned(), value.parse().ok()?)));
        kernels.insert(fields[".name"].to_owned(), numbers.collect());
    }
    kernels
}

/// Every variant: T with B/C, state, and the 16-byte pieces that a lane holds of a row.
fn variants() -> Vec<(String, usize)> {
    let mut names = Vec::new();
    for (t, bc) in [("f32", "f32"), ("f16", "f16"), ("f16", "f32"), ("bf16", "bf16"), ("bf16", "f32")] {
        for (state, chunks) in [("f32", &[1, 2, 4][..]), ("f16", &[1, 2]), ("bf16", &[1, 2])] {
            for &chunk in chunks {
                // Rows in flight times pieces: as `tiles` in the kernel has it.
                let most = if state == "f32" { 4 } else { 2 };
                names.push((format!("ssm_update_{t}_{bc}_{state}_k{chunk}"), (most / chunk).max(1) * chunk));
            }
        }
    }
    names.sort();
    names
}

/// One code object: variants, wave width, registers, memory, size.
fn check(version: u32, target: &str) -> Result<(), String> {
    let (output, object) = compile(version, target, &[]);
    let told = text(&output.stderr);
    if told.contains("invalid target ID") {
        println!("clang {version}, {target}: NOT RUN (this compiler does not know the target)");
        return if version == VERSIONS[0] {
            Err(format!("the newest compiler does not know {target}"))
        } else {
            Ok(())
        };
    }
    if !output.status.success() {
        return Err(format!("clang {version}, {target}: {told}"));
    }
    let bytes = std::fs::metadata(&object).map_err(|error| error.to_string())?.len();
    if bytes > SIZE_MAX {
        return Err(format!("clang {version}, {target}: {bytes} bytes, at most {SIZE_MAX}"));
    }
    let kernels = kernels(version, &object);
    let (found, wanted): (Vec<&String>, Vec<_>) = (kernels.keys().collect(), variants());
    if found != wanted.iter().map(|(name, _)| name).collect::<Vec<_>>() {
        return Err(format!("clang {version}, {target}: kernels {found:?}"));
    }
    for (name, numbers) in &kernels {
        let expected = [
            (".wavefront_size", 32),
            (".private_segment_fixed_size", 0),
            (".group_segment_fixed_size", 0),
            (".vgpr_spill_count", 0),
            (".sgpr_spill_count", 0),
        ];
        for (field, value) in expected {
            if numbers.get(field) != Some(&value) {
                return Err(format!(
                    "clang {version}, {target}, {name}: {field} {:?}, not {value}",
                    numbers.get(field)
                ));
            }
        }
        if numbers[".vgpr_count"] > VGPRS_MAX {
            return Err(format!("clang {version}, {target}, {name}: {} VGPRs", numbers[".vgpr_count"]));
        }
    }
    accesses(version, target, &object, &wanted)
}

/// The state is stored in 16-byte pieces, each once: as many stores as the variant has pieces in flight, in a program
/// without loops over them. Nothing else is as wide.
fn accesses(version: u32, target: &str, object: &Path, variants: &[(String, usize)]) -> Result<(), String> {
    let listing = tool("llvm-objdump", version, &["-d", "--no-show-raw-insn"], object);
    let mut stores: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kernel = "";
    for line in listing.lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
            kernel = name;
        }
        let wide = ["global_store_b128", "global_store_dwordx4"].iter().any(|store| line.contains(store));
        *stores.entry(kernel).or_default() += usize::from(wide);
        if line.contains("flat_load") || line.contains("flat_store") {
            return Err(format!("clang {version}, {target}, {kernel}: an access of unknown memory: {}", line.trim()));
        }
    }
    for (name, pieces) in variants {
        if stores.get(name.as_str()) != Some(pieces) {
            let got = stores.get(name.as_str());
            return Err(format!("clang {version}, {target}, {name}: {got:?} stores of 16 bytes, not {pieces}"));
        }
    }
    Ok(())
}

#[test]
fn every_target_builds_within_its_budget() {
    let jobs: Vec<_> =
        compilers().into_iter().flat_map(|version| targets().into_iter().map(move |t| (version, t))).collect();
    let failures: Vec<String> = jobs.par_iter().filter_map(|(version, target)| check(*version, target).err()).collect();
    println!("code objects: {} of {} built and read", jobs.len() - failures.len(), jobs.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Each layer by itself: the macros, which the preprocessor stops at, and with the macros taken away the builtin.
#[test]
fn waves_of_64_do_not_compile() {
    const WITHOUT_MACROS: [&str; 2] = ["-U__AMDGCN_WAVEFRONT_SIZE__", "-U__AMDGCN_WAVEFRONT_SIZE"];
    for version in compilers() {
        for (target, extra) in [("gfx90a", &[][..]), ("gfx942", &[]), ("gfx1151", &["-mwavefrontsize64"])] {
            let told = |extra: &[&str]| {
                let (output, _) = compile(version, target, extra);
                assert!(!output.status.success(), "clang {version}, {target} {extra:?} compiled");
                text(&output.stderr)
            };
            let as_it_is = told(extra);
            // The macros of the first layer are gone from clang 22.
            let first = as_it_is.contains("ssm-update needs waves of 32 lanes");
            assert_eq!(first, version < 22, "clang {version}, {target}: the first layer: {as_it_is}");
            let builtin = told(&[extra, &WITHOUT_MACROS].concat());
            let second = builtin.contains("__builtin_amdgcn_ballot_w32") && builtin.contains("wavefrontsize32");
            assert!(second, "clang {version}, {target}: the second layer: {builtin}");
        }
    }
}

#[test]
fn the_host_pass_has_nothing_to_compile() {
    for version in compilers() {
        let output = Command::new(format!("clang++-{version}"))
            .args(["-x", "hip", "-std=c++17", "-nogpulib", "-nogpuinc", "--cuda-host-only", "-fsyntax-only"])
            .arg(source("ssm_update.hip"))
            .output()
            .expect("the compiler starts");
        assert!(output.status.success(), "clang {version}: {}", text(&output.stderr));
    }
}
