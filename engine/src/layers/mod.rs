//! The layers that the families share. Every one works on `[tokens, channels]` tensors of one sequence, in the
//! dtype and on the device of the model's [`Place`](crate::place::Place).

mod attention;
mod embedding;
mod linear;
mod mamba2;
mod mlp;
mod moe;
mod norm;
mod router;
mod selection;

pub use attention::{Attention, AttentionConfig, Positions, Rotary};
pub use embedding::Embedding;
pub use linear::Linear;
pub use mamba2::{GatedNorm, Mamba2, Mamba2Config};
pub use mlp::{Activation, Mlp};
pub use moe::MixtureOfExperts;
pub use norm::RmsNorm;
pub use router::{Router, Scoring, SigmoidScoring};
pub use selection::Selection;
