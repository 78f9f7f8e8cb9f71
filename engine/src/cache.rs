//! What a model remembers of the tokens it has read: one entry per Mamba2 and per attention layer.

use candle_core::Tensor;

use crate::error::{Error, Result};
use crate::place::Place;

/// Positions by which the room for keys and values grows at least.
const GROWTH: usize = 256;

/// The memory of one sequence.
///
/// A failed forward pass leaves it half advanced; drop it then, or go back to a [`fork`](Self::fork).
#[derive(Debug)]
pub struct Cache {
    /// One entry per Mamba2 and per attention layer, in the order in which a token passes them.
    pub layers: Vec<LayerCache>,
    /// Tokens read so far: the position of the next one.
    pub tokens: usize,
}

/// The memory of one layer.
#[derive(Debug)]
pub enum LayerCache {
    /// Of a Mamba2 layer.
    Mamba2(Mamba2Cache),
    /// Of an attention layer.
    Attention(AttentionCache),
}

/// The memory of a Mamba2 layer; its size does not depend on the tokens read.
#[derive(Debug)]
pub struct Mamba2Cache {
    /// Inputs of the convolution at the last positions, `[d_conv - 1, conv_channels]` f32, oldest first.
    pub conv: Tensor,
    /// `[1, heads, head_dim, d_state]` f32. The kernel writes it in place, so no other tensor may share its storage.
    pub ssm: Tensor,
}

/// Keys and values of an attention layer, `[kv_heads, room, head_dim]` each, filled up to `len`.
#[derive(Debug)]
pub struct AttentionCache {
    keys: Tensor,
    values: Tensor,
    len: usize,
}

impl Cache {
    /// The memory of no tokens.
    pub fn new(layers: Vec<LayerCache>) -> Self {
        Self { layers, tokens: 0 }
    }

    /// A copy that shares no storage, so that both can be continued.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn fork(&self) -> Result<Self> {
        let fork = |layer: &LayerCache| -> Result<LayerCache> {
            Ok(match layer {
                LayerCache::Mamba2(Mamba2Cache { conv, ssm }) => {
                    LayerCache::Mamba2(Mamba2Cache { conv: conv.copy()?, ssm: ssm.copy()? })
                }
                LayerCache::Attention(AttentionCache { keys, values, len }) => {
                    LayerCache::Attention(AttentionCache { keys: keys.copy()?, values: values.copy()?, len: *len })
                }
            })
        };
        Ok(Self { layers: self.layers.iter().map(fork).collect::<Result<_>>()?, tokens: self.tokens })
    }
}

impl LayerCache {
    /// The Mamba2 entry.
    ///
    /// # Errors
    ///
    /// The cache was made for another model.
    pub fn mamba2(&mut self) -> Result<&mut Mamba2Cache> {
        match self {
            Self::Mamba2(cache) => Ok(cache),
            Self::Attention(_) => Err(Self::foreign()),
        }
    }

    /// The attention entry.
    ///
    /// # Errors
    ///
    /// The cache was made for another model.
    pub fn attention(&mut self) -> Result<&mut AttentionCache> {
        match self {
            Self::Attention(cache) => Ok(cache),
            Self::Mamba2(_) => Err(Self::foreign()),
        }
    }

    /// The cache was made for another model.
    pub(crate) fn foreign() -> Error {
        Error::Request("the cache belongs to a model with other layers".to_owned())
    }
}

impl AttentionCache {
    /// The memory of no tokens, for keys and values in `place`.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn new(kv_heads: usize, head_dim: usize, place: &Place) -> Result<Self> {
        let empty = || Tensor::zeros((kv_heads, 0, head_dim), place.dtype, &place.device);
        Ok(Self { keys: empty()?, values: empty()?, len: 0 })
    }

    /// Adds keys and values of new positions, `[kv_heads, tokens, head_dim]` each and contiguous, and returns views of all
    /// positions so far.
    ///
    /// # Errors
    ///
    /// Shapes that do not fit the cache.
    pub fn append(&mut self, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let tokens = keys.dim(1)?;
        let (all_keys, all_values, begin) = self.extend(tokens)?;
        all_keys.slice_set(keys, 1, begin)?;
        all_values.slice_set(values, 1, begin)?;
        Ok((all_keys.narrow(1, 0, begin + tokens)?, all_values.narrow(1, 0, begin + tokens)?))
    }

    /// Makes room for keys and values of `tokens` new positions, which the caller writes: into the tensors that this returns,
    /// `[kv_heads, room, head_dim]`, from the position beside them on.
    ///
    /// # Errors
    ///
    /// The device has no room.
    pub(crate) fn extend(&mut self, tokens: usize) -> Result<(&Tensor, &Tensor, usize)> {
        let (kv_heads, room, head_dim) = self.keys.dims3()?;
        let (begin, needed) = (self.len, self.len + tokens);
        if needed > room {
            let room = needed.max(2 * room).next_multiple_of(GROWTH);
            for kept in [&mut self.keys, &mut self.values] {
                let grown = Tensor::zeros((kv_heads, room, head_dim), kept.dtype(), kept.device())?;
                if begin > 0 {
                    grown.slice_set(&kept.narrow(1, 0, begin)?.contiguous()?, 1, 0)?;
                }
                *kept = grown;
            }
        }
        self.len = needed;
        Ok((&self.keys, &self.values, begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn attention_cache_keeps_positions_across_growth() {
        let mut cache = AttentionCache::new(2, 3, &Place::cpu()).unwrap();
        let mut expected = Vec::new();
        for chunk in [1, 200, 100, 1, 400] {
            let begin = cache.len as f32;
            let rows = Tensor::arange(begin, begin + chunk as f32, &Device::Cpu).unwrap();
            let keys = rows.reshape((1, chunk, 1)).unwrap().broadcast_as((2, chunk, 3)).unwrap().contiguous().unwrap();
            expected.extend(rows.to_vec1::<f32>().unwrap());
            let (all, values) = cache.append(&keys, &keys.neg().unwrap()).unwrap();
            for head in 0..2 {
                assert_eq!(all.get(head).unwrap().t().unwrap().get(2).unwrap().to_vec1::<f32>().unwrap(), expected);
            }
            assert_eq!(values.dims(), [2, expected.len(), 3]);
        }
    }
}
