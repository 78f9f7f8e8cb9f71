//! Weight matrices: where their rows are in the files, and in which form.

use safetensors::Dtype;

use super::files::{Files, NUMBERS};
use super::names::{Format, Place, mlx_places};
use super::quantization::{Quantization, Stated};
use crate::error::{Error, Result};
use crate::matrix::{Affine, Block, Matrix, Packed};

/// The dtype of quantised elements.
const WORDS: [(Dtype, ()); 1] = [(Dtype::U32, ())];

impl Files {
    /// A weight matrix, `[out, in]`, in the form that the file has it in: f32, f16, bf16 or quantised. `name` is the tensor's with
    /// Hugging Face, and ends with `.weight`.
    ///
    /// # Errors
    ///
    /// As [`tensor`](Self::tensor), also for the scales and biases of a quantised matrix.
    pub(super) fn matrix(&self, name: &str, shape: &[usize; 2]) -> Result<Matrix> {
        let places = self.places(name);
        let [out, inputs] = *shape;
        let rows = out / places.len();
        let part = |Place { module, expert }: &Place| match expert {
            None => Ok(Matrix::new(self.block(module, &[rows, inputs])?)),
            Some(expert) => {
                let name = format!("{module}.weight");
                let count = self.info(&name)?.1.shape.first().copied().unwrap_or(0);
                let stack = self.block(module, &[count.max(expert + 1), rows, inputs])?;
                Ok(Matrix::new(stack.part(expert * rows..(expert + 1) * rows)))
            }
        };
        Matrix::stack(places.iter().map(part).collect::<Result<Vec<_>>>()?)
    }

    /// The matrices of several experts, which the file has in one tensor, `[experts, out, in]`.
    ///
    /// # Errors
    ///
    /// As [`matrix`](Self::matrix).
    pub(super) fn experts(&self, name: &str, shape: &[usize; 3]) -> Result<Vec<Matrix>> {
        let places = self.places(name);
        let [experts, out, inputs] = *shape;
        let rows = out / places.len();
        let block = |place: &Place| self.block(&place.module, &[experts, rows, inputs]);
        let blocks = places.iter().map(block).collect::<Result<Vec<_>>>()?;
        let part = |block: &Block, e: usize| Matrix::new(block.part(e * rows..(e + 1) * rows));
        let expert = |e| Matrix::stack(blocks.iter().map(|block| part(block, e)));
        (0..experts).map(expert).collect()
    }

    /// Where the rows of a matrix are, in equal shares.
    fn places(&self, name: &str) -> Vec<Place> {
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let elsewhere = match self.format() {
            Format::Mlx if !self.contains(name) => mlx_places(module),
            _ => None,
        };
        // With nothing there either, the tensor is said to be missing under the name that was asked for.
        let is_there =
            |places: &Vec<Place>| places.iter().any(|place| self.contains(&format!("{}.weight", place.module)));
        elsewhere.filter(is_there).unwrap_or_else(|| vec![Place::whole(module)])
    }

    /// The rows of a module's matrix; all dimensions of `shape` but the last one count rows.
    fn block(&self, module: &str, shape: &[usize]) -> Result<Block> {
        let weight = format!("{module}.weight");
        let malformed = |problem: String| match self.info(&weight) {
            Ok((shard, _)) => Error::malformed(&shard.path, problem),
            Err(missing) => missing,
        };
        if shape.contains(&0) {
            return Err(malformed(format!("tensor `{weight}`: a matrix of shape {shape:?}")));
        }
        let has_scales = self.contains(&format!("{module}.scales"));
        let stated = self.quantization.as_ref().map(|quantization| (quantization, quantization.of(module)));
        let (quantization, affine) = match stated {
            Some((quantization, Stated::Own(affine))) => (quantization, affine),
            Some((quantization, Stated::Common(affine))) if has_scales => (quantization, affine),
            None if has_scales => {
                let problem = format!("tensor `{weight}` is quantised, and config.json has no `quantization`");
                return Err(malformed(problem));
            }
            _ => return Ok(Block::Dense(self.dense(&weight, shape, shape[shape.len() - 1], &NUMBERS)?)),
        };
        self.packed(module, shape, affine, quantization)
    }

    fn packed(&self, module: &str, shape: &[usize], affine: Affine, quantization: &Quantization) -> Result<Block> {
        let [weight, scales, biases] = ["weight", "scales", "biases"].map(|part| format!("{module}.{part}"));
        let Affine { bits, group_size } = affine;
        let columns = shape.last().copied().unwrap_or(0);
        if !columns.is_multiple_of(group_size) {
            return Err(quantization.indivisible(module, affine, columns));
        }
        let with_columns = |columns: usize| [&shape[..shape.len() - 1], &[columns]].concat();
        let (words, ()) = self.stored(&weight, &with_columns(columns * bits / 32), &WORDS)?;
        let groups = columns / group_size;
        let scales = self.dense(&scales, &with_columns(groups), groups, &NUMBERS)?;
        // One product serves both, and mlx-lm writes them in the dtype that the matrix had.
        let same: Vec<_> = NUMBERS.into_iter().filter(|(_, dtype)| *dtype == scales.dtype()).collect();
        let biases = self.dense(&biases, &with_columns(groups), groups, &same)?;
        // Whatever whole numbers the words hold, they are finite.
        self.found_good(&weight, words.len() as u64);
        Ok(Block::Packed(Packed::new(affine, words, scales, biases)))
    }
}
