//! The model families: one module each, over the shared layers.

pub mod granite;
