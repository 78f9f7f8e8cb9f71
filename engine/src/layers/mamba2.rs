//! The Mamba2 mixer: projection, causal convolution, state-space part, gated norm, projection.

use candle_core::{DType, Tensor};

use super::{Linear, RmsNorm};
use crate::cache::Mamba2Cache;
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::ssm::{SCAN_CHUNK, SsmDims, SsmInputs, SsmParams, Step, scan};

/// Sizes and switches of a Mamba2 layer.
#[derive(Clone, Copy, Debug)]
pub struct Mamba2Config {
    /// Channels in and out.
    pub hidden: usize,
    /// Sizes of the recurrence.
    pub ssm: SsmDims,
    /// Taps of the convolution; at least 1.
    pub d_conv: usize,
    /// Whether the convolution has a bias.
    pub conv_bias: bool,
    /// Whether the two projections have a bias.
    pub proj_bias: bool,
    /// Lower and upper limit of dt'.
    pub dt_limits: (f32, f32),
    /// Of the gated norm.
    pub norm_eps: f64,
}

impl Mamba2Config {
    /// Channels of the convolution: x, B and C side by side.
    pub fn conv_channels(&self) -> usize {
        self.ssm.channels() + 2 * self.ssm.group_columns()
    }
}

/// A Mamba2 layer, f32 between its two projections. Its gate comes before its norm, which goes over all channels.
#[derive(Debug)]
pub struct Mamba2 {
    config: Mamba2Config,
    in_proj: Linear,
    /// `[1, conv_channels]` for each tap, the oldest first.
    taps: Vec<Tensor>,
    conv_bias: Option<Tensor>,
    ssm: SsmParams,
    norm: RmsNorm,
    out_proj: Linear,
}

impl Mamba2 {
    /// Reads `{name}.{in_proj,conv1d,A_log,D,dt_bias,norm,out_proj}`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load(checkpoint: &Checkpoint, name: &str, config: Mamba2Config) -> Result<Self> {
        let Mamba2Config { hidden, ssm: dims, d_conv, proj_bias, .. } = config;
        let conv_channels = config.conv_channels();
        let per_head = |part: &str| checkpoint.tensor_f32(&format!("{name}.{part}"), &[dims.heads]);

        let conv = checkpoint.tensor_f32(&format!("{name}.conv1d.weight"), &[conv_channels, 1, d_conv])?;
        let conv = conv.squeeze(1)?.t()?.contiguous()?;
        let taps = (0..d_conv).map(|tap| conv.narrow(0, tap, 1)).collect::<candle_core::Result<_>>()?;
        let bias = || checkpoint.tensor_f32(&format!("{name}.conv1d.bias"), &[conv_channels]);
        let projected = dims.channels() + conv_channels + dims.heads;
        Ok(Self {
            config,
            in_proj: Linear::load(checkpoint, &format!("{name}.in_proj"), projected, hidden, proj_bias)?,
            taps,
            conv_bias: config.conv_bias.then(bias).transpose()?,
            ssm: SsmParams::new(dims, config.dt_limits, &per_head("A_log")?, &per_head("D")?, &per_head("dt_bias")?)?,
            norm: RmsNorm::load_f32(checkpoint, &format!("{name}.norm"), dims.channels(), config.norm_eps)?,
            out_proj: Linear::load(checkpoint, &format!("{name}.out_proj"), hidden, dims.channels(), proj_bias)?,
        })
    }

    /// The memory of no tokens.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn new_cache(&self) -> Result<Mamba2Cache> {
        let shape = (self.config.d_conv - 1, self.config.conv_channels());
        let conv = Tensor::zeros(shape, DType::F32, self.ssm.device())?;
        Ok(Mamba2Cache { conv, ssm: self.ssm.initial_state()? })
    }

    /// `[tokens, hidden]` to the same: one token by `step`, more by the chunked scan.
    ///
    /// # Errors
    ///
    /// Shapes that do not fit; faults of the kernel port.
    pub fn forward(&self, hidden: &Tensor, cache: &mut Mamba2Cache, step: &Step) -> Result<Tensor> {
        let dims = &self.ssm.dims;
        let (channels, columns) = (dims.channels(), dims.group_columns());
        let tokens = hidden.dim(0)?;
        let projected = self.in_proj.forward(hidden)?.to_dtype(DType::F32)?;
        let z = projected.narrow(1, 0, channels)?;
        let conv_input = projected.narrow(1, channels, self.config.conv_channels())?;
        let dt = projected.narrow(1, channels + self.config.conv_channels(), dims.heads)?;

        let mixed = self.convolve(&conv_input, cache)?;
        let x = mixed.narrow(1, 0, channels)?;
        let b = mixed.narrow(1, channels, columns)?;
        let c = mixed.narrow(1, channels + columns, columns)?;
        let inputs = SsmInputs { x: &x, b: &b, c: &c, dt: &dt, z: Some(&z) };
        let y = if tokens == 1 {
            step.advance(&self.ssm, inputs, &mut cache.ssm)?
        } else {
            let (y, state) = scan(&self.ssm, inputs, &cache.ssm, SCAN_CHUNK)?;
            cache.ssm = state;
            y
        };
        self.out_proj.forward(&self.norm.forward(&y)?.to_dtype(hidden.dtype())?)
    }

    /// Causal depthwise convolution and SiLU over `[tokens, conv_channels]`, with the inputs before them from the cache.
    fn convolve(&self, input: &Tensor, cache: &mut Mamba2Cache) -> Result<Tensor> {
        let (tokens, before) = (input.dim(0)?, self.config.d_conv - 1);
        // Rows are positions: every tap is then a product with a contiguous block of rows, for one token and for many.
        let window = if before == 0 { input.contiguous()? } else { Tensor::cat(&[&cache.conv, input], 0)? };
        let mut sum: Option<Tensor> = None;
        for (offset, tap) in self.taps.iter().enumerate() {
            let part = window.narrow(0, offset, tokens)?.broadcast_mul(tap)?;
            sum = Some(match sum {
                Some(sum) => (sum + part)?,
                None => part,
            });
        }
        let sum = sum.ok_or_else(|| candle_core::Error::msg("a convolution has at least one tap"))?;
        let sum = match &self.conv_bias {
            Some(bias) => sum.broadcast_add(bias)?,
            None => sum,
        };
        cache.conv = match tokens {
            1 => window.narrow(0, 1, before)?,
            // A copy, so that a long prompt's window is not kept alive by its last rows.
            _ => window.narrow(0, tokens, before)?.force_contiguous()?,
        };
        Ok(sum.silu()?)
    }
}
