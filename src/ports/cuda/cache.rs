//! Compiled kernels on disk, so that only the first process on a machine compiles. One file per kernel, whose name is the hash of
//! everything that it depends on; a checksum tells a whole file from a damaged one, which is compiled and written anew. Files appear
//! at once, under a temporary name first: processes at the same time do not see each other's halves.
//!
//! A cache that cannot be read or written is no error: everything is compiled then.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use etcetera::{BaseStrategy, choose_base_strategy};
use sha2::{Digest, Sha256};

use crate::hash::sha256_of_parts;

/// First bytes of a file. The number changes with the layout.
const MAGIC: &[u8] = b"ssm-update cubin 1\n";
const CHECKSUM: usize = 32;

/// A folder of compiled kernels, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// The cache in the folder that the switch names, none where that is empty; without the switch, in the user's cache folder.
    pub fn new(switch: Option<&OsStr>) -> Self {
        let folder = match switch {
            Some(folder) if folder.is_empty() => None,
            Some(folder) => Some(PathBuf::from(folder)),
            None => choose_base_strategy().ok().map(|user| user.cache_dir().join("ssm-update")),
        };
        Self { folder }
    }

    /// Where the files are.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(format!("{name}.cubin")))
    }

    /// The kernel of a name, if it is there and whole.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.file(name)?;
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    log::warn!("the compiled kernel {} cannot be read ({error}): compiling anew", path.display());
                }
                return None;
            }
        };
        let image = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(CHECKSUM));
        match image {
            Some((checksum, image)) if Sha256::digest(image).as_slice() == checksum => Some(image.to_vec()),
            _ => {
                log::warn!("the compiled kernel {} is damaged: compiling anew", path.display());
                None
            }
        }
    }

    /// Keeps a kernel.
    pub fn write(&self, name: &str, image: &[u8]) {
        let (Some(folder), Some(path)) = (&self.folder, self.file(name)) else { return };
        let write = || -> io::Result<()> {
            fs::create_dir_all(folder)?;
            let mut builder = tempfile::Builder::new();
            // As any file that the user makes: a folder may be shared.
            #[cfg(unix)]
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
            let mut file = builder.tempfile_in(folder)?;
            file.write_all(MAGIC)?;
            file.write_all(&Sha256::digest(image))?;
            file.write_all(image)?;
            // An empty folder under this name would be in the way for ever. One with something in it is somebody's, and stays.
            if path.is_dir() {
                let _ = fs::remove_dir(&path);
            }
            file.persist(&path)?;
            Ok(())
        };
        if let Err(error) = write() {
            log::info!("the compiled kernel {} cannot be kept: {error}", path.display());
        }
    }
}

/// The name of a kernel in the cache, made of everything that it depends on.
pub fn name<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    sha256_of_parts(parts.into_iter().map(str::as_bytes))
}
