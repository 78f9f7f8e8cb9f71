//! Generates and checks the declarations of the HIP library in `src/driver/hip/bindings.rs`, and those of `benches/hip/`.
//!
//! The files are committed, so that building `ssm-update` takes neither libclang nor HIP's headers. Where both are, `make
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

/// A list of functions, and the declarations that are made for it.
#[derive(Debug)]
pub struct Set {
    /// The list, from the repository's root.
    pub list: &'static str,
    /// The declarations, from the repository's root.
    pub bindings: &'static str,
    /// The header that has them, below the folder of the headers.
    pub header: &'static str,
    /// What bindgen reads.
    wrapper: &'static str,
    /// The constants that are declared.
    constants: &'static [&'static str],
    /// Types that are declared without their fields, and by their name.
    opaque: &'static [&'static str],
}

/// HIP's runtime, as the library uses it.
pub const DRIVER: Set = Set {
    list: "src/driver/hip/functions.rs",
    bindings: "src/driver/hip/bindings.rs",
    header: headers::API,
    wrapper: include_str!("../wrapper.h"),
    constants: wanted::DRIVER,
    // One word of flags that nobody reads here; as a bit field it would bring 200 lines of accessors.
    // bindgen does not follow an opaque type to its declaration, so that it is asked for by name.
    opaque: &["hipDeviceArch_t"],
};

/// Every set: that of the library, and those of the measurements, which the library has no need of.
pub const SETS: [Set; 3] = [
    DRIVER,
    Set {
        list: "benches/hip/functions.rs",
        bindings: "benches/hip/bindings.rs",
        header: headers::API,
        wrapper: include_str!("../wrapper.h"),
        constants: wanted::BENCHMARK,
        opaque: &[],
    },
    Set {
        list: "benches/hip/rtc/functions.rs",
        bindings: "benches/hip/rtc/bindings.rs",
        header: "hip/hiprtc.h",
        wrapper: "#include <hip/hiprtc.h>\n",
        constants: wanted::RTC,
        opaque: &[],
    },
];

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

/// Generates the declarations of the functions that a list names.
///
/// # Errors
///
/// [`Error::Absent`] without libclang or the set's header, [`Error::Failed`] where the headers cannot be read, or are complete and lack a function.
pub fn generate(set: &Set, headers: &Headers) -> Result<Generated, Error> {
    if !headers.include.join(set.header).is_file() {
        return Err(Error::Absent(format!("{} has no {}", headers.include.display(), set.header)));
    }
    let functions = wanted::functions(&read(set.list)?)?;
    let generated = generate::run(set, headers, &functions)?;
    let found = items::declarations(generated.items.clone());
    let lacks = |function: &&String| !found.iter().any(|declaration| declaration.name == format!("fn {function}"));
    match functions.iter().find(lacks) {
        Some(name) if headers.complete() => {
            let (list, version) = (set.list, &headers.version);
            Err(Error::Failed(format!("{list} names {name}, which the headers of HIP {version} do not have")))
        }
        _ => Ok(generated),
    }
}

/// Writes the file.
///
/// # Errors
///
/// [`Error::Failed`] where the headers are not complete, without rustfmt, or where the file cannot be written.
pub fn write(set: &Set, generated: Generated, headers: &Headers) -> Result<(), Error> {
    if !headers.complete() {
        return Err(Error::Failed(format!(
            "the headers of HIP {} in {} are too old to write from: it takes HIP 6 or newer",
            headers.version,
            headers.include.display()
        )));
    }
    let text = render::render(generated, headers, &repository())?;
    let failed = |error| Error::Failed(format!("{}: {error}", set.bindings));
    fs::write(repository().join(set.bindings), text).map_err(failed)
}
