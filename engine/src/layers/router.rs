//! Which experts a token goes to, and with which weights.

use candle_core::{D, DType, Tensor};
use candle_nn::ops::{sigmoid, softmax_last_dim};

use super::Linear;
use crate::error::Result;

/// Added to sums that are divided by.
const NEVER_ZERO: f64 = 1e-20;

/// How logits of experts become a choice and weights.
#[derive(Clone, Debug)]
pub enum Scoring {
    /// The largest logits; the weights are the softmax over the logits of a token's own experts, so that they sum to 1.
    Softmax,
    /// The largest sigmoids, each with a correction, among the best groups; the weights are the sigmoids themselves.
    Sigmoid(SigmoidScoring),
}

/// Fields of [`Scoring::Sigmoid`].
#[derive(Clone, Debug)]
pub struct SigmoidScoring {
    /// Added to the sigmoids for the choice and not for the weights, `[experts]` f32.
    pub correction: Tensor,
    /// Groups of experts with consecutive numbers; divides the number of experts. A group's score is the sum of its two best.
    pub groups: usize,
    /// Groups that a token's experts may come from; from 1 to `groups`.
    pub groups_kept: usize,
    /// Whether the weights are divided by their sum.
    pub normalise: bool,
    /// Multiplies the weights in the end.
    pub factor: f32,
}

/// The router of a mixture.
#[derive(Debug)]
pub struct Router {
    logits: Linear,
    per_token: usize,
    scoring: Scoring,
}

/// An expert of a token, and its weight in the sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) expert: usize,
    pub(super) weight: f32,
}

impl Router {
    /// A router that sends each token to `per_token` experts, at most as many as `logits` has outputs.
    pub fn new(logits: Linear, per_token: usize, scoring: Scoring) -> Self {
        Self { logits, per_token, scoring }
    }

    /// The experts of the one token of `x`, `[1, hidden]`, without a look at them by the host: their numbers, `[per_token]` u32, and
    /// their weights, `[1, per_token]` f32. `None` where only the host can choose.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub(super) fn choose_on_device(&self, x: &Tensor) -> Result<Option<(Tensor, Tensor)>> {
        let first = |order: Tensor| order.narrow(D::Minus1, 0, self.per_token)?.contiguous();
        let logits = || self.logits.forward(&x.to_dtype(DType::F32)?);
        let (chosen, weights) = match &self.scoring {
            Scoring::Softmax => {
                let logits = logits()?;
                let chosen = first(logits.arg_sort_last_dim(false)?)?;
                let weights = softmax_last_dim(&logits.gather(&chosen, D::Minus1)?)?;
                (chosen, weights)
            }
            Scoring::Sigmoid(scoring) if scoring.groups_kept == scoring.groups => {
                let scores = sigmoid(&logits()?)?;
                let chosen = first(scores.broadcast_add(&scoring.correction)?.arg_sort_last_dim(false)?)?;
                let mut weights = scores.gather(&chosen, D::Minus1)?;
                if scoring.normalise {
                    weights = weights.broadcast_div(&(weights.sum_keepdim(D::Minus1)? + NEVER_ZERO)?)?;
                }
                (chosen, (weights * f64::from(scoring.factor))?)
            }
            Scoring::Sigmoid(_) => return Ok(None),
        };
        Ok(Some((chosen.squeeze(0)?, weights)))
    }

    /// The experts of each token of `x`, `[tokens, hidden]`.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub(super) fn choose(&self, x: &Tensor) -> Result<Vec<Vec<Choice>>> {
        // In f32: rounded to 16 bits, the choice would often be another one.
        let logits: Vec<Vec<f32>> = self.logits.forward(&x.to_dtype(DType::F32)?)?.to_vec2()?;
        match &self.scoring {
            Scoring::Softmax => Ok(logits.iter().map(|logits| softmax(logits, self.per_token)).collect()),
            Scoring::Sigmoid(scoring) => {
                let correction: Vec<f32> = scoring.correction.to_vec1()?;
                Ok(logits.iter().map(|logits| scoring.choose(&correction, logits, self.per_token)).collect())
            }
        }
    }
}

impl SigmoidScoring {
    fn choose(&self, correction: &[f32], logits: &[f32], count: usize) -> Vec<Choice> {
        let scores: Vec<f32> = logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect();
        let mut corrected: Vec<f32> =
            scores.iter().zip(correction).map(|(score, correction)| score + correction).collect();
        if self.groups_kept < self.groups {
            let size = corrected.len() / self.groups;
            let score = |group: &[f32]| largest(group, 2).into_iter().map(|expert| group[expert]).sum::<f32>();
            let group_scores: Vec<f32> = corrected.chunks(size).map(score).collect();
            let kept = largest(&group_scores, self.groups_kept);
            for (group, scores) in corrected.chunks_mut(size).enumerate() {
                if !kept.contains(&group) {
                    scores.fill(f32::NEG_INFINITY);
                }
            }
        }
        let chosen = largest(&corrected, count);
        let sum: f32 = chosen.iter().map(|&expert| scores[expert]).sum();
        let factor = if self.normalise { self.factor / (sum + NEVER_ZERO as f32) } else { self.factor };
        chosen.into_iter().map(|expert| Choice { expert, weight: scores[expert] * factor }).collect()
    }
}

/// The `count` experts with the largest logits, and the softmax over them.
fn softmax(logits: &[f32], count: usize) -> Vec<Choice> {
    let chosen = largest(logits, count);
    let most = chosen.first().map_or(0.0, |&expert| logits[expert]);
    let exps: Vec<f32> = chosen.iter().map(|&expert| (logits[expert] - most).exp()).collect();
    let sum: f32 = exps.iter().sum();
    chosen.into_iter().zip(exps).map(|(expert, exp)| Choice { expert, weight: exp / sum }).collect()
}

/// Positions of the `count` largest values, the largest first, lower position first where they are equal.
fn largest(values: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    order.truncate(count);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;
    use candle_core::Device;

    fn experts(chosen: &[Choice]) -> Vec<usize> {
        chosen.iter().map(|choice| choice.expert).collect()
    }

    #[test]
    fn softmax_takes_the_largest_and_its_weights_sum_to_one() {
        let chosen = softmax(&[0.5, 2.0, -1.0, 2.0, 1.0], 3);
        assert_eq!(experts(&chosen), [1, 3, 4]);
        assert!((chosen.iter().map(|choice| choice.weight).sum::<f32>() - 1.0).abs() < 1e-6);
        assert!((chosen[2].weight / chosen[0].weight - (-1.0_f32).exp()).abs() < 1e-6);
    }

    fn sigmoids(experts: usize, groups: usize, groups_kept: usize, normalise: bool) -> SigmoidScoring {
        let correction = Tensor::zeros(experts, DType::F32, &Device::Cpu).unwrap();
        SigmoidScoring { correction, groups, groups_kept, normalise, factor: 2.0 }
    }

    #[test]
    fn sigmoid_chooses_with_the_correction_and_weighs_without_it() {
        let choose = |normalise| {
            let scoring = sigmoids(4, 1, 1, normalise);
            scoring.choose(&[0.0, 0.0, 0.5, 0.0], &[0.0, 1.0, 0.0, -1.0], 2)
        };
        assert_eq!(experts(&choose(false)), [2, 1]);
        assert!((choose(false)[0].weight - 1.0).abs() < 1e-6, "2 * sigmoid(0)");
        assert!((choose(true).iter().map(|choice| choice.weight).sum::<f32>() - 2.0).abs() < 1e-6);
    }

    #[test]
    fn experts_come_from_the_groups_whose_two_best_are_best() {
        // The best expert is alone in its group.
        let chosen = sigmoids(6, 2, 1, false).choose(&[0.0; 6], &[3.0, -9.0, -9.0, 1.0, 0.0, 2.0], 2);
        assert_eq!(experts(&chosen), [5, 3]);
    }

    #[test]
    fn the_device_chooses_as_the_host_does() {
        let tensor = |values: &[f32], shape: &[usize]| Tensor::from_slice(values, shape, &Device::Cpu).unwrap();
        let x = tensor(&[0.7, -0.2, 0.4], &[1, 3]);
        let weight = tensor(&std::array::from_fn::<f32, 15, _>(|i| ((i * 7 % 15) as f32 - 7.0) / 3.0), &[5, 3]);
        for scoring in [
            Scoring::Softmax,
            Scoring::Sigmoid(sigmoids(5, 1, 1, true)),
            Scoring::Sigmoid(SigmoidScoring {
                correction: tensor(&[0.0, 0.9, 0.0, 0.0, 0.3], &[5]),
                ..sigmoids(5, 1, 1, false)
            }),
        ] {
            let logits = Linear::new(Matrix::from_tensor(&weight).unwrap(), None);
            let router = Router::new(logits, 3, scoring);
            let host = router.choose(&x).unwrap().remove(0);
            let (chosen, weights) = router.choose_on_device(&x).unwrap().unwrap();
            let chosen: Vec<u32> = chosen.to_vec1().unwrap();
            assert_eq!(chosen.iter().map(|&expert| expert as usize).collect::<Vec<_>>(), experts(&host));
            for (weight, choice) in weights.flatten_all().unwrap().to_vec1::<f32>().unwrap().iter().zip(&host) {
                assert!((weight - choice.weight).abs() < 1e-6, "{weight}, expected {choice:?}");
            }
        }
        let logits = Linear::new(Matrix::from_tensor(&weight).unwrap(), None);
        let grouped = Router::new(logits, 1, Scoring::Sigmoid(sigmoids(5, 5, 2, false)));
        assert!(grouped.choose_on_device(&x).unwrap().is_none());
    }
}
