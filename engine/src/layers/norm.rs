//! Normalisation.

use candle_core::Tensor;

use crate::checkpoint::Checkpoint;
use crate::error::Result;

/// `x / sqrt(mean(x^2) + eps) * weight` over the last dimension.
#[derive(Debug)]
pub struct RmsNorm {
    weight: Tensor,
    eps: f32,
}

impl RmsNorm {
    /// Reads `{name}.weight`, `[channels]`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load(checkpoint: &Checkpoint, name: &str, channels: usize, eps: f64) -> Result<Self> {
        Ok(Self { weight: checkpoint.tensor(&format!("{name}.weight"), &[channels])?, eps: eps as f32 })
    }

    /// As [`load`](Self::load), for f32 activations whatever the others are.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load_f32(checkpoint: &Checkpoint, name: &str, channels: usize, eps: f64) -> Result<Self> {
        Ok(Self { weight: checkpoint.tensor_f32(&format!("{name}.weight"), &[channels])?, eps: eps as f32 })
    }

    /// Keeps the shape, `[tokens, channels]`.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(candle_nn::ops::rms_norm(&x.contiguous()?, &self.weight, self.eps)?)
    }
}
