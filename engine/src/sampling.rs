//! Choosing the next token from logits.

use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};

use crate::error::{Error, Result};

/// Chooses tokens. The same logits, parameters and seed give the same tokens on every machine: the generator is a named
/// algorithm, and ties go to the lower token.
#[derive(Debug)]
pub struct Sampler(Kind);

#[derive(Debug)]
enum Kind {
    Greedy,
    TopP { temperature: f32, top_p: f32, rng: Box<ChaCha12Rng> },
}

impl Sampler {
    /// Always the token with the largest logit.
    pub fn greedy() -> Self {
        Self(Kind::Greedy)
    }

    /// Draws from the softmax of `logits / temperature`, restricted to the fewest tokens whose probabilities sum to at least
    /// `top_p`. A temperature of 0 is greedy.
    ///
    /// # Errors
    ///
    /// A temperature below 0 or not finite; `top_p` outside of (0, 1].
    pub fn new(temperature: f32, top_p: f32, seed: u64) -> Result<Self> {
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(Error::Request(format!("temperature: expected a number from 0, got {temperature}")));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(Error::Request(format!("top-p: expected a number above 0 and at most 1, got {top_p}")));
        }
        let rng = Box::new(ChaCha12Rng::seed_from_u64(seed));
        Ok(Self(if temperature == 0.0 { Kind::Greedy } else { Kind::TopP { temperature, top_p, rng } }))
    }

    /// Whether the choice is always the [`argmax`].
    pub fn is_greedy(&self) -> bool {
        matches!(self.0, Kind::Greedy)
    }

    /// The next token. `logits` holds at least one number and no NaN.
    pub fn choose(&mut self, logits: &[f32]) -> u32 {
        match &mut self.0 {
            Kind::Greedy => argmax(logits),
            Kind::TopP { temperature, top_p, rng } => draw(logits, *temperature, *top_p, rng.random()),
        }
    }
}

/// The largest logit's token; the lowest one where several are equal.
pub fn argmax(logits: &[f32]) -> u32 {
    let best = logits
        .iter()
        .enumerate()
        .fold((0, f32::NEG_INFINITY), |best, (token, &logit)| if logit > best.1 { (token, logit) } else { best });
    best.0 as u32
}

/// The token at which the running sum of probabilities, largest first, passes `uniform` (from [0, 1)) of the kept sum.
fn draw(logits: &[f32], temperature: f32, top_p: f32, uniform: f32) -> u32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = logits.iter().map(|logit| ((logit - largest) / temperature).exp()).collect();
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    order.sort_by(|&a, &b| weights[b as usize].total_cmp(&weights[a as usize]));

    let enough = f64::from(top_p) * weights.iter().map(|&weight| f64::from(weight)).sum::<f64>();
    let mut kept = 0.0;
    let count = order.iter().position(|&token| {
        kept += f64::from(weights[token as usize]);
        kept >= enough
    });
    let mut left = f64::from(uniform) * kept;
    let kept = &order[..=count.unwrap_or(order.len() - 1)];
    for &token in kept {
        left -= f64::from(weights[token as usize]);
        if left < 0.0 {
            return token;
        }
    }
    kept[kept.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [0.0, 2.0, -1.0, 2.0, 1.0];

    #[test]
    fn greedy_takes_the_largest_and_the_lower_of_equals() {
        assert_eq!(Sampler::greedy().choose(&LOGITS), 1);
        assert_eq!(Sampler::new(0.0, 0.5, 9).unwrap().choose(&LOGITS), 1);
    }

    #[test]
    fn same_seed_draws_the_same_tokens_and_another_seed_does_not() {
        let draws = |seed| {
            let mut sampler = Sampler::new(1.5, 1.0, seed).unwrap();
            (0..64).map(|_| sampler.choose(&LOGITS)).collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }

    #[test]
    fn top_p_keeps_the_fewest_tokens_that_reach_it() {
        // Probabilities: 0.385 each for tokens 1 and 3, 0.142, 0.052, 0.019.
        let mut sampler = Sampler::new(1.0, 0.7, 3).unwrap();
        let drawn: Vec<u32> = (0..200).map(|_| sampler.choose(&LOGITS)).collect();
        assert!(drawn.iter().all(|token| [1, 3].contains(token)));
        assert!(drawn.contains(&1) && drawn.contains(&3));
        assert_eq!(draw(&LOGITS, 1.0, 1e-6, 0.999), 1);
    }

    #[test]
    fn frequencies_follow_the_probabilities() {
        let mut sampler = Sampler::new(1.0, 1.0, 5).unwrap();
        let count = (0..20_000).filter(|_| sampler.choose(&LOGITS) == 4).count();
        assert!((count as f64 / 20_000.0 - 0.1417).abs() < 0.01, "{count}");
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        for (temperature, top_p) in
            [(-1.0, 1.0), (f32::NAN, 1.0), (f32::INFINITY, 1.0), (1.0, 0.0), (1.0, 1.1), (1.0, f32::NAN)]
        {
            assert!(Sampler::new(temperature, top_p, 0).is_err(), "{temperature} {top_p}");
        }
    }
}
