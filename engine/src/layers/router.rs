//! Which experts a token goes to, and with which weights.

use candle_core::{DType, Tensor};

use super::Linear;
use crate::error::Result;

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
    /// Added to the sigmoids for the choice and not for the weights, one per expert.
    pub correction: Vec<f32>,
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

    /// The experts of each token of `x`, `[tokens, hidden]`.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub(super) fn choose(&self, x: &Tensor) -> Result<Vec<Vec<Choice>>> {
        // In f32: rounded to 16 bits, the choice would often be another one.
        let logits: Vec<Vec<f32>> = self.logits.forward(&x.to_dtype(DType::F32)?)?.to_vec2()?;
        let choose = |logits: &Vec<f32>| match &self.scoring {
            Scoring::Softmax => softmax(logits, self.per_token),
            Scoring::Sigmoid(scoring) => scoring.choose(logits, self.per_token),
        };
        Ok(logits.iter().map(choose).collect())
    }
}

impl SigmoidScoring {
    fn choose(&self, logits: &[f32], count: usize) -> Vec<Choice> {
        let scores: Vec<f32> = logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect();
        let mut corrected: Vec<f32> =
            scores.iter().zip(&self.correction).map(|(score, correction)| score + correction).collect();
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
        let factor = if self.normalise { self.factor / (sum + 1e-20) } else { self.factor };
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

    #[test]
    fn sigmoid_chooses_with_the_correction_and_weighs_without_it() {
        let correction = vec![0.0, 0.0, 0.5, 0.0];
        let scoring = SigmoidScoring { correction, groups: 1, groups_kept: 1, normalise: false, factor: 2.0 };
        let chosen = scoring.choose(&[0.0, 1.0, 0.0, -1.0], 2);
        assert_eq!(experts(&chosen), [2, 1]);
        assert!((chosen[0].weight - 1.0).abs() < 1e-6, "2 * sigmoid(0)");
        let chosen = SigmoidScoring { normalise: true, ..scoring }.choose(&[0.0, 1.0, 0.0, -1.0], 2);
        assert!((chosen.iter().map(|choice| choice.weight).sum::<f32>() - 2.0).abs() < 1e-6);
    }

    #[test]
    fn experts_come_from_the_groups_whose_two_best_are_best() {
        let scoring =
            SigmoidScoring { correction: vec![0.0; 6], groups: 2, groups_kept: 1, normalise: false, factor: 1.0 };
        // The best expert is alone in its group.
        assert_eq!(experts(&scoring.choose(&[3.0, -9.0, -9.0, 1.0, 0.0, 2.0], 2)), [5, 3]);
    }
}
