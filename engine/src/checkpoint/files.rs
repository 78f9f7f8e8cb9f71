//! The tensors of a folder's safetensors files: `model.safetensors`, or several with an index.
//!
//! The files are mapped into memory. Only the headers are read when they are opened; a tensor is read when it is asked for, to see
//! that it holds no NaN and no infinity. Everything here is on the CPU.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use ssm_update::Dtype as Number;

use super::names::{Format, looks_like_mlx, mlx_shape};
use super::quantization::Quantization;
use super::shard::Shard;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::matrix::Dense;

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// The dtypes of numbers that are served.
pub(super) const NUMBERS: [(Dtype, Number); 3] =
    [(Dtype::F32, Number::F32), (Dtype::F16, Number::F16), (Dtype::BF16, Number::Bf16)];

/// The tensors by name.
pub(super) struct Files {
    shards: Vec<Shard>,
    /// Shard that holds each tensor.
    tensors: BTreeMap<String, usize>,
    /// The file that lists the tensors, for messages about absent ones.
    listed_by: PathBuf,
    format: Format,
    pub(super) quantization: Option<Quantization>,
    /// Tensors that were read and found good.
    used: RefCell<BTreeSet<String>>,
    pub(super) on_read: Box<dyn Fn(u64)>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Files({}, {} tensors)", self.listed_by.display(), self.tensors.len())
    }
}

impl Files {
    /// Maps a folder's files and reads their headers.
    ///
    /// # Errors
    ///
    /// A file is missing, truncated or inconsistent; the index names a tensor that its file does not hold.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let index = folder.join(INDEX);
        if !index.exists() {
            let shard = Shard::open(folder.join(SINGLE))?;
            let tensors = shard.metadata.tensors().into_keys().map(|name| (name, 0)).collect();
            return Ok(Self::new(shard.path.clone(), vec![shard], tensors));
        }
        let (mut shards, mut tensors, mut known) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for (tensor, file) in read_index(&index)? {
            let shard = match known.get(&file) {
                Some(&shard) => shard,
                None => {
                    shards.push(Shard::open(folder.join(&file))?);
                    known.insert(file, shards.len() - 1);
                    shards.len() - 1
                }
            };
            if shards[shard].metadata.info(&tensor).is_none() {
                return Err(Error::MissingTensor { path: shards[shard].path.clone(), tensor });
            }
            tensors.insert(tensor, shard);
        }
        Ok(Self::new(index, shards, tensors))
    }

    fn new(listed_by: PathBuf, shards: Vec<Shard>, tensors: BTreeMap<String, usize>) -> Self {
        // mlx-lm says so in the header; older files of it can be told by a tensor's shape.
        let is_mlx = |shard: &Shard| {
            let stated = shard.metadata.metadata().as_ref().and_then(|facts| facts.get("format"));
            stated.is_some_and(|format| format == "mlx")
                || shard.metadata.tensors().iter().any(|(name, info)| looks_like_mlx(name, info))
        };
        let format = if shards.iter().any(is_mlx) { Format::Mlx } else { Format::HuggingFace };
        Self {
            shards,
            tensors,
            listed_by,
            format,
            quantization: None,
            used: RefCell::default(),
            on_read: Box::new(|_| ()),
        }
    }

    /// Whether some of the weights are bf16 or quantised. What quantised elements stand for needs no more than bf16, whatever their
    /// scales are held in.
    pub(super) fn is_narrow(&self) -> bool {
        let is_narrow = |info: &TensorInfo| matches!(info.dtype, Dtype::BF16 | Dtype::U32);
        self.shards.iter().any(|shard| shard.metadata.tensors().values().any(|info| is_narrow(info)))
    }

    /// Who wrote the files.
    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Bytes of all tensors in the files.
    pub(super) fn bytes(&self) -> u64 {
        self.shards.iter().map(Shard::data_bytes).sum()
    }

    /// Whether there is a tensor of this name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Reads a tensor as f32.
    ///
    /// # Errors
    ///
    /// The tensor is missing, of another shape, of a dtype other than f32, f16 and bf16, or not finite.
    pub(super) fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let expected = match self.format {
            Format::Mlx if self.info(name)?.1.shape != shape => mlx_shape(name, shape),
            _ => shape.to_vec(),
        };
        let values = self.dense(name, &expected, 1, &NUMBERS)?;
        let mut wide = vec![0.0; values.rows()];
        values.widen(0, &mut wide);
        Ok(Tensor::from_vec(wide, shape, &Device::Cpu)?)
    }

    /// A tensor of numbers as rows of `columns`, found to be finite.
    pub(super) fn dense(
        &self,
        name: &str,
        shape: &[usize],
        columns: usize,
        dtypes: &[(Dtype, Number)],
    ) -> Result<Dense> {
        let (bytes, dtype) = self.stored(name, shape, dtypes)?;
        let length = bytes.len() as u64;
        let values = Dense::new(bytes, dtype, columns);
        if !self.used.borrow().contains(name)
            && let Some((index, value)) = values.first_not_finite()
        {
            let (path, tensor) = (self.info(name)?.0.path.clone(), name.to_owned());
            return Err(Error::NotFinite { path, tensor, index, value });
        }
        self.found_good(name, length);
        Ok(values)
    }

    /// A tensor's bytes, and what its dtype stands for in the table of those that are served.
    pub(super) fn stored<T: Copy>(&self, name: &str, shape: &[usize], dtypes: &[(Dtype, T)]) -> Result<(Bytes, T)> {
        let (shard, info) = self.info(name)?;
        let (path, tensor) = (shard.path.clone(), name.to_owned());
        if info.shape != shape {
            return Err(Error::Shape { path, tensor, expected: shape.to_vec(), got: info.shape.clone() });
        }
        match dtypes.iter().find(|(dtype, _)| *dtype == info.dtype) {
            Some((_, meaning)) => Ok((shard.bytes(info), *meaning)),
            None => {
                let served = dtypes.iter().map(|(dtype, _)| format!("{dtype:?}")).collect::<Vec<_>>().join(", ");
                Err(Error::Dtype { path, tensor, served, dtype: format!("{:?}", info.dtype) })
            }
        }
    }

    /// Counts a tensor's bytes as read, once: experts and tied weights are asked for more than once. From then on it is not looked
    /// through again.
    pub(super) fn found_good(&self, name: &str, bytes: u64) {
        if self.used.borrow_mut().insert(name.to_owned()) {
            (self.on_read)(bytes);
        }
    }

    /// The file that holds a tensor, and what its header says of it.
    pub(super) fn info(&self, name: &str) -> Result<(&Shard, &TensorInfo)> {
        let missing = || Error::MissingTensor { path: self.listed_by.clone(), tensor: name.to_owned() };
        let shard = &self.shards[*self.tensors.get(name).ok_or_else(missing)?];
        Ok((shard, shard.metadata.info(name).ok_or_else(missing)?))
    }
}

/// Tensor name to file name.
fn read_index(path: &Path) -> Result<BTreeMap<String, String>> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let text = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let index: Index = serde_json::from_slice(&text)
        .map_err(|error| Error::malformed(path, format!("expected an object with `weight_map`: {error}")))?;
    // A file name with a folder in it would reach outside of the checkpoint.
    if let Some(file) = index.weight_map.values().find(|file| Path::new(file).file_name() != Some(file.as_ref())) {
        return Err(Error::malformed(path, format!("`weight_map` names {file:?}, expected a file beside the index")));
    }
    Ok(index.weight_map)
}
