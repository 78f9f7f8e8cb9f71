//! The choice of a token's experts, for which the host does not wait.

use candle_core::{DType, Device, Result, Tensor};

use super::launch::{Arg, Call, THREADS, WAVE, launch};

/// The kernel's `EXPERTS_MAX`.
const EXPERTS_MAX: usize = 1024;

const WAVES: usize = THREADS / WAVE;

/// What the router's blocks tell each other; one per router.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// `[experts]` f32.
    logits: Tensor,
    /// `[1]` u32, zero between launches.
    done: Tensor,
}

impl Workspace {
    pub(crate) fn new(experts: usize, device: &Device) -> Result<Self> {
        Ok(Self { logits: Tensor::zeros(experts, DType::F32, device)?, done: Tensor::zeros(1, DType::U32, device)? })
    }
}

/// How a token's experts are chosen and weighed.
#[derive(Clone, Copy)]
pub(crate) struct Routing<'a> {
    /// `[experts, channels]` f32.
    pub(crate) matrix: &'a Tensor,
    pub(crate) workspace: &'a Workspace,
    /// Of sigmoids, for the choice only, `[experts]` f32; none: softmax over the chosen logits.
    pub(crate) correction: Option<&'a Tensor>,
    pub(crate) count: usize,
    /// Whether the weights are divided by their sum.
    pub(crate) normalise: bool,
    pub(crate) factor: f32,
}

impl Routing<'_> {
    pub(crate) fn serves(&self, x: &Tensor) -> bool {
        super::serves(x) && self.matrix.dims()[0] <= EXPERTS_MAX
    }
}

/// The experts of the token of `x`, `[1, channels]`: `[1, 2 * count]`, their numbers as bits of f32, then their weights.
pub(crate) fn route(x: &Tensor, routing: &Routing<'_>) -> Result<Tensor> {
    let Routing { matrix, workspace, correction, count, normalise, factor } = *routing;
    let (experts, channels) = matrix.dims2()?;
    let call = Call {
        kernel: "route",
        dtype: x.dtype(),
        blocks: [experts.div_ceil(WAVES), 1],
        threads: THREADS,
        outputs: 2 * count,
        args: &[
            Arg::Element(Some(x), channels),
            Arg::F32(Some(matrix), experts * channels),
            Arg::F32(Some(&workspace.logits), experts),
            Arg::U32(&workspace.done, 1),
            Arg::F32(correction, experts),
            Arg::Int(experts),
            Arg::Int(channels),
            Arg::Int(count),
            Arg::Int(usize::from(normalise)),
            Arg::Float(factor),
        ],
    };
    launch(&call, x, DType::F32)
}
