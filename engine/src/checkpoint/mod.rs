//! The weights of a checkpoint folder, as `transformers` or `mlx-lm` write it, on the device of the model's [`Place`]; or random ones
//! of the same shapes, for measuring.
//!
//! On the CPU matrices are used as they are in the file, and other tensors are widened to f32 when they are read.

mod files;
mod matrices;
mod names;
mod quantization;
mod random;
mod shard;

use std::path::Path;

use candle_core::{DType, Device, Tensor};

use crate::error::Result;
use crate::matrix::Matrix;
use crate::place::Place;
use files::Files;
pub use names::Format;
pub use quantization::Quantization;

/// The tensors of a model by name, in the place where they are used.
#[derive(Debug)]
pub struct Checkpoint {
    source: Source,
    place: Place,
}

#[derive(Debug)]
enum Source {
    Files(Files),
    Random,
}

impl Checkpoint {
    /// Maps a checkpoint folder's safetensors files and reads their headers. Tensors go to `device` when they are read, for
    /// activations of `dtype` or what [`Place`] takes otherwise. Matrices are read as `quantization` says, which is what config.json
    /// has about it. `on_read` is called with the bytes of every tensor that is read.
    ///
    /// # Errors
    ///
    /// A file is missing, truncated or inconsistent; the index names a tensor that its file does not hold.
    pub fn open(
        folder: &Path,
        device: &Device,
        dtype: Option<DType>,
        quantization: Option<Quantization>,
        on_read: impl Fn(u64) + 'static,
    ) -> Result<Self> {
        let mut files = Files::open(folder)?;
        files.quantization = quantization;
        files.on_read = Box::new(on_read);
        let stored = if files.is_narrow() { DType::BF16 } else { DType::F32 };
        Ok(Self { place: Place::new(device.clone(), dtype, stored), source: Source::Files(files) })
    }

    /// Random weights in place of files: every tensor is there, in the shape that it is asked for, with values of the usual size.
    /// Matrices are bf16 unless `dtype` says otherwise.
    ///
    /// # Errors
    ///
    /// The device has no random numbers.
    pub fn random(device: &Device, dtype: Option<DType>) -> Result<Self> {
        let place = Place::new(device.clone(), dtype, DType::BF16);
        random::begin(device)?;
        Ok(Self { source: Source::Random, place })
    }

    /// Who wrote the checkpoint. Names and shapes are taken care of here; families need it where MLX changed values.
    pub fn format(&self) -> Format {
        match &self.source {
            Source::Files(files) => files.format(),
            Source::Random => Format::HuggingFace,
        }
    }

    /// Bytes of all tensors in the files.
    pub fn bytes(&self) -> u64 {
        match &self.source {
            Source::Files(files) => files.bytes(),
            Source::Random => 0,
        }
    }

    /// Where the tensors go, and the dtype of activations there.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Reads a tensor in the dtype of activations.
    ///
    /// # Errors
    ///
    /// The tensor is missing, of another shape, of a dtype other than f32, f16 and bf16, or not finite.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        Ok(self.tensor_f32(name, shape)?.to_dtype(self.place.dtype)?)
    }

    /// Reads a tensor as f32.
    ///
    /// # Errors
    ///
    /// As [`tensor`](Self::tensor).
    pub fn tensor_f32(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        match &self.source {
            Source::Files(files) => Ok(files.tensor(name, shape)?.to_device(&self.place.device)?),
            Source::Random => random::tensor(name, shape, &self.place),
        }
    }

    /// A weight matrix, `[out, in]`: on the CPU in the form that the file has it in (f32, f16, bf16 or quantised), elsewhere in the
    /// dtype of activations. `name` is the tensor's with Hugging Face, and ends with `.weight`.
    ///
    /// # Errors
    ///
    /// As [`tensor`](Self::tensor), also for the scales and biases of a quantised matrix.
    pub fn matrix(&self, name: &str, shape: &[usize; 2]) -> Result<Matrix> {
        self.matrix_in(name, shape, &self.place)
    }

    /// As [`matrix`](Self::matrix), for products in f32 whatever the dtype of activations is.
    ///
    /// # Errors
    ///
    /// As [`matrix`](Self::matrix).
    pub fn matrix_f32(&self, name: &str, shape: &[usize; 2]) -> Result<Matrix> {
        self.matrix_in(name, shape, &Place { dtype: DType::F32, ..self.place.clone() })
    }

    fn matrix_in(&self, name: &str, shape: &[usize; 2], place: &Place) -> Result<Matrix> {
        match &self.source {
            Source::Files(files) => files.matrix(name, shape)?.moved_to(place),
            Source::Random => random::matrix(shape, place),
        }
    }

    /// The matrices of several experts, which the file has in one tensor, `[experts, out, in]`.
    ///
    /// # Errors
    ///
    /// As [`matrix`](Self::matrix).
    pub fn experts(&self, name: &str, shape: &[usize; 3]) -> Result<Vec<Matrix>> {
        match &self.source {
            Source::Files(files) => {
                files.experts(name, shape)?.into_iter().map(|matrix| matrix.moved_to(&self.place)).collect()
            }
            Source::Random => {
                let [experts, out, inputs] = *shape;
                (0..experts).map(|_| random::matrix(&[out, inputs], &self.place)).collect()
            }
        }
    }
}
