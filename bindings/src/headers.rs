//! Where HIP's headers are, and of which version.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// The header of HIP's runtime.
pub const API: &str = "hip/hip_runtime_api.h";

/// HIP's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The folder that holds `hip/hip_runtime_api.h`.
    pub include: PathBuf,
    /// Version of HIP, as `7.1.25424`.
    pub version: String,
    /// Its first number.
    pub major: u32,
}

impl Headers {
    /// The headers in `include`; or else in the first that is set of `$HIP_PATH/include` and `$ROCM_PATH/include`; or else in
    /// `/opt/rocm/include` or `/usr/include`.
    ///
    /// # Errors
    ///
    /// [`Error::Absent`] where there are none, with the places and what to install.
    pub fn find(include: Option<&Path>) -> Result<Self, Error> {
        let locations = match include {
            Some(folder) => vec![Location { folder: folder.to_owned(), from: "--include", exact: true }],
            None => locations(env::var_os("HIP_PATH"), env::var_os("ROCM_PATH")),
        };
        first(&locations)
    }

    /// Whether both layouts of the device properties are in them.
    pub fn complete(&self) -> bool {
        self.major >= 6
    }
}

/// A folder that may hold the headers.
#[derive(Debug)]
struct Location {
    folder: PathBuf,
    /// Who names it.
    from: &'static str,
    /// Somebody asked for it: no later one is taken instead.
    exact: bool,
}

/// The places in order, for the values of the two variables; an empty one counts as unset.
fn locations(hip_path: Option<OsString>, rocm_path: Option<OsString>) -> Vec<Location> {
    let by_variable = [("HIP_PATH", hip_path), ("ROCM_PATH", rocm_path)].into_iter().filter_map(|(from, value)| {
        let value = value.filter(|value| !value.is_empty())?;
        Some(Location { folder: Path::new(&value).join("include"), from, exact: true })
    });
    let usual = ["/opt/rocm/include", "/usr/include"];
    let usual = usual.map(|folder| Location { folder: folder.into(), from: "usual place", exact: false });
    by_variable.chain(usual).collect()
}

fn first(locations: &[Location]) -> Result<Headers, Error> {
    let mut searched = String::new();
    for location in locations {
        if location.folder.join(API).is_file() {
            return read(&location.folder);
        }
        searched += &format!("\n  {} ({})", location.folder.display(), location.from);
        if location.exact {
            break;
        }
    }
    Err(Error::Absent(format!("no hip/hip_runtime_api.h in{searched}\n{INSTALL}")))
}

/// What to do where there are no headers.
const INSTALL: &str = "\
on Debian and Ubuntu: sudo apt-get install libamdhip64-dev, or hip-dev from AMD's repository
anywhere: those of the package `triton` on PyPI, with --include .../triton/backends/amd/include";

fn read(include: &Path) -> Result<Headers, Error> {
    let path = include.join("hip/hip_version.h");
    let text = fs::read_to_string(&path).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    let number = |name: &str| -> Result<u32, Error> {
        text.lines()
            .find_map(|line| line.trim().strip_prefix("#define ")?.trim().strip_prefix(name)?.trim().parse().ok())
            .ok_or_else(|| Error::Failed(format!("{} does not say {name}", path.display())))
    };
    let major = number("HIP_VERSION_MAJOR ")?;
    let version = format!("{major}.{}.{}", number("HIP_VERSION_MINOR ")?, number("HIP_VERSION_PATCH ")?);
    Ok(Headers { include: include.to_owned(), version, major })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(locations: &[Location]) -> Vec<(&str, &str)> {
        locations.iter().map(|location| (location.from, location.folder.to_str().unwrap())).collect()
    }

    #[test]
    fn variables_come_first_and_empty_ones_are_unset() {
        let usual = [("usual place", "/opt/rocm/include"), ("usual place", "/usr/include")];
        assert_eq!(named(&locations(None, Some("".into()))), usual);
        let all = locations(Some("/h".into()), Some("/r".into()));
        assert_eq!(named(&all)[..2], [("HIP_PATH", "/h/include"), ("ROCM_PATH", "/r/include")]);
        assert_eq!(named(&all)[2..], usual);
    }

    #[test]
    fn a_place_that_somebody_names_is_not_passed_over() {
        let root = env::temp_dir().join(format!("ssm-update-headers-{}", std::process::id()));
        let headers = root.join("include");
        fs::create_dir_all(headers.join("hip")).unwrap();
        fs::write(headers.join("hip/hip_runtime_api.h"), "").unwrap();
        let version = "#define HIP_VERSION_MAJOR 6\n#define HIP_VERSION_MINOR 3\n  #define HIP_VERSION_PATCH  42\n";
        fs::write(headers.join("hip/hip_version.h"), version).unwrap();
        let at = |folder: &Path, exact| Location { folder: folder.to_owned(), from: "test", exact };

        let found = first(&[at(&root, false), at(&headers, true)]).unwrap();
        let expected = Headers { include: headers.clone(), version: "6.3.42".to_owned(), major: 6 };
        assert_eq!(found, expected);
        let refused = first(&[at(&root, true), at(&headers, true)]);
        assert!(matches!(&refused, Err(Error::Absent(text)) if text.contains("(test)")), "{refused:?}");

        fs::write(headers.join("hip/hip_version.h"), "#define HIP_VERSION_MAJOR six\n").unwrap();
        let refused = first(&[at(&headers, true)]);
        assert!(matches!(&refused, Err(Error::Failed(text)) if text.contains("HIP_VERSION_MAJOR")), "{refused:?}");
        fs::remove_dir_all(root).unwrap();
    }
}
