//! The gated feed-forward layer.

use candle_core::{D, Tensor};

use super::Linear;
use crate::checkpoint::Checkpoint;
use crate::error::Result;

/// `down(silu(gate(x)) * up(x))`; gate and up are one matrix, gate first.
#[derive(Debug)]
pub struct GatedMlp {
    gate_up: Linear,
    down: Linear,
    width: usize,
}

impl GatedMlp {
    /// From weights `[2 * width, hidden]` and `[hidden, width]`.
    ///
    /// # Errors
    ///
    /// A second weight without dimensions.
    pub fn new(gate_up: Tensor, down: Tensor) -> Result<Self> {
        let width = down.dim(D::Minus1)?;
        Ok(Self { gate_up: Linear::new(gate_up, None), down: Linear::new(down, None), width })
    }

    /// Reads `{name}.input_linear.weight` and `{name}.output_linear.weight`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load(checkpoint: &Checkpoint, name: &str, hidden: usize, width: usize) -> Result<Self> {
        Self::new(
            checkpoint.matrix(&format!("{name}.input_linear.weight"), &[2 * width, hidden])?,
            checkpoint.matrix(&format!("{name}.output_linear.weight"), &[hidden, width])?,
        )
    }

    /// `[tokens, hidden]` to the same.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let both = self.gate_up.forward(x)?;
        let gate = both.narrow(1, 0, self.width)?.silu()?;
        self.down.forward(&(gate * both.narrow(1, self.width, self.width)?)?)
    }
}
