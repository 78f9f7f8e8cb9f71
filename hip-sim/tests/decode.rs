//! Decoding, against `llvm-objdump` of the compiler's own version: every instruction of every code object that the
//! repository can build, by size and by text.
//!
//! Each mnemonic is also executed once: whatever compilers emit has semantics.
//!
//! The kernels are `hip/ssm_update.hip` and the programs of the tests, by each compiler, at each level of optimisation, for one
//! target of each generation, or for all of `hip/targets.txt` with `HIP_SIM_TEST_TARGETS=all`.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hip_sim::exec::{Access, Fault, FaultKind, Memory, MemoryFault, Program, Wave, WaveSetup};
use hip_sim::isa::{Arch, Dialect, decode};
use support::{VERSIONS, compilers};

const LEVELS: [&str; 4] = ["-O0", "-O1", "-O2", "-O3"];
/// Replaces the list of targets, separated by commas; `all` is every one of `hip/targets.txt`.
const TARGETS: &str = "HIP_SIM_TEST_TARGETS";
/// What is read where nothing is asked for: one target of each generation.
const USUAL: &str = "gfx1151,gfx1100,gfx1200,gfx1030";

/// How a version's disassembler spells.
fn dialect(version: u32) -> Dialect {
    match version {
        19 => Dialect::Llvm19,
        _ => Dialect::Llvm22,
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above").to_owned()
}

fn targets() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("hip/targets.txt")).expect("hip/targets.txt is there");
    let asked = env::var(TARGETS).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| USUAL.to_owned());
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let wanted = |line: &&str| asked == "all" || asked.split([',', ';']).any(|name| name == *line);
    lines.filter(wanted).map(str::to_owned).collect()
}

/// Every program of the tests, and more of what the instruction sets have.
fn sources() -> Vec<PathBuf> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut sources = vec![root().join("hip/ssm_update.hip")];
    sources.extend(["programs/all.hip", "faults/faults.hip", "decode/wide.hip"].map(|name| tests.join(name)));
    for source in &sources {
        assert!(source.exists(), "{} is missing", source.display());
    }
    sources
}

/// What a compiler said to a source and a target.
enum Built {
    Object(PathBuf),
    /// It does not know the target.
    Unknown,
    /// It cannot keep an address in scalar registers, as the source asks with inline assembly, unless it optimises.
    NeedsOptimiser,
}

fn compile(version: u32, target: &str, level: &str, source: &Path) -> Built {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("decode");
    std::fs::create_dir_all(&folder).expect("the test's folder can be made");
    let name = source.file_stem().expect("a source has a name").to_string_lossy();
    let object = folder.join(format!("{name}-{target}-clang{version}{level}.co"));
    let output = Command::new(format!("clang++-{version}"))
        .args(["-x", "hip", "-std=c++17", level, "-nogpulib", "-nogpuinc", "-fno-crash-diagnostics"])
        .args(["--cuda-device-only", "--no-gpu-bundle-output", "-mcode-object-version=5"])
        .arg(format!("--offload-arch={target}"))
        .arg("-I")
        .arg(root().join("hip"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object)
        .output()
        .expect("the compiler starts");
    let told = String::from_utf8_lossy(&output.stderr);
    if told.contains("invalid target ID") {
        return Built::Unknown;
    }
    if level == "-O0" && told.contains("illegal VGPR to SGPR copy") {
        return Built::NeedsOptimiser;
    }
    assert!(output.status.success(), "clang {version}, {target} {level}, {}: {told}", source.display());
    Built::Object(object)
}

/// An instruction as the disassembler shows it.
struct Line {
    address: u64,
    text: String,
    words: Vec<u32>,
}

fn disassemble(version: u32, object: &Path) -> Vec<Line> {
    let output = Command::new(format!("llvm-objdump-{version}"))
        .args(["-d", "--disassemble-zeroes"])
        .arg(object)
        .output()
        .expect("llvm-objdump starts");
    assert!(output.status.success(), "llvm-objdump-{version} {}", object.display());
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |line: &str| {
        let (text, comment) = line.strip_prefix('\t')?.rsplit_once("// ")?;
        let (address, rest) = comment.split_once(':')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let words = rest.split_whitespace().map_while(|word| u32::from_str_radix(word, 16).ok());
        Some(Line { address, text: text.trim().to_owned(), words: words.collect() })
    };
    text.lines().filter_map(line).collect()
}

/// How many instructions there were, and those that differ, by mnemonic: how often, and the first one.
#[derive(Default)]
struct Tally {
    seen: usize,
    wrong: BTreeMap<String, (usize, String)>,
}

/// Memory that has everything.
struct Everything;

impl Memory for Everything {
    fn load(&mut self, _: &Access, out: &mut [u8]) -> Result<(), MemoryFault> {
        out.fill(0);
        Ok(())
    }

    fn store(&mut self, _: &Access, _: &[u8]) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn atomic(&mut self, access: &Access, update: &mut dyn FnMut(&mut [u8])) -> Result<(), MemoryFault> {
        update(&mut vec![0; access.size as usize]);
        Ok(())
    }
}

/// Executes one instruction in a wave whose registers are all zero.
fn execute(arch: Arch, words: &[u32]) -> Result<(), Box<Fault>> {
    let mut wave = Wave::new(WaveSetup {
        arch,
        pc: 0,
        sgprs: vec![0; 106],
        vgprs: vec![[0; 32]; 256],
        vgpr_count: 256,
        exec: u32::MAX,
        ttmps: [0; 16],
        float_mode: 0xf0,
        ieee: true,
        dx10_clamp: true,
        shared_base: 0,
        private_base: 0,
        hardware_error_ulp: 0,
    });
    wave.set_sgpr(106, 0);
    wave.run(&Program::new(arch, 0, words.to_vec()), &mut Everything, &mut (), 1).map(|_| ())
}

impl Tally {
    /// Executes each mnemonic once.
    fn execute(&mut self, target: &str, lines: &[Line]) {
        let arch: Arch = target.parse().expect("every target is simulated");
        let mut tried = BTreeSet::new();
        for line in lines {
            let mnemonic = line.text.split(' ').next().unwrap_or_default();
            // Padding behind the code, which is there to be caught.
            if mnemonic == "s_code_end" || !tried.insert(mnemonic) {
                continue;
            }
            match execute(arch, &line.words) {
                Err(fault) if !matches!(fault.kind, FaultKind::Trap(_)) => {
                    let first = format!("{target}: {fault}");
                    self.wrong.entry(format!("{mnemonic}, executed")).or_insert((0, first)).0 += 1;
                }
                _ => {}
            }
        }
    }

    fn compare(&mut self, target: &str, dialect: Dialect, lines: &[Line]) {
        let arch: Arch = target.parse().expect("every target is simulated");
        for line in lines {
            self.seen += 1;
            let told = match decode(arch, &line.words) {
                Err(unknown) => format!("unknown {:x?}", unknown.words),
                Ok(inst) => {
                    let text = inst.text(dialect).to_string();
                    if usize::from(inst.size) == 4 * line.words.len() && text == line.text {
                        continue;
                    }
                    format!("{text} ({} bytes)", inst.size)
                }
            };
            let mnemonic = line.text.split(' ').next().unwrap_or_default().to_owned();
            let entry = self.wrong.entry(mnemonic).or_default();
            entry.0 += 1;
            if entry.1.is_empty() {
                entry.1 = format!(
                    "{target} at {:#x} {:08x?}\n      llvm: {}\n      ours: {told}",
                    line.address, line.words, line.text
                );
            }
        }
    }
}

/// What became of one source, target, compiler and level.
struct Outcome {
    version: u32,
    target: String,
    what: String,
    result: Result<Tally, &'static str>,
}

/// Runs `job` for each index, on as many threads as there are processors.
fn in_parallel<T: Send>(count: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let result = job(index);
                    results.lock().expect("no job panics while it holds the lock").push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no job panics while it holds the lock");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn every_instruction_agrees_with_llvm() {
    let mut jobs = Vec::new();
    for version in compilers() {
        let dialect = dialect(version);
        for target in targets() {
            for source in sources() {
                jobs.extend(LEVELS.map(|level| (version, dialect, target.clone(), source.clone(), level)));
            }
        }
    }
    let outcomes = in_parallel(jobs.len(), |index| {
        let (version, dialect, target, source, level) = &jobs[index];
        let result = match compile(*version, target, level, source) {
            Built::Unknown => Err("this compiler does not know the target"),
            Built::NeedsOptimiser => Err("inline assembly that needs the optimiser"),
            Built::Object(object) => {
                let mut tally = Tally::default();
                let lines = disassemble(*version, &object);
                tally.compare(target, *dialect, &lines);
                tally.execute(target, &lines);
                Ok(tally)
            }
        };
        let what = format!("{} {level}", source.file_name().unwrap_or_default().display());
        Outcome { version: *version, target: target.clone(), what, result }
    });

    let mut counts: BTreeMap<(u32, String), (usize, usize)> = BTreeMap::new();
    let mut wrong: BTreeMap<(u32, String), (usize, String)> = BTreeMap::new();
    let mut not_run = BTreeSet::new();
    for outcome in outcomes {
        let tally = match outcome.result {
            Ok(tally) => tally,
            Err(why) if why.contains("target") => {
                not_run.insert(format!("clang {}, {}: NOT RUN ({why})", outcome.version, outcome.target));
                assert!(outcome.version != VERSIONS[0], "the newest compiler does not know {}", outcome.target);
                continue;
            }
            Err(why) => {
                not_run.insert(format!("clang {}, {}: NOT RUN ({why})", outcome.version, outcome.what));
                continue;
            }
        };
        let count = counts.entry((outcome.version, outcome.target)).or_default();
        count.0 += 1;
        count.1 += tally.seen;
        for (mnemonic, (times, first)) in tally.wrong {
            let entry = wrong.entry((outcome.version, mnemonic)).or_insert((0, first));
            entry.0 += times;
        }
    }
    for line in not_run {
        println!("{line}");
    }
    for ((version, target), (objects, seen)) in &counts {
        println!("clang {version}, {target}: {seen} instructions in {objects} code objects");
    }
    let mut report = String::new();
    for ((version, mnemonic), (times, first)) in &wrong {
        let _ = writeln!(report, "  clang {version} {mnemonic}: {times} times, first {first}");
    }
    assert!(wrong.is_empty(), "instructions differ\n{report}");
}
