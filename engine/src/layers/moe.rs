//! The mixture of experts: a router picks a few experts per token, and only those are evaluated.

use candle_core::Tensor;

use super::router::Choice;
use super::{Activation, Linear, Mlp, Router};
use crate::error::Result;
use crate::one_token::{self, Workspace};

/// Experts and their router.
#[derive(Debug)]
pub struct MixtureOfExperts {
    router: Router,
    experts: Experts,
    latent: Option<Latent>,
}

#[derive(Debug)]
enum Experts {
    /// Each by itself.
    Each(Vec<Mlp>),
    /// In one tensor, on a device other than the CPU.
    Stacked(Stacked),
}

/// Projections around the experts, which then work on fewer channels than the router.
#[derive(Debug)]
struct Latent {
    into: Linear,
    out_of: Linear,
}

/// Experts of one shape, one after the other, so that a GPU can take those of a token by their numbers: the host neither waits for
/// them nor queues operations for each.
#[derive(Debug)]
struct Stacked {
    /// `[experts, width or 2 * width, hidden]`.
    up: Tensor,
    activation: Activation,
    /// `[experts, hidden, width]`.
    down: Tensor,
    workspace: Workspace,
}

impl MixtureOfExperts {
    /// A mixture of as many experts as the router has logits.
    ///
    /// # Errors
    ///
    /// The device has no room.
    pub fn new(router: Router, experts: Vec<Mlp>) -> Result<Self> {
        let experts = match Stacked::of(&experts)? {
            Some(stacked) => Experts::Stacked(stacked),
            None => Experts::Each(experts),
        };
        Ok(Self { router, experts, latent: None })
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
        let Some(latent) = &self.latent else { return self.mix(x, x) };
        latent.out_of.forward(&self.mix(x, &latent.into.forward(x)?)?)
    }

    /// The experts that the router chooses for `x`, of `inputs`.
    fn mix(&self, x: &Tensor, inputs: &Tensor) -> Result<Tensor> {
        if let Experts::Stacked(stacked) = &self.experts
            && let Some(routing) = self.router.routing(&stacked.workspace)
            && routing.serves(x)
            && one_token::serves_experts(inputs, &stacked.up, &stacked.down)
        {
            let choice = one_token::route(x, &routing)?;
            return Ok(one_token::experts(inputs, &choice, &stacked.up, stacked.activation, &stacked.down)?);
        }
        match &*self.router.choose(x)? {
            [chosen] => self.mix_one(inputs, chosen),
            chosen => self.mix_many(inputs, chosen),
        }
    }

    fn mix_one(&self, x: &Tensor, chosen: &[Choice]) -> Result<Tensor> {
        let mut sum: Option<Tensor> = None;
        for &Choice { expert, weight } in chosen {
            let part = (self.experts.forward(expert, x)? * f64::from(weight))?;
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
        for (expert, (tokens, weights)) in rows.into_iter().enumerate() {
            if tokens.is_empty() {
                continue;
            }
            let weights = Tensor::from_vec(weights, (tokens.len(), 1), x.device())?.to_dtype(x.dtype())?;
            let tokens = Tensor::new(tokens, x.device())?;
            let part = self.experts.forward(expert, &x.index_select(&tokens, 0)?)?.broadcast_mul(&weights)?;
            sum = sum.index_add(&tokens, &part, 0)?;
        }
        Ok(sum)
    }
}

impl Experts {
    fn len(&self) -> usize {
        match self {
            Self::Each(experts) => experts.len(),
            Self::Stacked(stacked) => stacked.up.dims()[0],
        }
    }

    fn forward(&self, expert: usize, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Each(experts) => experts[expert].forward(x),
            Self::Stacked(stacked) => stacked.forward(expert, x),
        }
    }
}

impl Stacked {
    /// Of experts whose matrices are on a device other than the CPU, of one shape and without anything beside them.
    fn of(experts: &[Mlp]) -> Result<Option<Self>> {
        let parts: Option<Vec<_>> = experts.iter().map(Mlp::on_device).collect();
        let Some(parts) = parts.filter(|parts| !parts.is_empty()) else { return Ok(None) };
        let activation = parts[0].1;
        if parts.iter().any(|part| part.1 != activation) {
            return Ok(None);
        }
        let ups: Vec<&Tensor> = parts.iter().map(|part| part.0).collect();
        let downs: Vec<&Tensor> = parts.iter().map(|part| part.2).collect();
        let workspace = Workspace::new(experts.len(), parts[0].0.device())?;
        Ok(Some(Self { up: Tensor::stack(&ups, 0)?, activation, down: Tensor::stack(&downs, 0)?, workspace }))
    }

    fn forward(&self, expert: usize, x: &Tensor) -> Result<Tensor> {
        let inner = self.activation.forward(&x.matmul(&self.up.get(expert)?.t()?)?)?;
        Ok(inner.matmul(&self.down.get(expert)?.t()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Linear, Scoring};
    use super::*;
    use crate::matrix::Matrix;
    use candle_core::Device;

    #[test]
    fn experts_in_one_tensor_give_what_each_by_itself_gives() {
        let normal = |shape: &[usize]| Tensor::randn(0.0_f32, 0.5, shape, &Device::Cpu).unwrap();
        let (experts, width, hidden) = (5, 6, 7);
        for (activation, wide) in [(Activation::SiluGated, 2 * width), (Activation::SquaredRelu, width)] {
            let (up, down) = (normal(&[experts, wide, hidden]), normal(&[experts, hidden, width]));
            let linear = |stack: &Tensor, e| Linear::new(Matrix::from_tensor(&stack.get(e).unwrap()).unwrap(), None);
            let router = || {
                let logits = Linear::new(Matrix::from_tensor(&normal(&[experts, hidden])).unwrap(), None);
                Router::new(logits, 3, Scoring::Softmax)
            };
            let each = (0..experts).map(|e| Mlp::new(linear(&up, e), activation, linear(&down, e))).collect();
            let each = MixtureOfExperts::new(router(), each).unwrap();
            let workspace = Workspace::new(experts, &Device::Cpu).unwrap();
            let stacked = Experts::Stacked(Stacked { up, activation, down, workspace });
            let x = normal(&[4, hidden]);
            let chosen = each.router.choose(&x).unwrap();
            let stacked = MixtureOfExperts { router: router(), experts: stacked, latent: None };
            for tokens in [1, 4] {
                let (x, chosen) = (x.narrow(0, 0, tokens).unwrap(), &chosen[..tokens]);
                let mix = |mixture: &MixtureOfExperts| mixture.mix_many(&x, chosen).unwrap();
                let difference = (mix(&each) - mix(&stacked)).unwrap().abs().unwrap();
                let largest: f32 = difference.max_all().unwrap().to_scalar().unwrap();
                assert!(largest < 1e-5, "{activation:?}, {tokens} tokens: {largest}");
            }
        }
    }
}
