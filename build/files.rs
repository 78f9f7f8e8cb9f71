//! Hashes, and files that are there whole or not at all.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::failure::Failure;

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 in hexadecimal of several parts, each with its length in front, so that no two lists of parts are alike.
pub fn sha256_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // cannot fail on a String
        text
    })
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
