//! Where a model's tensors are, and in which dtype its activations are computed.

use candle_core::{DType, Device};

use crate::error::Result;

/// A device, and the dtype of what flows between the layers there.
///
/// On the CPU activations are f32, whatever the weights are: products widen bf16 weights in registers. On a GPU a product takes
/// both sides in one dtype, so activations follow the weights, as in engines that serve such models. The recurrence and what
/// surrounds it in the mixer are f32 everywhere.
#[derive(Clone, Debug)]
pub struct Place {
    /// The device of weights, caches and activations.
    pub device: Device,
    /// f32 or bf16.
    pub dtype: DType,
}

/// Prepares a device for decoding, where that costs nothing but time: memory of freed tensors stays with the process
/// ([`keep_freed_memory`](ssm_update_candle::keep_freed_memory)), and on CUDA tensors made from here on carry no events for other
/// streams, as the engine has one.
///
/// # Errors
///
/// Faults of the driver.
pub fn prepare(device: &Device) -> Result<()> {
    ssm_update_candle::keep_freed_memory(device)?;
    #[cfg(feature = "cuda")]
    if let Device::Cuda(device) = device {
        #[allow(unsafe_code)] // a promise about streams
        // SAFETY: all that the engine queues, its kernels and the fused step included, goes to candle's one stream of the device, in
        // the order of the calls; candle frees memory in that order too.
        unsafe {
            device.disable_event_tracking();
        }
    }
    Ok(())
}

impl Place {
    /// On `device`, with activations in the dtype `wanted` or else as the type's description says for weights of dtype `weights`.
    /// The CPU knows f32 only.
    pub fn new(device: Device, wanted: Option<DType>, weights: DType) -> Self {
        let dtype = match (&device, wanted.unwrap_or(weights)) {
            (Device::Cpu, _) => DType::F32,
            (_, DType::BF16) => DType::BF16,
            _ => DType::F32,
        };
        Self { device, dtype }
    }

    /// The CPU.
    pub fn cpu() -> Self {
        Self { device: Device::Cpu, dtype: DType::F32 }
    }
}
