//! The model families: one module each, which reads a configuration and names the tensors, over one model of shared layers.

pub mod bamba;
pub mod falcon_h1;
mod fields;
pub mod granite;
pub mod mamba2;
pub mod nemotron_h;
pub mod plamo2;
mod stack;
