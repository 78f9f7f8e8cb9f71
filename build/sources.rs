//! The kernel's sources, and the hash that stands for them.

use std::fs;
use std::path::{Path, PathBuf};

use super::failure::Failure;
use super::files;

/// The file that is compiled.
pub const KERNEL: &str = "ssm_update.hip";
/// The list of architectures.
pub const TARGETS: &str = "targets.txt";

/// `hip/`.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The folder.
    pub folder: PathBuf,
    /// SHA-256 over names and texts of everything that a code object depends on.
    pub sha256: String,
}

impl Sources {
    /// Reads the folder.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub fn read(root: &Path) -> Result<Self, Failure> {
        let folder = root.join("hip");
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Failure::file("listed", &folder))? {
            let path = entry.map_err(Failure::file("listed", &folder))?.path();
            if matches!(path.extension().and_then(|e| e.to_str()), Some("hip" | "h")) {
                names.push(path);
            }
        }
        names.sort();
        let mut parts = Vec::new();
        for path in names {
            parts.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned().into_bytes());
            parts.push(as_committed(&files::read(&path)?));
        }
        let sha256 = files::sha256_of_parts(parts.iter().map(Vec::as_slice));
        Ok(Self { folder, sha256 })
    }

    /// The text of `targets.txt`.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn targets(&self) -> Result<String, Failure> {
        files::read_text(&self.folder.join(TARGETS))
    }
}

/// Git may give every line a carriage return when it checks out on Windows; the same sources keep their hash.
fn as_committed(text: &[u8]) -> Vec<u8> {
    let follows = text.iter().skip(1).copied().map(Some).chain([None]);
    text.iter().zip(follows).filter(|&(&byte, next)| !(byte == b'\r' && next == Some(b'\n'))).map(|(b, _)| *b).collect()
}
