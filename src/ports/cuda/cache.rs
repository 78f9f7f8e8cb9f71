//! Compiled kernels on disk, so that only the first process on a machine compiles. One file per kernel, whose name is the hash of
//! everything that it depends on; a checksum tells a whole file from a damaged one, which is compiled and written anew. Files appear
//! at once, under a temporary name first: processes at the same time do not see each other's halves.
//!
//! A compiled kernel is code that runs with the user's rights, and a checksum is no signature: a folder that somebody else could have
//! written to is neither read nor written. What may be in it is the user's alone.
//!
//! A cache that cannot be read or written is no error: everything is compiled then.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use etcetera::{BaseStrategy, choose_base_strategy};
use sha2::{Digest, Sha256};

use crate::hash::sha256_of_parts;

/// First bytes of a file. The number changes with the layout.
const MAGIC: &[u8] = b"ssm-update cubin 1\n";
const CHECKSUM: usize = 32;

/// Ends the name of a file that is not whole yet, and how old one is whose process must have been ended.
const PART: &str = ".part";
const PART_AGE: Duration = Duration::from_secs(3600);

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
        // Where the folder cannot be looked at, the file cannot either, and says so below.
        if let Some(Ok(Some(why))) = self.folder.as_deref().map(distrusted) {
            log::warn!("the compiled kernel {} is neither taken nor kept: {why}", path.display());
            return None;
        }
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
            create(folder)?;
            if let Some(why) = distrusted(folder)? {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            remove_parts(folder);
            let mut file = tempfile::Builder::new().suffix(PART).tempfile_in(folder)?;
            file.write_all(MAGIC)?;
            file.write_all(&Sha256::digest(image))?;
            file.write_all(image)?;
            // The name must not be on the disk before the contents are.
            file.as_file().sync_all()?;
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

/// Makes a folder for the user alone, and those above it that are missing.
fn create(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Why nothing in a folder counts: who else could have put it there. The system's administrator can do that anywhere.
#[cfg(unix)]
fn distrusted(folder: &Path) -> io::Result<Option<String>> {
    use std::os::unix::fs::MetadataExt;

    let (facts, user) = (fs::metadata(folder)?, rustix::process::geteuid().as_raw());
    Ok(match (facts.uid(), facts.mode() & 0o7777) {
        (owner, _) if owner != user && owner != 0 => {
            Some(format!("the folder belongs to user {owner}, and this process runs as {user}; name one of your own"))
        }
        (_, mode) if mode & 0o022 != 0 => Some(format!(
            "others than its owner may write to the folder (mode {mode:03o}); chmod go-w makes it yours alone"
        )),
        _ => None,
    })
}

/// Whose folder it is cannot be asked here.
#[cfg(not(unix))]
fn distrusted(_folder: &Path) -> io::Result<Option<String>> {
    Ok(None)
}

/// Removes what processes left that were ended while they wrote. Whatever stands in the way of that, the next one will do it.
fn remove_parts(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_part = entry.file_name().as_encoded_bytes().ends_with(PART.as_bytes());
        let changed = || entry.metadata().and_then(|facts| facts.modified()).ok();
        let age = || SystemTime::now().duration_since(changed()?).ok();
        if is_part && age().is_some_and(|age| age > PART_AGE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The name of a kernel in the cache, made of everything that it depends on.
pub fn name<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    sha256_of_parts(parts.into_iter().map(str::as_bytes))
}
