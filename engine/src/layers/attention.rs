//! Causal self-attention with grouped queries.

use candle_core::Tensor;
use candle_nn::{ops::softmax_last_dim, rotary_emb::rope};

use super::Linear;
use crate::cache::AttentionCache;
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::place::Place;

/// Sizes and switches of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionConfig {
    /// Channels in and out.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`. Query head `i` uses key head `i / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// The softmax's scale.
    pub scale: f64,
    /// Whether all four projections have a bias.
    pub bias: bool,
}

/// Rotary embedding, first half of a head's channels rotated against the second.
#[derive(Clone, Copy, Debug)]
pub struct Rotary {
    /// Base of the angles.
    pub theta: f64,
    /// Channels of a head; even.
    pub head_dim: usize,
}

/// What depends on the tokens' positions only, made once for all attention layers of a forward pass.
#[derive(Debug)]
pub struct Positions {
    /// Cosines and sines, `[tokens, head_dim / 2]` each, where there is a rotary embedding.
    rotary: Option<(Tensor, Tensor)>,
    /// `[tokens, first + tokens]`: 0 where a token may look and -inf where it may not. A single token may look everywhere.
    mask: Option<Tensor>,
}

impl Positions {
    /// For `tokens` tokens of which the first has position `first`, for activations in `place`.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn new(first: usize, tokens: usize, rotary: Option<Rotary>, place: &Place) -> Result<Self> {
        let rotary = rotary.map(|rotary| rotary.angles(first, tokens, place)).transpose()?;
        let mask = |columns: usize| {
            let entry = |i: usize| if i % columns > first + i / columns { f32::NEG_INFINITY } else { 0.0 };
            let values: Vec<f32> = (0..tokens * columns).map(entry).collect();
            Tensor::from_vec(values, (tokens, columns), &place.device)?.to_dtype(place.dtype)
        };
        let mask = (tokens > 1).then(|| mask(first + tokens)).transpose()?;
        Ok(Self { rotary, mask })
    }
}

impl Rotary {
    /// Cosines and sines of `position * theta^(-2j / head_dim)`; the angles in f64, since positions may be large.
    fn angles(&self, first: usize, tokens: usize, place: &Place) -> Result<(Tensor, Tensor)> {
        let half = self.head_dim / 2;
        let table = |of: fn(f64) -> f64| {
            let angle = |i: usize| {
                let frequency = self.theta.powf(-2.0 * (i % half) as f64 / self.head_dim as f64);
                of((first + i / half) as f64 * frequency) as f32
            };
            let angles: Vec<f32> = (0..tokens * half).map(angle).collect();
            Tensor::from_vec(angles, (tokens, half), &place.device)?.to_dtype(place.dtype)
        };
        Ok((table(f64::cos)?, table(f64::sin)?))
    }
}

/// Self-attention.
#[derive(Debug)]
pub struct Attention {
    config: AttentionConfig,
    qkv: Linear,
    out: Linear,
    place: Place,
}

impl Attention {
    /// Reads `{name}.{q,k,v,o}_proj`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load(checkpoint: &Checkpoint, name: &str, config: AttentionConfig) -> Result<Self> {
        let AttentionConfig { hidden, heads, kv_heads, head_dim, bias, .. } = config;
        let names = ["q", "k", "v"].map(|part| format!("{name}.{part}_proj"));
        let outs = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim];
        let parts: Vec<_> = names.iter().map(String::as_str).zip(outs).collect();
        Ok(Self {
            config,
            qkv: Linear::load_fused(checkpoint, &parts, hidden, bias)?,
            out: Linear::load(checkpoint, &format!("{name}.o_proj"), hidden, heads * head_dim, bias)?,
            place: checkpoint.place().clone(),
        })
    }

    /// The memory of no tokens.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn new_cache(&self) -> Result<AttentionCache> {
        AttentionCache::new(self.config.kv_heads, self.config.head_dim, &self.place)
    }

    /// `[tokens, hidden]` to the same.
    ///
    /// # Errors
    ///
    /// Shapes that do not fit.
    pub fn forward(&self, x: &Tensor, positions: &Positions, cache: &mut AttentionCache) -> Result<Tensor> {
        let AttentionConfig { heads, kv_heads, head_dim, scale, .. } = self.config;
        let (tokens, per_kv) = (x.dim(0)?, heads / kv_heads);
        let qkv = self.qkv.forward(x)?;
        let part = |first_head: usize, count: usize| -> Result<Tensor> {
            let part = qkv.narrow(1, first_head * head_dim, count * head_dim)?;
            Ok(part.reshape((tokens, count, head_dim))?.transpose(0, 1)?.contiguous()?)
        };
        let mut queries = part(0, heads)?;
        let mut keys = part(heads, kv_heads)?;
        let values = part(heads + kv_heads, kv_heads)?;
        if let Some((cos, sin)) = &positions.rotary {
            queries = rope(&queries.unsqueeze(0)?, cos, sin)?.squeeze(0)?;
            keys = rope(&keys.unsqueeze(0)?, cos, sin)?.squeeze(0)?;
        }
        let (keys, values) = cache.append(&keys, &values)?;

        // The query heads of one key head are rows of one product, so that no key or value is repeated.
        let queries = (queries * scale)?.reshape((kv_heads, per_kv * tokens, head_dim))?;
        let mut scores = queries.matmul(&keys.transpose(1, 2)?)?;
        if let Some(mask) = &positions.mask {
            let columns = scores.dim(2)?;
            scores = scores.reshape((heads, tokens, columns))?.broadcast_add(mask)?.reshape((
                kv_heads,
                per_kv * tokens,
                columns,
            ))?;
        }
        let mixed = softmax_last_dim(&scores)?.matmul(&values)?;
        let mixed = mixed.reshape((heads, tokens, head_dim))?.transpose(0, 1)?.reshape((tokens, heads * head_dim))?;
        self.out.forward(&mixed)
    }
}
