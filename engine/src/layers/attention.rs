//! Causal self-attention with grouped queries.

use candle_core::Tensor;
use candle_nn::{ops::softmax_last_dim, rotary_emb::rope};

use super::{Linear, RmsNorm};
use crate::cache::AttentionCache;
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::one_token::{self, Attend};
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
    /// Multiplies the input of the first three projections.
    pub input_multiplier: f64,
    /// Multiplies the keys.
    pub key_multiplier: f64,
    /// Position i sees i - window to i; without a window all of them to i.
    pub window: Option<usize>,
}

impl AttentionConfig {
    /// The usual form: scale `head_dim^-0.5`, no biases, no multipliers, no window.
    pub fn new(hidden: usize, heads: usize, kv_heads: usize, head_dim: usize) -> Self {
        let scale = (head_dim as f64).powf(-0.5);
        let (bias, input_multiplier, key_multiplier, window) = (false, 1.0, 1.0, None);
        Self { hidden, heads, kv_heads, head_dim, scale, bias, input_multiplier, key_multiplier, window }
    }

    /// Outputs of the projections of queries, keys and values.
    fn projected_channels(&self) -> [usize; 3] {
        [self.heads, self.kv_heads, self.kv_heads].map(|heads| heads * self.head_dim)
    }
}

/// Rotary embedding of a head's first channels, the first half of them rotated against the second.
#[derive(Clone, Copy, Debug)]
pub struct Rotary {
    /// Base of the angles.
    pub theta: f64,
    /// Channels that turn; even, and at most those of a head.
    pub channels: usize,
}

/// What depends on the tokens' positions only, made once for all attention layers of a forward pass.
#[derive(Debug)]
pub struct Positions {
    rotary: Option<Angles>,
    /// One for each window that the layers have.
    sights: Vec<(Option<usize>, Sight)>,
}

/// Which keys the tokens of a forward pass see.
#[derive(Debug)]
struct Sight {
    /// Position of the first key that any of them sees.
    begin: usize,
    /// `[tokens, keys from begin on]`: 0 where a token may look and -inf where it may not. A single token may look everywhere.
    mask: Option<Tensor>,
}

impl Positions {
    /// For `tokens` tokens of which the first has position `first`, layers with these windows, and activations in `place`.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn new(
        first: usize,
        tokens: usize,
        rotary: Option<Rotary>,
        windows: &[Option<usize>],
        place: &Place,
    ) -> Result<Self> {
        let rotary = rotary.map(|rotary| rotary.angles(first, tokens, place)).transpose()?;
        let sight = |&window| Ok((window, Sight::new(first, tokens, window, place)?));
        Ok(Self { rotary, sights: windows.iter().map(sight).collect::<Result<_>>()? })
    }

    fn sight(&self, window: Option<usize>) -> Result<&Sight> {
        let found = self.sights.iter().find(|sight| sight.0 == window);
        Ok(&found.ok_or_else(|| candle_core::Error::msg("positions made for other windows"))?.1)
    }
}

impl Sight {
    fn new(first: usize, tokens: usize, window: Option<usize>, place: &Place) -> Result<Self> {
        let begin = window.map_or(0, |window| first.saturating_sub(window));
        let columns = first + tokens - begin;
        let entry = |i: usize| {
            let (token, key) = (first + i / columns, begin + i % columns);
            let seen = key <= token && window.is_none_or(|window| token - key <= window);
            if seen { 0.0 } else { f32::NEG_INFINITY }
        };
        let mask = || {
            let values: Vec<f32> = (0..tokens * columns).map(entry).collect();
            Tensor::from_vec(values, (tokens, columns), &place.device)?.to_dtype(place.dtype)
        };
        Ok(Self { begin, mask: (tokens > 1).then(mask).transpose()? })
    }
}

/// Cosines and sines, `[tokens, channels / 2]` each.
#[derive(Debug)]
struct Angles {
    cos: Tensor,
    sin: Tensor,
}

impl Angles {
    /// Turns the first channels of `[heads, tokens, head_dim]`.
    fn turn(&self, x: &Tensor) -> Result<Tensor> {
        let (channels, head_dim) = (2 * self.cos.dim(1)?, x.dim(2)?);
        let turned = |x: &Tensor| rope(&x.contiguous()?.unsqueeze(0)?, &self.cos, &self.sin)?.squeeze(0);
        if channels == head_dim {
            return Ok(turned(x)?);
        }
        let rest = x.narrow(2, channels, head_dim - channels)?.contiguous()?;
        Ok(Tensor::cat(&[turned(&x.narrow(2, 0, channels)?)?, rest], 2)?)
    }
}

impl Rotary {
    /// Cosines and sines of `position * theta^(-2j / channels)`; the angles in f64, since positions may be large.
    fn angles(&self, first: usize, tokens: usize, place: &Place) -> Result<Angles> {
        let half = self.channels / 2;
        let table = |of: fn(f64) -> f64| {
            let angle = |i: usize| {
                let frequency = self.theta.powf(-2.0 * (i % half) as f64 / self.channels as f64);
                of((first + i / half) as f64 * frequency) as f32
            };
            let angles: Vec<f32> = (0..tokens * half).map(angle).collect();
            Tensor::from_vec(angles, (tokens, half), &place.device)?.to_dtype(place.dtype)
        };
        Ok(Angles { cos: table(f64::cos)?, sin: table(f64::sin)? })
    }
}

/// Self-attention.
#[derive(Debug)]
pub struct Attention {
    config: AttentionConfig,
    qkv: Linear,
    /// Of the queries' and of the keys' channels, before the rotary embedding.
    norms: Option<(RmsNorm, RmsNorm)>,
    out: Linear,
    place: Place,
}

impl Attention {
    /// From the projections of queries, keys and values side by side, and of the output, for activations in `place`.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn new(config: AttentionConfig, qkv: Linear, out: Linear, place: &Place) -> Result<Self> {
        let [q, k, v] = config.projected_channels();
        let qkv = qkv.multiplied(config.input_multiplier, &[(q, 1.0), (k, config.key_multiplier), (v, 1.0)])?;
        Ok(Self { config, qkv, norms: None, out, place: place.clone() })
    }

    /// Reads `{name}.{q,k,v,o}_proj`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load(checkpoint: &Checkpoint, name: &str, config: AttentionConfig) -> Result<Self> {
        let AttentionConfig { hidden, heads, head_dim, bias, .. } = config;
        let names = ["q", "k", "v"].map(|part| format!("{name}.{part}_proj"));
        let parts: Vec<_> = names.iter().map(String::as_str).zip(config.projected_channels()).collect();
        let qkv = Linear::load_fused(checkpoint, &parts, hidden, bias)?;
        let out = Linear::load(checkpoint, &format!("{name}.o_proj"), hidden, heads * head_dim, bias)?;
        Self::new(config, qkv, out, checkpoint.place())
    }

    /// The same with norms of the queries, weight `[heads * head_dim]`, and of the keys, `[kv_heads * head_dim]`, their means over each
    /// head's channels.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn with_norms(self, queries: RmsNorm, keys: RmsNorm) -> Result<Self> {
        let AttentionConfig { heads, kv_heads, .. } = self.config;
        Ok(Self { norms: Some((queries.per_group(heads)?, keys.per_group(kv_heads)?)), ..self })
    }

    /// How far back a position sees.
    pub fn window(&self) -> Option<usize> {
        self.config.window
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
        let AttentionConfig { heads, kv_heads, head_dim, scale, window, .. } = self.config;
        let (tokens, per_kv) = (x.dim(0)?, heads / kv_heads);
        if one_token::serves(x) && one_token::attends(head_dim) {
            return self.forward_one(x, positions, cache);
        }
        let qkv = self.qkv.forward(x)?;
        let [q, k, v] = self.config.projected_channels();
        let (mut queries, mut keys, values) = (qkv.narrow(1, 0, q)?, qkv.narrow(1, q, k)?, qkv.narrow(1, q + k, v)?);
        if let Some((of_queries, of_keys)) = &self.norms {
            queries = of_queries.forward(&queries)?;
            keys = of_keys.forward(&keys)?;
        }
        let by_head = |part: &Tensor, count: usize| -> Result<Tensor> {
            Ok(part.reshape((tokens, count, head_dim))?.transpose(0, 1)?.contiguous()?)
        };
        let (mut queries, mut keys) = (by_head(&queries, heads)?, by_head(&keys, kv_heads)?);
        if let Some(angles) = &positions.rotary {
            queries = angles.turn(&queries)?;
            keys = angles.turn(&keys)?;
        }
        let (keys, values) = cache.append(&keys, &by_head(&values, kv_heads)?)?;
        let sight = positions.sight(window)?;
        let seen = |all: &Tensor| all.narrow(1, sight.begin, all.dim(1)? - sight.begin);
        let (keys, values) = (seen(&keys)?, seen(&values)?);

        // The query heads of one key head are rows of one product, so that no key or value is repeated.
        let queries = (queries * scale)?.reshape((kv_heads, per_kv * tokens, head_dim))?;
        let mut scores = queries.matmul(&keys.transpose(1, 2)?)?;
        if let Some(mask) = &sight.mask {
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

    /// For one token on a GPU.
    fn forward_one(&self, x: &Tensor, positions: &Positions, cache: &mut AttentionCache) -> Result<Tensor> {
        let AttentionConfig { heads, scale, window, .. } = self.config;
        let (keys, values, at) = cache.extend(1)?;
        let attend = Attend {
            keys,
            values,
            angles: positions.rotary.as_ref().map(|angles| (&angles.cos, &angles.sin)),
            norms: self.norms.as_ref().map(|(queries, keys)| (queries, keys)),
            heads,
            begin: positions.sight(window)?.begin,
            at,
            scale,
        };
        self.out.forward(&one_token::attend(&self.qkv.forward(x)?, &attend)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    /// The keys that each token sees.
    fn seen(first: usize, tokens: usize, window: Option<usize>) -> Vec<Vec<usize>> {
        let sight = Sight::new(first, tokens, window, &Place::cpu()).unwrap();
        let Some(mask) = &sight.mask else { return vec![(sight.begin..first + tokens).collect()] };
        let rows: Vec<Vec<f32>> = mask.to_vec2().unwrap();
        let open = |row: Vec<f32>| {
            row.into_iter().enumerate().filter(|entry| entry.1 == 0.0).map(|entry| sight.begin + entry.0).collect()
        };
        rows.into_iter().map(open).collect()
    }

    #[test]
    fn a_token_sees_those_of_its_window_whether_alone_or_in_a_chunk() {
        for window in [None, Some(1), Some(3), Some(100)] {
            let alone: Vec<_> = (4..10).flat_map(|token| seen(token, 1, window)).collect();
            assert_eq!(seen(4, 6, window), alone, "{window:?}");
            for (row, keys) in alone.iter().enumerate() {
                let token = row + 4;
                let first = window.map_or(0, |window| token.saturating_sub(window));
                assert_eq!(*keys, (first..=token).collect::<Vec<_>>(), "{window:?}");
            }
        }
    }

    #[test]
    fn positions_for_other_windows_are_refused() {
        let positions = Positions::new(0, 2, None, &[None, Some(4)], &Place::cpu()).unwrap();
        assert!(positions.sight(Some(4)).is_ok() && positions.sight(Some(5)).is_err());
    }

    #[test]
    fn channels_that_do_not_turn_stay_as_they_are() {
        let x = Tensor::arange(0_f32, 24.0, &Device::Cpu).unwrap().reshape((2, 2, 6)).unwrap();
        let part = Rotary { theta: 7.0, channels: 4 }.angles(3, 2, &Place::cpu()).unwrap().turn(&x).unwrap();
        let rest = |x: &Tensor| x.narrow(2, 4, 2).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(rest(&part), rest(&x));
        // Channel 0 and channel 2 of four turn by the position itself.
        let (got, position) = (part.get(1).unwrap().get(1).unwrap().to_vec1::<f32>().unwrap(), 4.0_f32);
        assert!((got[0] - (18.0 * position.cos() - 20.0 * position.sin())).abs() < 1e-5, "{got:?}");
    }
}
