//! Which experts a token goes to, and with which weights.

use candle_core::Tensor;

use super::Linear;
use crate::error::Result;
use crate::one_token::{Routing, Workspace};

/// Added to sums that are divided by; `kernels.cu` has it too.
const NEVER_ZERO: f32 = 1e-20;

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

    /// How a GPU chooses by itself, so that the host does not wait; `None` where only the host can.
    pub(super) fn routing<'a>(&'a self, workspace: &'a Workspace) -> Option<Routing<'a>> {
        let matrix = self.logits.on_device()?;
        let routing =
            Routing { matrix, workspace, correction: None, count: self.per_token, normalise: true, factor: 1.0 };
        match &self.scoring {
            Scoring::Softmax => Some(routing),
            Scoring::Sigmoid(SigmoidScoring { correction, groups, groups_kept, normalise, factor }) => (groups_kept
                == groups)
                .then_some(Routing { correction: Some(correction), normalise: *normalise, factor: *factor, ..routing }),
        }
    }

    /// The experts of each token of `x`, `[tokens, hidden]`.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub(super) fn choose(&self, x: &Tensor) -> Result<Vec<Vec<Choice>>> {
        // In f32: rounded to 16 bits, the choice would often be another one.
        let logits: Vec<Vec<f32>> = self.logits.forward(x)?.to_vec2()?;
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
        let factor = if self.normalise { self.factor / (sum + NEVER_ZERO) } else { self.factor };
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
    #[cfg(feature = "cuda")]
    use crate::{matrix::Matrix, one_token};
    use candle_core::{DType, Device};

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

    /// On CUDA device 0, which the feature promises.
    #[cfg(feature = "cuda")]
    #[test]
    fn the_device_chooses_as_the_host_does() {
        let device = Device::new_cuda(0).unwrap();
        let tensor = |values: &[f32], shape: &[usize]| Tensor::from_slice(values, shape, &device).unwrap();
        let x = tensor(&[0.7, -0.2, 0.4], &[1, 3]);
        let weight = tensor(&std::array::from_fn::<f32, 15, _>(|i| ((i * 7 % 15) as f32 - 7.0) / 3.0), &[5, 3]);
        let on_device = |scoring: SigmoidScoring, correction: [f32; 5]| SigmoidScoring {
            correction: tensor(&correction, &[5]),
            ..scoring
        };
        let workspace = Workspace::new(5, &device).unwrap();
        let router = |per_token, scoring| {
            Router::new(Linear::new(Matrix::on_device(weight.clone()).unwrap(), None), per_token, scoring)
        };
        for scoring in [
            Scoring::Softmax,
            Scoring::Sigmoid(on_device(sigmoids(5, 1, 1, true), [0.0; 5])),
            Scoring::Sigmoid(on_device(sigmoids(5, 1, 1, false), [0.0, 0.9, 0.0, 0.0, 0.3])),
        ] {
            let router = router(3, scoring);
            let host = router.choose(&x).unwrap().remove(0);
            let choice = one_token::route(&x, &router.routing(&workspace).unwrap()).unwrap();
            let choice: Vec<f32> = choice.flatten_all().unwrap().to_vec1().unwrap();
            assert_eq!(choice[..3].iter().map(|expert| expert.to_bits() as usize).collect::<Vec<_>>(), experts(&host));
            for (weight, choice) in choice[3..].iter().zip(&host) {
                assert!((weight - choice.weight).abs() < 1e-6, "{weight}, expected {choice:?}");
            }
        }
        assert!(
            router(1, Scoring::Sigmoid(on_device(sigmoids(5, 5, 2, false), [0.0; 5]))).routing(&workspace).is_none()
        );
    }
}
