//! The step's tensors, checked, and its way to a port.

use std::cell::RefCell;

use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, CudaStorage, DType, InplaceOp1, Layout, MetalStorage, Result, Storage, Tensor, bail};
use ssm_update::{BatchStrides, Dims, Dt, Dtypes, Kernel, Problem};

use crate::operand::Operand;

/// One decode step of one layer: tensors, and the treatment of dt.
///
/// Everything but the state; [`Update::apply`] takes that. Dtypes are f32, f16 or bf16; x, z and y share one, B and C have the same
/// or f32, the others are free. Rows of a batch may be slices of a wider tensor; inside a row all is contiguous, and the two
/// dimensions of x, z, B or C that come after the batch may be one.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// `[batch, heads, head_dim]`.
    pub x: &'a Tensor,
    /// `[batch, heads, head_dim]`: y is multiplied with `silu(z)`.
    pub z: Option<&'a Tensor>,
    /// `[batch, groups, d_state]`.
    pub b: &'a Tensor,
    /// `[batch, groups, d_state]`.
    pub c: &'a Tensor,
    /// `[batch, heads]`.
    pub dt: &'a Tensor,
    /// `[heads]`.
    pub a_log: &'a Tensor,
    /// `[heads]`: `D * x` is added to y.
    pub d: Option<&'a Tensor>,
    /// `[heads]`: is added to raw dt.
    pub dt_bias: Option<&'a Tensor>,
    /// Treatment of dt: raw and unclamped unless set.
    pub dt_mode: Dt,
    /// `[batch]` i32: batch row `b` uses row `slots[b]` of the state; negative is padding. `None`: row `b`.
    pub slots: Option<&'a Tensor>,
}

impl<'a> Update<'a> {
    /// A step without the optional tensors, with raw unclamped dt.
    pub fn new(x: &'a Tensor, b: &'a Tensor, c: &'a Tensor, dt: &'a Tensor, a_log: &'a Tensor) -> Self {
        Self { x, z: None, b, c, dt, a_log, d: None, dt_bias: None, dt_mode: Dt::UNCLAMPED, slots: None }
    }

    /// Advances `state` (`[slots, heads, head_dim, d_state]`, contiguous) in place and returns y in the shape and dtype of x, all on
    /// the tensors' device. On a GPU the step is queued there, as candle's own operations are.
    ///
    /// Other tensors that share the state's storage change with it. It must share none with the inputs.
    ///
    /// # Errors
    ///
    /// What the step does not serve, with the field, what was expected and what came (these contain `unsupported shapes` where an
    /// engine may take its graph instead); tensors on several devices; a port that cannot reach the device's memory; faults of the
    /// port. Nothing has been written where a check refused.
    pub fn apply(&self, kernel: &dyn Kernel, state: &Tensor) -> Result<Tensor> {
        let operands = Operands::check(self, state)?;
        let step = Fused { kernel, update: self, operands, y: RefCell::new(None) };
        state.inplace_op1(&step)?;
        match step.y.into_inner() {
            Some(y) => Ok(Tensor::from_storage(y, self.x.dims(), BackpropOp::none(), false)),
            None => bail!("the fused step gave no output"),
        }
    }

    /// Every tensor but the state, by name.
    fn tensors(&self) -> impl Iterator<Item = (&'static str, &'a Tensor)> {
        [
            ("x", Some(self.x)),
            ("z", self.z),
            ("b", Some(self.b)),
            ("c", Some(self.c)),
            ("dt", Some(self.dt)),
            ("a_log", Some(self.a_log)),
            ("d", self.d),
            ("dt_bias", self.dt_bias),
            ("slots", self.slots),
        ]
        .into_iter()
        .filter_map(|(field, tensor)| Some((field, tensor?)))
    }
}

/// Where each tensor's elements are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    pub dims: Dims,
    pub x: Operand,
    pub z: Option<Operand>,
    pub b: Operand,
    pub c: Operand,
    pub dt: Operand,
    pub a_log: Operand,
    pub d: Option<Operand>,
    pub dt_bias: Option<Operand>,
    pub state: Operand,
    /// First element of the slot indices.
    pub slots: Option<usize>,
}

impl Operands {
    fn check(update: &Update<'_>, state: &Tensor) -> Result<Self> {
        for (field, tensor) in update.tensors() {
            if !tensor.device().same_device(state.device()) {
                bail!("{field}: expected on {:?} as the state, got {:?}", state.device(), tensor.device());
            }
            // The operation holds the state's lock for writing, and would wait for itself.
            if std::ptr::eq(&*tensor.storage_and_layout().0, &*state.storage_and_layout().0) {
                bail!("{field}: expected a storage of its own, got the state's");
            }
        }
        let &[slots, heads, head_dim, d_state] = state.dims() else {
            let got = state.dims();
            bail!("unsupported shapes: state: expected [slots, heads, head_dim, d_state], got {got:?}");
        };
        let batch = update.x.dims().first().copied().unwrap_or(0);
        let columns: usize = update.b.dims().iter().skip(1).product();
        if d_state == 0 || !columns.is_multiple_of(d_state) {
            let got = update.b.dims();
            bail!("unsupported shapes: b: expected [batch, groups, {d_state}] as the state's d_state, got {got:?}");
        }
        let groups = columns / d_state;
        let (channels, columns, per_head) = ([batch, heads, head_dim], [batch, groups, d_state], [heads]);
        let optional = |field, tensor: Option<&Tensor>| tensor.map(|t| Operand::whole(field, t, &per_head)).transpose();
        Ok(Self {
            dims: Dims { batch, heads, head_dim, groups, d_state, slots },
            x: Operand::rows("x", update.x, channels)?,
            z: update.z.map(|z| Operand::rows("z", z, channels)).transpose()?,
            b: Operand::rows("b", update.b, columns)?,
            c: Operand::rows("c", update.c, columns)?,
            dt: Operand::rows("dt", update.dt, [batch, 1, heads])?,
            a_log: Operand::whole("a_log", update.a_log, &per_head)?,
            d: optional("d", update.d)?,
            dt_bias: optional("dt_bias", update.dt_bias)?,
            state: Operand::whole("state", state, &[slots, heads, head_dim, d_state])?,
            slots: update.slots.map(|slots| check_slots(slots, batch)).transpose()?,
        })
    }

    /// The problem of the launch level; y is contiguous.
    #[cfg_attr(not(any(feature = "cuda", feature = "metal")), allow(dead_code))] // the CPU goes through the host level, which makes its own
    pub fn problem(&self, dt: Dt) -> Problem {
        let dtypes = Dtypes {
            x: self.x.dtype,
            bc: self.b.dtype,
            dt: self.dt.dtype,
            a_log: self.a_log.dtype,
            d: self.d.unwrap_or(self.a_log).dtype,
            dt_bias: self.dt_bias.unwrap_or(self.a_log).dtype,
            state: self.state.dtype,
        };
        let problem = Problem::contiguous(self.dims, dtypes);
        Problem {
            strides: BatchStrides {
                x: self.x.stride,
                z: self.z.unwrap_or(self.x).stride,
                b: self.b.stride,
                c: self.c.stride,
                dt: self.dt.stride,
                y: problem.strides.y,
            },
            dt,
            ..problem
        }
    }
}

fn check_slots(slots: &Tensor, batch: usize) -> Result<usize> {
    if slots.dims() != [batch] || slots.dtype() != DType::I32 || !slots.is_contiguous() {
        let (dims, dtype) = (slots.dims(), slots.dtype().as_str());
        bail!("unsupported shapes: slots: expected [{batch}] contiguous i32, got {dims:?} {dtype}");
    }
    Ok(slots.layout().start_offset())
}

/// A candle operation has one destination, which is the state; y is handed out beside it.
struct Fused<'a> {
    kernel: &'a dyn Kernel,
    update: &'a Update<'a>,
    operands: Operands,
    y: RefCell<Option<Storage>>,
}

impl InplaceOp1 for Fused<'_> {
    fn name(&self) -> &'static str {
        "ssm-update"
    }

    fn cpu_fwd(&self, state: &mut CpuStorage, _: &Layout) -> Result<()> {
        let y = crate::cpu::step(self.kernel, self.update, &self.operands, state)?;
        self.y.replace(Some(Storage::Cpu(y)));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, state: &mut CudaStorage, _: &Layout) -> Result<()> {
        let y = crate::cuda::launch(self.kernel, self.update, &self.operands, state)?;
        self.y.replace(Some(Storage::Cuda(y)));
        Ok(())
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda_fwd(&self, _: &mut CudaStorage, _: &Layout) -> Result<()> {
        bail!("the fused step on CUDA tensors needs the feature `cuda` of ssm-update-candle")
    }

    #[cfg(feature = "metal")]
    fn metal_fwd(&self, state: &mut MetalStorage, _: &Layout) -> Result<()> {
        let y = crate::metal::launch(self.kernel, self.update, &self.operands, state)?;
        self.y.replace(Some(Storage::Metal(y)));
        Ok(())
    }

    #[cfg(not(feature = "metal"))]
    fn metal_fwd(&self, _: &mut MetalStorage, _: &Layout) -> Result<()> {
        bail!("the fused step on Metal tensors needs the feature `metal` of ssm-update-candle")
    }
}
