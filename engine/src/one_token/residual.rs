//! The sums of the residual stream.

use candle_core::{Result, Tensor};

use super::launch::{Arg, Call, WAVE, elements, launch, loads};
use crate::layers::RmsNorm;

/// The kernel's `ROUNDS`, and the threads of its one block at most.
const ROUNDS: usize = 2;
const THREADS_MAX: usize = 1024;

/// A sum of the residual stream, and the norms around it.
#[derive(Clone, Copy)]
pub(crate) struct Residual<'a> {
    /// `[1, channels]`, with the multiplier of each; one or two.
    pub(crate) parts: &'a [(Tensor, f64)],
    /// Of the parts' sum.
    pub(crate) post: Option<&'a RmsNorm>,
    /// Of the new stream.
    pub(crate) next: &'a RmsNorm,
}

impl Residual<'_> {
    pub(crate) fn serves(&self, hidden: &Tensor) -> bool {
        let mut norms = self.post.into_iter().chain([self.next]);
        super::serves(hidden)
            && self.parts.iter().map(|part| &part.0).chain([hidden]).all(loads)
            && hidden.elem_count() <= ROUNDS * THREADS_MAX * elements(hidden)
            && (1..=2).contains(&self.parts.len())
            && norms.all(|norm| norm.groups() == 1)
    }
}

/// `hidden + post(sum of multiplier * part)`, and its norm, `[1, channels]` each.
pub(crate) fn residual(hidden: &Tensor, residual: &Residual<'_>) -> Result<(Tensor, Tensor)> {
    let channels = hidden.dim(1)?;
    let part = |i: usize| residual.parts.get(i).map_or((None, 0.0), |(part, by)| (Some(part), *by as f32));
    let ((first, first_by), (second, second_by)) = (part(0), part(1));
    let call = Call {
        kernel: "residual",
        dtype: hidden.dtype(),
        blocks: [1, 1],
        threads: channels.div_ceil(elements(hidden)).next_multiple_of(WAVE).min(THREADS_MAX),
        outputs: 2 * channels,
        args: &[
            Arg::Element(Some(hidden), channels),
            Arg::Element(first, channels),
            Arg::Element(second, channels),
            Arg::Element(residual.post.map(RmsNorm::weight), channels),
            Arg::Element(Some(residual.next.weight()), channels),
            Arg::Int(channels),
            Arg::Float(first_by),
            Arg::Float(second_by),
            Arg::Float(residual.post.map_or(0.0, RmsNorm::eps)),
            Arg::Float(residual.next.eps()),
        ],
    };
    let out = launch(&call, hidden, hidden.dtype())?;
    Ok((out.narrow(1, 0, channels)?, out.narrow(1, channels, channels)?))
}
