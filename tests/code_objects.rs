//! The HIP kernel as its compilers see it: which variants a code object holds, what each may use, and that a wrong wave
//! width does not compile. Nothing is run here.

#![cfg(feature = "rocm")]

#[path = "common/hip.rs"]
#[allow(dead_code, reason = "the page of counts uses the rest")]
mod hip;

use std::process::Command;

use hip::{Disassembled, VERSIONS, compile, compilers, disassemble, source, targets, text, waits_for_loads};
use rayon::prelude::*;
use ssm_update::ports::rocm::variant::{self, PIECE};

/// Bytes that the code objects of one architecture may have.
const SIZE_MAX: u64 = 512 * 1024;
/// Vector registers that a kernel may use: with more, fewer waves share a processor's registers.
const VGPRS_MAX: u64 = 64;

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
    let kernels = disassemble(version, &object).map_err(|why| format!("clang {version}, {target}: {why}"))?;
    let mut wanted = variant::names();
    wanted.sort();
    if !kernels.keys().eq(&wanted) {
        return Err(format!("clang {version}, {target}: kernels {:?}", kernels.keys()));
    }
    for (x, bc) in variant::X_AND_BC {
        for (state, chunks) in variant::STATES {
            for &chunks in chunks {
                let name = variant::name(x, bc, state, chunks);
                let kernel = &kernels[&name];
                let fault = |why: String| format!("clang {version}, {target}, {name}: {why}");
                needs(kernel).and_then(|()| accesses(kernel, bc, state, chunks)).map_err(fault)?;
                approximations(kernel).map_err(fault)?;
                waits(kernel, target).map_err(fault)?;
            }
        }
    }
    Ok(())
}

/// What the metadata says that a kernel needs.
fn needs(of: &Disassembled) -> Result<(), String> {
    let kernel = &of.kernel;
    let got = (kernel.wavefront, kernel.scratch, kernel.lds, kernel.spills);
    if got != (Some(32), 0, 0, 0) {
        return Err(format!("(wavefront, scratch, LDS, spills) {got:?}"));
    }
    if kernel.vgprs > VGPRS_MAX { Err(format!("{} VGPRs, at most {VGPRS_MAX}", kernel.vgprs)) } else { Ok(()) }
}

/// The state is read and written in pieces of 16 bytes, each once: as many such loads and stores as the variant has pieces in
/// flight, in a program without loops over them. Nothing else is as wide but B and C where the pieces' columns are.
fn accesses(of: &Disassembled, bc: &str, state: &str, chunks: u32) -> Result<(), String> {
    let bytes = |dtype: &str| if dtype == "f32" { 4 } else { 2 };
    let pieces = variant::tiles(bytes(state), chunks) * chunks;
    // B and C are read in whole words of up to 16 bytes.
    let columns = PIECE / bytes(state) * bytes(bc);
    let of_b_and_c = if columns >= PIECE { 2 * chunks * columns / PIECE } else { 0 };
    for (kind, expected) in [("load", pieces + of_b_and_c), ("store", pieces)] {
        let got = of.accesses(kind).remove(&PIECE).unwrap_or(0);
        if got != expected as usize {
            return Err(format!("{got} {kind}s of 16 bytes, not {expected}"));
        }
    }
    let unknown = of.instructions.iter().find(|line| line.starts_with("flat_"));
    unknown.map_or(Ok(()), |line| Err(format!("an access of unknown memory: {line}")))
}

/// How the hardware rounds a power or a logarithm of two or a root is not published, and differs: no result depends on it. The
/// reciprocal is left, which the kernel refines.
fn approximations(of: &Disassembled) -> Result<(), String> {
    let rounded = |line: &str| {
        let name = line.strip_prefix("v_s_").or_else(|| line.strip_prefix("v_")).unwrap_or_default();
        ["exp_", "log_", "rsq_", "sqrt_", "sin_", "cos_"].iter().any(|function| name.starts_with(function))
    };
    let found = of.instructions.iter().find(|line| rounded(line));
    found.map_or(Ok(()), |line| Err(format!("a result that the hardware approximates: {line}")))
}

/// From the first piece of the state on, every load is issued before the first one is waited for. On gfx12 both compilers put
/// a wait for the first halves of the four per-head values in front of their second halves.
fn waits(of: &Disassembled, target: &str) -> Result<(), String> {
    let is_load = |line: &String| line.starts_with("global_load");
    let wide = |line: &String| is_load(line) && (line.contains("_b128") || line.contains("_dwordx4"));
    let first = of.instructions.iter().position(wide).ok_or("no load of 16 bytes")?;
    let last = of.instructions.iter().rposition(is_load).ok_or("no load")?;
    let waits = of.instructions[first..last].iter().filter(|line| waits_for_loads(line)).count();
    let allowed = if target.starts_with("gfx12") { 4 } else { 0 };
    if waits > allowed { Err(format!("{waits} waits between the loads, at most {allowed}")) } else { Ok(()) }
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
