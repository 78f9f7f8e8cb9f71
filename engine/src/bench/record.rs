//! One row of the table that `bench-decode` writes, and the file.

use std::path::Path;

use serde::Serialize;

use super::{Plan, Speed};
use crate::error::{Error, Result};
use crate::file::replace;
use crate::place::Place;
use crate::ssm::Step;

/// The outcome of a row that was measured. Others begin with `FAIL:` or `SKIP:`.
pub const OK: &str = "ok";

/// One model's measurement, and all that a later comparison has to know of it.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Name of the checkpoint folder.
    pub model: String,
    /// The folder.
    pub model_path: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens decoded per round; none where the model was not measured, as with the rates below.
    pub generated_tokens: Option<usize>,
    /// Milliseconds that the prompt took.
    pub prefill_ms: Option<f64>,
    /// Prompt tokens per second.
    pub prefill_tok_s: Option<f64>,
    /// Milliseconds that the decoded tokens took.
    pub decode_ms: Option<f64>,
    /// Decoded tokens per second.
    pub decode_tok_s: Option<f64>,
    /// When, in UTC.
    pub date: String,
    /// The processor, and the accelerators that open.
    pub hardware: String,
    /// Version of this engine.
    pub ssm_engine_version: String,
    /// `release` or `debug`.
    pub build_type: String,
    /// Tokens to decode per round.
    pub max_tokens: usize,
    /// Tokens decoded before the clock started.
    pub warmup_tokens: usize,
    /// Rounds over which the times are medians.
    pub rounds: usize,
    /// `kernel` or `graph`; none where it came to neither.
    pub step: Option<String>,
    /// Port of the kernel.
    pub port: Option<String>,
    /// Device of the port and the path taken on it, or why the graph was taken.
    pub device: Option<String>,
    /// Where weights and activations were: `Cpu`, or a GPU.
    pub tensors: Option<String>,
    /// Dtype of the activations.
    pub dtype: Option<String>,
    /// What compiled the kernel.
    pub kernel_compiler: Option<String>,
    /// [`OK`], `FAIL:reason` or `SKIP:reason`.
    pub outcome: String,
}

/// What all rows of a run have in common.
#[derive(Clone, Debug)]
pub struct Machine {
    /// When the run began, in UTC.
    pub date: String,
    /// As in [`Record::hardware`].
    pub hardware: String,
}

impl Record {
    /// A row without a measurement, which ends with `outcome`.
    pub fn unmeasured(folder: &Path, machine: &Machine, plan: Plan, outcome: String) -> Self {
        let name = folder.file_name().unwrap_or(folder.as_os_str());
        Self {
            model: name.to_string_lossy().into_owned(),
            model_path: folder.display().to_string(),
            prompt_tokens: plan.prompt_tokens,
            generated_tokens: None,
            prefill_ms: None,
            prefill_tok_s: None,
            decode_ms: None,
            decode_tok_s: None,
            date: machine.date.clone(),
            hardware: machine.hardware.clone(),
            ssm_engine_version: env!("CARGO_PKG_VERSION").to_owned(),
            build_type: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            max_tokens: plan.max_tokens,
            warmup_tokens: plan.warmup_tokens,
            rounds: plan.rounds,
            step: None,
            port: None,
            device: None,
            tensors: None,
            dtype: None,
            kernel_compiler: None,
            // A line break would make two lines of the row.
            outcome: outcome.replace(['\n', '\r'], " "),
        }
    }

    /// A measured row.
    pub fn measured(folder: &Path, machine: &Machine, plan: Plan, speed: Speed, step: &Step, place: &Place) -> Self {
        let rounded = |value: f64| Some((value * 1e3).round() / 1e3);
        let (kind, port, device) = match step {
            Step::Kernel(kernel) => ("kernel", Some(kernel.port().to_owned()), kernel.describe()),
            Step::Graph { reason } => ("graph", None, reason.clone()),
        };
        Self {
            generated_tokens: Some(plan.max_tokens),
            prefill_ms: rounded(speed.prefill_ms),
            prefill_tok_s: rounded(speed.prefill_tok_s),
            decode_ms: rounded(speed.decode_ms),
            decode_tok_s: rounded(speed.decode_tok_s),
            step: Some(kind.to_owned()),
            kernel_compiler: port.as_deref().map(kernel_compiler),
            port,
            device: Some(device),
            tensors: Some(format!("{:?}", place.device.location())),
            dtype: Some(place.dtype.as_str().to_owned()),
            ..Self::unmeasured(folder, machine, plan, OK.to_owned())
        }
    }
}

/// What compiled a port's kernel.
fn kernel_compiler(port: &str) -> String {
    match port {
        "cpu" => include_str!(concat!(env!("OUT_DIR"), "/rustc-version.txt")).to_owned(),
        "rocm" => ssm_update::ports::rocm::BUILT.to_string(),
        _ => "at run time, see device".to_owned(),
    }
}

/// Writes the table, whole or not at all. A file that is there is replaced.
///
/// # Errors
///
/// The file cannot be written.
pub fn write(path: &Path, records: &[Record]) -> Result<()> {
    let failed = |error: csv::Error| Error::Write { path: path.to_owned(), source: error.into() };
    let mut table = csv::Writer::from_writer(Vec::new());
    records.iter().try_for_each(|record| table.serialize(record)).map_err(failed)?;
    let bytes =
        table.into_inner().map_err(|error| Error::Write { path: path.to_owned(), source: error.into_error() })?;
    replace(path, &bytes)
}
