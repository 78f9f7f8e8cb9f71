//! SHA-256 in hexadecimal. The build script includes this file, too.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Of several parts, each with its length in front, so that no two lists of parts are alike.
pub fn sha256_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // cannot fail on a String
        text
    })
}
