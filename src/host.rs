//! The host level: a step on slices and `ndarray` views, every length and layout checked. No data is touched here.

use std::ffi::c_void;
use std::marker::PhantomData;

use ndarray::{ArrayView, ArrayViewMut, Dimension};

use crate::problem::{BatchStrides, Dims, Dt, Dtypes, Launch, Pointers, Problem, validate, validate_slots};
use crate::{Dtype, Element, Error, Kernel, Stream, staging};

/// Dimensions of the largest tensor, the state.
const MAX_RANK: usize = 4;

/// A tensor to read: a slice (contiguous, or with a batch stride) or an `ndarray` view.
///
/// Made by `From` from `&[T]`, `&[T; N]`, `&Vec<T>` and [`ArrayView`], where `T` is an [`Element`]. Of an array view only the
/// first dimension may be strided; the others are contiguous in standard order.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    data: *const c_void,
    dtype: Dtype,
    layout: Layout,
    borrow: PhantomData<&'a ()>,
}

/// A tensor to write; made like [`Tensor`], from the mutable counterparts.
#[derive(Debug)]
pub struct TensorMut<'a> {
    tensor: Tensor<'a>,
    borrow: PhantomData<&'a mut ()>,
}

#[derive(Clone, Copy, Debug)]
enum Layout {
    Slice { len: usize, batch_stride: Option<usize> },
    Array { rank: usize, shape: [usize; MAX_RANK], strides: [isize; MAX_RANK] },
}

impl Layout {
    /// A rank beyond [`MAX_RANK`] is kept as a number only, and refused when the tensor is used.
    fn of_array(shape: &[usize], strides: &[isize]) -> Self {
        let mut kept = ([0; MAX_RANK], [0; MAX_RANK]);
        for axis in 0..shape.len().min(MAX_RANK) {
            (kept.0[axis], kept.1[axis]) = (shape[axis], strides[axis]);
        }
        Self::Array { rank: shape.len(), shape: kept.0, strides: kept.1 }
    }
}

impl Tensor<'_> {
    /// The same slice, with batch rows `elements` apart instead of back to back: part of a wider projection. The slice
    /// begins at the first row and must reach to the end of the last one. An array view brings its own strides, and this
    /// changes nothing for it.
    #[must_use]
    pub fn batch_stride(mut self, elements: usize) -> Self {
        if let Layout::Slice { batch_stride, .. } = &mut self.layout {
            *batch_stride = Some(elements);
        }
        self
    }

    /// Distance between batch rows in elements; `row` is the product of the other dimensions.
    fn stride(&self, field: &'static str, batch: usize, row: usize) -> Result<usize, Error> {
        match self.layout {
            Layout::Slice { batch_stride, .. } => Ok(batch_stride.unwrap_or(row)),
            // One row, or none, has no next one; ndarray gives such an axis any stride.
            Layout::Array { .. } if batch <= 1 => Ok(row),
            Layout::Array { strides, .. } => usize::try_from(strides[0])
                .map_err(|_| Error::unsupported(field, "a batch stride that is not negative", strides[0])),
        }
    }

    /// Checks that this tensor holds `[batch, row..]` (or `[row..]` where `batch` is `None`). The sizes may be anything: a
    /// product that overflows is no tensor's length.
    fn check_shape(&self, field: &'static str, batch: Option<usize>, row: &[usize]) -> Result<(), Error> {
        let shape: Vec<usize> = batch.iter().chain(row).copied().collect();
        let row_len = row.iter().fold(1, |product: usize, &size| product.saturating_mul(size));
        match self.layout {
            Layout::Slice { len, batch_stride: None } => {
                let expected = batch.unwrap_or(1).saturating_mul(row_len);
                if len != expected {
                    return Err(Error::unsupported(field, format!("{shape:?} = {expected} elements"), len));
                }
            }
            Layout::Slice { len, batch_stride: Some(stride) } => {
                let batch = batch.ok_or_else(|| {
                    Error::unsupported(field, "no batch stride, since the tensor has no batch dimension", stride)
                })?;
                let expected = match batch.checked_sub(1) {
                    None => 0,
                    Some(last) => last.saturating_mul(stride).saturating_add(row_len),
                };
                if len < expected {
                    let expected = format!("at least {expected} elements for {shape:?} with batch stride {stride}");
                    return Err(Error::unsupported(field, expected, len));
                }
            }
            Layout::Array { rank, shape: got, strides } => {
                if rank != shape.len() || got[..rank.min(MAX_RANK)] != shape {
                    let got = format!("{:?} of rank {rank}", &got[..rank.min(MAX_RANK)]);
                    return Err(Error::unsupported(field, format!("shape {shape:?}"), got));
                }
                let mut contiguous: usize = 1;
                for axis in (usize::from(batch.is_some())..rank).rev() {
                    // The stride of an axis of length 1 is never used; an empty array is never read.
                    if shape[axis] > 1 && strides[axis] != contiguous as isize && !shape.contains(&0) {
                        let got = format!("strides {:?}", &strides[..rank]);
                        return Err(Error::unsupported(field, "contiguous rows in standard order", got));
                    }
                    contiguous = contiguous.saturating_mul(shape[axis]);
                }
            }
        }
        Ok(())
    }
}

impl TensorMut<'_> {
    /// As [`Tensor::batch_stride`].
    #[must_use]
    pub fn batch_stride(mut self, elements: usize) -> Self {
        self.tensor = self.tensor.batch_stride(elements);
        self
    }
}

impl<'a, T: Element> From<&'a [T]> for Tensor<'a> {
    fn from(slice: &'a [T]) -> Self {
        let layout = Layout::Slice { len: slice.len(), batch_stride: None };
        Self { data: slice.as_ptr().cast(), dtype: T::DTYPE, layout, borrow: PhantomData }
    }
}

impl<'a, T: Element, const N: usize> From<&'a [T; N]> for Tensor<'a> {
    fn from(array: &'a [T; N]) -> Self {
        array.as_slice().into()
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for Tensor<'a> {
    fn from(vec: &'a Vec<T>) -> Self {
        vec.as_slice().into()
    }
}

impl<'a, T: Element, D: Dimension> From<ArrayView<'a, T, D>> for Tensor<'a> {
    fn from(view: ArrayView<'a, T, D>) -> Self {
        let layout = Layout::of_array(view.shape(), view.strides());
        Self { data: view.as_ptr().cast(), dtype: T::DTYPE, layout, borrow: PhantomData }
    }
}

impl<'a, T: Element> From<&'a mut [T]> for TensorMut<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        let layout = Layout::Slice { len: slice.len(), batch_stride: None };
        let data = slice.as_mut_ptr().cast_const().cast();
        Self { tensor: Tensor { data, dtype: T::DTYPE, layout, borrow: PhantomData }, borrow: PhantomData }
    }
}

impl<'a, T: Element, const N: usize> From<&'a mut [T; N]> for TensorMut<'a> {
    fn from(array: &'a mut [T; N]) -> Self {
        array.as_mut_slice().into()
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for TensorMut<'a> {
    fn from(vec: &'a mut Vec<T>) -> Self {
        vec.as_mut_slice().into()
    }
}

impl<'a, T: Element, D: Dimension> From<ArrayViewMut<'a, T, D>> for TensorMut<'a> {
    fn from(mut view: ArrayViewMut<'a, T, D>) -> Self {
        let layout = Layout::of_array(view.shape(), view.strides());
        let data = view.as_mut_ptr().cast_const().cast();
        Self { tensor: Tensor { data, dtype: T::DTYPE, layout, borrow: PhantomData }, borrow: PhantomData }
    }
}

/// The state of a step, `[slots, heads, head_dim, d_state]`, contiguous.
#[derive(Debug)]
pub enum State<'a> {
    /// Read and written where it is.
    InPlace(TensorMut<'a>),
    /// Read from one buffer, written to another.
    OutOfPlace {
        /// The state before the step.
        from: Tensor<'a>,
        /// The state after it. Slots that no batch row writes keep what they held.
        to: TensorMut<'a>,
    },
    /// Read only: y is computed and no state is written (`update_state: false`).
    ReadOnly(Tensor<'a>),
}

impl<'a> State<'a> {
    /// Read and written where it is.
    pub fn in_place(state: impl Into<TensorMut<'a>>) -> Self {
        Self::InPlace(state.into())
    }

    /// Read from one buffer, written to another.
    pub fn out_of_place(from: impl Into<Tensor<'a>>, to: impl Into<TensorMut<'a>>) -> Self {
        Self::OutOfPlace { from: from.into(), to: to.into() }
    }

    /// Read only.
    pub fn read_only(state: impl Into<Tensor<'a>>) -> Self {
        Self::ReadOnly(state.into())
    }
}

/// One step on host memory. Shapes are those of [`Pointers`]; dtypes are the tensors' own.
///
/// [`Step::new`] takes what every step has; the other fields are set with struct update syntax.
#[derive(Debug)]
#[allow(missing_docs)] // the tensors are named as in `Pointers`
pub struct Step<'a> {
    pub dims: Dims,
    pub x: Tensor<'a>,
    pub z: Option<Tensor<'a>>,
    pub b: Tensor<'a>,
    pub c: Tensor<'a>,
    pub dt: Tensor<'a>,
    pub a_log: Tensor<'a>,
    pub d: Option<Tensor<'a>>,
    pub dt_bias: Option<Tensor<'a>>,
    pub state: State<'a>,
    /// `[batch]` state rows to read; `None`: batch row `b` reads state row `b`. Negative: padding.
    pub slots_in: Option<&'a [i32]>,
    /// `[batch]` state rows to write; `None`: batch row `b` writes state row `b`. Negative: padding.
    pub slots_out: Option<&'a [i32]>,
    pub y: TensorMut<'a>,
    /// Treatment of dt: raw and unclamped unless set.
    pub dt_mode: Dt,
}

impl<'a> Step<'a> {
    /// A step without the optional tensors, with raw unclamped dt.
    #[allow(clippy::too_many_arguments)] // the tensors that every step has, in the order of the formula
    pub fn new(
        dims: Dims,
        x: impl Into<Tensor<'a>>,
        b: impl Into<Tensor<'a>>,
        c: impl Into<Tensor<'a>>,
        dt: impl Into<Tensor<'a>>,
        a_log: impl Into<Tensor<'a>>,
        state: State<'a>,
        y: impl Into<TensorMut<'a>>,
    ) -> Self {
        Self {
            dims,
            x: x.into(),
            z: None,
            b: b.into(),
            c: c.into(),
            dt: dt.into(),
            a_log: a_log.into(),
            d: None,
            dt_bias: None,
            state,
            slots_in: None,
            slots_out: None,
            y: y.into(),
            dt_mode: Dt::UNCLAMPED,
        }
    }

    /// Checks everything and gives the launch whose pointers are these host tensors. The launch must not outlive `self`.
    pub(crate) fn bind(&self) -> Result<Launch, Error> {
        let dims = self.dims;
        dims.check()?;
        let y = &self.y.tensor;
        let (state_in, state_out) = match &self.state {
            State::InPlace(state) => (&state.tensor, Some(&state.tensor)),
            State::OutOfPlace { from, to } => (from, Some(&to.tensor)),
            State::ReadOnly(state) => (state, None),
        };
        for (field, tensor, like, name) in [
            ("y", Some(y), &self.x, "x"),
            ("z", self.z.as_ref(), &self.x, "x"),
            ("c", Some(&self.c), &self.b, "b"),
            ("state_out", state_out, state_in, "state_in"),
        ] {
            if let Some(tensor) = tensor.filter(|tensor| tensor.dtype != like.dtype) {
                return Err(Error::unsupported(field, format!("{} (as {name})", like.dtype), tensor.dtype));
            }
        }

        let batch = Some(dims.batch);
        let per_channel = [dims.heads, dims.head_dim];
        let per_group = [dims.groups, dims.d_state];
        let state = [dims.slots, dims.heads, dims.head_dim, dims.d_state];
        for (field, tensor, batch, shape) in [
            ("x", Some(&self.x), batch, &per_channel[..]),
            ("z", self.z.as_ref(), batch, &per_channel),
            ("b", Some(&self.b), batch, &per_group),
            ("c", Some(&self.c), batch, &per_group),
            ("dt", Some(&self.dt), batch, &[dims.heads]),
            ("a_log", Some(&self.a_log), None, &[dims.heads]),
            ("d", self.d.as_ref(), None, &[dims.heads]),
            ("dt_bias", self.dt_bias.as_ref(), None, &[dims.heads]),
            ("state_in", Some(state_in), None, &state),
            ("state_out", state_out, None, &state),
            ("y", Some(y), batch, &per_channel),
        ] {
            if let Some(tensor) = tensor {
                tensor.check_shape(field, batch, shape)?;
            }
        }

        // `validate` refuses sizes whose products overflow, so that wrapping here does no harm.
        let row = dims.heads.wrapping_mul(dims.head_dim);
        let group = dims.groups.wrapping_mul(dims.d_state);
        let absent =
            |tensor: &Option<Tensor<'a>>, of: fn(&Tensor<'a>) -> Dtype, default| tensor.as_ref().map_or(default, of);
        let problem = Problem {
            dims,
            dtypes: Dtypes {
                x: self.x.dtype,
                bc: self.b.dtype,
                dt: self.dt.dtype,
                a_log: self.a_log.dtype,
                d: absent(&self.d, |t| t.dtype, self.a_log.dtype),
                dt_bias: absent(&self.dt_bias, |t| t.dtype, self.a_log.dtype),
                state: state_in.dtype,
            },
            strides: BatchStrides {
                x: self.x.stride("x", dims.batch, row)?,
                z: self.z.map_or(Ok(row), |z| z.stride("z", dims.batch, row))?,
                b: self.b.stride("b", dims.batch, group)?,
                c: self.c.stride("c", dims.batch, group)?,
                dt: self.dt.stride("dt", dims.batch, dims.heads)?,
                y: y.stride("y", dims.batch, row)?,
            },
            dt: self.dt_mode,
            update_state: state_out.is_some(),
        };
        let pointer = |tensor: Option<&Tensor<'a>>| tensor.map_or(std::ptr::null(), |tensor| tensor.data);
        let slots = |list: Option<&[i32]>| list.map_or(std::ptr::null(), <[i32]>::as_ptr);
        let launch = validate(
            &problem,
            &Pointers {
                x: self.x.data,
                z: pointer(self.z.as_ref()),
                b: self.b.data,
                c: self.c.data,
                dt: self.dt.data,
                a_log: self.a_log.data,
                d: pointer(self.d.as_ref()),
                dt_bias: pointer(self.dt_bias.as_ref()),
                state_in: state_in.data,
                state_out: pointer(state_out).cast_mut(),
                slots_in: slots(self.slots_in),
                slots_out: slots(self.slots_out),
                y: y.data.cast_mut(),
            },
        )?;

        validate_slots(&dims, self.slots_in, self.slots_out, problem.update_state, launch.in_place())?;
        Ok(launch)
    }
}

/// [`Kernel::step`] on host memory of which only the addresses are known, as a caller from C has it: checks the slot indices, runs
/// the step, moving data where the port needs that, and returns when y and the state are there.
///
/// # Errors
///
/// What [`validate_slots`] refuses: nothing has been written then. Faults of the driver, as [`Kernel::step`] has them.
///
/// # Safety
///
/// What [`Kernel::launch`] asks for, of host memory on every port: each pointer is to its whole tensor, initialised where it is
/// read; y overlaps no other tensor, and the written state none but `state_in`; nobody else writes these tensors or reads y and
/// the written state meanwhile.
#[allow(unsafe_code)] // raw pointers
pub unsafe fn step_at(kernel: &dyn Kernel, launch: &Launch) -> Result<(), Error> {
    let problem = launch.problem();
    // SAFETY: the caller vouches for `batch` indices behind each list that is not null.
    let (slots_in, slots_out) = unsafe { launch.slot_lists() };
    validate_slots(&problem.dims, slots_in, slots_out, problem.update_state, launch.in_place())?;
    match kernel.memory() {
        // SAFETY: the caller's promise; the slots were checked above, and the port works on the host's memory.
        None => unsafe { kernel.launch(launch, Stream::DEFAULT) },
        // SAFETY: the caller's promise; the slots were checked above.
        Some(memory) => unsafe { staging::run(kernel, memory, launch) },
    }
}
