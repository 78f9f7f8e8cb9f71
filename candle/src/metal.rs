//! Tensors on a Metal device: the step's dispatches in candle's own encoder, on candle's own buffers.

use std::any::Any;

use candle_core::backend::BackendStorage;
use candle_core::metal_backend::{MetalDevice, MetalStorage};
use candle_core::{Error, Result, Storage, Tensor, bail};
use candle_metal_kernels::metal::{Buffer, ComputePipeline};
use objc2::Message;
use objc2_metal::{MTLDevice, MTLSize};
use ssm_update::Kernel;
use ssm_update::ports::metal::{Apple, At, Buffers, Encoding, MetalBuffer, MetalKernel, abi, plan};

use crate::operand::{Operand, storage};
use crate::update::{Operands, Update};

/// Puts the step into the current encoder of the state's device and returns y.
pub fn launch(
    kernel: &dyn Kernel,
    update: &Update<'_>,
    operands: &Operands,
    state: &mut MetalStorage,
) -> Result<MetalStorage> {
    let device = state.device().clone();
    let kernel = kernel_of(kernel, &device)?;
    let len = update.x.elem_count();
    let y = device.new_buffer(len, update.x.dtype(), "ssm-update")?;

    // Handles of all buffers; candle's encoder and command buffer keep the memory itself alive.
    let read = |tensor: &Tensor| buffer(&storage(tensor));
    let (x, b, c, dt, a_log) =
        (read(update.x)?, read(update.b)?, read(update.c)?, read(update.dt)?, read(update.a_log)?);
    let optional = |tensor: Option<&Tensor>| tensor.map(read).transpose();
    let (z, d, dt_bias) = (optional(update.z)?, optional(update.d)?, optional(update.dt_bias)?);
    let (slots, state, out) = (optional(update.slots)?, retained(state.buffer()), retained(&y));

    let at = |buffer, operand: Operand| At { buffer, offset: operand.start * operand.dtype.size() };
    let in_place = at(&state, operands.state);
    let slots = slots.as_ref().zip(operands.slots);
    let slots = slots.map(|(buffer, start)| At { buffer, offset: start * size_of::<i32>() });
    let buffers = Buffers {
        x: at(&x, operands.x),
        z: z.as_ref().zip(operands.z).map(|(z, operand)| at(z, operand)),
        b: at(&b, operands.b),
        c: at(&c, operands.c),
        dt: at(&dt, operands.dt),
        a_log: at(&a_log, operands.a_log),
        d: d.as_ref().zip(operands.d).map(|(d, operand)| at(d, operand)),
        dt_bias: dt_bias.as_ref().zip(operands.dt_bias).map(|(bias, operand)| at(bias, operand)),
        state_in: in_place,
        state_out: Some(in_place),
        slots_in: slots,
        slots_out: slots,
        y: At { buffer: &out, offset: 0 },
    };
    let dispatches = kernel.dispatches(&operands.problem(update.dt_mode), &buffers).map_err(Error::wrap)?;
    let encoder = device.command_encoder()?;
    for dispatch in dispatches {
        put(&dispatch, encoder.as_ref());
    }
    Ok(MetalStorage::new(y, device.clone(), len, update.x.dtype()))
}

/// One dispatch, through candle's encoder, so that it orders the step with its own operations.
fn put(dispatch: &Encoding<'_, Apple>, encoder: &candle_metal_kernels::metal::ComputeCommandEncoder) {
    encoder.set_compute_pipeline_state(&ComputePipeline::new(dispatch.pipeline.clone()));
    for (number, tensor) in dispatch.tensors.iter().enumerate() {
        let buffer = Buffer::new(tensor.buffer.raw().retain());
        match Encoding::<Apple>::writes(number) {
            true => encoder.set_output_buffer(number, Some(&buffer), tensor.offset),
            false => encoder.set_input_buffer(number, Some(&buffer), tensor.offset),
        }
    }
    encoder.set_bytes(abi::at::CONSTANTS, &dispatch.constants);
    let [width, height, depth] = dispatch.grid.map(|size| size as usize);
    let threads = MTLSize { width: plan::THREADS as usize, height: 1, depth: 1 };
    encoder.dispatch_thread_groups(MTLSize { width, height, depth }, threads);
}

/// The port, if it is Metal's and on candle's device.
fn kernel_of<'a>(kernel: &'a dyn Kernel, device: &MetalDevice) -> Result<&'a MetalKernel<Apple>> {
    let port = kernel.port();
    let kernel: &dyn Any = kernel;
    let Some(kernel) = kernel.downcast_ref::<MetalKernel<Apple>>() else {
        bail!(
            "the tensors are on a Metal device, and port `{port}` cannot reach its memory: open one with `kernel_for`"
        );
    };
    if kernel.gpu().device().registryID() != device.metal_device().as_ref().registryID() {
        bail!("the tensors are not on the system's default Metal device, for which the port is open");
    }
    Ok(kernel)
}

fn buffer(storage: &Storage) -> Result<MetalBuffer> {
    match storage {
        Storage::Metal(storage) => Ok(retained(storage.buffer())),
        _ => bail!("the tensors of a fused step are on one device"),
    }
}

fn retained(buffer: &Buffer) -> MetalBuffer {
    MetalBuffer::new(buffer.as_ref().retain())
}
