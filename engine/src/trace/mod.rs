//! Logit traces: what a model predicts at each position of a given text, in a file, and the comparison of two such files.
//!
//! Both traces of a comparison are of the same tokens, so that a first difference does not make all later positions
//! different, as it does in generated text. A trace stands for one configuration; configurations that cannot be in one
//! process (other builds, machines, engines) are compared through their files.

mod compare;
mod format;
mod json;
mod plan;
mod record;

pub use compare::{Bucket, Comparison, Difference, Percentiles, Ranks, Verdict, compare};
pub use format::{COLUMNS, parse, read, write_header, write_row};
pub use json::{write_header_json, write_row_json};
pub use plan::{Plan, Span};
pub use record::{hash_tokens, record};

/// A trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// What it is a trace of.
    pub header: Header,
    /// Positions, in the order of the file.
    pub rows: Vec<Row>,
}

/// What a trace is of: keys and values in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header(Vec<(String, String)>);

impl Header {
    /// Adds a line. Tabs and line breaks would end the value, so that they become spaces.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.0.push((key.to_owned(), value.to_string().replace(['\t', '\n', '\r'], " ")));
        self
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Every key with its value.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// One position: what the model makes of the tokens up to here.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Chunk of the text, from 0.
    pub chunk: usize,
    /// Position in the chunk, from 0.
    pub pos: usize,
    /// The token that follows in the text.
    pub target: u32,
    /// Negative natural logarithm of the probability that the model gives to it.
    pub nll: f64,
    /// The tokens with the largest logits, largest first.
    pub top: Vec<(u32, f64)>,
}

impl Row {
    /// The token that the model would choose.
    pub fn choice(&self) -> Option<(u32, f64)> {
        self.top.first().copied()
    }

    /// How much the model prefers its choice to the next best token, in logits; `None` where only one token was kept.
    pub fn gap(&self) -> Option<f64> {
        match self.top[..] {
            [(_, first), (_, second), ..] => Some(first - second),
            _ => None,
        }
    }
}
