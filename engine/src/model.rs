//! What every family offers, and the table of families.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use candle_core::{DType, Device, Tensor};

use crate::cache::Cache;
use crate::checkpoint::{Checkpoint, Quantization};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::families;
use crate::place::Place;
use crate::ssm::{SsmDims, Step};

/// One row of the table: the architecture's class name in `transformers`, and how to load it.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// As in `architectures` of config.json.
    pub architecture: &'static str,
    /// Reads configuration and weights.
    pub load: fn(&Config, &Checkpoint) -> Result<Box<dyn Model>>,
}

/// Every family that this engine decodes.
pub static FAMILIES: &[Family] = &[
    families::granite::FAMILY,
    families::falcon_h1::FAMILY,
    families::nemotron_h::FAMILY,
    families::plamo2::FAMILY,
    families::plamo2::OLDER_FAMILY,
    families::mamba2::FAMILY,
    families::bamba::FAMILY,
];

/// A loaded model. Its weights never change.
pub trait Model: Send + Sync + std::fmt::Debug {
    /// Sizes, for people and for checks.
    fn info(&self) -> &ModelInfo;

    /// Where weights, caches and activations are.
    fn place(&self) -> &Place;

    /// The memory of no tokens.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    fn new_cache(&self) -> Result<Cache>;

    /// Reads `tokens` (at least one, each below the vocabulary's size) after those in `cache`. One token goes through
    /// `step`, more through the graph in chunks.
    ///
    /// Returns the last layer's normalised output, `[tokens, hidden]`.
    ///
    /// # Errors
    ///
    /// A token outside the vocabulary, a cache of another model, faults of the kernel port. The cache is spoilt then.
    fn forward(&self, tokens: &[u32], cache: &mut Cache, step: &Step) -> Result<Tensor>;

    /// Logits, `[tokens, vocabulary]`, of what [`forward`](Self::forward) returned or of some of its rows.
    ///
    /// # Errors
    ///
    /// Another number of channels.
    fn logits(&self, hidden: &Tensor) -> Result<Tensor>;
}

/// Sizes of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// As in config.json.
    pub architecture: &'static str,
    /// Entries of the vocabulary.
    pub vocabulary: usize,
    /// Channels between the layers.
    pub hidden: usize,
    /// Layers with a state-space part.
    pub mamba_layers: usize,
    /// Layers with attention.
    pub attention_layers: usize,
    /// Sizes of the state-space part.
    pub ssm: SsmDims,
    /// Tokens that end a text.
    pub end_tokens: Vec<u32>,
}

/// Loads the checkpoint in `folder` to `device`, for activations of `dtype` or what [`Place`] takes otherwise. `progress` is called
/// with bytes read so far and in all.
///
/// # Errors
///
/// Everything that can be wrong with a checkpoint; each message names the file, and the field or the tensor.
pub fn load(
    folder: &Path,
    device: &Device,
    dtype: Option<DType>,
    progress: impl Fn(u64, u64) + 'static,
) -> Result<Box<dyn Model>> {
    let config = read_config(folder)?;
    let family = family_of(&config)?;
    let total = Rc::new(Cell::new(0));
    let (read, all) = (Cell::new(0), Rc::clone(&total));
    let on_read = move |bytes| {
        read.set(read.get() + bytes);
        progress(read.get(), all.get());
    };
    let checkpoint = Checkpoint::open(folder, device, dtype, Quantization::read(&config)?, on_read)?;
    total.set(checkpoint.bytes());
    (family.load)(&config, &checkpoint)
}

/// A model with the configuration in `folder` and random weights, for measuring. Of the folder only config.json is read.
///
/// # Errors
///
/// As [`load`], for the configuration.
pub fn load_random(folder: &Path, device: &Device, dtype: Option<DType>) -> Result<Box<dyn Model>> {
    let config = read_config(folder)?;
    (family_of(&config)?.load)(&config, &Checkpoint::random(device, dtype)?)
}

fn read_config(folder: &Path) -> Result<Config> {
    if !folder.is_dir() {
        return Err(Error::MissingFile {
            path: folder.to_owned(),
            hint: "expected a folder with config.json, tokenizer.json and model.safetensors",
        });
    }
    Config::open(folder)
}

fn family_of(config: &Config) -> Result<&'static Family> {
    let architecture = config.architecture()?;
    FAMILIES.iter().find(|family| family.architecture == architecture).ok_or_else(|| {
        let known = FAMILIES.iter().map(|family| family.architecture).collect();
        Error::UnknownArchitecture { path: config.path().to_owned(), found: architecture.to_owned(), known }
    })
}
