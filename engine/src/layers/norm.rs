//! Normalisation.

use candle_core::Tensor;

use crate::checkpoint::Checkpoint;
use crate::error::Result;

/// `x / sqrt(mean(x^2) + eps) * weight`, the mean taken over all channels or over those of a group.
#[derive(Debug)]
pub struct RmsNorm {
    /// `[channels]`.
    weight: Tensor,
    eps: f32,
    /// Where the mean is taken over groups: ones, `[channels of a group]`.
    group: Option<Tensor>,
}

impl RmsNorm {
    /// With a weight of `[channels]`, in the dtype of what it normalises.
    pub fn new(weight: Tensor, eps: f64) -> Self {
        Self { weight, eps: eps as f32, group: None }
    }

    /// Reads `{name}.weight`, `[channels]`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load(checkpoint: &Checkpoint, name: &str, channels: usize, eps: f64) -> Result<Self> {
        Ok(Self::new(checkpoint.tensor(&format!("{name}.weight"), &[channels])?, eps))
    }

    /// As [`load`](Self::load), for f32 activations whatever the others are.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load_f32(checkpoint: &Checkpoint, name: &str, channels: usize, eps: f64) -> Result<Self> {
        Ok(Self::new(checkpoint.tensor_f32(&format!("{name}.weight"), &[channels])?, eps))
    }

    /// The same with means over each of `groups` equal runs of channels, at least one.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn per_group(self, groups: usize) -> Result<Self> {
        let channels = self.weight.elem_count() / groups;
        let group = (groups > 1).then(|| Tensor::ones(channels, self.weight.dtype(), self.weight.device()));
        Ok(Self { group: group.transpose()?, ..self })
    }

    /// `[channels]`.
    pub(crate) fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// Added to the mean square.
    pub(crate) fn eps(&self) -> f32 {
        self.eps
    }

    /// Runs of channels with a mean of their own.
    pub(crate) fn groups(&self) -> usize {
        self.group.as_ref().map_or(1, |group| self.weight.elem_count() / group.elem_count())
    }

    /// Keeps the shape, `[tokens, channels]`.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.contiguous()?;
        let Some(ones) = &self.group else { return Ok(candle_nn::ops::rms_norm(&x, &self.weight, self.eps)?) };
        let rows = x.reshape(((), ones.elem_count()))?;
        let normed = candle_nn::ops::rms_norm(&rows, ones, self.eps)?.reshape(x.shape())?;
        Ok(normed.broadcast_mul(&self.weight)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn each_group_has_a_mean_of_its_own() {
        let x = [3.0_f32, -4.0, 0.5, 0.1, 2.0, 1.0, -7.0, 0.0];
        let weight = [1.0_f32, 0.5, -2.0, 3.0];
        let norm = |groups| {
            let weight = Tensor::new(&weight, &Device::Cpu).unwrap();
            RmsNorm::new(weight, 1e-3).per_group(groups).unwrap()
        };
        for groups in [1, 2, 4] {
            let tensor = Tensor::new(&x, &Device::Cpu).unwrap().reshape((2, 4)).unwrap();
            let got: Vec<Vec<f32>> = norm(groups).forward(&tensor).unwrap().to_vec2().unwrap();
            for (i, (got, x_i)) in got.iter().flatten().zip(x).enumerate() {
                let size = 4 / groups;
                let group = &x[i / size * size..][..size];
                let mean = group.iter().map(|x| x * x).sum::<f32>() / size as f32;
                assert!(
                    (got - x_i / (mean + 1e-3).sqrt() * weight[i % 4]).abs() < 1e-5,
                    "{groups} groups, element {i}"
                );
            }
        }
    }
}
