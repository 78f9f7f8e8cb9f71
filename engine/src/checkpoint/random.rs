//! Random weights: what a model's speed depends on is in its configuration.

use candle_core::{DType, Device, Tensor};
use half::bf16;
use ssm_update::Dtype;

use crate::bytes::Bytes;
use crate::error::Result;
use crate::matrix::{Block, Dense, Matrix};
use crate::place::Place;

/// Of the device's generator; the same machine draws the same weights again.
const SEED: u64 = 1;

/// Sets the device's generator to its start. The CPU's takes no seed, and draws other weights in every process.
pub(super) fn begin(device: &Device) -> Result<()> {
    if !device.is_cpu() {
        device.set_seed(SEED)?;
    }
    Ok(())
}

/// f32. Vectors of the recurrence are drawn as models initialise them: decay rates from 1 to 16, steps from 0.001 to 0.1. Norms
/// are 1 and biases 0, so that activations keep their size through any number of layers.
pub(super) fn tensor(name: &str, shape: &[usize], place: &Place) -> Result<Tensor> {
    let part = name.rsplit('.').find(|part| *part != "weight").unwrap_or(name);
    let device = &place.device;
    Ok(match part {
        "A_log" => Tensor::rand(1.0_f32, 16.0, shape, device)?.log()?,
        // softplus(v) = ln(1 + exp(v)) is about exp(v) there.
        "dt_bias" => Tensor::rand(0.001_f32.ln(), 0.1_f32.ln(), shape, device)?,
        "bias" | "e_score_correction_bias" => Tensor::zeros(shape, DType::F32, device)?,
        "conv1d" => normal(shape, shape.last().copied().unwrap_or(1), device)?,
        _ => Tensor::ones(shape, DType::F32, device)?,
    })
}

/// bf16 on the CPU, else in the dtype of activations.
pub(super) fn matrix(shape: &[usize; 2], place: &Place) -> Result<Matrix> {
    let values = normal(shape, shape[1], &place.device)?;
    if !place.device.is_cpu() {
        return Matrix::on_device(values.to_dtype(place.dtype)?);
    }
    let values: Vec<f32> = values.flatten_all()?.to_vec1()?;
    let bytes: Vec<u8> = values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect();
    Ok(Matrix::new(Block::Dense(Dense::new(Bytes::new(bytes), Dtype::Bf16, shape[1]))))
}

/// Normal values whose sum over `inputs` products with values of size 1 has size 1.
fn normal(shape: &[usize], inputs: usize, device: &Device) -> Result<Tensor> {
    Ok(Tensor::randn(0.0_f32, 1.0 / (inputs as f32).sqrt(), shape, device)?)
}
