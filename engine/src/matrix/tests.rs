use candle_core::DType;
use half::{bf16, f16};
use rand::{RngExt, SeedableRng, rngs::ChaCha12Rng};

use super::*;

fn random(rng: &mut ChaCha12Rng, rows: usize, columns: usize) -> Tensor {
    let values: Vec<f32> = (0..rows * columns).map(|_| rng.random_range(-1.0..1.0)).collect();
    Tensor::from_vec(values, (rows, columns), &Device::Cpu).unwrap()
}

/// A matrix and, in f64, the values that it stands for.
struct Sample {
    matrix: Matrix,
    values: Vec<f64>,
}

/// The bytes at an odd address.
fn unaligned(bytes: &[u8]) -> Bytes {
    Bytes::new([&[0], bytes].concat()).part(1..1 + bytes.len())
}

fn dense(rng: &mut ChaCha12Rng, dtype: Dtype, rows: usize, columns: usize) -> (Dense, Vec<f64>) {
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    for _ in 0..rows * columns {
        let value: f32 = rng.random_range(-1.0..1.0);
        let (stored, value) = match dtype {
            Dtype::F32 => (value.to_le_bytes().to_vec(), value),
            Dtype::F16 => (f16::from_f32(value).to_le_bytes().to_vec(), f16::from_f32(value).to_f32()),
            Dtype::Bf16 => (bf16::from_f32(value).to_le_bytes().to_vec(), bf16::from_f32(value).to_f32()),
        };
        bytes.extend(stored);
        values.push(f64::from(value));
    }
    (Dense::new(unaligned(&bytes), dtype, columns), values)
}

fn dense_sample(rng: &mut ChaCha12Rng, dtype: Dtype, rows: usize, columns: usize) -> Sample {
    let (dense, values) = dense(rng, dtype, rows, columns);
    Sample { matrix: Matrix::new(Block::Dense(dense)), values }
}

fn packed_sample(rng: &mut ChaCha12Rng, affine: Affine, dtype: Dtype, rows: usize, columns: usize) -> Sample {
    let Affine { bits, group_size } = affine;
    let words: Vec<u32> = (0..rows * columns * bits / 32).map(|_| rng.random()).collect();
    let (scales, wide_scales) = dense(rng, dtype, rows, columns / group_size);
    let (biases, wide_biases) = dense(rng, dtype, rows, columns / group_size);
    // The definition: element i is bits i * bits and on of the words one after another.
    let value = |i: usize| {
        let q = words[i * bits / 32] >> (i * bits % 32) & ((1 << bits) - 1);
        wide_scales[i / group_size] * f64::from(q) + wide_biases[i / group_size]
    };
    let values = (0..rows * columns).map(value).collect();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Sample { matrix: Matrix::new(Block::Packed(Packed::new(affine, unaligned(&bytes), scales, biases))), values }
}

/// Every way in which a matrix can be stored.
fn samples(rng: &mut ChaCha12Rng, rows: usize, columns: usize) -> Vec<(String, Sample)> {
    let mut samples = Vec::new();
    for dtype in Dtype::ALL {
        samples.push((format!("{dtype}"), dense_sample(rng, dtype, rows, columns)));
        for bits in Affine::BITS {
            for group_size in Affine::GROUP_SIZES.into_iter().filter(|size| columns.is_multiple_of(*size)) {
                let affine = Affine { bits, group_size };
                samples.push((format!("{affine:?} {dtype}"), packed_sample(rng, affine, dtype, rows, columns)));
            }
        }
    }
    samples
}

impl Sample {
    /// Compares products with x, and the rows themselves, with those in f64.
    fn check(&self, x: &Tensor, what: &str) {
        let (out, inputs) = (self.matrix.outputs(), self.matrix.inputs());
        let wide = |tensor: &Tensor| tensor.to_dtype(DType::F64).unwrap();
        let values = Tensor::from_slice(&self.values, (out, inputs), &Device::Cpu).unwrap();
        // Rounding errors grow with the sum of the products' magnitudes: `largest` times a root of their number.
        let largest = self.values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let bound = 1e-6 * largest * (inputs as f64).sqrt();
        let close = |got: &Tensor, expected: &Tensor, bound: f64, of: &str| {
            let error = (wide(got) - expected).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f64>().unwrap();
            assert!(error < bound, "{what}, {of}: {error}, bound {bound}");
        };
        let expected = wide(x).matmul(&values.t().unwrap()).unwrap();
        close(&self.matrix.multiply(x).unwrap(), &expected, bound, "product");
        let rows: Vec<u32> = [0, out / 2, out - 1].map(|row| row as u32).to_vec();
        let expected = values.index_select(&Tensor::new(rows.as_slice(), &Device::Cpu).unwrap(), 0).unwrap();
        close(&self.matrix.rows(&rows).unwrap(), &expected, 1e-6 * largest, "rows");
    }
}

#[test]
fn products_equal_those_in_f64() {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    // Around the blocks of columns and the group of rows, few and many rows of x.
    for (rows, out, inputs) in [(1, 1, 1), (2, 3, 63), (1, 4, 64), (8, 5, 65), (9, 6, 65), (3, 7, 200), (40, 9, 130)] {
        let x = random(&mut rng, rows, inputs);
        for (what, sample) in samples(&mut rng, out, inputs) {
            sample.check(&x, &format!("{rows} x {out} x {inputs}, {what}"));
        }
    }
    for inputs in [32, 64, 96, 128, 160, 256, 384, 1056, 4736] {
        for (rows, out) in [(1, 1), (2, 4), (8, 7), (9, 5)] {
            let x = random(&mut rng, rows, inputs);
            for (what, sample) in samples(&mut rng, out, inputs) {
                sample.check(&x, &format!("{rows} x {out} x {inputs}, {what}"));
            }
        }
    }
}

#[test]
fn large_products_do_not_depend_on_the_number_of_threads() {
    let mut rng = ChaCha12Rng::seed_from_u64(2);
    let (out, inputs) = (2051, 640);
    let x = random(&mut rng, 2, inputs);
    for (what, sample) in samples(&mut rng, out, inputs) {
        sample.check(&x, &what);
        let product = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| sample.matrix.multiply(&x).unwrap().to_vec2::<f32>().unwrap())
        };
        let expected = product(1);
        for threads in [2, 3, 7] {
            assert!(product(threads) == expected, "{what}, {threads} threads");
        }
    }
}

#[test]
fn stacks_and_parts_are_their_rows() {
    let mut rng = ChaCha12Rng::seed_from_u64(3);
    let inputs = 64;
    let x = [random(&mut rng, 3, inputs), random(&mut rng, 12, inputs)];
    let parts: Vec<Matrix> = samples(&mut rng, 5, inputs).into_iter().map(|(_, sample)| sample.matrix).collect();
    let stack = Matrix::stack(parts.clone()).unwrap();
    for x in &x {
        let expected: Vec<Tensor> = parts.iter().map(|part| part.multiply(x).unwrap()).collect();
        let expected = Tensor::cat(&expected, 1).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(stack.multiply(x).unwrap().to_vec2::<f32>().unwrap(), expected);
        let middle = parts.iter().map(|part| match &part.values {
            Values::Blocks(blocks) => Matrix::new(blocks[0].part(1..3)),
            Values::Tensor(_) => panic!("samples are on the CPU"),
        });
        let got = Matrix::stack(middle).unwrap().multiply(x).unwrap().to_vec2::<f32>().unwrap();
        for (got, expected) in got.iter().zip(&expected) {
            let expected: Vec<f32> = expected.chunks(5).flat_map(|five| &five[1..3]).copied().collect();
            assert_eq!(*got, expected);
        }
    }
    let indices = [0, 4, 5, 24, 0];
    let rows = stack.rows(&indices).unwrap().to_vec2::<f32>().unwrap();
    for (row, index) in rows.iter().zip(indices) {
        let expected = parts[index as usize / 5].rows(&[index % 5]).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(*row, expected[0]);
    }
}

#[test]
fn tensors_as_on_other_devices_give_the_same() {
    let mut rng = ChaCha12Rng::seed_from_u64(4);
    // More elements than are widened at a time.
    let (out, inputs) = (2 * WIDE_ELEMENTS / 4096 + 3, 4096);
    let x = random(&mut rng, 2, inputs);
    let samples = [
        dense_sample(&mut rng, Dtype::Bf16, out, inputs),
        packed_sample(&mut rng, Affine { bits: 4, group_size: 64 }, Dtype::F16, 5, inputs),
    ];
    for sample in &samples {
        let matrix = sample.matrix.clone().uploaded_to(&Place::cpu()).unwrap();
        Sample { matrix, values: sample.values.clone() }.check(&x, "as a tensor");
    }
    let [first, second] = samples.each_ref().map(|sample| sample.matrix.clone().uploaded_to(&Place::cpu()).unwrap());
    let stack = Matrix::stack([first.clone(), second.clone()]).unwrap();
    let expected = Tensor::cat(&[first.multiply(&x).unwrap(), second.multiply(&x).unwrap()], 1).unwrap();
    let difference = (stack.multiply(&x).unwrap() - expected).unwrap().abs().unwrap().max_all().unwrap();
    assert!(difference.to_scalar::<f32>().unwrap() < 1e-3);
    assert!(Matrix::stack([first, samples[1].matrix.clone()]).is_err());
}

#[test]
fn what_does_not_fit_is_refused() {
    let zeros = |rows: usize, columns: usize| Tensor::zeros((rows, columns), DType::F32, &Device::Cpu).unwrap();
    let matrix = Matrix::from_tensor(&zeros(3, 4)).unwrap();
    assert!(matrix.multiply(&zeros(1, 5)).unwrap_err().to_string().contains("5 columns"));
    assert!(matrix.rows(&[0, 3]).unwrap_err().to_string().contains("row 3"));
    assert!(Matrix::stack([matrix, Matrix::from_tensor(&zeros(3, 5)).unwrap()]).is_err());
    assert!(Matrix::stack([]).is_err());
    assert!(Matrix::from_tensor(&zeros(0, 4)).is_err());
}

#[test]
fn the_first_value_that_is_not_finite_is_found() {
    for count in [1, 1023, 1024, 1025, (1 << 20) + 5] {
        for position in [0, count / 2, count - 1] {
            let mut values = vec![0.5_f32; count];
            values[position] = f32::NEG_INFINITY;
            values[count - 1] = f32::NEG_INFINITY;
            let bytes: Vec<u8> = values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect();
            let dense = Dense::new(unaligned(&bytes), Dtype::Bf16, 1);
            assert_eq!(dense.first_not_finite(), Some((position, f32::NEG_INFINITY)));
        }
    }
}
