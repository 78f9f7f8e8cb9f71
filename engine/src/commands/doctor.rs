//! `doctor`: what this machine and this environment offer to the fused step.

use std::env;

use serde::Serialize;
use ssm_engine::Result;
use ssm_update::switches;

use super::port_table::PortTable;

/// Show the port table with reasons, CPU features, and the switches in force
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ssm-engine doctor
  ssm-engine doctor --json
  SSM_UPDATE_PORT=rocm ssm-engine doctor")]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    architecture: &'static str,
    cpu_features: Vec<&'static str>,
    threads: usize,
    #[serde(flatten)]
    table: PortTable,
    /// Which code objects for AMD GPUs are on board, and whether they were compiled or came with the crate.
    code_objects: String,
    switches: Vec<Switch>,
}

/// An environment variable that the library reads, and its value where it is set.
#[derive(Debug, Serialize)]
struct Switch {
    name: &'static str,
    value: Option<String>,
}

impl Report {
    fn make() -> Self {
        let switch = |name| Switch { name, value: env::var_os(name).map(|value| value.to_string_lossy().into_owned()) };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            architecture: env::consts::ARCH,
            cpu_features: cpu_features(),
            threads: rayon::current_num_threads(),
            table: PortTable::open(),
            code_objects: ssm_update::ports::rocm::BUILT.to_string(),
            switches: switches::ALL.map(switch).into(),
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = self.table.lines();
        lines.push(String::new());
        lines.push(format!("kernels:  {}", self.code_objects));
        lines.push(format!("cpu:      {}, {} threads", self.architecture, self.threads));
        lines.push(format!("features: {}", self.cpu_features.join(" ")));
        lines.push(String::new());
        lines.extend(self.switches.iter().map(|switch| {
            let value = switch.value.as_ref().map_or_else(|| "not set".to_owned(), |value| format!("{value:?}"));
            format!("{:<26} {value}", switch.name)
        }));
        lines
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let report = Report::make();
    if arguments.json {
        return super::print_json(&report);
    }
    report.lines().iter().try_for_each(|line| super::print_line(line))
}

#[cfg(target_arch = "x86_64")]
fn cpu_features() -> Vec<&'static str> {
    macro_rules! present {
        ($($name:tt)*) => { [$(($name, is_x86_feature_detected!($name))),*] };
    }
    let features =
        present!("sse4.2" "avx" "avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512vl" "avx512bf16" "avx512fp16");
    features.into_iter().filter_map(|(name, present)| present.then_some(name)).collect()
}

#[cfg(target_arch = "aarch64")]
fn cpu_features() -> Vec<&'static str> {
    macro_rules! present {
        ($($name:tt)*) => { [$(($name, std::arch::is_aarch64_feature_detected!($name))),*] };
    }
    let features = present!("neon" "fp16" "bf16" "sve" "sve2");
    features.into_iter().filter_map(|(name, present)| present.then_some(name)).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu_features() -> Vec<&'static str> {
    Vec::new()
}
