//! The state-space part of a Mamba2 layer, after the convolution: over many tokens at once ([`scan`]) and for one token,
//! either by the fused kernel of `ssm-update` or as a graph of tensor operations ([`Step`]).

mod fused;
mod graph;
mod scan;
mod select;

use candle_core::{DType, Device, Tensor};

use crate::error::Result;

pub use scan::{SCAN_CHUNK, scan};
pub use select::{Step, StepChoice};

/// Sizes of one layer's recurrence; the fused step's [`Dims`](ssm_update::Dims) less the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SsmDims {
    /// Heads.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Groups of heads that share B and C; divides `heads`.
    pub groups: usize,
    /// State columns of a channel.
    pub d_state: usize,
}

impl SsmDims {
    /// Channels of all heads.
    pub fn channels(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of B, or of C, for one token.
    pub fn group_columns(&self) -> usize {
        self.groups * self.d_state
    }

    /// The fused step's sizes for one sequence.
    pub fn for_kernel(&self) -> ssm_update::Dims {
        let Self { heads, head_dim, groups, d_state } = *self;
        ssm_update::Dims { batch: 1, heads, head_dim, groups, d_state, slots: 1 }
    }

    /// Heads that share one B and C.
    pub fn heads_per_group(&self) -> usize {
        self.heads / self.groups
    }
}

/// One layer's parameters of the recurrence, f32.
#[derive(Debug)]
pub struct SsmParams {
    /// Sizes.
    pub dims: SsmDims,
    /// Lower and upper limit of dt'.
    pub dt_limits: (f32, f32),
    /// `[heads]`, as the two below.
    a_log: Tensor,
    d: Tensor,
    dt_bias: Tensor,
    /// `-exp(A_log)`, `[heads]`.
    a: Tensor,
    /// `[heads, 1]`.
    d_column: Tensor,
}

impl SsmParams {
    /// Takes A_log, D and dt_bias, each `[heads]` f32.
    ///
    /// # Errors
    ///
    /// A tensor has another shape.
    pub fn new(dims: SsmDims, dt_limits: (f32, f32), a_log: &Tensor, d: &Tensor, dt_bias: &Tensor) -> Result<Self> {
        Ok(Self {
            dims,
            dt_limits,
            a_log: a_log.reshape(dims.heads)?,
            d: d.reshape(dims.heads)?,
            dt_bias: dt_bias.reshape(dims.heads)?,
            a: a_log.exp()?.neg()?,
            d_column: d.reshape((dims.heads, 1))?,
        })
    }

    /// The state before the first token, `[1, heads, head_dim, d_state]` f32.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn initial_state(&self) -> Result<Tensor> {
        let SsmDims { heads, head_dim, d_state, .. } = self.dims;
        Ok(Tensor::zeros((1, heads, head_dim, d_state), DType::F32, self.device())?)
    }

    /// Where the parameters are.
    pub fn device(&self) -> &Device {
        self.a.device()
    }

    /// `dt' = clamp(softplus(dt + dt_bias))` for dt of shape `[tokens, heads]`.
    fn prepare_dt(&self, dt: &Tensor) -> Result<Tensor> {
        let raw = dt.to_dtype(DType::F32)?.broadcast_add(&self.dt_bias)?;
        // softplus(v) = max(v, 0) + ln(1 + exp(-|v|)), which does not overflow.
        let dt = (raw.relu()? + (raw.abs()?.neg()?.exp()? + 1.0)?.log()?)?;
        match self.dt_limits {
            (low, high) if low <= 0.0 && high == f32::INFINITY => Ok(dt),
            (low, high) => Ok(dt.clamp(low, high)?),
        }
    }
}

/// What a layer feeds the recurrence, f32 but for dt.
#[derive(Clone, Copy, Debug)]
pub struct SsmInputs<'a> {
    /// `[tokens, heads * head_dim]`.
    pub x: &'a Tensor,
    /// `[tokens, groups * d_state]`.
    pub b: &'a Tensor,
    /// `[tokens, groups * d_state]`.
    pub c: &'a Tensor,
    /// `[tokens, heads]`, as projected, in any dtype of activations.
    pub dt: &'a Tensor,
    /// `[tokens, heads * head_dim]`: the output is multiplied with `silu(z)`.
    pub z: Option<&'a Tensor>,
}

/// `y * silu(z)` where there is a z.
fn gate(y: Tensor, z: Option<&Tensor>) -> Result<Tensor> {
    match z {
        Some(z) => Ok((y * z.silu()?)?),
        None => Ok(y),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// All sizes different, heads shared by groups, limits that cut both ends.
    const DIMS: SsmDims = SsmDims { heads: 6, head_dim: 5, groups: 2, d_state: 16 };

    struct Case {
        params: SsmParams,
        tensors: [Tensor; 5],
        state: Tensor,
    }

    impl Case {
        fn new(tokens: usize) -> Self {
            let mut rng = ChaCha8Rng::seed_from_u64(7);
            let mut random = |shape: &[usize], low: f32, high: f32| {
                let values = (0..shape.iter().product()).map(|_| rng.random_range(low..high)).collect::<Vec<f32>>();
                Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
            };
            let vector = [DIMS.heads];
            let (a_log, d) = (random(&vector, 0.0, 2.7), random(&vector, -1.0, 1.0));
            let dt_bias = random(&vector, -4.0, 1.0);
            let (channels, columns) = ([tokens, DIMS.channels()], [tokens, DIMS.group_columns()]);
            Self {
                params: SsmParams::new(DIMS, (0.01, 1.5), &a_log, &d, &dt_bias).unwrap(),
                tensors: [
                    random(&channels, -1.0, 1.0),
                    random(&columns, -1.0, 1.0),
                    random(&columns, -1.0, 1.0),
                    random(&[tokens, DIMS.heads], -2.0, 3.0),
                    random(&channels, -2.0, 2.0),
                ],
                state: random(&[1, DIMS.heads, DIMS.head_dim, DIMS.d_state], -1.0, 1.0),
            }
        }

        fn inputs(&self) -> SsmInputs<'_> {
            let [x, b, c, dt, z] = &self.tensors;
            SsmInputs { x, b, c, dt, z: Some(z) }
        }

        /// The recurrence of the crate's documentation, token by token in f64.
        fn reference(&self) -> (Vec<f64>, Vec<f64>) {
            let SsmDims { heads, head_dim, d_state, .. } = DIMS;
            let flat = |tensor: &Tensor| -> Vec<f64> {
                tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f64::from).collect()
            };
            let [x, b, c, dt, z] = self.tensors.each_ref().map(flat);
            let [a_log, d, dt_bias] = [&self.params.a_log, &self.params.d, &self.params.dt_bias].map(flat);
            let (mut state, mut y) = (flat(&self.state), Vec::new());
            for t in 0..self.tensors[0].dim(0).unwrap() {
                for h in 0..heads {
                    let raw = dt[t * heads + h] + dt_bias[h];
                    let dt = raw.exp().ln_1p().clamp(0.01_f32.into(), 1.5);
                    let decay = (-a_log[h].exp() * dt).exp();
                    for p in 0..head_dim {
                        let channel = t * DIMS.channels() + h * head_dim + p;
                        let mut sum = d[h] * x[channel];
                        for n in 0..d_state {
                            let column = t * DIMS.group_columns() + h / DIMS.heads_per_group() * d_state + n;
                            let s = &mut state[(h * head_dim + p) * d_state + n];
                            *s = decay * *s + dt * x[channel] * b[column];
                            sum += *s * c[column];
                        }
                        y.push(sum * z[channel] / (1.0 + (-z[channel]).exp()));
                    }
                }
            }
            (y, state)
        }

        fn assert_close(&self, y: &Tensor, state: &Tensor) {
            let (want_y, want_state) = self.reference();
            for (got, want) in [(y, want_y), (state, want_state)] {
                let got = got.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                assert_eq!(got.len(), want.len());
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert!((f64::from(*got) - want).abs() < 2e-5, "element {i}: {got}, expected {want}");
                }
            }
        }
    }

    #[test]
    fn scan_equals_the_recurrence_for_any_chunk_size() {
        for tokens in [1, 2, 64, 97] {
            let case = Case::new(tokens);
            for chunk in [1, 3, 32, 64, 100] {
                let (y, state) = scan(&case.params, case.inputs(), &case.state, chunk).unwrap();
                assert_eq!(y.dims(), [tokens, DIMS.channels()]);
                assert_eq!(state.dims(), case.state.dims());
                case.assert_close(&y, &state);
            }
        }
    }

    #[test]
    fn one_token_step_equals_the_recurrence_by_graph_and_by_kernel() {
        for choice in [StepChoice::Graph, StepChoice::Kernel] {
            let case = Case::new(1);
            let step = Step::select(choice, DIMS, &Device::Cpu).unwrap();
            let mut state = case.state.copy().unwrap();
            let y = step.advance(&case.params, case.inputs(), &mut state).unwrap();
            assert_eq!(y.dims(), [1, DIMS.channels()]);
            case.assert_close(&y, &state);
        }
    }

    #[test]
    fn sizes_that_no_kernel_serves_take_the_graph_with_the_reason() {
        let odd = SsmDims { d_state: 20, ..DIMS };
        match Step::select(StepChoice::Auto, odd, &Device::Cpu).unwrap() {
            Step::Graph { reason } => assert!(reason.contains("d_state"), "{reason}"),
            Step::Kernel(kernel) => panic!("{kernel:?} took d_state 20"),
        }
        assert!(Step::select(StepChoice::Kernel, odd, &Device::Cpu).is_err());
    }
}
