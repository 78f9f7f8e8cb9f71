//! The table of token embeddings.

use candle_core::Tensor;

use super::Linear;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::place::Place;

/// `[vocabulary, hidden]`: a row per token, and with tied weights the matrix of the logits too.
#[derive(Debug)]
pub struct Embedding {
    table: Tensor,
    place: Place,
}

impl Embedding {
    /// Reads `{name}.weight`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
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
        let vocabulary = self.table.dim(0)?;
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            let text =
                format!("token {token} is not in the model's vocabulary of {vocabulary}; is this its tokenizer?");
            return Err(Error::Request(text));
        }
        let rows = self.table.index_select(&Tensor::new(tokens, self.table.device())?, 0)?;
        Ok(rows.to_dtype(self.place.dtype)?)
    }

    /// The product that gives logits: with the table itself where weights are `tied`, else with `{name}.weight`.
    ///
    /// # Errors
    ///
    /// What [`Checkpoint::tensor`] refuses.
    pub fn head(&self, checkpoint: &Checkpoint, name: &str, tied: bool) -> Result<Linear> {
        if tied {
            return Ok(Linear::new(self.table.clone(), None));
        }
        let (vocabulary, hidden) = self.table.dims2()?;
        Linear::load(checkpoint, name, vocabulary, hidden, false)
    }

    /// Where activations are.
    pub fn place(&self) -> &Place {
        &self.place
    }
}
