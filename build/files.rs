//! Hashes, and files that are there whole or not at all.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::failure::Failure;
use super::hash::hex;
pub use super::hash::sha256_of_parts;

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The bytes of a file.
///
/// # Errors
///
/// It cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(Failure::file("read", path))
}

/// The text of a file.
///
/// # Errors
///
/// It cannot be read, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(Failure::file("read", path))
}

/// Writes a file in one step, beside it and over it.
///
/// # Errors
///
/// It cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let beside = path.with_added_extension("partial");
    fs::write(&beside, bytes).map_err(Failure::file("written", &beside))?;
    fs::rename(&beside, path).map_err(Failure::file("written", path))
}
