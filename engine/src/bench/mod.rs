//! Measurements of decoding as a table that outlives its run: taking them, keeping them, reading and comparing them.

mod compare;
mod measure;
mod record;
mod table;
mod text;

pub use compare::{Comparison, Dropped, Limits, Metric, Pair, Summary, compare};
pub use measure::{Plan, Speed, measure};
pub use record::{Machine, OK, Record, write};
pub use table::{Row, read};
pub use text::{TEXT, any_prompt, prompt};
