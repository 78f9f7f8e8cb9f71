//! The feed-forward layer.

use candle_core::{D, Tensor};

use super::Linear;
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::one_token;

/// What stands between the two products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `silu(gate) * up`; the first product gives both side by side, gate first.
    SiluGated,
    /// `max(x, 0)^2`.
    SquaredRelu,
}

impl Activation {
    /// What the first product gives, `[rows, channels]`, to what the second one takes.
    pub(super) fn forward(self, inner: &Tensor) -> candle_core::Result<Tensor> {
        match self {
            Self::SiluGated => {
                let width = inner.dim(D::Minus1)? / 2;
                inner.narrow(1, 0, width)?.silu()? * inner.narrow(1, width, width)?
            }
            Self::SquaredRelu => inner.relu()?.sqr(),
        }
    }
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

    /// Reads `{name}.{gate,up,down}_proj`, all with a bias or none, `hidden` channels in and out and `width` between. The gate
    /// is multiplied before the SiLU.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load_gated(
        checkpoint: &Checkpoint,
        name: &str,
        hidden: usize,
        width: usize,
        bias: bool,
        gate_multiplier: f64,
    ) -> Result<Self> {
        let (gate, up) = (format!("{name}.gate_proj"), format!("{name}.up_proj"));
        let gate_up = Linear::load_fused(checkpoint, &[(&gate, width), (&up, width)], hidden, bias)?
            .multiplied(1.0, &[(width, gate_multiplier), (width, 1.0)])?;
        let down = Linear::load(checkpoint, &format!("{name}.down_proj"), hidden, width, bias)?;
        Ok(Self::new(gate_up, Activation::SiluGated, down))
    }

    /// `[tokens, hidden]` to the same.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let inner = match self.up.one_token(x) {
            Some(up) => one_token::activated_product(x, &up, None, self.activation)?,
            None => self.activation.forward(&self.up.forward(x)?)?,
        };
        self.down.forward(&inner)
    }

    /// The two matrices and what is between them, where they are on a device other than the CPU and all that there is.
    pub(super) fn on_device(&self) -> Option<(&Tensor, Activation, &Tensor)> {
        Some((self.up.on_device()?, self.activation, self.down.on_device()?))
    }
}
