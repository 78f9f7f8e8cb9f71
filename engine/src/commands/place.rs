//! Where a command's tensors go.

use candle_core::{DType, Device};
use clap::ValueEnum;
use ssm_engine::{Error, Result};

/// candle's devices.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DeviceArgument {
    /// The CPU; a port of a GPU then copies each step's tensors there and back
    Cpu,
    /// The first CUDA device (in builds with the feature `cuda`)
    Cuda,
    /// The first Metal device (in builds with the feature `metal`)
    Metal,
}

/// dtypes of activations.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DtypeArgument {
    /// Single precision
    F32,
    /// bfloat16, on a GPU
    Bf16,
}

/// Arguments of every command that loads a model.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct PlaceArguments {
    /// Where weights, caches and activations are
    #[arg(long, value_enum, default_value_t = DeviceArgument::Cpu)]
    device: DeviceArgument,
    /// Dtype of activations; without it f32 on the CPU, and on a GPU that of the weights
    #[arg(long, value_enum)]
    dtype: Option<DtypeArgument>,
}

/// An open device, and the dtype of activations where one was asked for.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The device.
    pub device: Device,
    /// The dtype.
    pub dtype: Option<DType>,
}

impl PlaceArguments {
    /// Opens the device.
    ///
    /// # Errors
    ///
    /// The device is not there, or this build does not know it; bf16 on the CPU.
    pub fn open(self) -> Result<Chosen> {
        let opened = match self.device {
            DeviceArgument::Cpu => Ok(Device::Cpu),
            DeviceArgument::Cuda => Device::new_cuda(0),
            DeviceArgument::Metal => Device::new_metal(0),
        };
        let refused = |why: &dyn std::fmt::Display| {
            let name = self.device.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
            Error::Request(format!(
                "--device {name}: {why}; a GPU needs a build with the feature of its name (cargo build -p ssm-engine --features {name})"
            ))
        };
        let device = opened.map_err(|error| refused(&error))?;
        ssm_engine::place::prepare(&device)?;
        let dtype = match (self.dtype, self.device) {
            (Some(DtypeArgument::Bf16), DeviceArgument::Cpu) => {
                return Err(Error::Request("--dtype: expected f32, the only one on the CPU, got bf16".to_owned()));
            }
            (dtype, _) => dtype.map(|dtype| match dtype {
                DtypeArgument::F32 => DType::F32,
                DtypeArgument::Bf16 => DType::BF16,
            }),
        };
        Ok(Chosen { device, dtype })
    }
}
