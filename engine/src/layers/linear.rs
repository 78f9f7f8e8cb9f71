//! Matrix products with weights.

use candle_core::{DType, Tensor};

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::matvec::matvec;

/// `y = x W^T + bias`.
///
/// The weight stays as the checkpoint has it, `[out, in]`: both a product with one row of x (dot products of contiguous rows)
/// and with many are fastest that way, so that nothing is transposed in memory. A bf16 weight stays bf16.
#[derive(Debug)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// A product with `weight`, `[out, in]` f32 or bf16, and `bias`, `[out]` f32.
    pub fn new(weight: Tensor, bias: Option<Tensor>) -> Self {
        Self { weight, bias }
    }

    /// Reads `{name}.weight`, and `{name}.bias` where `bias` is set.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load(checkpoint: &Checkpoint, name: &str, out: usize, inputs: usize, bias: bool) -> Result<Self> {
        let weight = checkpoint.matrix(&format!("{name}.weight"), &[out, inputs])?;
        let bias = bias.then(|| checkpoint.tensor(&format!("{name}.bias"), &[out])).transpose()?;
        Ok(Self::new(weight, bias))
    }

    /// Several products with the same input as one, their outputs side by side.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load_fused(checkpoint: &Checkpoint, parts: &[(&str, usize)], inputs: usize, bias: bool) -> Result<Self> {
        let weight = |(name, out): &(&str, usize)| checkpoint.matrix(&format!("{name}.weight"), &[*out, inputs]);
        let mut weights = parts.iter().map(weight).collect::<Result<Vec<_>>>()?;
        if weights.iter().any(|weight| weight.dtype() != weights[0].dtype()) {
            weights = weights.iter().map(|weight| weight.to_dtype(DType::F32)).collect::<candle_core::Result<_>>()?;
        }
        let part = |(name, out): &(&str, usize)| checkpoint.tensor(&format!("{name}.bias"), &[*out]);
        let biases = || parts.iter().map(part).collect::<Result<Vec<_>>>();
        let bias = bias.then(|| Ok::<_, crate::Error>(Tensor::cat(&biases()?, 0)?)).transpose()?;
        Ok(Self::new(Tensor::cat(&weights, 0)?, bias))
    }

    /// `[tokens, in]` to `[tokens, out]`.
    ///
    /// # Errors
    ///
    /// Another number of input channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = match matvec(&self.weight, x)? {
            Some(y) => y,
            // Widened anew for each chunk of a prompt: little beside the product itself, and the memory is free again.
            None => x.matmul(&self.weight.to_dtype(x.dtype())?.t()?)?,
        };
        match &self.bias {
            Some(bias) => Ok(y.broadcast_add(bias)?),
            None => Ok(y),
        }
    }
}
