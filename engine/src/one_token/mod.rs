//! A decoded token's products with weights and what stands between them, as one launch each where the tensors are on a CUDA device.
//!
//! A token is hundreds of small operations, and on a GPU queueing one costs more than what it computes: convolution, norms, residual sums,
//! activations, attention and experts are chains of five to twenty of them in candle. For one row a product is bound by reading its
//! matrix, which these kernels do as fast as cuBLAS, at a third of its cost to the host, and with what follows it in the same launch
//! (docs/engine-gpu.md has the measurements). Everywhere else, and for many tokens, the layers compose candle's operations: same
//! formulas, which the golden files hold both to.

mod attention;
mod best;
mod launch;
mod norms;
mod product;
mod residual;
mod router;

pub(crate) use attention::{Attend, attend, attends};
pub(crate) use best::best;
pub(crate) use launch::serves;
pub(crate) use norms::{gated_norm, three_norms};
pub(crate) use product::{
    Convolution, Weights, activated_product, convolved_product, experts, product, serves_experts,
};
pub(crate) use residual::{Residual, residual};
pub(crate) use router::{Routing, Workspace, route};
