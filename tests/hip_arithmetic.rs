//! The scalar arithmetic of the kernels for GPUs, measured: `gpu/arithmetic.h` and `hip/elements.h` themselves, compiled for the
//! host with a function in place of the one instruction that they rest on, against `f64`. The instruction is tried 1 ulp too small,
//! right and 1 ulp too large: no device is worse.
//!
//! The worst errors are printed: `cargo test --release -p ssm-update --test hip_arithmetic -- --nocapture`.

#![cfg(feature = "rocm")]

mod common;
#[path = "common/hip.rs"]
#[allow(dead_code, reason = "the checks of the code objects use the rest")]
mod hip;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::expect::{DT, EXP, GATE, U};
use half::{bf16, f16};
use hip::{compilers, folder, text};
use ssm_update::reference;

/// Smallest normal number.
const MIN_NORMAL: f64 = f32::MIN_POSITIVE as f64;

/// The errors of the instruction.
const ERRORS: [&str; 3] = ["-", "0", "+"];

/// Runs a compiler on one of the test's sources.
fn compile(version: u32, source: &str, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hip_arithmetic").join(source);
    let mut command = Command::new(format!("clang++-{version}"));
    let output = command.args(["-Wall", "-Wextra", "-Werror"]).arg(source).args(flags).output();
    let output = output.expect("the compiler starts");
    assert!(output.status.success(), "clang {version}: {}", text(&output.stderr));
}

/// `evaluate`, built by a compiler with these flags.
fn evaluator(version: u32, name: &str, flags: &[&str]) -> PathBuf {
    let program = folder("hip_arithmetic").join(format!("evaluate-clang{version}{name}"));
    let output = program.to_str().expect("a path in UTF-8");
    compile(version, "evaluate.cpp", &[&["-std=c++17", "-O2", "-o", output], flags].concat());
    program
}

/// `evaluate`, built by each compiler without contraction: their results may differ only where the language lets them.
fn programs() -> &'static [(u32, PathBuf)] {
    static PROGRAMS: OnceLock<Vec<(u32, PathBuf)>> = OnceLock::new();
    let build = |version| (version, evaluator(version, "", &["-ffp-contract=off"]));
    PROGRAMS.get_or_init(|| compilers().into_iter().map(build).collect())
}

/// The function's results over its arguments.
fn evaluate(program: &Path, function: &str, error: &str, arguments: &[f32]) -> Vec<f32> {
    // Tests run side by side.
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let file = |what: &str| folder("hip_arithmetic").join(format!("{call}.{what}"));
    let (input, output) = (file("in"), file("out"));
    let bytes: Vec<u8> = arguments.iter().flat_map(|value| value.to_ne_bytes()).collect();
    std::fs::write(&input, bytes).expect("the tests' folder can be written");
    let status = Command::new(program).args([function, error]).args([&input, &output]).status();
    assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{function} {error}: {status:?}");
    let bytes = std::fs::read(&output).expect("the results are there");
    for file in [input, output] {
        std::fs::remove_file(file).expect("the tests' folder can be written");
    }
    bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
}

/// The worst of `error(arguments, result)` over all compilers and errors of the instruction, with its arguments.
fn worst<const N: usize>(
    function: &str,
    arguments: &[[f32; N]],
    error: impl Fn(&[f32; N], f64) -> f64,
) -> (f64, [f32; N]) {
    let mut worst = (0.0, [0.0; N]);
    for (version, program) in programs() {
        for errors in ERRORS {
            let results = evaluate(program, function, errors, arguments.as_flattened());
            assert_eq!(results.len(), arguments.len());
            for (arguments, result) in arguments.iter().zip(results) {
                let error = error(arguments, result.into());
                assert!(!error.is_nan(), "clang {version}, {function}{arguments:?}, {errors}: {result}");
                if error > worst.0 {
                    worst = (error, *arguments);
                }
            }
        }
    }
    worst
}

/// Relative; where the exact result is below the normal numbers, relative to the smallest of them: there, numbers are `2 U` of it
/// apart.
fn relative(got: f64, exact: f64) -> f64 {
    (got - exact).abs() / exact.abs().max(MIN_NORMAL)
}

/// Numbers from `low` to `high`, below and above zero: of every size, more of the sizes where the functions are neither constant nor
/// linear, and close together at the places where something changes.
fn numbers(low: f32, high: f32) -> Vec<[f32; 1]> {
    let spread = |limit: f32| {
        let most = limit.to_bits();
        (0..=most)
            .step_by(3001)
            .chain((2e-4_f32.to_bits()..=most.min(110_f32.to_bits())).step_by(499))
            .map(f32::from_bits)
    };
    let mut numbers: Vec<f32> = spread(high).chain(spread(-low).map(|x| -x)).collect();
    for place in [-87.3, -80.0, -17.0, -1.0, 0.0, 1.0, 17.0, 20.0, 87.3, 88.7, 89.0] {
        numbers.extend((-2000..=2000).map(|step| place + step as f32 * 1e-3));
    }
    numbers.extend([low, high]);
    numbers.into_iter().filter(|x| (low..=high).contains(x)).map(|x| [x]).collect()
}

/// Holds the worst error to a limit, and prints it.
fn hold<const N: usize>(what: &str, unit: f64, limit: f64, (error, at): (f64, [f32; N])) {
    println!("{what}: worst {:.2} of {unit:.2e}, at {at:?} (limit {limit})", error / unit);
    assert!(error <= limit * unit, "{what}: {error:e} at {at:?}, more than {limit} of {unit:e}");
}

#[test]
fn dt_prime_is_within_its_promise() {
    let inputs = numbers(-80.0, 1e4);
    let found = worst("softplus", &inputs, |[x], got| relative(got, reference::softplus((*x).into())));
    hold("dt' = softplus(v), relative", 1e-6, 1.0, found);
    // What the parity tests count on, and what it does.
    hold("dt' = softplus(v), relative", U, DT, found);
    hold("dt' = softplus(v), relative", U, 4.2, found);
    let inputs = numbers(-120.0, -80.0);
    let found = worst("softplus", &inputs, |[x], got| relative(got, reference::softplus((*x).into())));
    hold("dt' below, relative", U, 3.1, found);
}

#[test]
fn the_exponential_is_right_to_its_ends() {
    let error = |[x]: &[f32; 1], got: f64| relative(got, f64::from(*x).exp());
    let inputs = numbers(-120.0, 88.72);
    hold("exp, relative", U, EXP, worst("exp", &inputs, error));
    hold("exp, relative", U, 1.8, worst("exp", &inputs, error));
    // Rounded once more below the normal numbers.
    let inputs = numbers(-87.3, 88.72);
    hold("exp, relative, in the normal numbers", U, 1.3, worst("exp", &inputs, error));
}

#[test]
fn the_reciprocal_is_rounded_once() {
    let exact = |x: f32| 1.0 / f64::from(x);
    let inputs = numbers(1.0, 8.5e37);
    hold("reciprocal, relative", U, 1.1, worst("reciprocal", &inputs, |[x], got| relative(got, exact(*x))));
    // The result is below the normal numbers and may be zero.
    let inputs = numbers(8.5e37, f32::MAX);
    let found = worst("reciprocal", &inputs, |[x], got| (got - exact(*x)).abs());
    hold("reciprocal beyond, absolute", MIN_NORMAL, 1.0, found);
}

#[test]
fn decay_grows_with_its_exponent_only() {
    // A from e^-7 to 16 and more, dt' from 1e-6 to 100.
    let a_log = (-70..=60).map(|step| step as f32 * 0.1003);
    let inputs: Vec<[f32; 2]> =
        a_log.flat_map(|a| (0..400).map(move |step| [a, 1e-6 * 10_f32.powf(step as f32 * 0.02)])).collect();
    // exp turns a relative error of its argument t into t times as much.
    let error = |[a, dt]: &[f32; 2], got: f64| {
        let t = f64::from(*a).exp() * f64::from(*dt);
        relative(got, (-t).exp()) / (1.0 + t)
    };
    hold("decay = exp(-t), relative, over 1 + t", U, 1.9, worst("decay", &inputs, error));
}

#[test]
fn the_gate_is_as_good_as_its_exponential() {
    let exact = |z: f64| z / (1.0 + (-z).exp());
    // Below, the sigmoid is under the normal numbers and may be zero.
    let inputs = numbers(-87.3, 1e4);
    let found = worst("silu", &inputs, |[z], got| relative(got, exact((*z).into())));
    // What the parity tests count on, of which one rounding is the product with y; and what it does.
    hold("silu, relative", U, GATE - 1.0, found);
    hold("silu, relative", U, 3.5, found);
    let inputs = numbers(-1e4, -87.3);
    hold("silu below, absolute", MIN_NORMAL, 88.0, worst("silu", &inputs, |[z], got| (got - exact((*z).into())).abs()));
}

/// Products that are added to something are fused where the text says so, or are exact.
#[test]
fn contraction_changes_nothing() {
    #[cfg(target_arch = "x86_64")]
    let (can, flags) = (std::arch::is_x86_feature_detected!("fma"), ["-ffp-contract=fast", "-mfma"]);
    #[cfg(not(target_arch = "x86_64"))]
    let (can, flags) = (true, ["-ffp-contract=fast"; 2]);
    if !can {
        println!("NOT RUN: this processor cannot fuse");
        return;
    }
    let inputs = numbers(f32::MIN, f32::MAX);
    for (version, without) in programs() {
        let with = evaluator(*version, "-fused", &flags);
        for function in ["exp", "reciprocal", "softplus", "silu"] {
            let bits = |program| evaluate(program, function, "0", inputs.as_flattened()).into_iter().map(f32::to_bits);
            let differs = bits(without).zip(bits(&with)).position(|(without, with)| without != with);
            assert_eq!(differs.map(|at| inputs[at]), None, "clang {version}, {function}");
        }
    }
}

/// By its head, the text needs C++11, a few names, and no header.
#[test]
fn the_text_stands_alone() {
    for version in compilers() {
        compile(version, "alone.cpp", &["-std=c++11", "-pedantic-errors", "-nostdinc", "-fsyntax-only"]);
    }
}

#[test]
fn infinities_and_nan_come_out_as_they_should() {
    const INF: f32 = f32::INFINITY;
    let nan = f32::NAN;
    for (function, cases) in [
        ("exp", &[(-INF, 0.0), (-1e38, 0.0), (INF, INF), (1e38, INF), (nan, nan)][..]),
        ("reciprocal", &[(INF, 0.0), (nan, nan)]),
        ("softplus", &[(-INF, 0.0), (-1e38, 0.0), (INF, INF), (1e38, 1e38), (f32::MAX, f32::MAX), (nan, nan)]),
        // -inf * 0
        ("silu", &[(-INF, nan), (-1e38, -0.0), (-0.0, -0.0), (0.0, 0.0), (INF, INF), (1e38, 1e38), (nan, nan)]),
    ] {
        let arguments: Vec<f32> = cases.iter().map(|(argument, _)| *argument).collect();
        for (version, program) in programs() {
            for errors in ERRORS {
                let results = evaluate(program, function, errors, &arguments);
                for (&(argument, wanted), got) in cases.iter().zip(results) {
                    let same = got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan();
                    assert!(same, "clang {version}, {function}({argument}), {errors}: {got}, not {wanted}");
                }
            }
        }
    }
    for (_, program) in programs() {
        let clamped = evaluate(program, "clamp", "0", &[nan, 0.0, 1.0, -1.0, 0.5, 1.0, 2.0, 0.5, 1.0, 0.7, 0.5, INF]);
        assert!(clamped[0].is_nan());
        assert_eq!(clamped[1..], [0.5, 1.0, 0.7]);
    }
}

/// For f16 this is the host's conversion: on a device it is one instruction.
#[test]
fn narrowing_rounds_to_nearest_even() {
    // Every upper half with lower halves at, around and between the ties of bf16.
    let ties = (0..=u16::MAX).flat_map(|upper| {
        [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff].map(|lower| f32::from_bits(u32::from(upper) << 16 | lower))
    });
    // Every f16 and the tie above it, with a neighbour on either side.
    let halves = (0..=u16::MAX).map(f16::from_bits).filter(|value| value.is_finite()).flat_map(|value| {
        let next = f16::from_bits(value.to_bits() + 1);
        let tie =
            if next.is_finite() { (value.to_f32() + next.to_f32()) / 2.0 } else { 65520_f32.copysign(value.to_f32()) };
        [value.to_f32(), f32::from_bits(tie.to_bits() - 1), tie, f32::from_bits(tie.to_bits() + 1)]
    });
    let values: Vec<f32> = ties.chain(halves).collect();
    for (version, program) in programs() {
        for (name, round, is_nan) in [
            (
                "bf16",
                (|value| bf16::from_f32(value).to_bits()) as fn(f32) -> u16,
                (|bits| bf16::from_bits(bits).is_nan()) as fn(u16) -> bool,
            ),
            ("f16", |value| f16::from_f32(value).to_bits(), |bits| f16::from_bits(bits).is_nan()),
        ] {
            for (value, got) in values.iter().zip(evaluate(program, name, "0", &values)) {
                let (got, wanted) = (got as u16, round(*value));
                let same = if value.is_nan() { is_nan(got) } else { got == wanted };
                assert!(same, "clang {version}, {name}({value:e} = {:#x}): {got:#x}, not {wanted:#x}", value.to_bits());
            }
        }
    }
}
