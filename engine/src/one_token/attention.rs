//! Attention of one token.

use candle_core::{Result, Tensor};

use super::launch::{Arg, Call, WAVE, launch};
use crate::layers::RmsNorm;

/// The kernel's `HEAD_DIM_MAX` and `ATTENTION_WAVES`.
const HEAD_DIM_MAX: usize = 256;
const ATTENTION_WAVES: usize = 16;

/// What a query, its key and its value meet.
#[derive(Clone, Copy)]
pub(crate) struct Attend<'a> {
    /// `[kv_heads, room, head_dim]`, written at `at`; no other sequence has them.
    pub(crate) keys: &'a Tensor,
    /// As `keys`.
    pub(crate) values: &'a Tensor,
    /// `[1, turned channels / 2]` each.
    pub(crate) angles: Option<(&'a Tensor, &'a Tensor)>,
    /// Of the queries and of the keys, with means over each head's channels.
    pub(crate) norms: Option<(&'a RmsNorm, &'a RmsNorm)>,
    /// Query heads.
    pub(crate) heads: usize,
    /// Position of the first key that the token sees.
    pub(crate) begin: usize,
    /// The token's own position.
    pub(crate) at: usize,
    /// Multiplies the queries.
    pub(crate) scale: f64,
}

/// Whether heads of this size are served.
pub(crate) fn attends(head_dim: usize) -> bool {
    head_dim <= HEAD_DIM_MAX
}

/// The mix of the values, `[1, heads * head_dim]`, for projected queries, keys and values side by side.
pub(crate) fn attend(qkv: &Tensor, attend: &Attend<'_>) -> Result<Tensor> {
    let Attend { keys, values, angles, norms, heads, begin, at, scale } = *attend;
    let (kv_heads, room, head_dim) = keys.dims3()?;
    if at >= room || begin > at {
        candle_core::bail!("attend: keys from {begin} to {at} in a cache of {room}");
    }
    let width = (heads + 2 * kv_heads) * head_dim;
    let half = angles.map_or(Ok(0), |angles| angles.0.dim(1))?;
    let call = Call {
        kernel: "attend",
        dtype: qkv.dtype(),
        blocks: [heads, 1],
        threads: ATTENTION_WAVES * WAVE,
        outputs: heads * head_dim,
        args: &[
            Arg::Element(Some(qkv), width),
            Arg::Element(Some(keys), kv_heads * room * head_dim),
            Arg::Element(Some(values), kv_heads * room * head_dim),
            Arg::Element(angles.map(|angles| angles.0), half),
            Arg::Element(angles.map(|angles| angles.1), half),
            Arg::Element(norms.map(|norms| norms.0.weight()), heads * head_dim),
            Arg::Element(norms.map(|norms| norms.1.weight()), kv_heads * head_dim),
            Arg::Int(heads),
            Arg::Int(kv_heads),
            Arg::Int(head_dim),
            Arg::Int(half),
            Arg::Int(room),
            Arg::Int(begin),
            Arg::Int(at),
            Arg::Float(norms.map_or(0.0, |norms| norms.0.eps())),
            Arg::Float(scale as f32),
        ],
    };
    launch(&call, qkv, qkv.dtype())
}
