//! Tensors on the CPU: the library's host level on candle's own vectors.

use candle_core::{CpuStorage, Result, Storage, Tensor, bail};
use half::{bf16, f16};
use ssm_update::{Kernel, State, Step};

use crate::operand::{Operand, storage};
use crate::update::{Operands, Update};

/// Advances `state` and returns y.
pub fn step(
    kernel: &dyn Kernel,
    update: &Update<'_>,
    operands: &Operands,
    state: &mut CpuStorage,
) -> Result<CpuStorage> {
    // Read locks, held until the step is done.
    let (x, b, c) = (storage(update.x), storage(update.b), storage(update.c));
    let (dt, a_log) = (storage(update.dt), storage(update.a_log));
    let (z, d, dt_bias) = (update.z.map(storage), update.d.map(storage), update.dt_bias.map(storage));
    let slots = update.slots.map(storage);
    let slots = slots.as_deref().zip(operands.slots).map(|(slots, start)| indices(slots, start, operands.dims.batch));
    let slots = slots.transpose()?;

    let mut y = zeros(update.x, operands)?;
    let step = Step {
        z: z.as_deref().zip(operands.z).map(|(z, operand)| rows(z, operand)).transpose()?,
        d: d.as_deref().zip(operands.d).map(|(d, operand)| whole(d, operand)).transpose()?,
        dt_bias: dt_bias.as_deref().zip(operands.dt_bias).map(|(bias, operand)| whole(bias, operand)).transpose()?,
        dt_mode: update.dt_mode,
        slots_in: slots,
        slots_out: slots,
        ..Step::new(
            operands.dims,
            rows(&x, operands.x)?,
            rows(&b, operands.b)?,
            rows(&c, operands.c)?,
            rows(&dt, operands.dt)?,
            whole(&a_log, operands.a_log)?,
            State::in_place(whole_mut(state, operands.state)?),
            whole_mut(&mut y, Operand { start: 0, len: update.x.elem_count(), ..operands.x })?,
        )
    };
    kernel.step(step).map_err(candle_core::Error::wrap)?;
    Ok(y)
}

fn zeros(like: &Tensor, operands: &Operands) -> Result<CpuStorage> {
    let len = like.elem_count();
    Ok(match operands.x.dtype {
        ssm_update::Dtype::F32 => CpuStorage::F32(vec![0.0; len]),
        ssm_update::Dtype::F16 => CpuStorage::F16(vec![f16::ZERO; len]),
        ssm_update::Dtype::Bf16 => CpuStorage::BF16(vec![bf16::ZERO; len]),
    })
}

fn rows(storage: &Storage, operand: Operand) -> Result<ssm_update::Tensor<'_>> {
    Ok(whole(storage, operand)?.batch_stride(operand.stride))
}

fn whole(storage: &Storage, operand: Operand) -> Result<ssm_update::Tensor<'_>> {
    Ok(match storage {
        Storage::Cpu(CpuStorage::F32(values)) => values[operand.range()].into(),
        Storage::Cpu(CpuStorage::F16(values)) => values[operand.range()].into(),
        Storage::Cpu(CpuStorage::BF16(values)) => values[operand.range()].into(),
        _ => bail!("the tensors of a fused step are on one device"),
    })
}

fn whole_mut(storage: &mut CpuStorage, operand: Operand) -> Result<ssm_update::TensorMut<'_>> {
    Ok(match storage {
        CpuStorage::F32(values) => (&mut values[operand.range()]).into(),
        CpuStorage::F16(values) => (&mut values[operand.range()]).into(),
        CpuStorage::BF16(values) => (&mut values[operand.range()]).into(),
        _ => bail!("the state of a fused step is f32, f16 or bf16"),
    })
}

fn indices(storage: &Storage, start: usize, batch: usize) -> Result<&[i32]> {
    match storage {
        Storage::Cpu(CpuStorage::I32(values)) => Ok(&values[start..start + batch]),
        _ => bail!("the slot indices of a fused step are i32 on the state's device"),
    }
}
