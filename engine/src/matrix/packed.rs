//! Rows in MLX's affine quantisation.
//!
//! A row is cut into groups of columns; a group has a scale s and a bias b, and its elements are `s q + b` with whole numbers q
//! of 4 or 8 bits, packed from the lowest bits of little-endian words on.

use std::ops::Range;

use pulp::Arch;
use ssm_update::Dtype;

use super::dense::{Dense, with_element};
use super::element::{Bf16, Element, F16, F32};
use super::packed_product::{Prepared, Product};
use crate::bytes::Bytes;

/// How the elements of a matrix are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affine {
    /// Bits of an element: one of [`BITS`](Self::BITS).
    pub bits: usize,
    /// Columns that share a scale and a bias: one of [`GROUP_SIZES`](Self::GROUP_SIZES).
    pub group_size: usize,
}

impl Affine {
    /// Bits per element that are served.
    pub const BITS: [usize; 2] = [4, 8];
    /// Group sizes that are served.
    pub const GROUP_SIZES: [usize; 3] = [32, 64, 128];
}

/// `[rows, columns]` packed elements, with the scales and biases of their groups.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    affine: Affine,
    words: Bytes,
    /// `[rows, groups]`.
    scales: Dense,
    /// `[rows, groups]`.
    biases: Dense,
}

impl Packed {
    /// From whole rows of `words`, and scales and biases of one dtype, `[rows, groups]` each.
    pub(crate) fn new(affine: Affine, words: Bytes, scales: Dense, biases: Dense) -> Self {
        let packed = Self { affine, words, scales, biases };
        debug_assert_eq!(packed.words.len(), packed.rows() * packed.row_bytes());
        debug_assert_eq!(
            (packed.biases.rows(), packed.biases.columns(), packed.biases.dtype()),
            (packed.scales.rows(), packed.scales.columns(), packed.scales.dtype())
        );
        packed
    }

    pub(crate) fn rows(&self) -> usize {
        self.scales.rows()
    }

    pub(crate) fn columns(&self) -> usize {
        self.scales.columns() * self.affine.group_size
    }

    fn row_bytes(&self) -> usize {
        self.columns() / 8 * self.affine.bits
    }

    fn byte_range(&self, rows: &Range<usize>) -> Range<usize> {
        rows.start * self.row_bytes()..rows.end * self.row_bytes()
    }

    /// Some of the rows, shared.
    pub(crate) fn part(&self, rows: Range<usize>) -> Self {
        Self {
            affine: self.affine,
            words: self.words.part(self.byte_range(&rows)),
            scales: self.scales.part(rows.clone()),
            biases: self.biases.part(rows),
        }
    }

    /// Rows from `first` on in f32; `wide` is `[rows, columns]`.
    pub(crate) fn widen(&self, first: usize, wide: &mut [f32]) {
        let Affine { bits, group_size } = self.affine;
        let (columns, groups, per_byte) = (self.columns(), self.scales.columns(), 8 / bits);
        let (mut scales, mut biases) = (vec![0.0; groups], vec![0.0; groups]);
        for (row, wide) in (first..).zip(wide.chunks_exact_mut(columns)) {
            self.scales.widen(row, &mut scales);
            self.biases.widen(row, &mut biases);
            let packed = &self.words[self.byte_range(&(row..row + 1))];
            let groups = wide.chunks_exact_mut(group_size).zip(packed.chunks_exact(group_size / per_byte));
            for ((wide, packed), (scale, bias)) in groups.zip(scales.iter().zip(&biases)) {
                for (wide, byte) in wide.chunks_exact_mut(per_byte).zip(packed) {
                    for (place, wide) in wide.iter_mut().enumerate() {
                        *wide = scale * element(*byte, bits, place) + bias;
                    }
                }
            }
        }
    }

    /// x as the product wants it.
    pub(super) fn prepare(&self, x: &[f32]) -> Prepared {
        Prepared::new(self.affine, x)
    }

    /// `y[i]` = row `first + i` times the x that was prepared.
    pub(super) fn multiply(&self, first: usize, x: &Prepared, y: &mut [f32]) {
        let rows = first..first + y.len();
        let words = &self.words[self.byte_range(&rows)];
        let (scales, biases) = (self.scales.row_range(rows.clone()), self.biases.row_range(rows));
        with_element!(self.scales.dtype(), E => {
            let (scales, biases, arch) = (E::elements(scales), E::elements(biases), Arch::new());
            match (self.affine.bits, self.affine.group_size) {
                (4, 32) => arch.dispatch(Product::<E, 4, 32> { words, scales, biases, x, y }),
                (4, 64) => arch.dispatch(Product::<E, 4, 64> { words, scales, biases, x, y }),
                (4, 128) => arch.dispatch(Product::<E, 4, 128> { words, scales, biases, x, y }),
                (8, 32) => arch.dispatch(Product::<E, 8, 32> { words, scales, biases, x, y }),
                (8, 64) => arch.dispatch(Product::<E, 8, 64> { words, scales, biases, x, y }),
                (8, 128) => arch.dispatch(Product::<E, 8, 128> { words, scales, biases, x, y }),
                (bits, group_size) => unreachable!("{bits} bits in groups of {group_size} are none of `Affine`'s"),
            }
        });
    }
}

/// The whole number at a place of a byte, counted from the lowest bits.
#[inline(always)]
fn element(byte: u8, bits: usize, place: usize) -> f32 {
    f32::from(byte >> (bits * place) & (0xff >> (8 - bits)))
}
