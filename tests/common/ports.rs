//! The ports under test: every row of the table that opens, every path of the CPU port, and the Metal port on the CPU.

use std::env;
use std::sync::{Arc, OnceLock};

use rayon::ThreadPoolBuilder;
use ssm_update::ports::cpu::{CpuKernel, Isa, RayonPool};
use ssm_update::{Kernel, Port, SSM_PORTS};

/// Names a port that must open: where an accelerator is expected, its absence is a failure and never a skip.
pub const REQUIRE_PORT: &str = "SSM_UPDATE_REQUIRE_PORT";
/// Names the only port under test, which must open: for runs on a device, or on a simulated one, beside those on the CPU.
pub const ONLY_PORT: &str = "SSM_UPDATE_ONLY_PORT";

/// Makes an absent compiler a failure.
#[cfg(all(feature = "metal", target_os = "linux"))]
const REQUIRE_COMPILERS: &str = "SSM_UPDATE_REQUIRE_HIPCC";

/// A kernel under test.
#[derive(Debug)]
pub struct Subject {
    /// Port, path and threads, for messages.
    pub label: String,
    /// Kernels of one group must give the same bits.
    pub group: String,
    /// The kernel.
    pub kernel: Box<dyn Kernel>,
}

/// What opened, and what did not.
#[derive(Debug)]
pub struct Ports {
    /// Kernels to test.
    pub subjects: Vec<Subject>,
    /// One line per row of the table: what ran, or why it did not.
    pub summary: Vec<String>,
}

/// A CPU kernel with a pool of its own.
pub fn cpu_kernel(isa: Isa, threads: usize, pool_threads: usize) -> CpuKernel {
    let pool = ThreadPoolBuilder::new().num_threads(pool_threads).build().expect("a thread pool starts");
    CpuKernel::new(isa, threads, Arc::new(RayonPool::new(pool)))
}

/// Opens every row of a table, and adds every instruction set of the CPU port with one thread and with several.
///
/// # Errors
///
/// `required` or `only` names no row, or one that does not open.
pub fn open(ports: &[Port], required: Option<&str>, only: Option<&str>) -> Result<Ports, String> {
    let mut opened = Ports { subjects: Vec::new(), summary: Vec::new() };
    let named = [(REQUIRE_PORT, required), (ONLY_PORT, only)]
        .map(|(variable, name)| (variable, name.filter(|name| !name.is_empty())));
    for (variable, name) in named {
        if let Some(name) = name.filter(|name| ports.iter().all(|port| port.name != *name)) {
            let known: Vec<_> = ports.iter().map(|port| port.name).collect();
            return Err(format!("{variable}={name}: no such port; the ports are {}", known.join(", ")));
        }
    }
    let must_open = |port: &Port| named.iter().find(|(_, name)| *name == Some(port.name));
    for port in ports {
        if let (variable, Some(only)) = named[1]
            && only != port.name
        {
            opened.summary.push(format!("port {}: NOT RUN ({variable}={only})", port.name));
            continue;
        }
        match (port.open)() {
            Ok(kernel) => {
                opened.summary.push(format!("port {}: RUN ({})", port.name, kernel.describe()));
                let label = format!("{} as opened", port.name);
                opened.subjects.push(Subject { group: label.clone(), label, kernel });
            }
            Err(why) if let Some((variable, _)) = must_open(port) => {
                return Err(format!("{variable}={}: the port did not open: {why}", port.name));
            }
            Err(why) => opened.summary.push(format!("port {}: NOT RUN ({why})", port.name)),
        }
    }
    if opened.subjects.iter().any(|subject| subject.kernel.port() == "cpu") {
        let several = rayon::current_num_threads().max(3);
        for isa in Isa::available() {
            for (threads, kernel) in [
                (1, CpuKernel::new(isa, 1, Arc::new(RayonPool::global()))),
                // A pool of its own: the global one may have fewer threads than are worth testing.
                (several, cpu_kernel(isa, several, several)),
            ] {
                let group = format!("cpu {}", isa.name());
                let label = format!("{group}, {threads} threads");
                opened.summary.push(format!("  {label}: RUN ({})", kernel.describe()));
                opened.subjects.push(Subject { label, group, kernel: Box::new(kernel) });
            }
        }
    }
    Ok(opened)
}

/// Opens every row of the port table, and the Metal port on the CPU.
#[cfg(all(feature = "metal", target_os = "linux"))]
fn with_shim(required: Option<&str>, only: Option<&str>) -> Result<Ports, String> {
    use super::metal_shim::{self, NAME};

    let mut opened = match only {
        Some(NAME) => {
            let not_run = |port: &Port| format!("port {}: NOT RUN ({ONLY_PORT}={NAME})", port.name);
            Ports { subjects: Vec::new(), summary: SSM_PORTS.iter().map(not_run).collect() }
        }
        _ => open(SSM_PORTS, required, only)?,
    };
    if let Some(only) = only.filter(|only| *only != NAME && !only.is_empty()) {
        opened.summary.push(format!("{NAME}: NOT RUN ({ONLY_PORT}={only})"));
        return Ok(opened);
    }
    match metal_shim::open() {
        Ok(kernel) => {
            opened.summary.push(format!("{NAME}: RUN ({})", kernel.describe()));
            opened.subjects.push(Subject { label: NAME.to_owned(), group: NAME.to_owned(), kernel: Box::new(kernel) });
        }
        Err(why) if only == Some(NAME) => return Err(format!("{ONLY_PORT}={NAME}: {why}")),
        // Continuous integration has every compiler.
        Err(why) if env::var(REQUIRE_COMPILERS).is_ok_and(|value| value == "1") => {
            return Err(format!("{REQUIRE_COMPILERS}=1: {NAME}: {why}"));
        }
        Err(why) => opened.summary.push(format!("{NAME}: NOT RUN ({why})")),
    }
    Ok(opened)
}

#[cfg(not(all(feature = "metal", target_os = "linux")))]
fn with_shim(required: Option<&str>, only: Option<&str>) -> Result<Ports, String> {
    let mut opened = open(SSM_PORTS, required, only)?;
    opened.summary.push("metal (shim): NOT RUN (it needs Linux and the feature metal)".to_owned());
    Ok(opened)
}

/// The ports under test in this process. The first call prints what runs and what does not.
///
/// # Panics
///
/// When `SSM_UPDATE_REQUIRE_PORT` or `SSM_UPDATE_ONLY_PORT` asks for a port that does not open.
pub fn under_test() -> &'static Ports {
    static PORTS: OnceLock<Ports> = OnceLock::new();
    PORTS.get_or_init(|| {
        let (required, only) = (env::var(REQUIRE_PORT).ok(), env::var(ONLY_PORT).ok());
        let ports = with_shim(required.as_deref(), only.as_deref()).unwrap_or_else(|why| panic!("{why}"));
        println!("{}", ports.summary.join("\n"));
        ports
    })
}
