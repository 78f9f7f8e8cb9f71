//! Products of one row with a matrix, and what follows them.

use candle_core::{DType, Result, Tensor};

use super::launch::{Arg, Call, THREADS, WAVE, launch, loads};
use crate::layers::Activation;

/// A wave makes an output.
const ROWS: usize = THREADS / WAVE;

/// A matrix on a device, and what stands beside it: `y = scale * (x W^T) + bias`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights<'a> {
    /// `[out, in]`.
    pub(crate) matrix: &'a Tensor,
    /// `[out]` f32.
    pub(crate) scale: Option<&'a Tensor>,
    /// `[out]`, in the matrix's dtype.
    pub(crate) bias: Option<&'a Tensor>,
}

impl Weights<'_> {
    /// Whether these kernels multiply the row `x`, `[1, in]`: in the matrix's dtype or f32.
    pub(crate) fn serve(&self, x: &Tensor) -> bool {
        super::serves(x) && [DType::F32, self.matrix.dtype()].contains(&x.dtype()) && loads(self.matrix) && loads(x)
    }
}

fn outputs_call<'a>(kernel: &'static str, dtype: DType, rows: usize, outputs: usize, args: &'a [Arg<'a>]) -> Call<'a> {
    Call { kernel, dtype, blocks: [rows.div_ceil(ROWS), 1], threads: THREADS, outputs, args }
}

/// `x`, `[1, in]`, times the transpose: `[1, out]` in the matrix's dtype.
pub(crate) fn product(x: &Tensor, weights: &Weights<'_>) -> Result<Tensor> {
    let Weights { matrix, scale, bias } = *weights;
    let ((rows, size), dtype) = (matrix.dims2()?, matrix.dtype());
    let (narrow, wide) = if x.dtype() == dtype { (Some(x), None) } else { (None, Some(x)) };
    let args = [
        Arg::Element(narrow, size),
        Arg::F32(wide, size),
        Arg::Element(Some(matrix), rows * size),
        Arg::F32(scale, rows),
        Arg::Element(bias, rows),
        Arg::Int(size),
        Arg::Int(rows),
    ];
    launch(&outputs_call("product", dtype, rows, rows, &args), x, dtype)
}

/// What a Mamba2 layer's first product goes through before the step.
#[derive(Clone, Copy)]
pub(crate) struct Convolution<'a> {
    /// Inputs before the token's, `[d_conv - 1, channels]` f32.
    pub(crate) window: &'a Tensor,
    /// `[d_conv, channels]` f32, the oldest first.
    pub(crate) taps: &'a Tensor,
    /// `[channels]` f32.
    pub(crate) bias: Option<&'a Tensor>,
    /// Where the convolution's channels begin in the row.
    pub(crate) first: usize,
    /// Where z and x stand side by side for each head: a head's channels. They come out apart.
    pub(crate) paired: Option<usize>,
}

/// The product in f32 with its convolved channels, and the window of the next token.
pub(crate) fn convolved_product(
    x: &Tensor,
    weights: &Weights<'_>,
    convolution: &Convolution<'_>,
) -> Result<(Tensor, Tensor)> {
    let Weights { matrix, scale, bias } = *weights;
    let Convolution { window, taps, bias: conv_bias, first, paired } = *convolution;
    let ((rows, size), (d_conv, channels)) = (matrix.dims2()?, taps.dims2()?);
    let kept = (d_conv - 1) * channels;
    let args = [
        Arg::Element(Some(x), size),
        Arg::Element(Some(matrix), rows * size),
        Arg::F32(scale, rows),
        Arg::Element(bias, rows),
        Arg::F32(Some(window), kept),
        Arg::F32(Some(taps), d_conv * channels),
        Arg::F32(conv_bias, channels),
        Arg::Int(size),
        Arg::Int(rows),
        Arg::Int(first),
        Arg::Int(channels),
        Arg::Int(d_conv),
        Arg::Int(paired.unwrap_or(0)),
    ];
    let out = launch(&outputs_call("convolved_product", x.dtype(), rows, rows + kept, &args), x, DType::F32)?;
    Ok((out.narrow(1, 0, rows)?, out.narrow(1, rows, kept)?.reshape((d_conv - 1, channels))?))
}

/// The first product of a feed-forward layer and its activation: `[1, width]`, of `width` rows or where it is gated twice as many. With
/// `choice`, the matrix is `[experts, rows, in]`, and the result `[1, count * width]`.
pub(crate) fn activated_product(
    x: &Tensor,
    weights: &Weights<'_>,
    choice: Option<&Tensor>,
    activation: Activation,
) -> Result<Tensor> {
    let Weights { matrix, scale, bias } = *weights;
    let &[.., rows, size] = matrix.dims() else { candle_core::bail!("activated_product: a matrix without rows") };
    let gated = activation == Activation::SiluGated;
    let width = if gated { rows / 2 } else { rows };
    let count = choice.map_or(1, |choice| choice.elem_count() / 2);
    let args = [
        Arg::Element(Some(x), size),
        Arg::Element(Some(matrix), matrix.elem_count()),
        Arg::F32(scale, rows),
        Arg::Element(bias, rows),
        Arg::F32(choice, 2 * count),
        Arg::Int(size),
        Arg::Int(width),
        Arg::Int(usize::from(gated)),
    ];
    let call = outputs_call("activated_product", x.dtype(), width, count * width, &args);
    launch(&Call { blocks: [call.blocks[0], count], ..call }, x, x.dtype())
}

/// The experts that [`route`](super::route) chose for the token of `x`, `[1, channels]`, weighed and summed. `up` is
/// `[experts, width or 2 * width, channels]`, `down` `[experts, channels, width]`.
pub(crate) fn experts(
    x: &Tensor,
    choice: &Tensor,
    up: &Tensor,
    activation: Activation,
    down: &Tensor,
) -> Result<Tensor> {
    let (_, channels, width) = down.dims3()?;
    let count = choice.elem_count() / 2;
    let inner = activated_product(x, &Weights { matrix: up, scale: None, bias: None }, Some(choice), activation)?;
    let args = [
        Arg::Element(Some(&inner), count * width),
        Arg::Element(Some(down), down.elem_count()),
        Arg::F32(Some(choice), 2 * count),
        Arg::Int(count),
        Arg::Int(width),
        Arg::Int(channels),
    ];
    launch(&outputs_call("weighed_product", x.dtype(), channels, channels, &args), x, x.dtype())
}

/// Whether [`experts`] takes the token of `x` and these matrices.
pub(crate) fn serves_experts(x: &Tensor, up: &Tensor, down: &Tensor) -> bool {
    super::serves(x) && x.dtype() == up.dtype() && [x, up, down].into_iter().all(loads)
}
