//! What the ports to GPUs share: the parameter struct of their kernels, and how a checked launch fills it.

pub mod abi;
pub mod params;
