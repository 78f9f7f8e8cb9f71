//! The layers that the families share. Every one works on `[tokens, channels]` f32 tensors of one sequence.

mod attention;
mod linear;
mod mamba2;
mod mlp;
mod moe;
mod norm;

pub use attention::{Attention, AttentionConfig, Positions, Rotary};
pub use linear::Linear;
pub use mamba2::{Mamba2, Mamba2Config};
pub use mlp::GatedMlp;
pub use moe::{MixtureOfExperts, MoeConfig};
pub use norm::RmsNorm;
