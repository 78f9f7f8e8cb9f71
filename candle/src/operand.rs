//! One tensor of the step: where its elements are in its storage.

use std::ops::Deref;

use candle_core::{DType, Layout, Result, Storage, Tensor, bail};
use ssm_update::Dtype;

/// A tensor's place in its storage, in elements: `[batch, ..]` whose rows are contiguous and `stride` apart, or `[..]`.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    pub dtype: Dtype,
    pub start: usize,
    /// From one row of the batch to the next.
    pub stride: usize,
    /// From the first element to behind the last.
    pub len: usize,
}

impl Operand {
    /// A tensor `[batch, outer, inner]`, or `[batch, outer * inner]` since candle cannot split a dimension of a slice without a copy.
    pub fn rows(field: &str, tensor: &Tensor, shape: [usize; 3]) -> Result<Self> {
        let [batch, outer, inner] = shape;
        let row = outer * inner;
        if tensor.dims() != shape && tensor.dims() != [batch, row] {
            bail!("unsupported shapes: {field}: expected {shape:?} or [{batch}, {row}], got {:?}", tensor.dims());
        }
        let layout = tensor.layout();
        // One row, or none, has no next one; candle gives such a dimension any stride.
        let stride = if batch > 1 { layout.stride()[0] } else { row };
        check_contiguous(field, layout, 1)?;
        let len = if batch == 0 { 0 } else { (batch - 1) * stride + row };
        Ok(Self { dtype: dtype(field, tensor)?, start: layout.start_offset(), stride, len })
    }

    /// A tensor that is contiguous as a whole.
    pub fn whole(field: &str, tensor: &Tensor, shape: &[usize]) -> Result<Self> {
        if tensor.dims() != shape {
            bail!("unsupported shapes: {field}: expected {shape:?}, got {:?}", tensor.dims());
        }
        check_contiguous(field, tensor.layout(), 0)?;
        let len = tensor.elem_count();
        Ok(Self { dtype: dtype(field, tensor)?, start: tensor.layout().start_offset(), stride: len, len })
    }

    /// The elements' range in the storage.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.len
    }
}

/// The tensor's storage, locked for reading as long as the result lives.
pub fn storage(tensor: &Tensor) -> impl Deref<Target = Storage> {
    tensor.storage_and_layout().0
}

/// The dimensions from `first` on are contiguous; the stride of a dimension of length 1 is never used.
fn check_contiguous(field: &str, layout: &Layout, first: usize) -> Result<()> {
    let mut contiguous = 1;
    for axis in (first..layout.dims().len()).rev() {
        if layout.dims()[axis] > 1 && layout.stride()[axis] != contiguous {
            bail!("unsupported shapes: {field}: expected contiguous rows, got strides {:?}", layout.stride());
        }
        contiguous *= layout.dims()[axis];
    }
    Ok(())
}

fn dtype(field: &str, tensor: &Tensor) -> Result<Dtype> {
    match tensor.dtype() {
        DType::F32 => Ok(Dtype::F32),
        DType::F16 => Ok(Dtype::F16),
        DType::BF16 => Ok(Dtype::Bf16),
        other => bail!("unsupported shapes: {field}: expected f32, f16 or bf16, got {}", other.as_str()),
    }
}
