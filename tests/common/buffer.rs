//! Buffers between guards: a canary in front, behind, and in every element that nobody set, checked bit for bit.

use std::ops::Range;

use half::{bf16, f16};
use ndarray::{ArrayView, ArrayViewMut, Dimension, StrideShape};
use ssm_update::{Dtype, Element, Tensor, TensorMut};

/// Canary elements on either side. Odd, so that bodies are not aligned for vector loads by accident, and wider than the
/// largest vector.
const GUARD: usize = 37;

/// An element with a canary and comparable bits.
pub trait Word: Copy + PartialEq + Send + Sync + 'static {
    /// Floats: a NaN with a payload, which poisons every result that it enters. Integers: no legal slot.
    const CANARY: Self;

    /// The bits, widened.
    fn bits(self) -> u32;
}

impl Word for f32 {
    const CANARY: Self = f32::from_bits(0x7fc5_a5a5);
    fn bits(self) -> u32 {
        self.to_bits()
    }
}

impl Word for f16 {
    const CANARY: Self = f16::from_bits(0x7e5a);
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

impl Word for bf16 {
    const CANARY: Self = bf16::from_bits(0x7fda);
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

impl Word for i32 {
    const CANARY: Self = 0x5a5a_5a5a;
    fn bits(self) -> u32 {
        self as u32
    }
}

/// A body between two guards.
#[derive(Clone, Debug)]
pub struct Guarded<T> {
    all: Vec<T>,
}

impl<T: Word> Guarded<T> {
    /// A body of `len` canaries.
    pub fn new(len: usize) -> Self {
        Self { all: vec![T::CANARY; len + 2 * GUARD] }
    }

    /// A body that holds `values`.
    pub fn of(values: &[T]) -> Self {
        let mut guarded = Self::new(values.len());
        guarded.body_mut().copy_from_slice(values);
        guarded
    }

    /// The part between the guards.
    pub fn body(&self) -> &[T] {
        &self.all[GUARD..self.all.len() - GUARD]
    }

    /// As [`Guarded::body`].
    pub fn body_mut(&mut self) -> &mut [T] {
        let end = self.all.len() - GUARD;
        &mut self.all[GUARD..end]
    }

    /// Body and guards.
    pub fn all_mut(&mut self) -> &mut [T] {
        &mut self.all
    }

    /// Position in the body (negative: in the guard in front) of the first element outside the `allowed` ranges, given
    /// in ascending order, whose bits differ from `before`.
    pub fn change_outside(&self, before: &Self, allowed: &[Range<usize>]) -> Option<isize> {
        let mut from = 0;
        let whole = self.all.len();
        for range in allowed.iter().cloned().chain(std::iter::once(whole - GUARD..whole)) {
            // The last range only ends the walk: its end is never reached, its start is the end of the buffer.
            let to = (range.start + GUARD).min(whole);
            if let Some(at) = first_difference(&self.all[from..to], &before.all[from..to]) {
                return Some((from + at) as isize - GUARD as isize);
            }
            from = range.end + GUARD;
        }
        None
    }
}

/// The first position at which bits differ. Whole chunks are looked at without a branch, since nearly all are equal and
/// this walks every byte of every run.
fn first_difference<T: Word>(one: &[T], two: &[T]) -> Option<usize> {
    const CHUNK: usize = 1024;
    let differs = |(one, two): (&T, &T)| one.bits() ^ two.bits();
    let mut chunks = one.chunks(CHUNK).zip(two.chunks(CHUNK));
    let at =
        CHUNK * chunks.position(|(one, two)| one.iter().zip(two).map(differs).fold(0, |all, bits| all | bits) != 0)?;
    Some(at + one[at..].iter().zip(&two[at..]).position(|pair| differs(pair) != 0)?)
}

/// A guarded buffer of any tensor dtype.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // one variant per dtype
pub enum Buffer {
    F32(Guarded<f32>),
    F16(Guarded<f16>),
    Bf16(Guarded<bf16>),
}

/// Evaluates an expression for the typed buffer inside a [`Buffer`].
macro_rules! typed {
    ($buffer:expr, $guarded:ident => $value:expr) => {
        match $buffer {
            Buffer::F32($guarded) => $value,
            Buffer::F16($guarded) => $value,
            Buffer::Bf16($guarded) => $value,
        }
    };
}

impl Buffer {
    /// A body of `len` canaries.
    pub fn new(dtype: Dtype, len: usize) -> Self {
        match dtype {
            Dtype::F32 => Self::F32(Guarded::new(len)),
            Dtype::F16 => Self::F16(Guarded::new(len)),
            Dtype::Bf16 => Self::Bf16(Guarded::new(len)),
        }
    }

    /// A body that holds the values, rounded to the dtype.
    pub fn of(dtype: Dtype, values: impl IntoIterator<Item = f32>) -> Self {
        let values: Vec<f32> = values.into_iter().collect();
        let mut buffer = Self::new(dtype, values.len());
        for (at, value) in values.into_iter().enumerate() {
            buffer.set(at, value);
        }
        buffer
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::F16(_) => Dtype::F16,
            Self::Bf16(_) => Dtype::Bf16,
        }
    }

    /// Elements of the body.
    pub fn len(&self) -> usize {
        typed!(self, guarded => guarded.body().len())
    }

    /// Stores a value, rounded to the dtype.
    pub fn set(&mut self, at: usize, value: f32) {
        typed!(self, guarded => guarded.body_mut()[at] = Element::from_f32(value))
    }

    /// Stores bits as they are.
    pub fn set_bits(&mut self, at: usize, bits: u32) {
        match self {
            Self::F32(guarded) => guarded.body_mut()[at] = f32::from_bits(bits),
            Self::F16(guarded) => guarded.body_mut()[at] = f16::from_bits(bits as u16),
            Self::Bf16(guarded) => guarded.body_mut()[at] = bf16::from_bits(bits as u16),
        }
    }

    /// An element, widened exactly.
    pub fn get(&self, at: usize) -> f64 {
        typed!(self, guarded => f64::from(guarded.body()[at].to_f32()))
    }

    /// An element's bits.
    pub fn bits(&self, at: usize) -> u32 {
        typed!(self, guarded => guarded.body()[at].bits())
    }

    /// The bits of a range of the body.
    pub fn bits_of(&self, range: Range<usize>) -> Vec<u32> {
        typed!(self, guarded => guarded.body()[range].iter().map(|word| word.bits()).collect())
    }

    /// Copies a range of another buffer of the same dtype.
    pub fn copy_from(&mut self, at: usize, other: &Self, range: Range<usize>) {
        for (offset, from) in range.enumerate() {
            self.set_bits(at + offset, other.bits(from));
        }
    }

    /// The host-level tensor of the body from an element on.
    pub fn tensor(&self, from: usize) -> Tensor<'_> {
        typed!(self, guarded => guarded.body()[from..].into())
    }

    /// As [`Buffer::tensor`], to write.
    pub fn tensor_mut(&mut self, from: usize) -> TensorMut<'_> {
        typed!(self, guarded => (&mut guarded.body_mut()[from..]).into())
    }

    /// The host-level tensor of the body as an `ndarray` view of this shape and these strides. An empty
    /// array has no strides of its own in `ndarray`.
    pub fn view<D: Dimension>(&self, layout: StrideShape<D>) -> Tensor<'_> {
        let layout = if self.len() == 0 { layout.raw_dim().clone().into() } else { layout };
        typed!(self, guarded => ArrayView::from_shape(layout, guarded.body()).expect("the view fits the body").into())
    }

    /// As [`Buffer::view`], to write.
    pub fn view_mut<D: Dimension>(&mut self, layout: StrideShape<D>) -> TensorMut<'_> {
        let layout = if self.len() == 0 { layout.raw_dim().clone().into() } else { layout };
        typed!(self, guarded => {
            ArrayViewMut::from_shape(layout, guarded.body_mut()).expect("the view fits the body").into()
        })
    }

    /// Body and guards as raw memory: its first byte, its length in bytes, and the offset of the body.
    pub fn raw(&mut self) -> (*mut u8, usize, usize) {
        typed!(self, guarded => {
            let all = guarded.all_mut();
            (all.as_mut_ptr().cast(), size_of_val(all), GUARD * size_of_val(&all[0]))
        })
    }

    /// As [`Guarded::change_outside`]; buffers of different dtypes or lengths differ everywhere.
    pub fn change_outside(&self, before: &Self, allowed: &[Range<usize>]) -> Option<isize> {
        match (self, before) {
            (Self::F32(now), Self::F32(then)) => now.change_outside(then, allowed),
            (Self::F16(now), Self::F16(then)) => now.change_outside(then, allowed),
            (Self::Bf16(now), Self::Bf16(then)) => now.change_outside(then, allowed),
            _ => Some(0),
        }
    }

    /// Whether two buffers, guards included, hold the same bits.
    pub fn same_bits(&self, other: &Self) -> bool {
        self.len() == other.len() && self.change_outside(other, &[]).is_none()
    }
}

impl Buffer {
    /// As [`Buffer::same_bits`], for the bodies, but any NaN equals any other: which operand's payload an instruction hands
    /// on depends on how the compiler ordered them, and it may order them differently for each way of updating the state.
    pub fn same_values(&self, other: &Self) -> bool {
        let same = |at: usize| self.bits(at) == other.bits(at) || self.get(at).is_nan() && other.get(at).is_nan();
        self.len() == other.len() && (0..self.len()).all(same)
    }
}

impl Guarded<i32> {
    /// As [`Buffer::raw`].
    pub fn raw(&mut self) -> (*mut u8, usize, usize) {
        (self.all.as_mut_ptr().cast(), size_of_val(&self.all[..]), GUARD * size_of::<i32>())
    }
}
