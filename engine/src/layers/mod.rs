//! The layers that the families share. Every one works on `[tokens, channels]` tensors of one sequence, in the
//! dtype and on the device of the model's [`Place`](crate::place::Place).

mod attention;
mod embedding;
mod linear;
mod mamba2;
mod mlp;
mod moe;
mod norm;

pub use attention::{Attention, AttentionConfig, Positions, Rotary};
pub use embedding::Embedding;
pub use linear::Linear;
pub use mamba2::{Mamba2, Mamba2Config};
pub use mlp::GatedMlp;
pub use moe::{MixtureOfExperts, MoeConfig};
pub use norm::RmsNorm;
