//! One safetensors file: its header, and its tensors' bytes by name.

use std::fs::File;
use std::path::PathBuf;

use safetensors::tensor::{Metadata, TensorInfo};

use crate::bytes::{Bytes, MappedFile};
use crate::error::{Error, Result};

/// Bytes of the length that a safetensors file begins with.
const LENGTH_BYTES: usize = 8;
/// Longest header that the format permits.
const HEADER_MAX: u64 = 100_000_000;

/// One file, mapped, its header read.
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) metadata: Metadata,
    /// The tensors' bytes.
    data: Bytes,
}

impl Shard {
    /// Maps the file and checks that every tensor that its header names lies within it.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let hint =
            "a checkpoint folder holds model.safetensors, or model.safetensors.index.json and the files it names";
        let read = |source| Error::read(&path, source, hint);
        let file = File::open(&path).map_err(read)?;
        let file_bytes = file.metadata().map_err(read)?.len();
        let truncated = |needed: u64| {
            Error::malformed(
                &path,
                format!("truncated safetensors file: {file_bytes} bytes, at least {needed} expected"),
            )
        };
        if file_bytes < LENGTH_BYTES as u64 {
            return Err(truncated(LENGTH_BYTES as u64));
        }
        let all = Bytes::new(MappedFile::new(&file).map_err(read)?);
        let header_bytes = u64::from_le_bytes(*all.first_chunk().ok_or_else(|| truncated(LENGTH_BYTES as u64))?);
        if header_bytes > HEADER_MAX {
            let problem = format!("not a safetensors file: its header would have {header_bytes} bytes");
            return Err(Error::malformed(&path, problem));
        }
        let data_start = LENGTH_BYTES + header_bytes as usize;
        let header = all.get(LENGTH_BYTES..data_start).ok_or_else(|| truncated(data_start as u64))?;
        let metadata: Metadata = serde_json::from_slice(header)
            .map_err(|error| Error::malformed(&path, format!("broken safetensors header: {error}")))?;

        let data = all.part(data_start..all.len());
        for (name, info) in metadata.tensors() {
            let end = info.data_offsets.1;
            if end > data.len() {
                let problem = format!(
                    "truncated safetensors file: tensor `{name}` ends at byte {}, the file at {file_bytes}",
                    data_start.saturating_add(end)
                );
                return Err(Error::malformed(&path, problem));
            }
        }
        Ok(Self { path, metadata, data })
    }

    /// Bytes of all tensors.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data.len() as u64
    }

    /// What one of this file's tensors consists of.
    pub(super) fn bytes(&self, info: &TensorInfo) -> Bytes {
        self.data.part(info.data_offsets.0..info.data_offsets.1)
    }
}
