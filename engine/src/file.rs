//! Files that are whole or not there.

use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// Writes a file beside its place and moves it there, so that no reader and no interruption meets half of it. Missing folders
/// are made.
///
/// # Errors
///
/// The file cannot be written, with its path.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut builder = tempfile::Builder::new();
        // As any file that the user makes; temporary ones are their owner's alone.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|source| Error::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_and_leave_nothing_beside_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/table.csv");
        for text in ["first, and longer", "second"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = replace(&folder.path().join("file/table.csv"), b"").unwrap_err().to_string();
        assert!(error.contains("table.csv") && error.contains("cannot be written"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
