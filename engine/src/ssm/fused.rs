//! The recurrence for one token by a kernel port, as an operation in place on candle's own storage: no tensor is copied.

use std::cell::RefCell;

use candle_core::{CpuStorage, Device, InplaceOp1, Layout, Storage, Tensor};
use ssm_update::{Dt, Kernel, State};

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
    let step = FusedStep { kernel, params, inputs, y: RefCell::new(Vec::new()) };
    state.inplace_op1(&step)?;
    let y = step.y.into_inner();
    Ok(Tensor::from_vec(y, (1, params.dims.channels()), &Device::Cpu)?)
}

/// The operation's destination is the state; y is handed out beside it, since a candle operation has one destination.
struct FusedStep<'a> {
    kernel: &'a dyn Kernel,
    params: &'a SsmParams,
    inputs: SsmInputs<'a>,
    y: RefCell<Vec<f32>>,
}

impl InplaceOp1 for FusedStep<'_> {
    fn name(&self) -> &'static str {
        "ssm-update"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let (params, inputs) = (self.params, self.inputs);
        let (begin, end) = contiguous(layout)?;
        let CpuStorage::F32(state) = storage else { candle_core::bail!("the state of a fused step is f32") };

        let ((x, x_layout), (b, b_layout)) = (inputs.x.storage_and_layout(), inputs.b.storage_and_layout());
        let ((c, c_layout), (dt, dt_layout)) = (inputs.c.storage_and_layout(), inputs.dt.storage_and_layout());
        let z = inputs.z.map(Tensor::storage_and_layout);
        let z = z.as_ref().map(|(z, layout)| elements(z, layout)).transpose()?;

        let mut y = vec![0.0_f32; params.dims.channels()];
        let (min, max) = params.dt_limits;
        let step = ssm_update::Step {
            z: z.map(Into::into),
            d: Some(params.d.as_slice().into()),
            dt_bias: Some(params.dt_bias.as_slice().into()),
            dt_mode: Dt::Raw { min, max },
            ..ssm_update::Step::new(
                params.dims.for_kernel(),
                elements(&x, x_layout)?,
                elements(&b, b_layout)?,
                elements(&c, c_layout)?,
                elements(&dt, dt_layout)?,
                params.a_log.as_slice(),
                State::in_place(&mut state[begin..end]),
                &mut y,
            )
        };
        self.kernel.step(step).map_err(candle_core::Error::wrap)?;
        self.y.replace(y);
        Ok(())
    }
}

/// The part of a storage that a contiguous layout covers.
fn elements<'a>(storage: &'a Storage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    let (begin, end) = contiguous(layout)?;
    match storage {
        Storage::Cpu(CpuStorage::F32(values)) => Ok(&values[begin..end]),
        _ => candle_core::bail!("the inputs of a fused step are f32 on the CPU"),
    }
}

fn contiguous(layout: &Layout) -> candle_core::Result<(usize, usize)> {
    match layout.contiguous_offsets() {
        Some(range) => Ok(range),
        None => candle_core::bail!("the tensors of a fused step are contiguous, got strides {:?}", layout.stride()),
    }
}
