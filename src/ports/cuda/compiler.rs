//! NVRTC for one architecture, through the cache on disk. Needs no GPU: kernels can be compiled for any machine on any other.

use std::fmt;

use super::cache::{self, Cache};
use super::key::Key;
use super::source;
use crate::driver::cuda::library;
use crate::driver::cuda::nvrtc::{Nvrtc, Source};
use crate::{DriverError, Unavailable, switches};

/// Compiles kernels to CUBINs.
#[derive(Debug)]
pub struct Compiler {
    nvrtc: &'static Nvrtc,
    /// 13.0
    version: (i32, i32),
    /// 90 for sm_90.
    architecture: i32,
    cache: Cache,
}

/// The options but for architecture and key. No contraction: products and sums are fused where the source says so.
const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=false"];

impl Compiler {
    /// For a device: the first NVRTC that is no newer than its driver and compiles for it.
    ///
    /// # Errors
    ///
    /// Every candidate with its reason.
    pub fn for_device(
        switches: &switches::Cuda,
        driver_version: i32,
        capability: (i32, i32),
    ) -> Result<Self, Unavailable> {
        let device = capability.0 * 10 + capability.1;
        let suits = |nvrtc: &'static Nvrtc| {
            let version = nvrtc.version().map_err(|error| error.to_string())?;
            // Drivers load what any compiler of their own major version makes, or an older one.
            if version.0 > driver_version / 1000 {
                return Err(format!(
                    "NVRTC {}.{} is newer than the driver, which serves CUDA {}: update the driver, or install NVRTC {}",
                    version.0,
                    version.1,
                    dotted(driver_version),
                    driver_version / 1000
                ));
            }
            Ok((version, architecture(nvrtc, version, device)?))
        };
        Self::first(switches, suits)
    }

    /// For an architecture, 90 for sm_90, whatever device is there.
    ///
    /// # Errors
    ///
    /// Every candidate with its reason.
    pub fn for_architecture(switches: &switches::Cuda, wanted: i32) -> Result<Self, Unavailable> {
        Self::first(switches, |nvrtc| {
            let version = nvrtc.version().map_err(|error| error.to_string())?;
            Ok((version, architecture(nvrtc, version, wanted)?))
        })
    }

    fn first(
        switches: &switches::Cuda,
        suits: impl Fn(&'static Nvrtc) -> Result<((i32, i32), i32), String>,
    ) -> Result<Self, Unavailable> {
        let (nvrtc, (version, architecture)) = library::compiler(switches, suits)?;
        nvrtc.load_builtins()?;
        let cache = Cache::new(switches.cache_dir.as_deref());
        Ok(Self { nvrtc, version, architecture, cache })
    }

    /// A CUBIN of the kernel of a key, from the cache or new.
    ///
    /// # Errors
    ///
    /// Faults of NVRTC, with what it says.
    pub fn kernel(&self, key: &Key) -> Result<Vec<u8>, Box<DriverError>> {
        self.compile(&source::KERNEL, &key.definitions())
    }

    /// A CUBIN of the smallest kernel: that it compiles and loads shows that the compiler is whole and that the driver takes
    /// what it makes.
    pub(super) fn probe(&self) -> Result<Vec<u8>, Box<DriverError>> {
        self.compile(&source::PROBE, &[])
    }

    /// What the assembler says about the kernel of a key: registers, stack, spills. Not cached.
    ///
    /// # Errors
    ///
    /// As for [`kernel`](Self::kernel).
    pub fn report(&self, key: &Key) -> Result<String, Box<DriverError>> {
        let mut options = self.options(&key.definitions());
        options.push("--ptxas-options=-v".to_owned());
        Ok(self.nvrtc.compile(&source::KERNEL, &options)?.1)
    }

    fn options(&self, definitions: &[String]) -> Vec<String> {
        let architecture = format!("--gpu-architecture=sm_{}", self.architecture);
        std::iter::once(architecture).chain(OPTIONS.map(str::to_owned)).chain(definitions.iter().cloned()).collect()
    }

    fn compile(&self, source: &Source<'_>, definitions: &[String]) -> Result<Vec<u8>, Box<DriverError>> {
        let options = self.options(definitions);
        let version = dotted_pair(self.version);
        let headers = source.headers.iter().flat_map(|&(name, text)| [name, text]);
        let parts = ["NVRTC", &version, source.name, source.text].into_iter().chain(headers);
        let name = cache::name(parts.chain(options.iter().map(String::as_str)));
        if let Some(image) = self.cache.read(&name) {
            return Ok(image);
        }
        let (image, remarks) = self.nvrtc.compile(source, &options)?;
        if !remarks.is_empty() {
            log::debug!("NVRTC about {} {}: {remarks}", source.name, options.join(" "));
        }
        self.cache.write(&name, &image);
        Ok(image)
    }
}

/// The architecture to compile for: the newest that the compiler knows and that the device runs, which are those of the same
/// major number.
fn architecture(nvrtc: &Nvrtc, version: (i32, i32), device: i32) -> Result<i32, String> {
    let known = nvrtc.architectures().map_err(|error| error.to_string())?;
    let suitable = known.iter().copied().filter(|&known| known <= device && known / 10 == device / 10).max();
    suitable.ok_or_else(|| {
        let known: Vec<String> = known.iter().map(|known| format!("sm_{known}")).collect();
        format!("NVRTC {} does not compile for sm_{device}, only for {}", dotted_pair(version), known.join(", "))
    })
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "compiled for sm_{} by NVRTC {} from {}, ",
            self.architecture,
            dotted_pair(self.version),
            self.nvrtc.origin()
        )?;
        match self.cache.folder() {
            Some(folder) => write!(f, "kept in {}", folder.display()),
            None => f.write_str("not kept"),
        }
    }
}

/// A version of CUDA as people write it: 12.3 for 12030.
pub(super) fn dotted(version: i32) -> String {
    dotted_pair((version / 1000, version % 1000 / 10))
}

fn dotted_pair((major, minor): (i32, i32)) -> String {
    format!("{major}.{minor}")
}
