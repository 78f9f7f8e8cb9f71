//! The library's port table as a person or a program reads it: every row opened, with its reason where it does not.

use serde::Serialize;
use ssm_update::{SSM_PORTS, select_kernel_port};

/// One row.
#[derive(Debug, Serialize)]
pub struct Row {
    port: &'static str,
    available: bool,
    /// The device and the path taken on it, or why the port does not open.
    detail: String,
}

/// Every row, and what the library's selection makes of them under the switches in force.
#[derive(Debug, Serialize)]
pub struct PortTable {
    ports: Vec<Row>,
    /// The selected port, if any.
    selected: Option<&'static str>,
    /// Why none is selected.
    reason: Option<String>,
}

impl PortTable {
    /// Opens every row.
    pub fn open() -> Self {
        let row = |port: &ssm_update::Port| match (port.open)() {
            Ok(kernel) => Row { port: port.name, available: true, detail: kernel.describe() },
            Err(why) => Row { port: port.name, available: false, detail: why.to_string() },
        };
        let ports = SSM_PORTS.iter().map(row).collect();
        match select_kernel_port(SSM_PORTS) {
            Ok(kernel) => Self { ports, selected: Some(kernel.port()), reason: None },
            Err(none) => Self { ports, selected: None, reason: Some(none.to_string()) },
        }
    }

    /// Lines for a person.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{:<8} {:<12} detail", "port", "available")];
        lines.extend(self.ports.iter().map(|row| {
            let available = if row.available { "yes" } else { "no" };
            format!("{:<8} {available:<12} {}", row.port, row.detail)
        }));
        lines.push(match (self.selected, &self.reason) {
            (Some(port), _) => format!("selected: {port}"),
            (None, reason) => format!("selected: none, the graph is used: {}", reason.as_deref().unwrap_or_default()),
        });
        lines
    }
}
