//! The mixture of experts: a router picks a few experts per token, and only those are evaluated.

use candle_core::Tensor;

use super::router::Choice;
use super::{Linear, Mlp, Router};
use crate::error::Result;

/// Experts and their router.
#[derive(Debug)]
pub struct MixtureOfExperts {
    router: Router,
    experts: Vec<Mlp>,
    latent: Option<Latent>,
}

/// Projections around the experts, which then work on fewer channels than the router.
#[derive(Debug)]
struct Latent {
    into: Linear,
    out_of: Linear,
}

impl MixtureOfExperts {
    /// A mixture of as many experts as the router has logits.
    pub fn new(router: Router, experts: Vec<Mlp>) -> Self {
        Self { router, experts, latent: None }
    }

    /// The same with a projection of what the experts get, and one of their sum.
    #[must_use]
    pub fn with_latent(self, into: Linear, out_of: Linear) -> Self {
        Self { latent: Some(Latent { into, out_of }), ..self }
    }

    /// `[tokens, hidden]` to the same.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let chosen = self.router.choose(x)?;
        let Some(latent) = &self.latent else { return self.mix(x, &chosen) };
        latent.out_of.forward(&self.mix(&latent.into.forward(x)?, &chosen)?)
    }

    fn mix(&self, x: &Tensor, chosen: &[Vec<Choice>]) -> Result<Tensor> {
        match chosen {
            [chosen] => self.mix_one(x, chosen),
            _ => self.mix_many(x, chosen),
        }
    }

    fn mix_one(&self, x: &Tensor, chosen: &[Choice]) -> Result<Tensor> {
        let mut sum: Option<Tensor> = None;
        for &Choice { expert, weight } in chosen {
            let part = (self.experts[expert].forward(x)? * f64::from(weight))?;
            sum = Some(match sum {
                Some(sum) => (sum + part)?,
                None => part,
            });
        }
        sum.map_or_else(|| Ok(x.zeros_like()?), Ok)
    }

    /// Each expert sees all of its tokens at once.
    fn mix_many(&self, x: &Tensor, chosen: &[Vec<Choice>]) -> Result<Tensor> {
        let mut rows: Vec<(Vec<u32>, Vec<f32>)> = vec![Default::default(); self.experts.len()];
        for (token, chosen) in chosen.iter().enumerate() {
            for &Choice { expert, weight } in chosen {
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
