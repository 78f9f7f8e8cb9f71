//! The weights of a Hugging Face checkpoint folder: `model.safetensors`, or several files with an index.
//!
//! Only the headers are read when a checkpoint is opened. A tensor is read from its file when it is asked for, and checked for
//! NaN and infinity, and goes to the device of the model's [`Place`]. On the CPU tensors are widened to f32 when they are read, except
//! bf16 matrices, which are widened when they are used.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::error::{Error, Result};
use crate::place::Place;

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// Bytes of the length that a safetensors file begins with.
const LENGTH_BYTES: u64 = 8;
/// Longest header that the format permits.
const HEADER_MAX: u64 = 100_000_000;

/// The tensors of a checkpoint by name.
pub struct Checkpoint {
    shards: Vec<Shard>,
    /// Shard that holds each tensor.
    tensors: BTreeMap<String, usize>,
    /// The file that lists the tensors, for messages about absent ones.
    listed_by: PathBuf,
    on_read: Box<dyn Fn(u64)>,
    place: Place,
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checkpoint({}, {} tensors)", self.listed_by.display(), self.tensors.len())
    }
}

/// One safetensors file, its header read.
struct Shard {
    path: PathBuf,
    file: RefCell<File>,
    metadata: Metadata,
    /// Where the tensors' bytes begin.
    data_start: u64,
    data_bytes: u64,
}

impl Checkpoint {
    /// Reads the headers of a checkpoint folder's safetensors files. Tensors go to `device` when they are read, for activations of
    /// `dtype` or what [`Place`] takes otherwise.
    ///
    /// # Errors
    ///
    /// A file is missing, truncated or inconsistent; the index names a tensor that its file does not hold.
    pub fn open(folder: &Path, device: &Device, dtype: Option<DType>) -> Result<Self> {
        let index = folder.join(INDEX);
        if !index.exists() {
            let shard = Shard::open(folder.join(SINGLE))?;
            let tensors = shard.metadata.tensors().into_keys().map(|name| (name, 0)).collect();
            return Ok(Self::new(shard.path.clone(), vec![shard], tensors, device, dtype));
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
        Ok(Self::new(index, shards, tensors, device, dtype))
    }

    fn new(
        listed_by: PathBuf,
        shards: Vec<Shard>,
        tensors: BTreeMap<String, usize>,
        device: &Device,
        dtype: Option<DType>,
    ) -> Self {
        let bf16 = |shard: &Shard| shard.metadata.tensors().values().any(|info| info.dtype == Dtype::BF16);
        let stored = if shards.iter().any(bf16) { DType::BF16 } else { DType::F32 };
        let place = Place::new(device.clone(), dtype, stored);
        Self { shards, tensors, listed_by, on_read: Box::new(|_| ()), place }
    }

    /// Calls `on_read` with the bytes of every tensor read from now on.
    #[must_use]
    pub fn with_progress(mut self, on_read: impl Fn(u64) + 'static) -> Self {
        self.on_read = Box::new(on_read);
        self
    }

    /// Bytes of all tensors in the files.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.data_bytes).sum()
    }

    /// Where the tensors go, and the dtype of activations there.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether the checkpoint holds a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Reads a tensor in the dtype of activations.
    ///
    /// # Errors
    ///
    /// The tensor is missing, of another shape, of a dtype other than f32, f16 and bf16, not readable or not finite.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        Ok(self.stored(name, shape)?.to_dtype(self.place.dtype)?.to_device(&self.place.device)?)
    }

    /// Reads a tensor as f32.
    ///
    /// # Errors
    ///
    /// As [`tensor`](Self::tensor).
    pub fn tensor_f32(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        Ok(self.stored(name, shape)?.to_dtype(DType::F32)?.to_device(&self.place.device)?)
    }

    /// Reads a tensor in the dtype that products take it in: on the CPU bf16 if it is stored so, else f32; elsewhere that of
    /// activations.
    ///
    /// # Errors
    ///
    /// As [`tensor`](Self::tensor).
    pub fn matrix(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        match self.place.device {
            Device::Cpu => self.stored(name, shape),
            _ => self.tensor(name, shape),
        }
    }

    /// Reads a tensor to the CPU, as bf16 if it is stored so, else as f32.
    fn stored(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let missing = || Error::MissingTensor { path: self.listed_by.clone(), tensor: name.to_owned() };
        let shard = &self.shards[*self.tensors.get(name).ok_or_else(missing)?];
        let info = shard.metadata.info(name).ok_or_else(missing)?;
        let (path, tensor) = (shard.path.clone(), name.to_owned());
        if info.shape != shape {
            return Err(Error::Shape { path, tensor, expected: shape.to_vec(), got: info.shape.clone() });
        }
        let (begin, end) = info.data_offsets;
        let read = || shard.read(begin, end - begin);
        let pairs = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect::<Vec<_>>();
        let values = match info.dtype {
            Dtype::F32 => Values::F32(read()?.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()),
            Dtype::F16 => Values::F32(pairs(&read()?).into_iter().map(|bits| f16::from_bits(bits).to_f32()).collect()),
            Dtype::BF16 => Values::Bf16(pairs(&read()?).into_iter().map(bf16::from_bits).collect()),
            other => return Err(Error::Dtype { path, tensor, dtype: format!("{other:?}") }),
        };
        if let Some((index, value)) = values.first_not_finite() {
            return Err(Error::NotFinite { path, tensor, index, value });
        }
        (self.on_read)((end - begin) as u64);
        Ok(match values {
            Values::F32(values) => Tensor::from_vec(values, shape, &Device::Cpu)?,
            Values::Bf16(values) => Tensor::from_vec(values, shape, &Device::Cpu)?,
        })
    }
}

/// Elements of a tensor, in the type that they are held in.
enum Values {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

impl Values {
    fn first_not_finite(&self) -> Option<(usize, f32)> {
        match self {
            Self::F32(values) => values.iter().position(|value| !value.is_finite()).map(|index| (index, values[index])),
            Self::Bf16(values) => {
                values.iter().position(|value| !value.is_finite()).map(|index| (index, values[index].to_f32()))
            }
        }
    }
}

impl Shard {
    fn open(path: PathBuf) -> Result<Self> {
        let hint =
            "a checkpoint folder holds model.safetensors, or model.safetensors.index.json and the files it names";
        let read = |source| Error::read(&path, source, hint);
        let mut file = File::open(&path).map_err(read)?;
        let file_bytes = file.metadata().map_err(read)?.len();

        let truncated = |needed: u64| {
            Error::malformed(
                &path,
                format!("truncated safetensors file: {file_bytes} bytes, at least {needed} expected"),
            )
        };
        let mut length = [0; LENGTH_BYTES as usize];
        if file_bytes < LENGTH_BYTES {
            return Err(truncated(LENGTH_BYTES));
        }
        file.read_exact(&mut length).map_err(read)?;
        let header_bytes = u64::from_le_bytes(length);
        if header_bytes > HEADER_MAX {
            let problem = format!("not a safetensors file: its header would have {header_bytes} bytes");
            return Err(Error::malformed(&path, problem));
        }
        let data_start = LENGTH_BYTES + header_bytes;
        if file_bytes < data_start {
            return Err(truncated(data_start));
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact(&mut header).map_err(read)?;
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|error| Error::malformed(&path, format!("broken safetensors header: {error}")))?;

        let data_bytes = file_bytes - data_start;
        for (name, info) in metadata.tensors() {
            let end = info.data_offsets.1 as u64;
            if end > data_bytes {
                let problem = format!(
                    "truncated safetensors file: tensor `{name}` ends at byte {}, the file at {file_bytes}",
                    data_start.saturating_add(end)
                );
                return Err(Error::malformed(&path, problem));
            }
        }
        Ok(Self { path, file: RefCell::new(file), metadata, data_start, data_bytes })
    }

    fn read(&self, begin: usize, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let mut file = self.file.borrow_mut();
        file.seek(SeekFrom::Start(self.data_start + begin as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|source| Error::Read { path: self.path.clone(), source })?;
        Ok(bytes)
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
