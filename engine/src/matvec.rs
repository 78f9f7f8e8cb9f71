//! One row, or a few, times a weight matrix: the product that a decoded token consists of.
//!
//! It is bound by reading the weight, so bf16 weights are read as they are and widened in registers: half the bytes of f32,
//! with the same result. Rows are shared among threads where the matrix is large enough to be worth it; the result does not
//! depend on their number.

use candle_core::{CpuStorage, Storage, Tensor};
use half::bf16;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use ssm_update::Element;

use crate::error::Result;

/// Elements of a weight from which its product is worth several threads: waking one takes about as long as reading this many
/// from the cache.
const PARALLEL_ELEMENTS: usize = 1 << 20;

/// Most rows of x. With more of them it pays to widen the weight once and to leave the product to candle.
const X_ROWS_MAX: usize = 8;

/// Weight rows that are worked on together, so that x is read once for all of them.
const ROWS: usize = 4;

/// Columns that are widened at a time.
const BLOCK: usize = 64;

/// An element type that weights are held in.
trait Weight: Element {
    /// The block in f32: itself, or `room` filled with its values.
    fn widen_block<'a>(block: &'a [Self; BLOCK], room: &'a mut [f32; BLOCK]) -> &'a [f32; BLOCK];
}

impl Weight for f32 {
    #[inline(always)]
    fn widen_block<'a>(block: &'a [Self; BLOCK], _: &'a mut [f32; BLOCK]) -> &'a [f32; BLOCK] {
        block
    }
}

impl Weight for bf16 {
    // A plain loop over the bits: it becomes vector instructions of whatever width the caller was compiled for.
    #[inline(always)]
    fn widen_block<'a>(block: &'a [Self; BLOCK], room: &'a mut [f32; BLOCK]) -> &'a [f32; BLOCK] {
        for (wide, narrow) in room.iter_mut().zip(block) {
            *wide = Element::to_f32(*narrow);
        }
        room
    }
}

/// `x W^T` for x, `[rows, in]` f32 with few rows, and W, `[out, in]` f32 or bf16, both contiguous and on the CPU. `None` for
/// anything else.
pub(crate) fn matvec(weight: &Tensor, x: &Tensor) -> Result<Option<Tensor>> {
    let ((out, inputs), (rows, columns)) = (weight.dims2()?, x.dims2()?);
    let ((x_storage, x_layout), (w_storage, w_layout)) = (x.storage_and_layout(), weight.storage_and_layout());
    let (Some((x_start, x_end)), Some((w_start, w_end))) =
        (x_layout.contiguous_offsets(), w_layout.contiguous_offsets())
    else {
        return Ok(None);
    };
    let (Storage::Cpu(CpuStorage::F32(x_values)), Storage::Cpu(weights)) = (&*x_storage, &*w_storage) else {
        return Ok(None);
    };
    if rows > X_ROWS_MAX || columns != inputs || inputs == 0 || out == 0 {
        return Ok(None);
    }
    let mut y = vec![0.0; rows * out];
    for (x, y) in x_values[x_start..x_end].chunks_exact(inputs).zip(y.chunks_exact_mut(out)) {
        match weights {
            CpuStorage::F32(weights) => multiply(&weights[w_start..w_end], x, y),
            CpuStorage::BF16(weights) => multiply(&weights[w_start..w_end], x, y),
            _ => return Ok(None),
        }
    }
    Ok(Some(Tensor::from_vec(y, (rows, out), x.device())?))
}

/// `y[i] = weights[i] . x`; `weights` is `[y.len(), x.len()]`.
fn multiply<W: Weight>(weights: &[W], x: &[f32], y: &mut [f32]) {
    let arch = Arch::new();
    let threads = if weights.len() < PARALLEL_ELEMENTS { 1 } else { rayon::current_num_threads() };
    if threads == 1 {
        return arch.dispatch(Product { weights, x, y });
    }
    let rows = y.len().div_ceil(threads).next_multiple_of(ROWS);
    let parts = weights.par_chunks(rows * x.len()).zip(y.par_chunks_mut(rows));
    parts.for_each(|(weights, y)| arch.dispatch(Product { weights, x, y }));
}

struct Product<'a, W> {
    weights: &'a [W],
    x: &'a [f32],
    y: &'a mut [f32],
}

impl<W: Weight> WithSimd for Product<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let columns = self.x.len();
        let mut weights = self.weights.chunks_exact(ROWS * columns);
        let mut y = self.y.chunks_exact_mut(ROWS);
        for (weights, y) in weights.by_ref().zip(y.by_ref()) {
            y.copy_from_slice(&dots::<S, W, ROWS>(simd, weights, self.x));
        }
        for (weights, y) in weights.remainder().chunks_exact(columns).zip(y.into_remainder()) {
            [*y] = dots::<S, W, 1>(simd, weights, self.x);
        }
    }
}

/// Products of `R` rows with x.
#[inline(always)]
fn dots<S: Simd, W: Weight, const R: usize>(simd: S, weights: &[W], x: &[f32]) -> [f32; R] {
    let columns = x.len();
    let (x_blocks, x_tail) = x.as_chunks::<BLOCK>();
    let rows: [_; R] = std::array::from_fn(|row| weights[row * columns..(row + 1) * columns].as_chunks::<BLOCK>());
    let mut sums = [simd.splat_f32s(0.0); R];
    let mut room = [[0.0; BLOCK]; R];
    for (block, x) in x_blocks.iter().enumerate() {
        let x = S::as_simd_f32s(x).0;
        for ((sum, room), (blocks, _)) in sums.iter_mut().zip(&mut room).zip(&rows) {
            let row = S::as_simd_f32s(W::widen_block(&blocks[block], room)).0;
            for (&w, &x) in row.iter().zip(x) {
                *sum = simd.mul_add_e_f32s(w, x, *sum);
            }
        }
    }
    std::array::from_fn(|row| {
        let tail: f32 = rows[row].1.iter().zip(x_tail).map(|(w, x)| w.to_f32() * x).sum();
        simd.reduce_sum_f32s(sums[row]) + tail
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};
    use rand::{RngExt, SeedableRng, rngs::ChaCha12Rng};

    fn random(rng: &mut ChaCha12Rng, rows: usize, columns: usize) -> Tensor {
        let values: Vec<f32> = (0..rows * columns).map(|_| rng.random_range(-1.0..1.0)).collect();
        Tensor::from_vec(values, (rows, columns), &Device::Cpu).unwrap()
    }

    #[test]
    fn equals_the_product_in_f64() {
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        // Around the block and the group of rows, and one that is shared among threads.
        for (rows, out, inputs) in [(1, 1, 1), (2, 3, 63), (1, 4, 64), (8, 5, 65), (3, 7, 200), (2, 2051, 515)] {
            let x = random(&mut rng, rows, inputs);
            for dtype in [DType::F32, DType::BF16] {
                let weight = random(&mut rng, out, inputs).to_dtype(dtype).unwrap();
                let y = matvec(&weight, &x).unwrap().unwrap();
                let wide = |tensor: &Tensor| tensor.to_dtype(DType::F64).unwrap();
                let expected = wide(&x).matmul(&wide(&weight).t().unwrap()).unwrap();
                let error =
                    (wide(&y) - expected).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f64>().unwrap();
                // Rounding of a sum of `inputs` products below 1, with the usual square root of their number.
                let bound = 1e-6 * (inputs as f64).sqrt();
                assert!(error < bound, "{rows} x {out} x {inputs} {dtype:?}: {error}");
            }
        }
    }

    #[test]
    fn what_it_does_not_serve_is_left_to_others() {
        let zeros = |rows: usize, columns: usize| Tensor::zeros((rows, columns), DType::F32, &Device::Cpu).unwrap();
        assert!(matvec(&zeros(3, 4), &zeros(9, 4)).unwrap().is_none());
        assert!(matvec(&zeros(3, 4), &zeros(1, 5)).unwrap().is_none());
        assert!(matvec(&zeros(4, 3).t().unwrap(), &zeros(1, 4)).unwrap().is_none());
        assert!(matvec(&zeros(3, 4).to_dtype(DType::F16).unwrap(), &zeros(1, 4)).unwrap().is_none());
    }
}
