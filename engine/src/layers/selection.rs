//! Where a Mamba2 layer's B, C and dt come from.

use candle_core::{DType, Tensor};

use super::{Linear, RmsNorm};
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::one_token;
use crate::ssm::SsmDims;

/// The source of B, C and dt.
#[derive(Clone, Copy, Debug)]
pub enum Selection {
    /// Projected with z and x, in the order z, x, B, C, dt. B and C go through the convolution with x.
    WithX {
        /// Multiplies the projection's input.
        input_multiplier: f64,
        /// Multiply z, x, B, C and dt.
        multipliers: [f64; 5],
    },
    /// Projected from the convolved x, and each normalised as a whole. z and x stand side by side for each head, and x alone goes through
    /// the convolution.
    FromX {
        /// Channels that dt is projected from.
        dt_rank: usize,
        /// Of the three norms.
        norm_eps: f64,
    },
}

impl Selection {
    /// [`WithX`](Self::WithX) without multipliers.
    pub const WITH_X: Self = Self::WithX { input_multiplier: 1.0, multipliers: [1.0; 5] };

    /// Channels of the convolution.
    pub fn conv_channels(&self, dims: SsmDims) -> usize {
        match self {
            Self::WithX { .. } => dims.channels() + 2 * dims.group_columns(),
            Self::FromX { .. } => dims.channels(),
        }
    }

    /// Outputs of the projection that z and x come from.
    pub fn projected_channels(&self, dims: SsmDims) -> usize {
        match self {
            Self::WithX { .. } => dims.channels() + self.conv_channels(dims) + dims.heads,
            Self::FromX { .. } => 2 * dims.channels(),
        }
    }
}

/// B, C and dt of a layer, B and C f32.
#[derive(Debug)]
pub(super) struct Selected {
    /// `[tokens, groups * d_state]`.
    pub(super) b: Tensor,
    /// `[tokens, groups * d_state]`.
    pub(super) c: Tensor,
    /// `[tokens, heads]`, without its bias; f32 or in the dtype of activations.
    pub(super) dt: Tensor,
}

/// The projections and norms of [`Selection::FromX`].
#[derive(Debug)]
pub(super) struct FromX {
    columns: usize,
    dt_rank: usize,
    bcdt_proj: Linear,
    b_norm: RmsNorm,
    c_norm: RmsNorm,
    dt_norm: RmsNorm,
    dt_proj: Linear,
}

impl FromX {
    /// Reads `{name}.{bcdt_proj,B_norm_weight,C_norm_weight,dt_norm_weight,dt_proj}`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub(super) fn load(
        checkpoint: &Checkpoint,
        name: &str,
        dims: SsmDims,
        dt_rank: usize,
        norm_eps: f64,
    ) -> Result<Self> {
        let columns = dims.group_columns();
        let linear = |part: &str, out, inputs| Linear::load(checkpoint, &format!("{name}.{part}"), out, inputs, false);
        let norm = |part: &str, channels| -> Result<RmsNorm> {
            let weight = checkpoint.tensor_f32(&format!("{name}.{part}_norm_weight"), &[channels])?;
            Ok(RmsNorm::new(weight, norm_eps))
        };
        Ok(Self {
            columns,
            dt_rank,
            bcdt_proj: linear("bcdt_proj", 2 * columns + dt_rank, dims.channels())?,
            b_norm: norm("B", columns)?,
            c_norm: norm("C", columns)?,
            dt_norm: norm("dt", dt_rank)?,
            dt_proj: linear("dt_proj", dims.heads, dt_rank)?,
        })
    }

    /// From the convolved x, `[tokens, heads * head_dim]` f32.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub(super) fn select(&self, x: &Tensor) -> Result<Selected> {
        let bcdt = self.bcdt_proj.forward(x)?;
        let norms = [&self.b_norm, &self.c_norm, &self.dt_norm];
        let [b, c, dt] = if one_token::serves(&bcdt) {
            let row = one_token::three_norms(&bcdt, norms.map(RmsNorm::weight), self.dt_norm.eps())?;
            self.parts(&row)?
        } else {
            let [b, c, dt] = self.parts(&bcdt.to_dtype(DType::F32)?)?;
            [self.b_norm.forward(&b)?, self.c_norm.forward(&c)?, self.dt_norm.forward(&dt)?]
        };
        Ok(Selected { b, c, dt: self.dt_proj.forward(&dt)? })
    }

    /// B, C and what dt is projected from.
    fn parts(&self, row: &Tensor) -> Result<[Tensor; 3]> {
        let part = |first, len| row.narrow(1, first, len);
        Ok([part(0, self.columns)?, part(self.columns, self.columns)?, part(2 * self.columns, self.dt_rank)?])
    }
}
