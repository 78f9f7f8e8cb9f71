//! Side-by-side measurement: each case is run by several arms (the CPU port, a plain copy of the same bytes, the graph of
//! tensor operations, ggml), each arm is checked against the `f64` reference before it is timed, and all of them are timed
//! in turn in one run, so that a drift of the machine's speed meets all alike.

pub mod arms;
pub mod cases;
pub mod chart;
pub mod ggml;
pub mod gpu;
pub mod gpu_report;
pub mod hip;
pub mod kfd;
pub mod measure;
#[path = "../tests/common/models.rs"]
pub mod models;
pub mod record;
