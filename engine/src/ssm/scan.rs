//! The recurrence over many tokens, chunk by chunk, as matrix products (the "state space dual" form of Mamba2,
//! Dao and Gu 2024, section 6).
//!
//! Within a chunk, with `decay[t,s] = exp(sum of dt'*A over s < u <= t)`:
//!
//! ```text
//! y[t]  = sum over s <= t of (C[t] . B[s]) * decay[t,s] * dt'[s] * x[s]     from the chunk's own tokens
//!       + exp(sum of dt'*A over u <= t) * C[t] . state                      from the tokens before it
//!       + D * x[t]
//! ```

use candle_core::{Device, Tensor};

use super::{SsmDims, SsmInputs, SsmParams, gate};
use crate::error::Result;

/// Tokens of a chunk. The work per token grows with it inside a chunk and shrinks with it between chunks; for the usual
/// `head_dim` 64 and `d_state` 128 the sum is flat from 32 to 128.
pub const SCAN_CHUNK: usize = 64;

/// Advances `state` (`[1, heads, head_dim, d_state]`) over all tokens of `inputs`, `chunk` at a time.
///
/// Returns y, `[tokens, heads * head_dim]`, and the state after the last token. `state` itself is left alone.
///
/// # Errors
///
/// Shapes that do not fit `params`.
pub fn scan(params: &SsmParams, inputs: SsmInputs<'_>, state: &Tensor, chunk: usize) -> Result<(Tensor, Tensor)> {
    let SsmDims { heads, head_dim, d_state, .. } = params.dims;
    let tokens = inputs.x.dim(0)?;
    let dt = params.prepare_dt(inputs.dt)?;
    let masks = Masks::new(chunk.min(tokens), params.device())?;
    let mut state = state.reshape((heads, head_dim, d_state))?;
    let mut rows = Vec::with_capacity(tokens.div_ceil(chunk));
    for start in (0..tokens).step_by(chunk) {
        let part = |tensor: &Tensor| tensor.narrow(0, start, chunk.min(tokens - start));
        let [x, b, c] = [part(inputs.x)?, part(inputs.b)?, part(inputs.c)?];
        let (y, next) = scan_chunk(params, &masks, &x, &b, &c, &part(&dt)?, &state)?;
        rows.push(y);
        state = next;
    }
    let y = if rows.len() == 1 { rows.remove(0) } else { Tensor::cat(&rows, 0)? };
    Ok((gate(y, inputs.z)?, state.reshape((1, heads, head_dim, d_state))?))
}

/// Triangular matrices of ones, `[chunk, chunk]`. Their top left corners serve a shorter last chunk.
struct Masks {
    /// Row >= column.
    lower: Tensor,
    /// Row > column.
    strict: Tensor,
}

impl Masks {
    fn new(chunk: usize, device: &Device) -> Result<Self> {
        let ones = |test: fn(usize, usize) -> bool| {
            let values = (0..chunk * chunk).map(|i| f32::from(u8::from(test(i / chunk, i % chunk)))).collect();
            Tensor::from_vec(values, (chunk, chunk), device)
        };
        Ok(Self { lower: ones(|row, column| row >= column)?, strict: ones(|row, column| row > column)? })
    }
}

/// One chunk. The names of the dimensions below: l tokens, h heads, g groups, r heads per group, p, n.
fn scan_chunk(
    params: &SsmParams,
    masks: &Masks,
    x: &Tensor,
    b: &Tensor,
    c: &Tensor,
    dt: &Tensor,
    state: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let SsmDims { heads: h, head_dim: p, groups: g, d_state: n } = params.dims;
    let (r, l) = (params.dims.heads_per_group(), x.dim(0)?);
    let lower = masks.lower.narrow(0, 0, l)?.narrow(1, 0, l)?.contiguous()?;
    let strict = masks.strict.narrow(0, 0, l)?.narrow(1, 0, l)?;

    // Sums of dt'*A over s < u <= t, each taken by itself: as differences of one running sum they would lose the small
    // exponents, which are the ones that matter, behind large ones.
    let exponents = dt.broadcast_mul(&params.a)?;
    let summands = exponents.unsqueeze(2)?.broadcast_mul(&strict.unsqueeze(1)?)?;
    let sums = lower.matmul(&summands.reshape((l, h * l))?)?.reshape((l, h, l))?.transpose(0, 1)?;
    let decay = sums.exp()?.broadcast_mul(&lower)?; // [h, t, s]
    let decay_from_start = lower.matmul(&exponents)?.t()?.exp()?; // [h, t]

    let x = x.reshape((l, h, p))?;
    let x_dt = x.broadcast_mul(&dt.unsqueeze(2)?)?.transpose(0, 1)?.contiguous()?; // [h, l, p]
    let b = b.reshape((l, g, n))?.transpose(0, 1)?.contiguous()?; // [g, l, n]
    let c = c.reshape((l, g, n))?.transpose(0, 1)?.contiguous()?;

    let scores = c.matmul(&b.transpose(1, 2)?)?.unsqueeze(1)?.broadcast_mul(&decay.reshape((g, r, l, l))?)?;
    let from_chunk = scores.reshape((h, l, l))?.matmul(&x_dt)?; // [h, l, p]
    let from_state = c
        .matmul(&state.reshape((g, r * p, n))?.transpose(1, 2)?)?
        .reshape((g, l, r, p))?
        .transpose(1, 2)?
        .reshape((h, l, p))?
        .broadcast_mul(&decay_from_start.unsqueeze(2)?)?;
    let skip = x.broadcast_mul(&params.d_column)?; // [l, h, p]
    let y = ((from_chunk + from_state)?.transpose(0, 1)? + skip)?.reshape((l, h * p))?;

    let decay_to_end = decay.narrow(1, l - 1, 1)?.reshape((h, l, 1))?;
    let gained = x_dt
        .broadcast_mul(&decay_to_end)?
        .reshape((g, r, l, p))?
        .transpose(2, 3)?
        .reshape((g, r * p, l))?
        .matmul(&b)?
        .reshape((h, p, n))?;
    let kept = state.broadcast_mul(&decay_from_start.narrow(1, l - 1, 1)?.unsqueeze(2)?)?;
    Ok((y, (kept + gained)?))
}
