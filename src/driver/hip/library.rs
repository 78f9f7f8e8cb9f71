//! Where the HIP runtime's library is looked for.

use std::ffi::OsString;
#[cfg(feature = "hip-runtime-sys")]
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};

use super::Hip;
use crate::Unavailable;
use crate::driver::library::Libraries;
use crate::switches::{HIP_LIBRARY, Rocm};

/// Where ROCm installs itself.
const ROCM_PATH: &str = "/opt/rocm";

/// Names that the system's own search is asked for.
const NAMES: &[&str] = if cfg!(windows) {
    &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
} else {
    &["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"]
};

/// What is tried, in order, where no switch names the library: the system's names and then ROCm's folders.
/// `folders` lists the entries of a folder, sorted.
pub fn candidates(switches: &Rocm, folders: impl Fn(&Path) -> Vec<PathBuf>) -> Vec<OsString> {
    let mut candidates: Vec<OsString> = NAMES.iter().map(OsString::from).collect();
    if cfg!(windows) {
        return candidates;
    }
    let root = switches.rocm_path.clone().map_or_else(|| PathBuf::from(ROCM_PATH), PathBuf::from);
    // ROCm 7.14 has its libraries under core-7.14/lib; the newest first.
    let is_core = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core-"));
    let mut cores: Vec<PathBuf> = folders(&root).into_iter().filter(is_core).collect();
    cores.sort_by_key(|path| std::cmp::Reverse(version(path)));
    for folder in std::iter::once(root.clone()).chain(cores) {
        candidates.push(folder.join("lib").join(NAMES[0]).into_os_string());
    }
    candidates
}

/// The numbers in a folder's name: 7.14 is newer than 7.9.
fn version(path: &Path) -> Vec<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

/// The entries of a folder, sorted; none where it cannot be read.
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// The libraries that are loaded.
static LOADED: Libraries<Hip> = Libraries::new("HIP", HIP_LIBRARY);

/// The first candidate that loads and has every required function.
pub fn load(switches: &Rocm) -> Result<&'static Hip, Unavailable> {
    #[cfg(feature = "hip-runtime-sys")]
    if switches.library.is_none() {
        return linked();
    }
    let (library, ()) =
        LOADED.first(switches.library.as_deref(), candidates(switches, entries), Hip::of, |_| Ok(()))?;
    Ok(library)
}

/// The runtime that this program is linked to.
#[cfg(feature = "hip-runtime-sys")]
fn linked() -> Result<&'static Hip, Unavailable> {
    static LINKED: std::sync::LazyLock<Result<Hip, Vec<&'static str>>> = std::sync::LazyLock::new(|| {
        // SAFETY: the linker resolved these names in the HIP runtime, which is loaded as long as the program is.
        unsafe { Hip::of(&super::functions::linked, "linked".to_owned()) }
    });
    LINKED.as_ref().map_err(|missing| Unavailable::Library {
        platform: "HIP",
        tried: vec![crate::error::Failed {
            what: "the linked library".to_owned(),
            why: format!("it has no {}", missing.join(", ")),
        }],
    })
}

/// A symbol of any library that the program has loaded at its start.
#[cfg(all(feature = "hip-runtime-sys", unix))]
pub fn loaded(name: &CStr) -> *const c_void {
    let program = libloading::os::unix::Library::this();
    // SAFETY: the address is only kept as such; the table gives it its type.
    let found = unsafe { program.get::<*const c_void>(name.to_bytes_with_nul()) };
    found.map_or(std::ptr::null(), |address| *address)
}

/// Linked programs on other systems have no such search: what is newer than `hip-runtime-sys` is not used there.
#[cfg(all(feature = "hip-runtime-sys", not(unix)))]
pub fn loaded(_name: &CStr) -> *const c_void {
    std::ptr::null()
}
