//! A small, real decoder for hybrid Mamba2 models: the place where the fused step of `ssm-update` is judged in use.
//!
//! ```text
//!  folder: config.json, *.safetensors, tokenizer.json
//!     |  config, checkpoint, tokenizer
//!     v
//!  model::load -> families::{granite, falcon_h1, nemotron_h, plamo2, mamba2, bamba}
//!     |                                    |
//!     |                                    v
//!     |               layers::{mamba2, attention, moe, mlp, norm, linear} -> matrix
//!     v                                    |
//!  Decoder: prefill, decode                v
//!     |               ssm::scan (prompt, chunked)     ssm::Step (one token)
//!     v                                                kernel port  |  graph
//!  Sampler, TextStream
//! ```
//!
//! A family's module reads its configuration and names its tensors; the model that it loads is the same one for all, blocks of
//! shared layers. [`model::FAMILIES`] is the table of them.
//!
//! Prompts always go through the graph of tensor operations, in chunks. A single token goes through
//! [`Step`](ssm::Step): the port that [`ssm_update::select_kernel_port`] opens, or the graph where it opens none.
//!
//! Checkpoints are those of Hugging Face's `transformers`, in f32, f16 or bf16, and those of `mlx-lm`, also quantised to 4 or 8
//! bits. Their files are mapped into memory. On the CPU matrices are used from there as they are, since decoding is bound by
//! reading them; all other tensors are widened to f32 once, and all arithmetic is f32. A checkpoint's files have to stay as they
//! are meanwhile: one that is cut short ends the process. On a GPU activations have the weights' dtype
//! ([`Place`](place::Place)), and quantised matrices are widened to it when they are loaded.
//!
//! ```no_run
//! use ssm_engine::{decoder::{Decoder, PROMPT_CHUNK}, model, sampling::argmax, ssm::{Step, StepChoice}, tokenizer::Tokenizer};
//!
//! let folder = std::path::Path::new("granite-4.0-h-350m");
//! let (model, tokenizer) = (model::load(folder, &candle_core::Device::Cpu, None, |_, _| ())?, Tokenizer::open(folder)?);
//! let step = Step::for_model(StepChoice::Auto, &*model)?;
//! let mut decoder = Decoder::new(&*model, &step)?;
//! let mut logits = decoder.prefill(&tokenizer.encode("In the beginning")?, PROMPT_CHUNK)?;
//! for _ in 0..16 {
//!     let token = argmax(&logits);
//!     print!("{}", tokenizer.decode(&[token])?);
//!     logits = decoder.decode(token)?;
//! }
//! # Ok::<(), ssm_engine::Error>(())
//! ```

// Mapping a file is the one exception, in `bytes`.
#![deny(unsafe_code)]

pub mod bench;
mod bytes;
pub mod cache;
pub mod checkpoint;
pub mod config;
pub mod decoder;
mod error;
mod families;
pub mod file;
pub mod generation;
pub mod layers;
pub mod matrix;
pub mod model;
mod one_token;
pub mod place;
pub mod sampling;
pub mod ssm;
pub mod statistics;
pub mod tokenizer;
pub mod trace;

pub use error::{Error, Result};
