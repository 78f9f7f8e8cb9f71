//! Division and square root, which compilers build from a dozen instructions each, are rounded correctly for bits of
//! all kinds: what approximation, refinement, scaling and fixing up do together.

mod support;

use hip_sim::dispatch::Geometry;
use hip_sim::isa::Arch;
use support::{Random, compile, compilers, device, package, targets};

const COUNT: usize = 8192;

/// Bits with exponents of all sizes, and the special values.
fn operand(random: &mut Random, bits: u32, fraction: u32) -> u64 {
    let all = u64::MAX >> (64 - bits);
    let infinity = all >> 1 & !((1 << fraction) - 1);
    let word = random.next();
    match word >> 60 {
        0 => {
            [0, 1, infinity, infinity - 1, 1 << fraction, (1 << fraction) - 1][word as usize % 6]
                | (word >> 8 & 1) << (bits - 1)
        }
        // Next to a power of two, and denormals.
        1 => (word & infinity).wrapping_add(word >> 20 & 3).wrapping_sub(1) & all,
        2 => word & ((1 << fraction) - 1),
        _ => word & all,
    }
}

fn run(arch: Arch, image: &[u8], kernel: &str, size: usize, operands: &[Vec<u64>; 2]) -> Vec<u64> {
    let mut device = device(arch, 2);
    let module = device.load(image).expect("it loads");
    let buffers = [0; 3].map(|_| device.allocate((COUNT * size) as u64).expect("room"));
    for (buffer, values) in buffers.iter().zip(operands) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()[..size].to_vec()).collect();
        device.memory.write(*buffer, &bytes).expect("in bounds");
    }
    let arguments: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.to_le_bytes()).collect();
    let geometry = Geometry::of_blocks([COUNT as u32 / 32, 1, 1], [32, 1, 1]).expect("a legal shape");
    device.launch(module, kernel, geometry, 0, &arguments).unwrap_or_else(|why| panic!("{kernel}: {why}"));
    let mut bytes = vec![0; COUNT * size];
    device.memory.read(buffers[2], &mut bytes).expect("in bounds");
    bytes
        .chunks_exact(size)
        .map(|chunk| chunk.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
        .collect()
}

fn f32_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// An f16, exactly.
fn widen(bits: u64) -> f64 {
    let (exponent, fraction) = (bits >> 10 & 31, (bits & 0x3ff) as f64);
    let value = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent as i32 - 25),
    };
    if bits >> 15 & 1 == 1 { -value } else { value }
}

/// The nearest value of f16, ties to even.
fn round_half(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = (value.abs().to_bits() >> 52) as i32 - 1023;
    let quantum = 2f64.powi((exponent - 10).max(-24));
    let rounded = (value / quantum).round_ties_even() * quantum;
    if rounded.abs() > 65504.0 { f64::INFINITY.copysign(value) } else { rounded }
}

#[test]
fn divisions_and_roots_are_rounded_correctly() {
    let source = package().join("tests/semantics/division.hip");
    type Expected = fn(u64, u64) -> f64;
    // The quotient of two f32 or f16 in f64 rounds to theirs as the exact one does.
    let kernels: [(&str, u32, u32, Expected); 5] = [
        ("divide_f16", 16, 10, |a, b| widen(a) / widen(b)),
        ("divide_f32", 32, 23, |a, b| (f32_of(a) / f32_of(b)).into()),
        ("divide_f64", 64, 52, |a, b| f64::from_bits(a) / f64::from_bits(b)),
        ("root_f32", 32, 23, |a, _| f32_of(a).sqrt().into()),
        ("root_f64", 64, 52, |a, _| f64::from_bits(a).sqrt()),
    ];
    let mut ran = 0;
    for version in compilers() {
        for target in targets() {
            let Some(object) = compile(version, target, &source, &["-O3"]) else { continue };
            let image = std::fs::read(object).expect("it was just written");
            for (kernel, bits, fraction, expected) in kernels {
                let mut random = Random::new(u64::from(bits) * 7 + u64::from(version));
                let operands =
                    [0; 2].map(|_| (0..COUNT).map(|_| operand(&mut random, bits, fraction)).collect::<Vec<_>>());
                let got = run(target, &image, kernel, bits as usize / 8, &operands);
                for (index, got) in got.into_iter().enumerate() {
                    let (a, b) = (operands[0][index], operands[1][index]);
                    let expected = expected(a, b);
                    let right = match bits {
                        16 => {
                            let (value, nearest) = (widen(got), round_half(expected));
                            expected.is_nan() && value.is_nan()
                                || value == nearest && value.is_sign_negative() == nearest.is_sign_negative()
                        }
                        32 => f32_of(got).is_nan() && expected.is_nan() || got as u32 == (expected as f32).to_bits(),
                        _ => f64::from_bits(got).is_nan() && expected.is_nan() || got == expected.to_bits(),
                    };
                    assert!(
                        right,
                        "{kernel}, {target}, clang {version}: {a:#x} and {b:#x} give {got:#x}, not {expected:e} = {:#x}",
                        expected.to_bits()
                    );
                }
                ran += COUNT;
            }
        }
    }
    println!("division: {ran} quotients and roots");
}
