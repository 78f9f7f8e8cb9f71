//! The program `rocm` on the simulated GPU: all of its code runs before it runs on a device, and nothing that it prints there looks
//! like a measurement.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ssm_update_bench::hip::rtc::{Failure, Rtc};
use ssm_update_bench::hip::source;

/// The simulator that cargo built beside this test.
fn simulator() -> PathBuf {
    let mut path = std::env::current_exe().expect("a test is a file");
    path.set_file_name("libhip_sim.so");
    assert!(path.exists(), "{}: cargo builds it with this test", path.display());
    path
}

/// The smallest case, so that the simulator is fast.
const SMALL: [&str; 4] = ["--filter", "plamo", "--states", "f32"];

/// Runs the program with variables of the simulator.
fn rocm(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rocm"));
    for variable in hip_sim::device::VARIABLES {
        command.env_remove(variable);
    }
    command.args(arguments).env("SSM_UPDATE_HIP_LIBRARY", simulator()).envs(variables.iter().copied());
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder as the driver has it, without processes, and room for a record.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder can be made"));
        fs::create_dir(place.0.path().join("proc")).expect("a folder can be made");
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    /// Measures the smallest case, with a record.
    fn bench(&self, more: &[&str], variables: &[(&str, &str)]) -> (Output, Option<String>) {
        let (kfd, out) = (self.path(""), self.path("record.csv"));
        let arguments = [&["bench", "--kfd", &kfd, "--out", &out], &SMALL[..], more].concat();
        (rocm(&arguments, variables), fs::read_to_string(out).ok())
    }
}

/// Whether a clang is there for the simulated hipRTC, as there is where CI is set.
fn has_compiler() -> bool {
    let found = (18..=40).any(|n| Command::new(format!("clang++-{n}")).arg("--version").output().is_ok());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "CI is set, and there is no clang");
        println!("hipRTC: NOT RUN (no clang++-N for the simulated one; scripts/setup.sh installs it on Debian 12)");
    }
    found
}

#[test]
fn everything_is_done_and_no_time_is_told() {
    let place = Place::new();
    let (output, record) = place.bench(&[], &[]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let with_compiler = has_compiler();
    for line in out.lines() {
        assert!(line.starts_with("simulated: ") || (!with_compiler && line.starts_with("NOT RUN")), "{line}");
        assert!(!line.contains(" us") && !line.contains("GB/s"), "{line}");
    }
    let record = record.expect("a record");
    assert!(record.starts_with("# SIMULATED"), "{record}");
    let mut lines = record.lines().skip_while(|line| line.starts_with('#'));
    let heading: Vec<&str> = lines.next().expect("a heading").split(',').collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let mut done: Vec<String> = Vec::new();
    for row in &rows {
        assert_eq!(row.len(), heading.len(), "{row:?}");
        assert_eq!(row[0], "simulated", "{row:?}");
        done.push(format!("{}: {}", row[1], row[5]));
        for (name, value) in heading.iter().zip(row) {
            let time = name.contains("_us") || name.contains("gb_per") || ["of_copy", "samples"].contains(name);
            assert!(!time || value.is_empty(), "{name}: {value}");
        }
    }
    let hip_rtc: &[&str] = if with_compiler {
        &["ready: hipRTC", "launch: hipRTC", "first result: hipRTC with its cache", "copy: copy kernel"]
    } else {
        &[]
    };
    for what in ["ready: ahead of time", "copy: hipMemcpyDtoDAsync", "step: ahead of time"].iter().chain(hip_rtc) {
        assert!(done.iter().any(|done| done == what), "{what}: {record}");
    }
    for fact in ["# date: 20", "# version: ", "# device: gfx1151", "# HIP runtime: ", "# code objects: "] {
        assert!(record.contains(fact), "{fact}: {record}");
    }
}

#[test]
fn a_gpu_that_others_hold_is_not_measured() {
    let place = Place::new();
    fs::create_dir(place.path("proc/4711")).expect("a folder can be made");
    let (output, record) = place.bench(&[], &[]);
    assert_eq!(output.status.code(), Some(77), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("NOT RUN: the GPU is held by process 4711"), "{}", text(&output.stdout));
    assert_eq!(record, None);
    let (output, record) = place.bench(&["--even-if-busy"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let record = record.expect("a record");
    assert!(record.contains("# other processes on the GPU: held by process 4711"), "{record}");
}

#[test]
fn graphs_and_repetitions_are_bit_equal() {
    let arguments = [&["check", "--repetitions", "4"], &SMALL[..]].concat();
    let output = rocm(&arguments, &[]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    assert!(out.lines().all(|line| line.starts_with("simulated: ")), "{out}");
    assert_eq!(out.matches("all bit-equal").count(), 2, "batch 1 and 3: {out}");
}

/// A call that fails is named, ends the check, and leaves no record.
#[test]
fn faults_of_the_runtime_are_failures() {
    let check = [&["check", "--repetitions", "2"], &SMALL[..]].concat();
    for (call, code, expected) in [
        ("hipStreamBeginCapture:1", 900, "hipStreamBeginCapture returned hipErrorStreamCaptureUnsupported (900)"),
        ("hipStreamEndCapture:1", 901, "hipStreamEndCapture returned hipErrorStreamCaptureInvalidated (901)"),
        ("hipGraphInstantiate:1", 2, "hipGraphInstantiate returned hipErrorOutOfMemory (2)"),
        ("hipGraphLaunch:2", 719, "hipGraphLaunch returned hipErrorLaunchFailure (719)"),
        // Within a capture: the third launch of the capture, after one for the check and three of their own.
        ("hipModuleLaunchKernel:7", 1, "hipErrorInvalidValue (1)"),
    ] {
        let output = rocm(&check, &[("HIP_SIM_FAIL", &format!("{call}:{code}"))]);
        assert_eq!(output.status.code(), Some(1), "{call}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains(expected), "{call}: {}", text(&output.stderr));
    }
    // hipGraphLaunch is what every time is taken of.
    let place = Place::new();
    let (output, record) = place.bench(&[], &[("HIP_SIM_FAIL", "hipEventElapsedTime:1:400")]);
    assert_eq!((output.status.code(), record), (Some(1), None), "{}", text(&output.stdout));
    let told = text(&output.stderr);
    assert!(told.contains("hipEventElapsedTime returned hipErrorInvalidHandle (400); nothing is recorded"), "{told}");
}

/// Without hipRTC the rest is measured: its absence is no failure, its fault is one.
#[test]
fn without_hiprtc_the_rest_is_measured() {
    let place = Place::new();
    let (output, record) = place.bench(&["--hiprtc-library", "libabsent-rtc.so"], &[]);
    let (out, record) = (text(&output.stdout), record.expect("a record"));
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    for what in ["NOT RUN: hipRTC: no hipRTC; tried libabsent-rtc.so", "NOT RUN: copy kernel: no hipRTC"] {
        assert!(out.contains(what) && record.contains(what), "{what}: {out}");
    }
    assert!(record.contains(",step,") && !record.contains(",copy kernel,"), "{record}");

    let (output, record) = place.bench(&[], &[("HIP_SIM_COMPILER", "no-such-compiler")]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    assert!(out.contains("NOT RUN: hipRTC: hiprtcCompileProgram returned") && out.contains("no compiler"), "{out}");
    assert!(record.is_some_and(|record| record.contains(",step,")));

    // A compiler that fails, such as one that does not compile.
    let (output, record) = place.bench(&[], &[("HIP_SIM_COMPILER", "false")]);
    let (out, record) = (text(&output.stdout), record.expect("a record"));
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.contains("FAILED: hipRTC: ") && out.contains("HIPRTC_ERROR_COMPILATION (6)"), "{out}");
    assert!(record.contains("# not measured: FAILED: copy kernel") && record.contains(",step,"), "{record}");
}

#[test]
fn wrong_arguments_are_named() {
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("record/gfx1151-test.csv");
    for (arguments, expected) in [
        (vec!["bench", "--batches", "0"], "--batches: expected numbers from 1, got 0"),
        (vec!["bench", "--filter", "nothing"], "they are Granite-4.0-H tiny, 1b; Falcon-H1 1.5b"),
        (vec!["check", "--states", "f64"], "--states: expected f32, f16 or bf16, got f64"),
        (vec!["check", "--repetitions", "1"], "--repetitions: expected 2 or more, got 1"),
        (vec!["bench", "--filter", "plamo", "--out", &record.to_string_lossy()], "this one is simulated"),
    ] {
        let output = rocm(&arguments, &[]);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
    }
    assert_eq!(rocm(&["bench", "--unknown"], &[]).status.code(), Some(2));
    assert!(!record.exists());
}

/// AMD's own hipRTC compiles without a GPU. Versions before HIP 6 have it in the runtime's library; they do not know gfx1151, and
/// their compiler is too old for the step's kernel.
#[test]
fn amds_own_library_compiles_the_copy() {
    let names = ["libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libamdhip64.so.5"];
    let rtc = match Rtc::first(&names.map(str::to_owned)) {
        Ok(rtc) => rtc,
        Err(why) => {
            assert!(std::env::var_os("CI").is_none(), "CI is set, and there is no hipRTC: {why}");
            println!("AMD's hipRTC: NOT RUN ({why}; Debian: apt install libamdhip64-5)");
            return;
        }
    };
    println!("hipRTC of {}", rtc.origin());
    let options = ["--offload-arch=gfx1030", "-O3", "-std=c++17"];
    let object = rtc.compile(source::COPY, &[], &options).expect("the copy compiles");
    // An ELF file of AMD's machine.
    assert_eq!((&object[..4], object[18]), (&b"\x7fELF"[..], 224));
    // The types of the step's sources beside those that hipRTC declares by itself.
    let types = "#include <stdint.h>\nextern \"C\" __attribute__((global)) void types(uint64_t *to, uint16_t x, uint8_t y, int64_t z)\n\
                 { *to = x + y + z + (uint32_t)1; }\n";
    rtc.compile(types, &[source::STDINT], &options).expect("its types and ours agree");
    let failure = rtc.compile("extern \"C\" void f() { nothing; }", &[], &options).expect_err("it is no source");
    assert!(matches!(&failure, Failure::Failed(told) if told.contains("nothing")), "{failure}");
}
