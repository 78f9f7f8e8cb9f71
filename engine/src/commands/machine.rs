//! What a measurement was made on, in words that are the same for the same machine.

use ssm_engine::bench::Machine;
use ssm_update::SSM_PORTS;

/// This machine, now.
pub fn here() -> Machine {
    Machine { date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), hardware: hardware() }
}

/// The processor with the threads in use, then each accelerator whose port opens, whether or not it is the one selected.
fn hardware() -> String {
    let mut parts = vec![format!("{}, {} threads", processor(), rayon::current_num_threads())];
    for port in SSM_PORTS {
        // Ports with memory of their own; the processor is named already.
        if let Some(kernel) = (port.open)().ok().filter(|kernel| kernel.memory().is_some()) {
            // The device's name comes first; versions of drivers follow, and are no other hardware.
            let description = kernel.describe();
            parts.push(format!("{}: {}", port.name, description.split(", ").next().unwrap_or_default()));
        }
    }
    parts.join("; ")
}

/// The processor's name as the system gives it, else its architecture.
fn processor() -> String {
    let named = if cfg!(target_os = "macos") {
        let output = std::process::Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]).output();
        output.ok().and_then(|output| String::from_utf8(output.stdout).ok())
    } else {
        std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_name(&text).map(str::to_owned))
    };
    let named = named.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    named.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The first `model name` of Linux's list of processors; not every architecture has one.
fn model_name(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_name_is_that_of_the_first_processor() {
        let text = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: A (R) CPU @ 2:1\n\nprocessor\t: 1\nmodel name\t: B\n";
        assert_eq!(model_name(text), Some("A (R) CPU @ 2:1"));
        assert_eq!(model_name("processor\t: 0\n"), None);
    }
}
