//! The table of token embeddings.

use candle_core::Tensor;

use super::Linear;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::place::Place;

/// `[vocabulary, hidden]`: a row per token, and with tied weights the matrix of the logits too.
#[derive(Debug)]
pub struct Embedding {
    table: Matrix,
    place: Place,
}

impl Embedding {
    /// Reads `{name}.weight`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::matrix`] refuses.
    pub fn load(checkpoint: &Checkpoint, name: &str, vocabulary: usize, hidden: usize) -> Result<Self> {
        let table = checkpoint.matrix(&format!("{name}.weight"), &[vocabulary, hidden])?;
        Ok(Self { table, place: checkpoint.place().clone() })
    }

    /// Rows of `tokens`, `[tokens, hidden]`, in the dtype of activations.
    ///
    /// # Errors
    ///
    /// A token outside the vocabulary.
    pub fn forward(&self, tokens: &[u32]) -> Result<Tensor> {
        let vocabulary = self.table.outputs();
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            let text =
                format!("token {token} is not in the model's vocabulary of {vocabulary}; is this its tokenizer?");
            return Err(Error::Request(text));
        }
        self.table.rows(tokens)
    }

    /// The product that gives logits: with the table itself where weights are `tied`, else with `{name}.weight`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::matrix`] refuses.
    pub fn head(&self, checkpoint: &Checkpoint, name: &str, tied: bool) -> Result<Linear> {
        if tied {
            return Ok(Linear::new(self.table.clone(), None));
        }
        Linear::load(checkpoint, name, self.table.outputs(), self.table.inputs(), false)
    }

    /// Where activations are.
    pub fn place(&self) -> &Place {
        &self.place
    }
}
