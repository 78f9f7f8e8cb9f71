//! The product of packed rows with a vector, which reads the packed form.
//!
//! With the elements of a group being `s q_j + b`, a row's product with x is, group by group,
//!
//! ```text
//! sum_j (s q_j + b) x_j  =  s sum_j q_j x_j  +  b sum_j x_j
//! ```
//!
//! so that one multiplication per element is left, and the sums of x are made once for all rows.

use pulp::{Simd, WithSimd};

use super::ROWS;
use super::dense::dots;
use super::element::Element;
use super::packed::Affine;

/// Words that are worked on together: 64 bytes.
const WORDS: usize = 16;

/// A vector as the product with packed rows wants it.
pub(super) struct Prepared {
    /// Block by block, filled up with zeros: the x of the lowest elements of the block's words, then of the next ones, and so
    /// on. Each is divided by what [`unpack`] leaves its elements multiplied with.
    values: Vec<f32>,
    /// Of each group.
    sums: Vec<f32>,
}

impl Prepared {
    pub(super) fn new(Affine { bits, group_size }: Affine, x: &[f32]) -> Self {
        let per_word = 32 / bits;
        let mut values = vec![0.0; x.len().next_multiple_of(WORDS * per_word)];
        for (values, x) in values.chunks_exact_mut(WORDS * per_word).zip(x.chunks(WORDS * per_word)) {
            for (place, values) in values.chunks_exact_mut(WORDS).enumerate() {
                let scale = 1.0 / factor(bits, place);
                for (value, x) in values.iter_mut().zip(x.iter().skip(place).step_by(per_word)) {
                    *value = x * scale;
                }
            }
        }
        // In f64, since everything that a row has in common is in these sums.
        let sum = |group: &[f32]| group.iter().map(|x| f64::from(*x)).sum::<f64>() as f32;
        Self { values, sums: x.chunks_exact(group_size).map(sum).collect() }
    }
}

/// What [`unpack`] leaves the elements at a place multiplied with: a power of two.
fn factor(bits: usize, place: usize) -> f32 {
    if (place + 1) * bits == 32 { 1.0 } else { (1_u32 << (bits * place)) as f32 }
}

/// The elements at one place of a block's words, left where they are so that a shift is saved. Only the highest ones are
/// shifted down: in their place they would need a conversion from unsigned numbers, which AVX2 has not.
#[inline(always)]
fn unpack<const BITS: usize>(words: &[u32; WORDS], place: usize) -> [f32; WORDS] {
    let (shift, mask) = (BITS * place, u32::MAX >> (32 - BITS));
    let is_highest = shift + BITS == 32;
    words.map(|word| (if is_highest { word >> shift } else { word & (mask << shift) }).cast_signed() as f32)
}

/// `y[i]` = row i times x, for rows of `BITS` bits in groups of `GROUP` columns.
pub(super) struct Product<'a, E: Element, const BITS: usize, const GROUP: usize> {
    pub(super) words: &'a [u8],
    pub(super) scales: &'a [E::Bytes],
    pub(super) biases: &'a [E::Bytes],
    pub(super) x: &'a Prepared,
    pub(super) y: &'a mut [f32],
}

impl<E: Element, const BITS: usize, const GROUP: usize> WithSimd for Product<'_, E, BITS, GROUP> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { words, scales, biases, x, y } = self;
        let groups = x.sums.len();
        let words = words.as_chunks().0;
        let rows = Rows::<E> { words, row_words: groups * GROUP * BITS / 32, scales, groups };
        // Rows that lie far apart are worked on together: the memory is read in several streams, so that it need not be
        // waited for at the end of each page.
        let span = y.len() / ROWS;
        for first in 0..span {
            let indices = std::array::from_fn(|stream| stream * span + first);
            let products = rows.scaled_products::<S, BITS, GROUP, ROWS>(simd, indices, &x.values);
            for (index, product) in indices.into_iter().zip(products) {
                y[index] = product;
            }
        }
        for (index, y) in y.iter_mut().enumerate().skip(span * ROWS) {
            [*y] = rows.scaled_products::<S, BITS, GROUP, 1>(simd, [index], &x.values);
        }
        for (y, biases) in y.iter_mut().zip(biases.chunks_exact(groups)) {
            let [common] = dots::<S, E, 1>(simd, biases, &x.sums);
            *y += common;
        }
    }
}

/// Packed rows without their biases.
struct Rows<'a, E: Element> {
    words: &'a [[u8; 4]],
    row_words: usize,
    scales: &'a [E::Bytes],
    groups: usize,
}

impl<E: Element> Rows<'_, E> {
    /// `sum_g s_g sum_j q_j x_j` of some rows.
    #[inline(always)]
    fn scaled_products<S: Simd, const BITS: usize, const GROUP: usize, const R: usize>(
        &self,
        simd: S,
        indices: [usize; R],
        x: &[f32],
    ) -> [f32; R] {
        let group_words = GROUP * BITS / 32;
        let rows = indices.map(|row| &self.words[row * self.row_words..(row + 1) * self.row_words]);
        let scales = indices.map(|row| &self.scales[row * self.groups..(row + 1) * self.groups]);
        let blocks = self.row_words / WORDS;
        let (x, x_rest) = x.split_at(blocks * WORDS * 32 / BITS);
        let mut sums = [simd.splat_f32s(0.0); R];
        for (block, x) in x.chunks_exact(WORDS * 32 / BITS).enumerate() {
            let first = block * WORDS;
            for ((sum, row), scales) in sums.iter_mut().zip(&rows).zip(&scales) {
                let words: [u32; WORDS] = std::array::from_fn(|i| u32::from_le_bytes(row[first..first + WORDS][i]));
                let mut word_scales = [0.0; WORDS];
                for (run, word_scales) in word_scales.chunks_mut(group_words).enumerate() {
                    word_scales.fill(E::widen(scales[first / group_words + run]));
                }
                *sum = add_block::<S, BITS>(simd, &words, &word_scales, x, *sum);
            }
        }
        if !x_rest.is_empty() {
            let first = blocks * WORDS;
            for ((sum, row), scales) in sums.iter_mut().zip(&rows).zip(&scales) {
                let (mut words, mut word_scales) = ([0; WORDS], [0.0; WORDS]);
                for (place, word) in row[first..].iter().enumerate() {
                    words[place] = u32::from_le_bytes(*word);
                    word_scales[place] = E::widen(scales[(first + place) / group_words]);
                }
                *sum = add_block::<S, BITS>(simd, &words, &word_scales, x_rest, *sum);
            }
        }
        sums.map(|sum| simd.reduce_sum_f32s(sum))
    }
}

/// The sum and, lane by lane, the scaled products of a block's words with their x.
#[inline(always)]
fn add_block<S: Simd, const BITS: usize>(
    simd: S,
    words: &[u32; WORDS],
    scales: &[f32; WORDS],
    x: &[f32],
    mut sum: S::f32s,
) -> S::f32s {
    // One vector of 16 lanes, two of 8, ...
    for (vector, scale) in S::as_simd_f32s(scales).0.iter().enumerate() {
        // Two sums, so that one need not wait for the other.
        let mut parts = [simd.splat_f32s(0.0); 2];
        for (place, x) in x.chunks_exact(WORDS).enumerate() {
            let elements = unpack::<BITS>(words, place);
            let (elements, x) = (S::as_simd_f32s(&elements).0[vector], S::as_simd_f32s(x).0[vector]);
            parts[place % 2] = simd.mul_add_e_f32s(elements, x, parts[place % 2]);
        }
        sum = simd.mul_add_e_f32s(*scale, simd.add_f32s(parts[0], parts[1]), sum);
    }
    sum
}
