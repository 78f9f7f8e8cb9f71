//! Planted mistakes are reported at the right instruction, and their twins without the mistake are silent.

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use hip_sim::device::{Config, Device, LaunchError};
use hip_sim::dispatch::{Geometry, Limits};
use hip_sim::exec::FaultKind;
use hip_sim::isa::Arch;
use hip_sim::report::{Problem, Report};
use support::{bytes_of, compile, compilers, list, package, targets};

const SOURCE: &str = "tests/faults/faults.hip";

/// A row of `faults/list.h`.
struct Case {
    name: String,
    groups: u32,
    size: u32,
    words: usize,
    data: char,
    out: char,
    kind: String,
}

fn cases() -> Vec<Case> {
    let case = |row: Vec<String>| {
        let number = |index: usize| row[index].parse::<u32>().expect("a number");
        let letter = |index: usize| row[index].chars().next().expect("a letter");
        let (name, kind) = (row[0].clone(), row[6].clone());
        let (data, out) = (letter(4), letter(5));
        Case { name, groups: number(1), size: number(2), words: number(3) as usize, data, out, kind }
    };
    list("tests/faults/list.h", "FAULT").into_iter().map(case).collect()
}

/// A buffer that begins as a letter says: written, unwritten, or freed.
fn buffer(device: &mut Device, words: usize, how: char) -> u64 {
    let address = device.allocate(4 * words as u64).expect("room");
    match how {
        'w' => device.memory.write(address, &bytes_of(&(0..words as u32).collect::<Vec<_>>())).expect("in bounds"),
        'f' => device.memory.free(address).expect("it is live"),
        _ => {}
    }
    address
}

fn kind(report: &Report) -> String {
    match &report.problem {
        Problem::Fault(FaultKind::Memory(fault)) => format!("{:?}", fault.kind),
        Problem::Fault(FaultKind::Trap(_)) => "Trap".into(),
        Problem::Fault(other) => format!("{other:?}"),
        Problem::Endless(_) => "Endless".into(),
    }
}

/// Runs a kernel, and answers the report with the address in the code object of the instruction.
fn run(case: &Case, kernel: &str, arch: Arch, image: &[u8], threads: usize) -> Option<(Report, u64)> {
    // Endless is what the longest of the others are far from.
    let limits = Limits { wave: 100_000, ..Limits::default() };
    let config = Config { arch, threads: Some(threads), limits, ..Config::default() };
    let mut device = Device::new(0, Arc::new(config));
    let module = device.load(image).expect("the compiler made it");
    let (data, out) = (buffer(&mut device, case.words, case.data), buffer(&mut device, 256, case.out));
    let mut arguments = Vec::new();
    arguments.extend(data.to_le_bytes());
    arguments.extend(out.to_le_bytes());
    arguments.extend((case.words as u32).to_le_bytes());
    let geometry = Geometry::of_blocks([case.groups, 1, 1], [case.size, 1, 1]).expect("a legal shape");
    match device.launch(module, kernel, geometry, 0, &arguments) {
        Ok(_) => None,
        Err(LaunchError::Fault(report)) => {
            let code = device.module(module).expect("it is loaded");
            let function = report.place.function.clone().expect("a symbol covers it");
            let symbol = code.object.image.symbols.iter().find(|symbol| symbol.name == function).expect("it was found");
            let address = symbol.offset + report.place.offset;
            assert_eq!(device.last_report(), report.to_string());
            assert_eq!(device.launch(module, kernel, geometry, 0, &arguments), Err(LaunchError::Failed));
            device.clear();
            Some((*report, address))
        }
        Err(other) => panic!("{kernel}: {other}"),
    }
}

/// The line of the source that an instruction is from, of the innermost function.
fn line(version: u32, object: &Path, address: u64) -> (String, usize) {
    let output = Command::new(format!("llvm-symbolizer-{version}"))
        .args(["--functions=none", "--no-inlines"])
        .arg(format!("--obj={}", object.display()))
        .arg(format!("{address:#x}"))
        .output()
        .expect("llvm-symbolizer is installed with clang");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut parts = text.trim().rsplitn(3, ':');
    let (_, line, file) = (parts.next(), parts.next(), parts.next());
    (file.unwrap_or_default().to_owned(), line.and_then(|line| line.parse().ok()).unwrap_or(0))
}

fn check(case: &Case, version: u32, target: Arch, level: &str, object: &Path, source: &str) -> Result<(), String> {
    let image = std::fs::read(object).map_err(|error| error.to_string())?;
    let here = format!("{}, {target}, clang {version} {level}", case.name);
    let twin = format!("{}_twin", case.name);
    if let Some((report, _)) = run(case, &twin, target, &image, 2) {
        return Err(format!("{here}: the twin is not silent:\n{report}"));
    }
    let (report, address) = run(case, &case.name, target, &image, 2).ok_or_else(|| format!("{here}: not found"))?;
    if kind(&report) != case.kind {
        return Err(format!("{here}: {} and not {}:\n{report}", kind(&report), case.kind));
    }
    let alone = run(case, &case.name, target, &image, 1).map(|(report, _)| report);
    if alone.as_ref() != Some(&report) {
        return Err(format!("{here}: one thread reports {alone:?}, two {report:?}"));
    }
    // A wave that does not end is at no instruction in particular.
    if case.kind == "Endless" {
        return Ok(());
    }
    let mark = format!("// FAULT {}", case.name);
    let expected = source.lines().position(|line| line.ends_with(&mark)).expect("the source has the mark") + 1;
    let (file, line) = line(version, object, address);
    if line != expected || !file.ends_with("faults.hip") {
        return Err(format!("{here}: at {file}:{line}, not at line {expected}:\n{report}"));
    }
    Ok(())
}

#[test]
fn planted_mistakes_are_found_where_they_are() {
    let source = std::fs::read_to_string(package().join(SOURCE)).expect("the source is there");
    let cases = cases();
    let mut failures = Vec::new();
    let mut ran = 0;
    for version in compilers() {
        for target in targets() {
            for level in ["-O0", "-O3"] {
                let options = [level, "-gline-tables-only"];
                let Some(object) = compile(version, target, &package().join(SOURCE), &options) else { continue };
                for case in &cases {
                    ran += 1;
                    failures.extend(check(case, version, target, level, &object, &source).err());
                }
            }
        }
    }
    println!("planted mistakes: {} of {ran} found where they are, {} kernels", ran - failures.len(), cases.len());
    assert!(failures.is_empty(), "{} of {ran}:\n{}", failures.len(), failures.join("\n"));
}
