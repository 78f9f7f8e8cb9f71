//! The Mamba2 mixer: projection, causal convolution, state-space part, gate and norm, projection.

use candle_core::{DType, Tensor};

use super::selection::{FromX, Selected};
use super::{Linear, RmsNorm, Selection};
use crate::cache::Mamba2Cache;
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::one_token::{self, Convolution, Weights};
use crate::ssm::{SCAN_CHUNK, SsmDims, SsmInputs, SsmParams, Step, scan};

/// Sizes and switches of a Mamba2 layer.
#[derive(Clone, Copy, Debug)]
pub struct Mamba2Config {
    /// Channels in and out.
    pub hidden: usize,
    /// Sizes of the recurrence.
    pub ssm: SsmDims,
    /// Where B, C and dt come from.
    pub selection: Selection,
    /// Taps of the convolution; at least 1.
    pub d_conv: usize,
    /// Whether the convolution has a bias.
    pub conv_bias: bool,
    /// Whether the first projection has a bias.
    pub in_bias: bool,
    /// Whether the last projection has a bias.
    pub out_bias: bool,
    /// Lower and upper limit of dt'.
    pub dt_limits: (f32, f32),
    /// Beside the gate `y * silu(z)`, where there is a norm.
    pub norm: Option<GatedNorm>,
}

/// The norm beside a Mamba2 layer's gate.
#[derive(Clone, Copy, Debug)]
pub struct GatedNorm {
    /// Added to the mean square.
    pub eps: f64,
    /// Equal runs of channels, each with a mean of its own; divides the channels.
    pub groups: usize,
    /// Whether the gate comes after the norm; else before it.
    pub before_gate: bool,
}

/// A Mamba2 layer, f32 between its projections.
#[derive(Debug)]
pub struct Mamba2 {
    config: Mamba2Config,
    in_proj: Linear,
    /// `[d_conv, conv_channels]`, the oldest first.
    taps: Tensor,
    /// `[1, d_conv]`: a sum over taps is a product with it.
    ones: Tensor,
    conv_bias: Option<Tensor>,
    from_x: Option<FromX>,
    ssm: SsmParams,
    norm: Option<RmsNorm>,
    out_proj: Linear,
}

impl Mamba2 {
    /// Reads `{name}.{in_proj,conv1d,A_log,D,dt_bias,out_proj}`, `{name}.norm` where there is a norm, and the tensors of
    /// [`Selection::FromX`] `{name}.{bcdt_proj,B_norm_weight,C_norm_weight,dt_norm_weight,dt_proj}`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn load(checkpoint: &Checkpoint, name: &str, config: Mamba2Config) -> Result<Self> {
        let Mamba2Config { hidden, ssm: dims, selection, d_conv, in_bias, out_bias, .. } = config;
        let (channels, conv_channels) = (dims.channels(), selection.conv_channels(dims));
        let part = |part: &str| format!("{name}.{part}");
        let per_head = |vector: &str| checkpoint.tensor_f32(&part(vector), &[dims.heads]);

        let projected = selection.projected_channels(dims);
        let in_proj = Linear::load(checkpoint, &part("in_proj"), projected, hidden, in_bias)?;
        let (in_proj, from_x) = match selection {
            Selection::WithX { input_multiplier, multipliers } => {
                let columns = dims.group_columns();
                let lengths = [channels, channels, columns, columns, dims.heads];
                let runs: Vec<_> = lengths.into_iter().zip(multipliers).collect();
                (in_proj.multiplied(input_multiplier, &runs)?, None)
            }
            Selection::FromX { dt_rank, norm_eps } => {
                (in_proj, Some(FromX::load(checkpoint, name, dims, dt_rank, norm_eps)?))
            }
        };

        let conv = checkpoint.tensor_f32(&part("conv1d.weight"), &[conv_channels, 1, d_conv])?;
        let taps = conv.squeeze(1)?.t()?.contiguous()?;
        let conv_bias = || checkpoint.tensor_f32(&part("conv1d.bias"), &[conv_channels]);
        let norm =
            |norm: GatedNorm| RmsNorm::load_f32(checkpoint, &part("norm"), channels, norm.eps)?.per_group(norm.groups);
        Ok(Self {
            config,
            in_proj,
            ones: Tensor::ones((1, d_conv), DType::F32, taps.device())?,
            taps,
            conv_bias: config.conv_bias.then(conv_bias).transpose()?,
            from_x,
            ssm: SsmParams::new(dims, config.dt_limits, &per_head("A_log")?, &per_head("D")?, &per_head("dt_bias")?)?,
            norm: config.norm.map(norm).transpose()?,
            out_proj: Linear::load(checkpoint, &part("out_proj"), hidden, channels, out_bias)?,
        })
    }

    /// The memory of no tokens.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn new_cache(&self) -> Result<Mamba2Cache> {
        let shape = (self.config.d_conv - 1, self.config.selection.conv_channels(self.config.ssm));
        let conv = Tensor::zeros(shape, DType::F32, self.ssm.device())?;
        Ok(Mamba2Cache { conv, ssm: self.ssm.initial_state()? })
    }

    /// `[tokens, hidden]` to the same: one token by `step`, more by the chunked scan.
    ///
    /// # Errors
    ///
    /// Shapes that do not fit; faults of the kernel port.
    pub fn forward(&self, hidden: &Tensor, cache: &mut Mamba2Cache, step: &Step) -> Result<Tensor> {
        let (projected, z, mixed) = match self.in_proj.one_token(hidden) {
            Some(in_proj) => self.convolve_one(hidden, &in_proj, cache)?,
            None => {
                let projected = self.in_proj.forward(hidden)?.to_dtype(DType::F32)?;
                let (z, conv_input) = self.split(&projected)?;
                let mixed = self.convolve(&conv_input, cache)?;
                (projected, z, mixed)
            }
        };
        let x = mixed.narrow(1, 0, self.config.ssm.channels())?;
        let Selected { b, c, dt } = match &self.from_x {
            Some(from_x) => from_x.select(&x)?,
            None => self.selected_with_x(&projected, &mixed)?,
        };

        let gate_last = self.config.norm.is_some_and(|norm| norm.before_gate);
        let inputs = SsmInputs { x: &x, b: &b, c: &c, dt: &dt, z: (!gate_last).then_some(&z) };
        let mut y = if hidden.dim(0)? == 1 {
            step.advance(&self.ssm, inputs, &mut cache.ssm)?
        } else {
            let (y, state) = scan(&self.ssm, inputs, &cache.ssm, SCAN_CHUNK)?;
            cache.ssm = state;
            y
        };
        if let Some(norm) = &self.norm {
            let gate = gate_last.then_some(&z);
            y = match one_token::serves(hidden) {
                true => one_token::gated_norm(&y, gate, norm, hidden.dtype())?,
                false => gate.map_or_else(|| norm.forward(&y), |z| Ok((norm.forward(&y)? * z.silu()?)?))?,
            };
        }
        self.out_proj.forward(&y)
    }

    /// z, and what goes through the convolution.
    fn split(&self, projected: &Tensor) -> Result<(Tensor, Tensor)> {
        let SsmDims { heads, head_dim, .. } = self.config.ssm;
        let (channels, tokens) = (heads * head_dim, projected.dim(0)?);
        if self.from_x.is_none() {
            let conv_channels = self.config.selection.conv_channels(self.config.ssm);
            return Ok((projected.narrow(1, 0, channels)?, projected.narrow(1, channels, conv_channels)?));
        }
        let pairs = projected.reshape((tokens, heads, 2 * head_dim))?;
        let half = |first: usize| pairs.narrow(2, first, head_dim)?.reshape((tokens, channels));
        Ok((half(0)?, half(head_dim)?))
    }

    fn selected_with_x(&self, projected: &Tensor, mixed: &Tensor) -> Result<Selected> {
        let (channels, columns) = (self.config.ssm.channels(), self.config.ssm.group_columns());
        Ok(Selected {
            b: mixed.narrow(1, channels, columns)?,
            c: mixed.narrow(1, channels + columns, columns)?,
            dt: projected.narrow(1, channels + mixed.dim(1)?, self.config.ssm.heads)?,
        })
    }

    /// For one token on a GPU: its projection, f32, with z and the convolved channels in it.
    fn convolve_one(
        &self,
        hidden: &Tensor,
        in_proj: &Weights<'_>,
        cache: &mut Mamba2Cache,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let SsmDims { head_dim, .. } = self.config.ssm;
        let channels = self.config.ssm.channels();
        let convolution = Convolution {
            window: &cache.conv,
            taps: &self.taps,
            bias: self.conv_bias.as_ref(),
            first: channels,
            paired: self.from_x.is_some().then_some(head_dim),
        };
        let (row, window) = one_token::convolved_product(hidden, in_proj, &convolution)?;
        cache.conv = window;
        let (z, mixed) = (row.narrow(1, 0, channels)?, row.narrow(1, channels, self.taps.dim(1)?)?);
        Ok((row, z, mixed))
    }

    /// Causal depthwise convolution and SiLU over `[tokens, conv_channels]`, with the inputs before them from the cache.
    fn convolve(&self, input: &Tensor, cache: &mut Mamba2Cache) -> Result<Tensor> {
        let (tokens, before) = (input.dim(0)?, self.config.d_conv - 1);
        // Rows are positions: every tap is then a product with a contiguous block of rows, for one token and for many.
        let window = if before == 0 { input.contiguous()? } else { Tensor::cat(&[&cache.conv, input], 0)? };
        let sum = match tokens {
            // As few operations as can be: on a GPU each one costs more than what it computes here.
            1 => self.ones.matmul(&(&window * &self.taps)?)?,
            _ => {
                let part = |tap| window.narrow(0, tap, tokens)?.broadcast_mul(&self.taps.narrow(0, tap, 1)?);
                (1..self.config.d_conv).try_fold(part(0)?, |sum, tap| sum + part(tap)?)?
            }
        };
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
