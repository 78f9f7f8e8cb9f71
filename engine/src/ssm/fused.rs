//! The recurrence for one token by a kernel port, in place on candle's own storage.

use candle_core::Tensor;
use ssm_update::{Dt, Kernel};
use ssm_update_candle::Update;

use super::{SsmInputs, SsmParams};
use crate::error::Result;

/// Advances `state` in place and returns y, `[1, heads * head_dim]`.
///
/// No other tensor may share the state's storage: it would change too.
pub(super) fn advance(
    kernel: &dyn Kernel,
    params: &SsmParams,
    inputs: SsmInputs<'_>,
    state: &Tensor,
) -> Result<Tensor> {
    let (min, max) = params.dt_limits;
    let update = Update {
        z: inputs.z,
        d: Some(&params.d),
        dt_bias: Some(&params.dt_bias),
        dt_mode: Dt::Raw { min, max },
        ..Update::new(inputs.x, inputs.b, inputs.c, inputs.dt, &params.a_log)
    };
    Ok(update.apply(kernel, state)?)
}
