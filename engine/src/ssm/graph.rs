//! The recurrence for one token as a graph of tensor operations: what an engine does without the fused kernel.
//!
//! It is the single-token form, not a scan of length one, and touches the state four times: decay, gain, sum, output.

use candle_core::Tensor;

use super::{SsmDims, SsmInputs, SsmParams, gate};
use crate::error::Result;

/// Returns y, `[1, heads * head_dim]`, and the new state.
pub(super) fn advance(params: &SsmParams, inputs: SsmInputs<'_>, state: &Tensor) -> Result<(Tensor, Tensor)> {
    let SsmDims { heads: h, head_dim: p, groups: g, d_state: n } = params.dims;
    let r = params.dims.heads_per_group();

    let dt = params.prepare_dt(inputs.dt)?.reshape((h, 1))?;
    let decay = (&dt * params.a.reshape((h, 1))?)?.exp()?;
    let x = inputs.x.reshape((h, p))?;
    let x_dt = x.broadcast_mul(&dt)?;

    // One row per head and channel: both products below are then broadcasts of a scalar or a row over rows.
    let gained = inputs.b.reshape((g, 1, n))?.broadcast_mul(&x_dt.reshape((g, r * p, 1))?)?;
    let kept = state.reshape((h, p * n))?.broadcast_mul(&decay)?;
    let state = (kept.reshape((g, r * p, n))? + gained)?;
    let y = state.matmul(&inputs.c.reshape((g, n, 1))?)?.reshape((h, p))?;

    let y = (y + x.broadcast_mul(&params.d_column)?)?.reshape((1, h * p))?;
    Ok((gate(y, inputs.z)?, state.reshape((1, h, p, n))?))
}
