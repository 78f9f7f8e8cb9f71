//! The model that every family's module loads: an embedding, residual blocks of shared layers, a norm and a head.

use candle_core::Tensor;

use crate::cache::{Cache, LayerCache};
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::layers::{Attention, Embedding, Linear, Mamba2, MixtureOfExperts, Mlp, Positions, RmsNorm, Rotary};
use crate::model::{Model, ModelInfo};
use crate::one_token::{self, Residual};
use crate::place::Place;
use crate::ssm::{SsmDims, Step};

/// What a model consists of beside its blocks.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) architecture: &'static str,
    pub(super) vocabulary: usize,
    pub(super) hidden: usize,
    /// Sizes of all Mamba2 layers.
    pub(super) ssm: SsmDims,
    /// Of all attention layers.
    pub(super) rotary: Option<Rotary>,
    pub(super) embedding_multiplier: f64,
    pub(super) logits_multiplier: f64,
    pub(super) end_tokens: Vec<u32>,
}

/// `hidden + post_norm(sum of multiplier * part(norm(hidden)))`.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) norm: RmsNorm,
    /// With the multiplier of each.
    pub(super) parts: Vec<(Part, f64)>,
    pub(super) post_norm: Option<RmsNorm>,
}

/// A layer of a block.
#[derive(Debug)]
pub(super) enum Part {
    Mamba2(Box<Mamba2>),
    Attention(Box<Attention>),
    Mlp(Mlp),
    Experts(MixtureOfExperts),
}

/// The model.
#[derive(Debug)]
pub(super) struct Stack {
    frame: Frame,
    info: ModelInfo,
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear,
    /// All that attention layers have.
    windows: Vec<Option<usize>>,
}

impl Stack {
    /// Reads `{embedding}.weight`, and as head `lm_head.weight`, or where weights are `tied` the embedding again.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub(super) fn load(
        checkpoint: &Checkpoint,
        frame: Frame,
        embedding: &str,
        blocks: Vec<Block>,
        norm: RmsNorm,
        tied: bool,
    ) -> Result<Self> {
        let embedding = Embedding::load(checkpoint, embedding, frame.vocabulary, frame.hidden)?;
        let head = embedding.head(checkpoint, "lm_head", tied)?;
        let parts = || blocks.iter().flat_map(|block| &block.parts).map(|part| &part.0);
        let mut windows = Vec::new();
        for window in parts().filter_map(Part::window) {
            if !windows.contains(&window) {
                windows.push(window);
            }
        }
        let info = ModelInfo {
            architecture: frame.architecture,
            vocabulary: frame.vocabulary,
            hidden: frame.hidden,
            mamba_layers: parts().filter(|part| matches!(part, Part::Mamba2(_))).count(),
            attention_layers: parts().filter(|part| matches!(part, Part::Attention(_))).count(),
            ssm: frame.ssm,
            end_tokens: frame.end_tokens.clone(),
        };
        Ok(Self { frame, info, embedding, blocks, norm, head, windows })
    }
}

impl Block {
    /// Without a second norm.
    pub(super) fn new(norm: RmsNorm, parts: Vec<(Part, f64)>) -> Self {
        Self { norm, parts, post_norm: None }
    }

    /// What the parts give for `normed`, with the multiplier of each.
    fn forward<'a>(
        &self,
        normed: &Tensor,
        positions: &Positions,
        caches: &mut impl Iterator<Item = &'a mut LayerCache>,
        step: &Step,
    ) -> Result<Vec<(Tensor, f64)>> {
        let forward = |(part, multiplier): &(Part, f64)| {
            let mut cache = || caches.next().ok_or_else(LayerCache::foreign);
            let mixed = match part {
                Part::Mamba2(mamba) => mamba.forward(normed, cache()?.mamba2()?, step)?,
                Part::Attention(attention) => attention.forward(normed, positions, cache()?.attention()?)?,
                Part::Mlp(mlp) => mlp.forward(normed)?,
                Part::Experts(experts) => experts.forward(normed)?,
            };
            Ok((mixed, *multiplier))
        };
        self.parts.iter().map(forward).collect()
    }

    /// `hidden` with the parts added, and the norm of it that comes `next`.
    fn add(&self, hidden: Tensor, parts: &[(Tensor, f64)], next: &RmsNorm) -> Result<(Tensor, Tensor)> {
        let sum = Residual { parts, post: self.post_norm.as_ref(), next };
        if sum.serves(&hidden) {
            return Ok(one_token::residual(&hidden, &sum)?);
        }
        let Some((first, rest)) = parts.split_first() else {
            let normed = next.forward(&hidden)?;
            return Ok((hidden, normed));
        };
        let mut sum = multiply(first.0.clone(), first.1)?;
        for (part, multiplier) in rest {
            sum = (sum + multiply(part.clone(), *multiplier)?)?;
        }
        let hidden = match &self.post_norm {
            Some(norm) => (hidden + norm.forward(&sum)?)?,
            None => (hidden + sum)?,
        };
        let normed = next.forward(&hidden)?;
        Ok((hidden, normed))
    }
}

impl Part {
    /// The memory of no tokens, where the part has one.
    fn new_cache(&self) -> Option<Result<LayerCache>> {
        match self {
            Self::Mamba2(mamba) => Some(mamba.new_cache().map(LayerCache::Mamba2)),
            Self::Attention(attention) => Some(attention.new_cache().map(LayerCache::Attention)),
            Self::Mlp(_) | Self::Experts(_) => None,
        }
    }

    /// The window of an attention layer.
    fn window(&self) -> Option<Option<usize>> {
        match self {
            Self::Attention(attention) => Some(attention.window()),
            _ => None,
        }
    }
}

impl Model for Stack {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn place(&self) -> &Place {
        self.embedding.place()
    }

    fn new_cache(&self) -> Result<Cache> {
        let parts = self.blocks.iter().flat_map(|block| &block.parts);
        Ok(Cache::new(parts.filter_map(|part| part.0.new_cache()).collect::<Result<_>>()?))
    }

    fn forward(&self, tokens: &[u32], cache: &mut Cache, step: &Step) -> Result<Tensor> {
        if cache.layers.len() != self.info.mamba_layers + self.info.attention_layers {
            return Err(LayerCache::foreign());
        }
        let mut hidden = multiply(self.embedding.forward(tokens)?, self.frame.embedding_multiplier)?;
        let positions = Positions::new(cache.tokens, tokens.len(), self.frame.rotary, &self.windows, self.place())?;
        let mut caches = cache.layers.iter_mut();
        let mut normed = self.blocks.first().map_or(&self.norm, |block| &block.norm).forward(&hidden)?;
        // What follows each block: the norm of the next one, or the last of all.
        let next = self.blocks.iter().skip(1).map(|block| &block.norm).chain([&self.norm]);
        for (block, next) in self.blocks.iter().zip(next) {
            let parts = block.forward(&normed, &positions, &mut caches, step)?;
            (hidden, normed) = block.add(hidden, &parts, next)?;
        }
        cache.tokens += tokens.len();
        Ok(normed)
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        // Multiplied before the product: `hidden` channels are fewer than logits.
        self.head.forward(&multiply(hidden.clone(), self.frame.logits_multiplier)?)
    }
}

fn multiply(x: Tensor, multiplier: f64) -> Result<Tensor> {
    if multiplier == 1.0 { Ok(x) } else { Ok((x * multiplier)?) }
}
