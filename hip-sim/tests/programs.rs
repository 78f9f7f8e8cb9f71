//! Programs that have nothing to do with this project run on the simulator as they run on the CPU, bit for bit.
//!
//! `programs/*.hip` are compiled for each target by each compiler at two levels of optimisation, and for the CPU by the same
//! compiler with `programs/host.h` in place of the device's builtins.

mod support;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hip_sim::dispatch::Geometry;
use hip_sim::isa::Arch;
use rayon::prelude::*;
use support::{Random, bytes_of, compile, compilers, device, list, package, scratch, targets, text};

const LEVELS: [&str; 2] = ["-O0", "-O3"];

/// A program and its launch.
struct Program {
    name: String,
    groups: [u32; 3],
    size: [u32; 3],
    input: usize,
    output: usize,
    number: u32,
}

fn programs() -> Vec<Program> {
    let program = |row: Vec<String>| {
        let numbers: Vec<u32> = row[1..].iter().map(|field| field.parse().expect("a number")).collect();
        let [a, b, c, d, e, f, input, output, number] = numbers[..] else { panic!("{row:?}") };
        let (groups, size) = ([a, b, c], [d, e, f]);
        Program { name: row[0].clone(), groups, size, input: input as usize, output: output as usize, number }
    };
    list("tests/programs/list.h", "PROGRAM").into_iter().map(program).collect()
}

impl Program {
    fn input(&self) -> Vec<u8> {
        let mut random = Random::new(self.name.bytes().map(u64::from).sum());
        bytes_of(&(0..self.input).map(|_| random.next() as u32).collect::<Vec<_>>())
    }

    /// What the CPU makes of it.
    fn on_cpu(&self, host: &Path) -> Vec<u8> {
        let numbers =
            self.groups.into_iter().chain(self.size).chain([self.input as u32, self.output as u32, self.number]);
        let mut child = Command::new(host)
            .arg(&self.name)
            .args(numbers.map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        child.stdin.take().expect("it is piped").write_all(&self.input()).expect("the program reads its input");
        let output = child.wait_with_output().expect("the program ends");
        assert!(output.status.success() && output.stdout.len() == 4 * self.output, "{}: {output:?}", self.name);
        assert!(output.stdout.iter().any(|&byte| byte != 0), "{}: it writes nothing", self.name);
        output.stdout
    }

    /// What the simulator makes of it.
    fn on_device(&self, arch: Arch, image: &[u8], threads: usize) -> Result<Vec<u8>, String> {
        let mut device = device(arch, threads);
        let module = device.load(image).map_err(|error| error.to_string())?;
        let [input, output] = [self.input, self.output].map(|words| device.allocate(4 * words as u64).expect("room"));
        device.memory.write(input, &self.input()).expect("in bounds");
        device.memory.fill(output, 4 * self.output as u64, 0).expect("in bounds");
        let mut arguments = Vec::new();
        arguments.extend(input.to_le_bytes());
        arguments.extend(output.to_le_bytes());
        arguments.extend(self.number.to_le_bytes());
        let geometry = Geometry::of_blocks(self.groups, self.size).expect("a legal shape");
        device.launch(module, &self.name, geometry, 0, &arguments).map_err(|error| error.to_string())?;
        let mut result = vec![0; 4 * self.output];
        device.memory.read(output, &mut result).expect("in bounds");
        Ok(result)
    }
}

/// The programs for the CPU.
fn host(version: u32) -> PathBuf {
    let program = scratch("objects").join(format!("host-clang{version}"));
    let output = Command::new(format!("clang++-{version}"))
        .args(["-x", "c++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"])
        // Rounded after each operation, as the device does it.
        .args(["-ffp-contract=off", "-Xclang", "-ffloat16-excess-precision=none"])
        .arg(package().join("tests/programs/main.cpp"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the compiler starts");
    assert!(output.status.success(), "{}", text(&output));
    program
}

fn first_difference(got: &[u8], expected: &[u8]) -> Option<String> {
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
    };
    let (got, expected) = (words(got), words(expected));
    let different = got.iter().zip(&expected).filter(|(got, expected)| got != expected).count();
    let at = got.iter().zip(&expected).position(|(got, expected)| got != expected)?;
    let (one, other) = (got[at], expected[at]);
    Some(format!("{different} of {} words differ, the first {at}: {one:#010x}, not {other:#010x}", got.len()))
}

#[test]
fn programs_run_as_on_the_cpu() {
    let programs = programs();
    assert!(programs.len() >= 25);
    let mut failures = Vec::new();
    let mut ran = 0;
    for version in compilers() {
        let host = host(version);
        let expected: Vec<Vec<u8>> = programs.iter().map(|program| program.on_cpu(&host)).collect();
        let builds: Vec<_> =
            targets().into_iter().flat_map(|target| LEVELS.into_iter().map(move |level| (target, level))).collect();
        let results: Vec<_> = builds
            .par_iter()
            .filter_map(|&(target, level)| {
                let object = compile(version, target, &package().join("tests/programs/all.hip"), &[level])?;
                let image = std::fs::read(object).expect("it was just written");
                let run = |(program, expected): (&Program, &Vec<u8>)| {
                    let failed = match program.on_device(target, &image, 2) {
                        Err(error) => Some(error),
                        Ok(got) => first_difference(&got, expected),
                    };
                    failed.map(|why| format!("{}, {target}, clang {version} {level}: {why}", program.name))
                };
                Some(programs.iter().zip(&expected).map(run).collect::<Vec<_>>())
            })
            .collect();
        ran += results.iter().map(Vec::len).sum::<usize>();
        failures.extend(results.into_iter().flatten().flatten());
    }
    println!("programs: {} of {ran} runs as on the CPU, {} programs", ran - failures.len(), programs.len());
    assert!(failures.is_empty(), "{} of {ran}:\n{}", failures.len(), failures.join("\n"));
}

/// Once with one thread, once with three: the same bits, also where the order of atomics shows.
#[test]
fn the_number_of_threads_does_not_show() {
    let Some(&version) = compilers().first() else { return };
    let target = Arch::Gfx1151;
    let Some(object) = compile(version, target, &package().join("tests/programs/all.hip"), &["-O3"]) else { return };
    let image = std::fs::read(object).expect("it was just written");
    for program in programs() {
        let [one, three] = [1, 3].map(|threads| program.on_device(target, &image, threads));
        assert_eq!(one, three, "{}", program.name);
    }
}
