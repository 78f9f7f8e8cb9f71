//! The feed-forward layer.

use candle_core::{D, Tensor};

use super::Linear;
use crate::error::Result;

/// What stands between the two products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `silu(gate) * up`; the first product gives both side by side, gate first.
    SiluGated,
    /// `max(x, 0)^2`.
    SquaredRelu,
}

/// `down(activation(up(x)))`.
#[derive(Debug)]
pub struct Mlp {
    up: Linear,
    activation: Activation,
    down: Linear,
}

impl Mlp {
    /// From its two products.
    pub fn new(up: Linear, activation: Activation, down: Linear) -> Self {
        Self { up, activation, down }
    }

    /// `[tokens, hidden]` to the same.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let inner = self.up.forward(x)?;
        let inner = match self.activation {
            Activation::SiluGated => {
                let width = inner.dim(D::Minus1)? / 2;
                (inner.narrow(1, 0, width)?.silu()? * inner.narrow(1, width, width)?)?
            }
            Activation::SquaredRelu => inner.relu()?.sqr()?,
        };
        self.down.forward(&inner)
    }
}
