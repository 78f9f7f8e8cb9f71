//! The kernel's sources, and the hash that stands for them.

use std::fs;
use std::path::{Path, PathBuf};

use super::failure::Failure;
use super::files;

/// The file that is compiled.
pub const KERNEL: &str = "ssm_update.hip";
/// The list of architectures.
pub const TARGETS: &str = "targets.txt";
/// What is compiled, and what it shares with the kernels in other languages.
const FOLDERS: [&str; 2] = ["gpu", "hip"];

/// `hip/` and `gpu/`.
#[derive(Clone, Debug)]
pub struct Sources {
    /// `hip/`, which the compiler runs in.
    pub folder: PathBuf,
    /// All folders with a file that a code object depends on.
    pub folders: Vec<PathBuf>,
    /// SHA-256 over names, with their folders, and texts of everything that a code object depends on.
    pub sha256: String,
}

impl Sources {
    /// Reads the folders.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub fn read(root: &Path) -> Result<Self, Failure> {
        let folders: Vec<PathBuf> = FOLDERS.iter().map(|name| root.join(name)).collect();
        // The name under which a file counts has a slash on every system.
        let mut names = Vec::new();
        for (name, folder) in FOLDERS.iter().zip(&folders) {
            for entry in fs::read_dir(folder).map_err(Failure::file("listed", folder))? {
                let path = entry.map_err(Failure::file("listed", folder))?.path();
                if matches!(path.extension().and_then(|e| e.to_str()), Some("hip" | "h")) {
                    let file = path.file_name().unwrap_or_default().to_string_lossy();
                    names.push((format!("{name}/{file}"), path));
                }
            }
        }
        names.sort();
        let mut parts = Vec::new();
        for (name, path) in names {
            parts.push(name.into_bytes());
            parts.push(as_committed(&files::read(&path)?));
        }
        let sha256 = files::sha256_of_parts(parts.iter().map(Vec::as_slice));
        Ok(Self { folder: root.join("hip"), folders, sha256 })
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
