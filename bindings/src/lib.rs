//! Generates and checks the declarations of the HIP library in `src/driver/hip/bindings.rs`.
//!
//! The file is committed, so that building `ssm-update` takes neither libclang nor HIP's headers. Where both are, `make
//! bindings` and the test of this package generate it anew and compare.
//!
//! What is compared is the meaning, declaration by declaration: names, types, values and layouts, not their format. Headers of
//! HIP 5 are good enough for a part of it, see [`Comparison::not_compared`].

mod compare;
mod generate;
mod headers;
mod items;
mod render;
mod wanted;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

pub use compare::{Comparison, compare};
pub use generate::Generated;
pub use headers::Headers;

/// The driver's list of functions, from the repository's root.
const LIST: &str = "src/driver/hip/functions.rs";

/// The declarations, from the repository's root.
pub const BINDINGS: &str = "src/driver/hip/bindings.rs";

/// Why there is no answer.
#[derive(Debug)]
pub enum Error {
    /// The machine has no headers or no libclang.
    Absent(String),
    /// Something is there, and does not work.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(text) | Self::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// The repository that this package is in.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package is a folder of the repository").to_owned()
}

/// Reads a file of the repository.
///
/// # Errors
///
/// [`Error::Failed`] with the path.
pub fn read(path: &str) -> Result<String, Error> {
    fs::read_to_string(repository().join(path)).map_err(|error| Error::Failed(format!("{path}: {error}")))
}

/// Generates the declarations of the functions that the driver lists.
///
/// # Errors
///
/// [`Error::Absent`] without libclang, [`Error::Failed`] where the headers cannot be read, or are complete and lack a function.
pub fn generate(headers: &Headers) -> Result<Generated, Error> {
    let functions = wanted::functions(&read(LIST)?)?;
    let generated = generate::run(headers, &functions)?;
    let found = items::declarations(generated.items.clone());
    let lacks = |function: &&String| !found.iter().any(|declaration| declaration.name == format!("fn {function}"));
    match functions.iter().find(lacks) {
        Some(name) if headers.complete() => {
            Err(Error::Failed(format!("{LIST} names {name}, which the headers of HIP {} do not have", headers.version)))
        }
        _ => Ok(generated),
    }
}

/// Writes the file.
///
/// # Errors
///
/// [`Error::Failed`] where the headers are not complete, without rustfmt, or where the file cannot be written.
pub fn write(generated: Generated, headers: &Headers) -> Result<(), Error> {
    if !headers.complete() {
        return Err(Error::Failed(format!(
            "the headers of HIP {} in {} are too old to write from: it takes HIP 6 or newer",
            headers.version,
            headers.include.display()
        )));
    }
    let text = render::render(generated, headers, &repository())?;
    fs::write(repository().join(BINDINGS), text).map_err(|error| Error::Failed(format!("{BINDINGS}: {error}")))
}
