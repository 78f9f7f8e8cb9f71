//! Which checkpoint folders a command works on.

use std::path::{Path, PathBuf};

use ssm_engine::{Error, Result};

/// The variable that stands for `--models-dir`.
const MODELS_DIR: &str = "MODELS_DIR";

/// The folder that holds checkpoint folders: the argument, else `MODELS_DIR`.
///
/// # Errors
///
/// There is neither.
pub fn models_dir(argument: Option<&Path>) -> Result<PathBuf> {
    let variable = || std::env::var_os(MODELS_DIR).filter(|value| !value.is_empty()).map(PathBuf::from);
    argument.map(Path::to_owned).or_else(variable).ok_or_else(|| {
        let text = "expected a folder of checkpoint folders, got none: give --models-dir DIR, or set MODELS_DIR";
        Error::Request(text.to_owned())
    })
}

/// The folders in `folder` that hold a config.json, by name.
///
/// # Errors
///
/// It cannot be read, or there are none.
pub fn find(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |source| Error::Read { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.join("config.json").is_file() {
            found.push(path);
        }
    }
    found.sort();
    match found.is_empty() {
        true => {
            let text = format!("{}: expected checkpoint folders with config.json in it, got none", folder.display());
            Err(Error::Request(text))
        }
        false => Ok(found),
    }
}

/// How a row of a table ends whose model could not be used: `SKIP:` where the checkpoint is of a kind that this engine does
/// not decode, `FAIL:` for everything else.
pub fn outcome(error: &Error) -> String {
    match error {
        Error::UnknownArchitecture { .. } => format!("SKIP:{error}"),
        _ => format!("FAIL:{error}"),
    }
}
