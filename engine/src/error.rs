//! What can go wrong between a checkpoint folder and a decoded token. Every message names the file, tensor or switch at
//! fault and, where there is one, the next step.

use std::path::{Path, PathBuf};

use ssm_update::NoPort;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the checkpoint is not there.
    #[error("{}: not found; {hint}", path.display())]
    MissingFile {
        /// The file that was looked for.
        path: PathBuf,
        /// What a checkpoint folder has to hold.
        hint: &'static str,
    },
    /// A file is there and cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is not what its name says: broken JSON, a truncated or inconsistent safetensors file, a foreign tokenizer.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A cell of a table is not what its column holds.
    #[error("{}:{line}: column `{column}`: expected {expected}, got {got}", path.display())]
    Cell {
        /// The table.
        path: PathBuf,
        /// Line of the file, from 1.
        line: u64,
        /// The column's name.
        column: String,
        /// What would have been accepted.
        expected: String,
        /// What the file says.
        got: String,
    },
    /// A file cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A field of `config.json` has a value that the model cannot have, or that this engine does not serve.
    #[error("{}: field `{field}`: expected {expected}, got {got}", path.display())]
    Config {
        /// The configuration file.
        path: PathBuf,
        /// The field; nested ones with dots.
        field: String,
        /// What would have been accepted.
        expected: String,
        /// What the file says.
        got: String,
    },
    /// No family of this engine has that architecture.
    #[error("{}: unknown architecture `{found}`; this engine decodes {}", path.display(), known.join(", "))]
    UnknownArchitecture {
        /// The configuration file.
        path: PathBuf,
        /// The name in the file.
        found: String,
        /// The names that the engine knows.
        known: Vec<&'static str>,
    },
    /// A tensor that the configuration calls for is in no file of the checkpoint.
    #[error("{}: tensor `{tensor}` is missing", path.display())]
    MissingTensor {
        /// The safetensors file, or the index of a checkpoint in several files.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A tensor has another shape than the configuration implies.
    #[error("{}: tensor `{tensor}`: config.json implies shape {expected:?}, the file has {got:?}", path.display())]
    Shape {
        /// The safetensors file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The shape that the configuration implies.
        expected: Vec<usize>,
        /// The shape in the file.
        got: Vec<usize>,
    },
    /// A tensor has an element type that the engine does not read in its place.
    #[error("{}: tensor `{tensor}`: dtype {dtype} is not served here, only {served}", path.display())]
    Dtype {
        /// The safetensors file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The element types that would have been accepted.
        served: String,
        /// The element type in the file.
        dtype: String,
    },
    /// A weight is NaN or infinite.
    #[error("{}: tensor `{tensor}`: element {index} is {value}; the weights are damaged, fetch the file again", path.display())]
    NotFinite {
        /// The safetensors file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Position in row-major order.
        index: usize,
        /// The value.
        value: f32,
    },
    /// The request cannot be carried out: an empty prompt, a token outside the vocabulary, a sampling parameter out of range.
    #[error("{0}")]
    Request(String),
    /// The model's logits are NaN.
    #[error(
        "the logits after {tokens} tokens hold a NaN; try `--step graph` to see whether the kernel port is at fault"
    )]
    NanLogits {
        /// Tokens that the model had read.
        tokens: usize,
    },
    /// The text could not be written.
    #[error("writing the output: {0}")]
    Output(#[from] std::io::Error),
    /// No kernel port, where one was asked for.
    #[error(transparent)]
    NoPort(#[from] NoPort),
    /// The kernel refused the step.
    #[error(transparent)]
    Kernel(#[from] ssm_update::Error),
    /// A tensor operation failed.
    #[error("tensor operation: {0}")]
    Tensor(#[from] candle_core::Error),
}

impl Error {
    /// A file that could not be read; "not found" becomes [`Error::MissingFile`].
    pub(crate) fn read(path: &Path, source: std::io::Error, hint: &'static str) -> Self {
        match source.kind() {
            std::io::ErrorKind::NotFound => Self::MissingFile { path: path.to_owned(), hint },
            _ => Self::Read { path: path.to_owned(), source },
        }
    }

    pub(crate) fn malformed(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::Malformed { path: path.to_owned(), problem: problem.to_string() }
    }
}
