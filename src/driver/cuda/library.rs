//! Where CUDA's driver and NVRTC are looked for.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Cuda;
use super::nvrtc::Nvrtc;
use crate::Unavailable;
use crate::driver::library::Libraries;
use crate::switches::{self, CUDA_LIBRARY, NVRTC_LIBRARY};

static DRIVERS: Libraries<Cuda> = Libraries::new("CUDA driver", CUDA_LIBRARY);
static COMPILERS: Libraries<Nvrtc> = Libraries::new("NVRTC", NVRTC_LIBRARY);

const DRIVER_NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

/// Newest first.
const NVRTC_NAMES: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
} else {
    &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
};

/// Where a toolkit installs itself, on Linux.
const TOOLKIT: &str = "/usr/local/cuda";

/// The driver that the system's search finds, or exactly the one that a switch names.
pub fn driver(switches: &switches::Cuda) -> Result<&'static Cuda, Unavailable> {
    let candidates = DRIVER_NAMES.iter().map(OsString::from);
    let (driver, ()) = DRIVERS.first(switches.library.as_deref(), candidates, Cuda::of, |_| Ok(()))?;
    Ok(driver)
}

/// What is tried for NVRTC, in order, where no switch names the library: the names in the system's search, and then those in the
/// toolkit's folder.
pub fn compiler_candidates(switches: &switches::Cuda) -> Vec<OsString> {
    let mut candidates: Vec<OsString> = NVRTC_NAMES.iter().map(OsString::from).collect();
    let folder = switches.toolkit.clone().map(PathBuf::from);
    let folder = folder.or_else(|| cfg!(unix).then(|| PathBuf::from(TOOLKIT)));
    if let Some(folder) = folder {
        let libraries = folder.join(if cfg!(windows) { "bin" } else { "lib64" });
        candidates.extend(NVRTC_NAMES.iter().map(|name| libraries.join(name).into_os_string()));
    }
    candidates
}

/// The first NVRTC that is accepted, with what accepted it.
pub fn compiler<A>(
    switches: &switches::Cuda,
    accept: impl Fn(&'static Nvrtc) -> Result<A, String>,
) -> Result<(&'static Nvrtc, A), Unavailable> {
    COMPILERS.first(switches.nvrtc.as_deref(), compiler_candidates(switches), Nvrtc::of, accept)
}
