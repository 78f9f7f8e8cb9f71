//! Rows of a matrix that are stored in one way, whichever.

use std::ops::Range;

use super::dense::Dense;
use super::packed::Packed;
use super::packed_product::Prepared;

/// Rows that are stored in one way.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    /// f32, f16 or bf16.
    Dense(Dense),
    /// Quantised.
    Packed(Packed),
}

impl Block {
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.rows(),
            Self::Packed(packed) => packed.rows(),
        }
    }

    pub(super) fn columns(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.columns(),
            Self::Packed(packed) => packed.columns(),
        }
    }

    /// Some of the rows, shared.
    pub(crate) fn part(&self, rows: Range<usize>) -> Self {
        match self {
            Self::Dense(dense) => Self::Dense(dense.part(rows)),
            Self::Packed(packed) => Self::Packed(packed.part(rows)),
        }
    }

    /// Rows from `first` on in f32; `wide` is whole rows.
    pub(super) fn widen(&self, first: usize, wide: &mut [f32]) {
        match self {
            Self::Dense(dense) => dense.widen(first, wide),
            Self::Packed(packed) => packed.widen(first, wide),
        }
    }

    /// Its product with x.
    pub(super) fn product<'a>(&'a self, x: &'a [f32]) -> Product<'a> {
        match self {
            Self::Dense(dense) => Product::Dense(dense, x),
            Self::Packed(packed) => Product::Packed(packed, packed.prepare(x)),
        }
    }
}

/// A block and the x that its rows are multiplied with.
pub(super) enum Product<'a> {
    Dense(&'a Dense, &'a [f32]),
    Packed(&'a Packed, Prepared),
}

impl Product<'_> {
    /// `y[i]` = row `first + i` times x.
    pub(super) fn multiply(&self, first: usize, y: &mut [f32]) {
        match self {
            Self::Dense(dense, x) => dense.multiply(first, x, y),
            Self::Packed(packed, x) => packed.multiply(first, x, y),
        }
    }
}
