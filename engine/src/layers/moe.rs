//! The mixture of experts: a router picks a few experts per token, and only those are evaluated.

use candle_core::{DType, Tensor};

use super::{GatedMlp, Linear};
use crate::checkpoint::Checkpoint;
use crate::error::Result;

/// Sizes of a mixture.
#[derive(Clone, Copy, Debug)]
pub struct MoeConfig {
    /// Channels in and out.
    pub hidden: usize,
    /// Width of one expert.
    pub width: usize,
    /// Experts.
    pub experts: usize,
    /// Experts per token; at most `experts`.
    pub per_token: usize,
}

/// Experts and their router.
///
/// A token's weights are the softmax over the logits of its own experts, so that they sum to 1.
#[derive(Debug)]
pub struct MixtureOfExperts {
    router: Linear,
    experts: Vec<GatedMlp>,
    per_token: usize,
}

/// An expert of a token, and its weight in the sum.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    expert: usize,
    weight: f32,
}

impl MixtureOfExperts {
    /// Reads `{name}.router.layer.weight`, `{name}.input_linear.weight` and `{name}.output_linear.weight`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load(checkpoint: &Checkpoint, name: &str, config: MoeConfig) -> Result<Self> {
        let MoeConfig { hidden, width, experts, per_token } = config;
        let router = Linear::load(checkpoint, &format!("{name}.router.layer"), experts, hidden, false)?;
        let gate_up = checkpoint.matrix(&format!("{name}.input_linear.weight"), &[experts, 2 * width, hidden])?;
        let down = checkpoint.matrix(&format!("{name}.output_linear.weight"), &[experts, hidden, width])?;
        let experts = (0..experts).map(|e| GatedMlp::new(gate_up.get(e)?, down.get(e)?)).collect::<Result<_>>()?;
        Ok(Self { router, experts, per_token })
    }

    /// `[tokens, hidden]` to the same.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let logits = self.router.forward(x)?.to_dtype(DType::F32)?;
        match x.dim(0)? {
            1 => self.forward_one(x, &logits),
            _ => self.forward_many(x, &logits),
        }
    }

    fn forward_one(&self, x: &Tensor, logits: &Tensor) -> Result<Tensor> {
        let mut sum: Option<Tensor> = None;
        for Choice { expert, weight } in choose(&logits.get(0)?.to_vec1()?, self.per_token) {
            let part = (self.experts[expert].forward(x)? * f64::from(weight))?;
            sum = Some(match sum {
                Some(sum) => (sum + part)?,
                None => part,
            });
        }
        sum.map_or_else(|| Ok(x.zeros_like()?), Ok)
    }

    /// Each expert sees all of its tokens at once.
    fn forward_many(&self, x: &Tensor, logits: &Tensor) -> Result<Tensor> {
        let mut rows: Vec<(Vec<u32>, Vec<f32>)> = vec![Default::default(); self.experts.len()];
        for (token, logits) in logits.to_vec2()?.iter().enumerate() {
            for Choice { expert, weight } in choose(logits, self.per_token) {
                rows[expert].0.push(token as u32);
                rows[expert].1.push(weight);
            }
        }
        let mut sum = x.zeros_like()?;
        for (expert, (tokens, weights)) in self.experts.iter().zip(rows) {
            if tokens.is_empty() {
                continue;
            }
            let weights = Tensor::from_vec(weights, (tokens.len(), 1), x.device())?.to_dtype(x.dtype())?;
            let tokens = Tensor::new(tokens, x.device())?;
            let part = expert.forward(&x.index_select(&tokens, 0)?)?.broadcast_mul(&weights)?;
            sum = sum.index_add(&tokens, &part, 0)?;
        }
        Ok(sum)
    }
}

/// The `count` experts with the largest logits, lower index first where they are equal, and the softmax over them.
fn choose(logits: &[f32], count: usize) -> Vec<Choice> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    order.truncate(count);
    let largest = order.first().map_or(0.0, |&expert| logits[expert]);
    let exps: Vec<f32> = order.iter().map(|&expert| (logits[expert] - largest).exp()).collect();
    let sum: f32 = exps.iter().sum();
    order.into_iter().zip(exps).map(|(expert, exp)| Choice { expert, weight: exp / sum }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_experts_are_the_largest_and_their_weights_sum_to_one() {
        let chosen = choose(&[0.5, 2.0, -1.0, 2.0, 1.0], 3);
        assert_eq!(chosen.iter().map(|choice| choice.expert).collect::<Vec<_>>(), [1, 3, 4]);
        assert!((chosen.iter().map(|choice| choice.weight).sum::<f32>() - 1.0).abs() < 1e-6);
        assert!((chosen[2].weight / chosen[0].weight - (-1.0_f32).exp()).abs() < 1e-6);
    }
}
