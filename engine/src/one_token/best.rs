//! The greedy choice of a token.

use candle_core::{DType, Result, Tensor};

use super::launch::{Arg, Call, launch};

/// What the kernel answers where there is a NaN.
const BROKEN: u32 = u32::MAX;

/// The largest of `logits`, `[1, vocabulary]`: its position, the lowest where several are equal. `None`: there is a NaN.
pub(crate) fn best(logits: &Tensor) -> Result<Option<u32>> {
    let count = logits.dim(1)?;
    let call = Call {
        kernel: "best",
        dtype: logits.dtype(),
        blocks: [1, 1],
        threads: 1024,
        outputs: 1,
        args: &[Arg::Element(Some(logits), count), Arg::Int(count)],
    };
    let best = launch(&call, logits, DType::U32)?.to_vec2::<u32>()?[0][0];
    Ok((best != BROKEN).then_some(best))
}
