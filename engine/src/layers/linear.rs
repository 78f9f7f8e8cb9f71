//! Matrix products with weights.

use candle_core::{DType, Tensor};

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::one_token::{self, Weights};

/// `y = x W^T + bias`, or with multipliers `y = outputs * (input * x W^T + bias)`.
#[derive(Debug)]
pub struct Linear {
    weight: Matrix,
    /// Multipliers of the product, `[out]` f32.
    scale: Option<Tensor>,
    /// `[out]`, with the multipliers of the outputs in it.
    bias: Option<Tensor>,
}

impl Linear {
    /// A product with `weight`, `[out, in]`, and `bias`, `[out]`.
    pub fn new(weight: Matrix, bias: Option<Tensor>) -> Self {
        Self { weight, scale: None, bias }
    }

    /// The same with its input multiplied with `input`, and runs of its outputs with factors: `outputs` holds a run's length
    /// and its factor, in order, and covers all outputs.
    ///
    /// All factors become one vector beside the weight, since a weight of 16 bits would be rounded if it took them up.
    ///
    /// # Errors
    ///
    /// The runs do not cover the bias.
    pub fn multiplied(self, input: f64, outputs: &[(usize, f64)]) -> Result<Self> {
        if input == 1.0 && outputs.iter().all(|run| run.1 == 1.0) {
            return Ok(self);
        }
        let device = self.weight.device();
        let vector = |input: f64| {
            let run = |&(length, factor): &(usize, f64)| std::iter::repeat_n((input * factor) as f32, length);
            let values: Vec<f32> = outputs.iter().flat_map(run).collect();
            Tensor::new(values, &device)
        };
        let bias = self.bias.map(|bias| multiply(&bias, &vector(1.0)?)).transpose()?;
        Ok(Self { scale: Some(vector(input)?), bias, weight: self.weight })
    }

    /// Reads `{name}.weight`, and `{name}.bias` where `bias` is set.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::matrix`] refuses.
    pub fn load(checkpoint: &Checkpoint, name: &str, out: usize, inputs: usize, bias: bool) -> Result<Self> {
        let weight = checkpoint.matrix(&format!("{name}.weight"), &[out, inputs])?;
        let bias = bias.then(|| checkpoint.tensor(&format!("{name}.bias"), &[out])).transpose()?;
        Ok(Self::new(weight, bias))
    }

    /// As [`load`](Self::load) without a bias, for inputs in f32 whatever the dtype of activations is.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::matrix`] refuses.
    pub fn load_f32(checkpoint: &Checkpoint, name: &str, out: usize, inputs: usize) -> Result<Self> {
        Ok(Self::new(checkpoint.matrix_f32(&format!("{name}.weight"), &[out, inputs])?, None))
    }

    /// The matrix, where it is on a device other than the CPU and there is nothing beside it.
    pub(super) fn on_device(&self) -> Option<&Tensor> {
        self.weight.tensor().filter(|_| self.scale.is_none() && self.bias.is_none())
    }

    /// Several products with the same input as one, their outputs side by side.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::matrix`] refuses.
    pub fn load_fused(checkpoint: &Checkpoint, parts: &[(&str, usize)], inputs: usize, bias: bool) -> Result<Self> {
        let weight = |(name, out): &(&str, usize)| checkpoint.matrix(&format!("{name}.weight"), &[*out, inputs]);
        let weights = parts.iter().map(weight).collect::<Result<Vec<_>>>()?;
        let part = |(name, out): &(&str, usize)| checkpoint.tensor(&format!("{name}.bias"), &[*out]);
        let biases = || parts.iter().map(part).collect::<Result<Vec<_>>>();
        let bias = bias.then(|| Ok::<_, crate::Error>(Tensor::cat(&biases()?, 0)?)).transpose()?;
        Ok(Self::new(Matrix::stack(weights)?, bias))
    }

    /// The weights, where a GPU's kernels multiply `x` with them.
    pub(super) fn one_token(&self, x: &Tensor) -> Option<Weights<'_>> {
        let weights = Weights { matrix: self.weight.tensor()?, scale: self.scale.as_ref(), bias: self.bias.as_ref() };
        weights.serve(x).then_some(weights)
    }

    /// `[tokens, in]`, in the dtype of activations or in f32, to `[tokens, out]` in the former.
    ///
    /// # Errors
    ///
    /// Another number of input channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if let Some(weights) = self.one_token(x) {
            return Ok(one_token::product(x, &weights)?);
        }
        let y = self.weight.multiply(x)?;
        let y = match &self.scale {
            Some(scale) => multiply(&y, scale)?,
            None => y,
        };
        match &self.bias {
            Some(bias) => Ok(y.broadcast_add(bias)?),
            None => Ok(y),
        }
    }
}

/// In f32, and back: a multiplier that is rounded to 16 bits is wrong for all that it multiplies.
fn multiply(x: &Tensor, scale: &Tensor) -> candle_core::Result<Tensor> {
    x.to_dtype(DType::F32)?.broadcast_mul(scale)?.to_dtype(x.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn multipliers_of_outputs_reach_the_bias_and_that_of_the_input_does_not() {
        let tensor = |values: &[f32], shape: &[usize]| Tensor::from_slice(values, shape, &Device::Cpu).unwrap();
        let (x, weight) = (tensor(&[1.0, 2.0], &[1, 2]), tensor(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], &[3, 2]));
        let linear = Linear::new(Matrix::from_tensor(&weight).unwrap(), Some(tensor(&[10.0, 20.0, 30.0], &[3])));
        let linear = linear.multiplied(0.5, &[(1, 3.0), (2, -1.0)]).unwrap();
        let y: Vec<Vec<f32>> = linear.forward(&x).unwrap().to_vec2().unwrap();
        assert_eq!(y, [[3.0 * 10.5, -21.0, -31.5]]);
    }
}
