//! Rows of numbers, and their product with a vector.
//!
//! The product is bound by reading the rows, so 16-bit ones are read as they are and widened in registers: half the bytes of
//! f32, with the same result.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use ssm_update::Dtype;

use super::ROWS;
use super::element::{BLOCK, Bf16, Element, F16, F32};
use crate::bytes::Bytes;

/// Runs the expression with `$element` as the type that the [`Dtype`] names.
macro_rules! with_element {
    ($dtype:expr, $element:ident => $body:expr) => {
        match $dtype {
            Dtype::F32 => {
                type $element = F32;
                $body
            }
            Dtype::F16 => {
                type $element = F16;
                $body
            }
            Dtype::Bf16 => {
                type $element = Bf16;
                $body
            }
        }
    };
}
pub(super) use with_element;

/// `[rows, columns]` numbers, row by row.
#[derive(Clone, Debug)]
pub(crate) struct Dense {
    values: Bytes,
    dtype: Dtype,
    columns: usize,
}

impl Dense {
    /// `values` are whole rows of `columns` elements, at least one column.
    pub(crate) fn new(values: Bytes, dtype: Dtype, columns: usize) -> Self {
        debug_assert!(columns > 0 && values.len().is_multiple_of(columns * dtype.size()));
        Self { values, dtype, columns }
    }

    pub(crate) fn rows(&self) -> usize {
        self.values.len() / self.row_bytes()
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn row_bytes(&self) -> usize {
        self.columns * self.dtype.size()
    }

    /// The stored bytes of some rows.
    pub(super) fn row_range(&self, rows: Range<usize>) -> &[u8] {
        &self.values[rows.start * self.row_bytes()..rows.end * self.row_bytes()]
    }

    /// Some of the rows, shared.
    pub(crate) fn part(&self, rows: Range<usize>) -> Self {
        let bytes = rows.start * self.row_bytes()..rows.end * self.row_bytes();
        Self { values: self.values.part(bytes), ..*self }
    }

    /// Rows from `first` on in f32; `wide` is `[rows, columns]`.
    pub(crate) fn widen(&self, first: usize, wide: &mut [f32]) {
        let bytes = self.row_range(first..first + wide.len() / self.columns);
        with_element!(self.dtype, E => E::widen_all(E::elements(bytes), wide));
    }

    /// `y[i]` = row `first + i` times x.
    pub(super) fn multiply(&self, first: usize, x: &[f32], y: &mut [f32]) {
        let bytes = self.row_range(first..first + y.len());
        with_element!(self.dtype, E => Arch::new().dispatch(Product::<E> { weights: E::elements(bytes), x, y }));
    }

    /// Position and value of the first element that is NaN or infinite. Reads everything once and keeps nothing.
    pub(crate) fn first_not_finite(&self) -> Option<(usize, f32)> {
        with_element!(self.dtype, E => first_not_finite::<E>(&self.values))
    }
}

fn first_not_finite<E: Element>(bytes: &[u8]) -> Option<(usize, f32)> {
    /// Elements that one thread looks at.
    const PART: usize = 1 << 20;
    /// Elements that are looked at without a branch.
    const RUN: usize = 1 << 10;
    let elements = E::elements(bytes);
    let in_part = |part: &[E::Bytes]| {
        // Without a branch for each element the search becomes vector instructions.
        let is_sound =
            |run: &[E::Bytes]| run.iter().fold(true, |sound, element| sound & E::not_finite(*element).is_none());
        let run = part.chunks(RUN).position(|run| !is_sound(run))?;
        let elements = part.iter().enumerate().skip(run * RUN);
        elements.into_iter().find_map(|(index, element)| Some((index, E::not_finite(*element)?)))
    };
    let parts = elements.par_chunks(PART).enumerate();
    parts.find_map_first(|(part, elements)| in_part(elements).map(|(index, value)| (part * PART + index, value)))
}

struct Product<'a, E: Element> {
    weights: &'a [E::Bytes],
    x: &'a [f32],
    y: &'a mut [f32],
}

impl<E: Element> WithSimd for Product<'_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let columns = self.x.len();
        let mut weights = self.weights.chunks_exact(ROWS * columns);
        let mut y = self.y.chunks_exact_mut(ROWS);
        for (weights, y) in weights.by_ref().zip(y.by_ref()) {
            y.copy_from_slice(&dots::<S, E, ROWS>(simd, weights, self.x));
        }
        for (weights, y) in weights.remainder().chunks_exact(columns).zip(y.into_remainder()) {
            [*y] = dots::<S, E, 1>(simd, weights, self.x);
        }
    }
}

/// Products of `R` rows with x.
#[inline(always)]
pub(super) fn dots<S: Simd, E: Element, const R: usize>(simd: S, weights: &[E::Bytes], x: &[f32]) -> [f32; R] {
    let columns = x.len();
    let (x_blocks, x_tail) = x.as_chunks::<BLOCK>();
    let rows: [_; R] = std::array::from_fn(|row| weights[row * columns..(row + 1) * columns].as_chunks::<BLOCK>());
    let mut sums = [simd.splat_f32s(0.0); R];
    let mut room = [[0.0; BLOCK]; R];
    for (block, x) in x_blocks.iter().enumerate() {
        let x = S::as_simd_f32s(x).0;
        for ((sum, room), (blocks, _)) in sums.iter_mut().zip(&mut room).zip(&rows) {
            E::widen_all(&blocks[block], room);
            for (&w, &x) in S::as_simd_f32s(room).0.iter().zip(x) {
                *sum = simd.mul_add_e_f32s(w, x, *sum);
            }
        }
    }
    std::array::from_fn(|row| {
        let tail: f32 = rows[row].1.iter().zip(x_tail).map(|(w, x)| E::widen(*w) * x).sum();
        simd.reduce_sum_f32s(sums[row]) + tail
    })
}
