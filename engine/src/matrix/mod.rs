//! Weight matrices and their products: what a decoded token consists of.
//!
//! On the CPU a matrix is used in the form that the checkpoint has it in, from the mapped file: nothing is converted or copied when
//! a model is loaded. Rows are shared among threads where the matrix is large enough to be worth it; the result does not depend
//! on their number.

mod block;
mod dense;
mod element;
mod packed;
mod packed_product;

use candle_core::{Device, Tensor};
use rayon::prelude::*;
use ssm_update::Dtype;

pub(crate) use block::Block;
use block::Product;
pub(crate) use dense::Dense;
pub use packed::Affine;
pub(crate) use packed::Packed;

use crate::bytes::Bytes;
use crate::error::Result;
use crate::place::Place;

/// Elements of a matrix from which its product is worth several threads: waking one takes about as long as reading this many
/// from the cache.
const PARALLEL_ELEMENTS: usize = 1 << 20;

/// Most rows of x. With more of them it pays to widen the matrix and to leave the product to candle.
const X_ROWS_MAX: usize = 8;

/// Matrix rows that are worked on together, so that x is read once for all of them.
const ROWS: usize = 4;

/// Elements that are widened at a time, 16 MiB as f32.
const WIDE_ELEMENTS: usize = 1 << 22;

/// `[out, in]`.
///
/// The rows are contiguous, as in the checkpoint: both a product with one row of x (dot products of contiguous rows) and with
/// many are fastest that way, so that nothing is transposed in memory. A clone shares the values.
#[derive(Clone, Debug)]
pub struct Matrix {
    values: Values,
    outputs: usize,
    inputs: usize,
}

/// Where the values are.
#[derive(Clone, Debug)]
enum Values {
    /// Blocks of rows one under another, each stored in its own way, in memory of the CPU.
    Blocks(Vec<Block>),
    /// A tensor, in the dtype of activations: on other devices.
    Tensor(Tensor),
}

impl Matrix {
    /// One block. It has at least one column.
    pub(crate) fn new(block: Block) -> Self {
        Self { outputs: block.rows(), inputs: block.columns(), values: Values::Blocks(vec![block]) }
    }

    /// A copy of `[out, in]` values, f32 on the CPU.
    ///
    /// # Errors
    ///
    /// Not two dimensions, or none of the values.
    pub fn from_tensor(values: &Tensor) -> Result<Self> {
        let (outputs, inputs) = values.dims2()?;
        let values: Vec<f32> = values.flatten_all()?.to_vec1()?;
        if values.is_empty() {
            let text = format!("a matrix of {outputs} x {inputs} has no values");
            return Err(candle_core::Error::msg(text).into());
        }
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(Self::new(Block::Dense(Dense::new(Bytes::new(bytes), Dtype::F32, inputs))))
    }

    /// A tensor `[out, in]` on a device other than the CPU, in the dtype of activations there.
    ///
    /// # Errors
    ///
    /// Not two dimensions.
    pub(crate) fn on_device(values: Tensor) -> Result<Self> {
        let (outputs, inputs) = values.dims2()?;
        Ok(Self { values: Values::Tensor(values), outputs, inputs })
    }

    /// Several matrices of the same number of columns as one, their rows one under another.
    ///
    /// # Errors
    ///
    /// No matrix, different numbers of columns, or different devices.
    pub fn stack(matrices: impl IntoIterator<Item = Self>) -> Result<Self> {
        let mut matrices = matrices.into_iter();
        let first = matrices.next().ok_or_else(|| candle_core::Error::msg("a stack of no matrices"))?;
        matrices.try_fold(first, |mut stack, matrix| {
            if matrix.inputs != stack.inputs {
                let text = format!("a matrix of {} columns under one of {}", matrix.inputs, stack.inputs);
                return Err(candle_core::Error::msg(text).into());
            }
            stack.outputs += matrix.outputs;
            match (&mut stack.values, matrix.values) {
                (Values::Blocks(blocks), Values::Blocks(more)) => blocks.extend(more),
                (Values::Tensor(tensor), Values::Tensor(more)) => *tensor = Tensor::cat(&[&*tensor, &more], 0)?,
                _ => return Err(candle_core::Error::msg("a stack of matrices on different devices").into()),
            }
            Ok(stack)
        })
    }

    /// The matrix for activations in `place`: itself on the CPU, else a copy on the device, in the dtype of activations.
    ///
    /// # Errors
    ///
    /// The device has no room.
    pub(crate) fn moved_to(self, place: &Place) -> Result<Self> {
        if place.device.is_cpu() { Ok(self) } else { self.uploaded_to(place) }
    }

    fn uploaded_to(self, place: &Place) -> Result<Self> {
        let Values::Blocks(blocks) = &self.values else { return Ok(self) };
        let upload = |part: Result<Tensor>| Ok(part?.to_dtype(place.dtype)?.to_device(&place.device)?);
        let parts = self.widened(blocks).map(upload).collect::<Result<Vec<_>>>()?;
        Ok(Self { values: Values::Tensor(Tensor::cat(&parts, 0)?), ..self })
    }

    /// The values as they are on a device other than the CPU.
    pub(crate) fn tensor(&self) -> Option<&Tensor> {
        match &self.values {
            Values::Tensor(tensor) => Some(tensor),
            Values::Blocks(_) => None,
        }
    }

    /// Rows: channels out.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns: channels in.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Where the values are.
    pub fn device(&self) -> Device {
        match &self.values {
            Values::Blocks(_) => Device::Cpu,
            Values::Tensor(tensor) => tensor.device().clone(),
        }
    }

    /// The rows at `indices`, `[indices, in]` in the dtype of activations.
    ///
    /// # Errors
    ///
    /// An index that is no row.
    pub fn rows(&self, indices: &[u32]) -> Result<Tensor> {
        let blocks = match &self.values {
            Values::Blocks(blocks) => blocks,
            Values::Tensor(tensor) => return Ok(tensor.index_select(&Tensor::new(indices, tensor.device())?, 0)?),
        };
        let mut wide = vec![0.0; indices.len() * self.inputs];
        for (&index, wide) in indices.iter().zip(wide.chunks_exact_mut(self.inputs)) {
            let mut row = index as usize;
            let holder = blocks.iter().find(|block| {
                let inside = row < block.rows();
                row -= if inside { 0 } else { block.rows() };
                inside
            });
            let none = || candle_core::Error::msg(format!("row {index} of a matrix of {}", self.outputs));
            holder.ok_or_else(none)?.widen(row, wide);
        }
        Ok(Tensor::from_vec(wide, (indices.len(), self.inputs), &Device::Cpu)?)
    }

    /// `x W^T`: `[rows, in]` to `[rows, out]`, in the matrix's own dtype on a device, else in f32.
    ///
    /// # Errors
    ///
    /// Another number of columns, another device.
    pub fn multiply(&self, x: &Tensor) -> Result<Tensor> {
        let (rows, columns) = x.dims2()?;
        if columns != self.inputs {
            let text = format!("x of {columns} columns times the transpose of {} x {}", self.outputs, self.inputs);
            return Err(candle_core::Error::msg(text).into());
        }
        let blocks = match &self.values {
            Values::Blocks(blocks) => blocks,
            Values::Tensor(tensor) => return Ok(x.to_dtype(tensor.dtype())?.matmul(&tensor.t()?)?),
        };
        if rows > X_ROWS_MAX {
            // Widened anew for each chunk of a prompt: little beside the product itself, and the memory is free again.
            let product = |part: Result<Tensor>| Ok(x.matmul(&part?.t()?)?);
            return Ok(Tensor::cat(&self.widened(blocks).map(product).collect::<Result<Vec<_>>>()?, 1)?);
        }
        let x: Vec<f32> = x.flatten_all()?.to_vec1()?;
        let mut y = vec![0.0; rows * self.outputs];
        for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(self.outputs)) {
            self.multiply_one(blocks, x, y);
        }
        Ok(Tensor::from_vec(y, (rows, self.outputs), &Device::Cpu)?)
    }

    /// `y` = W x.
    fn multiply_one(&self, blocks: &[Block], x: &[f32], y: &mut [f32]) {
        let small = self.outputs * self.inputs < PARALLEL_ELEMENTS;
        let threads = if small { 1 } else { rayon::current_num_threads() };
        let share = self.outputs.div_ceil(threads).next_multiple_of(ROWS);
        let products: Vec<Product<'_>> = blocks.iter().map(|block| block.product(x)).collect();
        let mut shares = Vec::with_capacity(threads + blocks.len());
        let mut rest = y;
        for (block, product) in blocks.iter().zip(&products) {
            let (y, after) = rest.split_at_mut(block.rows());
            rest = after;
            shares.extend(y.chunks_mut(share).enumerate().map(|(i, y)| (product, i * share, y)));
        }
        match threads {
            1 => shares.into_iter().for_each(|(product, first, y)| product.multiply(first, y)),
            _ => shares.into_par_iter().for_each(|(product, first, y)| product.multiply(first, y)),
        }
    }

    /// The rows in f32 on the CPU, as many at a time as make [`WIDE_ELEMENTS`].
    fn widened(&self, blocks: &[Block]) -> impl Iterator<Item = Result<Tensor>> {
        let (most, inputs) = ((WIDE_ELEMENTS / self.inputs).max(1), self.inputs);
        blocks.iter().flat_map(move |block| {
            (0..block.rows()).step_by(most).map(move |first| {
                let rows = most.min(block.rows() - first);
                let mut wide = vec![0.0; rows * inputs];
                let share = rows.div_ceil(rayon::current_num_threads());
                let shares = wide.par_chunks_mut(share * inputs).enumerate();
                shares.for_each(|(i, wide)| block.widen(first + i * share, wide));
                Ok(Tensor::from_vec(wide, (rows, inputs), &Device::Cpu)?)
            })
        })
    }
}

#[cfg(test)]
mod tests;
