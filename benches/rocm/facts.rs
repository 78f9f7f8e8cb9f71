//! What is there: device, driver, runtime, code objects.

use std::error::Error;
use std::fs;
use std::process::Command;

use ssm_update::ports::rocm::{BUILT, RocmKernel};
use ssm_update::switches;
use ssm_update_bench::hip::Hip;
use ssm_update_bench::kfd::Kfd;
use ssm_update_bench::record;

/// Names and values.
pub type Facts = Vec<(&'static str, String)>;

const MIB: usize = 1 << 20;

/// Everything that is known without a launch.
pub fn collect(kernel: &RocmKernel, hip: &Hip, kfd: &Kfd) -> Result<Facts, Box<dyn Error>> {
    let device = hip.device()?;
    let [runtime, driver] = hip.versions()?;
    let simulated = if hip.simulated() { ", simulated" } else { "" };
    let file = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let system = |path: &str| file(path).unwrap_or_else(|| "unknown".to_owned());
    let rocm =
        switches::Rocm::from_env().rocm_path.map_or("/opt/rocm".into(), |path| path.to_string_lossy().into_owned());
    // The driver that comes with Linux has no version of its own.
    let amdgpu = file("/sys/module/amdgpu/version").unwrap_or_else(|| "that of Linux, if any".to_owned());
    let mall = kfd.mall().map_or("not told by the driver".to_owned(), |bytes| format!("{} MiB", bytes / MIB));
    Ok(vec![
        ("date", record::today()),
        ("version", format!("{}, commit {}", env!("CARGO_PKG_VERSION"), commit())),
        ("device", format!("{} ({}){simulated}", kernel.architecture(), device.name)),
        ("lanes of a wave", device.wave.to_string()),
        ("multiprocessors", format!("{} at up to {} MHz", device.multiprocessors, device.clock_mhz)),
        ("memory", format!("{} MiB", device.memory / MIB)),
        ("second-level cache", format!("{} KiB", device.l2 >> 10)),
        ("cache behind it (MALL)", mall),
        ("HIP runtime", format!("{runtime}, driver {driver}, from {}", hip.origin())),
        ("ROCm", file(&format!("{rocm}/.info/version")).unwrap_or_else(|| format!("no {rocm}/.info/version"))),
        ("driver amdgpu", amdgpu),
        ("Linux", system("/proc/sys/kernel/osrelease")),
        ("processor", record::processor()),
        ("code objects", BUILT.to_string()),
    ])
}

/// The sources' commit.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match (git(&["rev-parse", "--short=12", "HEAD"]), git(&["status", "--porcelain", "--untracked-files=no"])) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), _) => format!("{commit} with changes"),
        (None, _) => "unknown".to_owned(),
    }
}

/// Prints them.
pub fn print(kfd: &Kfd) -> Result<(), Box<dyn Error>> {
    let (kernel, hip) = crate::open()?;
    for (name, value) in collect(&kernel, &hip, kfd)? {
        println!("{}{name}: {value}", crate::label(&hip));
    }
    Ok(())
}
