//! The norms of a Mamba2 layer.

use candle_core::{DType, Result, Tensor};

use super::launch::{Arg, Call, THREADS, launch};
use crate::layers::RmsNorm;

/// Threads where one run of channels is long.
const RUN_THREADS: usize = 1024;

/// The norm of y, times `silu(gate)` where there is one, in `dtype`. All inputs are f32, y and the gate `[1, channels]`.
pub(crate) fn gated_norm(y: &Tensor, gate: Option<&Tensor>, norm: &RmsNorm, dtype: DType) -> Result<Tensor> {
    let (channels, groups) = (y.dim(1)?, norm.groups());
    let call = Call {
        kernel: "gated_norm",
        dtype,
        blocks: [groups, 1],
        threads: if groups == 1 { RUN_THREADS } else { THREADS },
        outputs: channels,
        args: &[
            Arg::F32(Some(y), channels),
            Arg::F32(gate, channels),
            Arg::F32(Some(norm.weight()), channels),
            Arg::Int(channels / groups),
            Arg::Float(norm.eps()),
        ],
    };
    launch(&call, y, dtype)
}

/// A row `[B, C, dt]` in f32, each of the three normalised with its weight in f32.
pub(crate) fn three_norms(row: &Tensor, [b, c, dt]: [&Tensor; 3], eps: f32) -> Result<Tensor> {
    let (columns, rank) = (b.elem_count(), dt.elem_count());
    let width = 2 * columns + rank;
    let call = Call {
        kernel: "three_norms",
        dtype: row.dtype(),
        blocks: [3, 1],
        threads: THREADS,
        outputs: width,
        args: &[
            Arg::Element(Some(row), width),
            Arg::F32(Some(b), columns),
            Arg::F32(Some(c), columns),
            Arg::F32(Some(dt), rank),
            Arg::Int(columns),
            Arg::Int(rank),
            Arg::Float(eps),
        ],
    };
    launch(&call, row, DType::F32)
}
