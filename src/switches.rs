//! Every environment variable that the library reads at run time, in one place. `docs/environment-variables.md` describes
//! them; a test holds the page and this file together. They are read when a port is selected, never during a launch.

use std::env;
use std::ffi::OsString;

/// `0` turns the fused step off; any other value, or none, leaves it on.
pub const KERNEL: &str = "MLXCEL_SSM_KERNEL";
/// Older alias of [`KERNEL`].
pub const CUDA_KERNEL: &str = "MLXCEL_SSM_CUDA_KERNEL";
/// Name of the only port that may be used.
pub const PORT: &str = "SSM_UPDATE_PORT";
/// Instruction set that the CPU port has to use.
pub const CPU_ISA: &str = "SSM_UPDATE_CPU_ISA";
/// Threads that the CPU port uses at most.
pub const CPU_THREADS: &str = "SSM_UPDATE_CPU_THREADS";

/// The only HIP library that the ROCm port may load.
pub const HIP_LIBRARY: &str = "SSM_UPDATE_HIP_LIBRARY";
/// Where ROCm is installed; ROCm's own variable.
pub const ROCM_PATH: &str = "ROCM_PATH";
/// Makes ROCm take a device for another one; ROCm's own variable. Mentioned where something fails to load.
pub const HSA_OVERRIDE: &str = "HSA_OVERRIDE_GFX_VERSION";

/// The only CUDA driver that the CUDA port may load.
pub const CUDA_LIBRARY: &str = "SSM_UPDATE_CUDA_LIBRARY";
/// The only NVRTC that the CUDA port may load.
pub const NVRTC_LIBRARY: &str = "SSM_UPDATE_NVRTC_LIBRARY";
/// Where the CUDA toolkit is installed; CUDA's own variable.
pub const CUDA_HOME: &str = "CUDA_HOME";
/// Folder of the kernels that were compiled at run time; empty for none.
pub const CACHE_DIR: &str = "SSM_UPDATE_CACHE_DIR";

/// Every name above, for tools that show what is in force.
pub const ALL: [&str; 12] = [
    KERNEL,
    CUDA_KERNEL,
    PORT,
    CPU_ISA,
    CPU_THREADS,
    HIP_LIBRARY,
    ROCM_PATH,
    HSA_OVERRIDE,
    CUDA_LIBRARY,
    NVRTC_LIBRARY,
    CUDA_HOME,
    CACHE_DIR,
];

/// The switches that decide which port is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Value of [`KERNEL`].
    pub kernel: Option<OsString>,
    /// Value of [`CUDA_KERNEL`].
    pub cuda_kernel: Option<OsString>,
    /// Value of [`PORT`]; empty counts as unset.
    pub port: Option<OsString>,
}

impl Selection {
    /// The values in force now.
    pub fn from_env() -> Self {
        Self { kernel: env::var_os(KERNEL), cuda_kernel: env::var_os(CUDA_KERNEL), port: non_empty(PORT) }
    }

    /// The variable that turns the fused step off, if one does.
    pub fn switched_off_by(&self) -> Option<&'static str> {
        [(KERNEL, &self.kernel), (CUDA_KERNEL, &self.cuda_kernel)]
            .into_iter()
            .find_map(|(name, value)| (value.as_deref() == Some("0".as_ref())).then_some(name))
    }
}

/// The switches of the CPU port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Value of [`CPU_ISA`]; empty counts as unset.
    pub isa: Option<OsString>,
    /// Value of [`CPU_THREADS`]; empty counts as unset.
    pub threads: Option<OsString>,
}

impl Cpu {
    /// The values in force now.
    pub fn from_env() -> Self {
        Self { isa: non_empty(CPU_ISA), threads: non_empty(CPU_THREADS) }
    }
}

/// The switches of the ROCm port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rocm {
    /// Value of [`HIP_LIBRARY`]; empty counts as unset.
    pub library: Option<OsString>,
    /// Value of [`ROCM_PATH`]; empty counts as unset.
    pub rocm_path: Option<OsString>,
    /// Value of [`HSA_OVERRIDE`]; empty counts as unset.
    pub hsa_override: Option<OsString>,
}

impl Rocm {
    /// The values in force now.
    pub fn from_env() -> Self {
        Self { library: non_empty(HIP_LIBRARY), rocm_path: non_empty(ROCM_PATH), hsa_override: non_empty(HSA_OVERRIDE) }
    }
}

/// The switches of the CUDA port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuda {
    /// Value of [`CUDA_LIBRARY`]; empty counts as unset.
    pub library: Option<OsString>,
    /// Value of [`NVRTC_LIBRARY`]; empty counts as unset.
    pub nvrtc: Option<OsString>,
    /// Value of [`CUDA_HOME`]; empty counts as unset.
    pub toolkit: Option<OsString>,
    /// Value of [`CACHE_DIR`]; empty is a value: no cache on disk.
    pub cache_dir: Option<OsString>,
}

impl Cuda {
    /// The values in force now.
    pub fn from_env() -> Self {
        Self {
            library: non_empty(CUDA_LIBRARY),
            nvrtc: non_empty(NVRTC_LIBRARY),
            toolkit: non_empty(CUDA_HOME),
            cache_dir: env::var_os(CACHE_DIR),
        }
    }
}

fn non_empty(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}
