//! Where the HIP runtime's library is looked for, and loading it. A library stays loaded until the process ends: the runtime has
//! threads of its own, which do not survive being unloaded.

use std::collections::HashMap;
use std::ffi::{CStr, OsString, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use libloading::Library;

use super::Hip;
use super::functions::Functions;
use crate::Unavailable;
use crate::error::Failed;
use crate::switches::{HIP_LIBRARY, Rocm};

/// Where ROCm installs itself.
const ROCM_PATH: &str = "/opt/rocm";

/// Names that the system's own search is asked for.
const NAMES: &[&str] = if cfg!(windows) {
    &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
} else {
    &["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"]
};

/// What is tried, in order: exactly the one that a switch names, or the system's names and then ROCm's folders.
/// `folders` lists the entries of a folder, sorted.
pub fn candidates(switches: &Rocm, folders: impl Fn(&Path) -> Vec<PathBuf>) -> Vec<OsString> {
    if let Some(exact) = &switches.library {
        return vec![exact.clone()];
    }
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

/// The libraries that are loaded, by the name under which they were asked for.
static LOADED: LazyLock<Mutex<HashMap<OsString, &'static Hip>>> = LazyLock::new(Mutex::default);

/// The first candidate that loads and has every required function.
pub fn load(switches: &Rocm) -> Result<&'static Hip, Unavailable> {
    #[cfg(feature = "hip-runtime-sys")]
    if switches.library.is_none() {
        return linked();
    }
    let mut tried = Vec::new();
    for candidate in candidates(switches, entries) {
        match load_one(&candidate) {
            Ok(hip) => return Ok(hip),
            Err(why) => tried.push(Failed { what: candidate.to_string_lossy().into_owned(), why }),
        }
    }
    if let (Some(value), [failed]) = (&switches.library, &tried[..]) {
        return Err(Unavailable::Switch {
            variable: HIP_LIBRARY,
            value: value.to_string_lossy().into_owned(),
            reason: failed.why.clone(),
        });
    }
    Err(Unavailable::Library { platform: "HIP", tried })
}

fn load_one(name: &OsString) -> Result<&'static Hip, String> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hip) = loaded.get(name) {
        return Ok(hip);
    }
    // SAFETY: loading runs the library's initialisers. The name is the HIP runtime's, or the one that the user chose. Never
    // unloaded, whatever is found in it.
    let library = ManuallyDrop::new(unsafe { Library::new(name) }.map_err(|error| reason(&error))?);
    let lookup = |symbol: &CStr| {
        // SAFETY: the address is only kept as such; `resolve` gives it its type.
        let found = unsafe { library.get::<*const c_void>(symbol.to_bytes_with_nul()) };
        found.map_or(std::ptr::null(), |address| *address)
    };
    // SAFETY: a HIP runtime has HIP's functions under these names, and it is never unloaded (above).
    let functions = unsafe { Functions::resolve(&lookup) }
        .map_err(|missing| format!("loaded, but it has no {}: not a HIP runtime, or too old", missing.join(", ")))?;
    let hip: &'static Hip = Box::leak(Box::new(Hip::new(functions, name.to_string_lossy().into_owned())));
    loaded.insert(name.clone(), hip);
    Ok(hip)
}

/// The system's own words, which are the source of libloading's error.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The runtime that this program is linked to.
#[cfg(feature = "hip-runtime-sys")]
fn linked() -> Result<&'static Hip, Unavailable> {
    static LINKED: LazyLock<Result<Hip, Vec<&'static str>>> = LazyLock::new(|| {
        // SAFETY: the linker resolved these names in the HIP runtime, which is loaded as long as the program is.
        unsafe { Functions::resolve(&super::functions::linked) }
            .map(|functions| Hip::new(functions, "linked".to_owned()))
    });
    LINKED.as_ref().map_err(|missing| Unavailable::Library {
        platform: "HIP",
        tried: vec![Failed { what: "the linked library".to_owned(), why: format!("it has no {}", missing.join(", ")) }],
    })
}

/// A symbol of any library that the program has loaded at its start.
#[cfg(all(feature = "hip-runtime-sys", unix))]
pub fn loaded(name: &CStr) -> *const c_void {
    let program = libloading::os::unix::Library::this();
    // SAFETY: as in `load_one`.
    let found = unsafe { program.get::<*const c_void>(name.to_bytes_with_nul()) };
    found.map_or(std::ptr::null(), |address| *address)
}

/// Linked programs on other systems have no such search: what is newer than `hip-runtime-sys` is not used there.
#[cfg(all(feature = "hip-runtime-sys", not(unix)))]
pub fn loaded(_name: &CStr) -> *const c_void {
    std::ptr::null()
}
