//! One sequence on its way through a model: the prompt in chunks, then token by token.

use candle_core::{DType, Tensor};

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::one_token;
use crate::sampling::argmax;
use crate::ssm::Step;

/// Tokens of a prompt that go through the model at once. Larger products are faster per token and take more memory.
pub const PROMPT_CHUNK: usize = 256;

/// A sequence, its memory, and the step that advances it.
#[derive(Debug)]
pub struct Decoder<'a> {
    model: &'a dyn Model,
    step: &'a Step,
    cache: Cache,
}

impl<'a> Decoder<'a> {
    /// A sequence without tokens.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn new(model: &'a dyn Model, step: &'a Step) -> Result<Self> {
        Ok(Self { model, step, cache: model.new_cache()? })
    }

    /// A copy of this sequence that goes on by itself, by `step`.
    ///
    /// # Errors
    ///
    /// None on the CPU.
    pub fn fork(&self, step: &'a Step) -> Result<Self> {
        Ok(Self { model: self.model, step, cache: self.cache.fork()? })
    }

    /// Tokens read so far.
    pub fn tokens(&self) -> usize {
        self.cache.tokens
    }

    /// Reads a prompt, `chunk` tokens at a time, and returns the logits after its last token.
    ///
    /// # Errors
    ///
    /// An empty prompt, a chunk of 0, a token outside the vocabulary, faults of the kernel port, NaN logits.
    pub fn prefill(&mut self, tokens: &[u32], chunk: usize) -> Result<Vec<f32>> {
        if chunk == 0 {
            return Err(Error::Request("a prompt is read in chunks of at least one token".to_owned()));
        }
        let mut last = None;
        for chunk in tokens.chunks(chunk) {
            last = Some(self.model.forward(chunk, &mut self.cache, self.step)?);
        }
        let last = last.ok_or_else(|| Error::Request("the prompt has no tokens".to_owned()))?;
        self.logits(&last.narrow(0, last.dim(0)? - 1, 1)?)
    }

    /// Reads one token and returns the logits after it.
    ///
    /// # Errors
    ///
    /// A token outside the vocabulary, faults of the kernel port, NaN logits.
    pub fn decode(&mut self, token: u32) -> Result<Vec<f32>> {
        let hidden = self.model.forward(&[token], &mut self.cache, self.step)?;
        self.logits(&hidden)
    }

    /// Reads one token and returns that of the largest logit after it: the [`argmax`] of what [`decode`](Self::decode) returns. On a GPU
    /// the logits stay there.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode).
    pub fn decode_greedy(&mut self, token: u32) -> Result<u32> {
        let hidden = self.model.forward(&[token], &mut self.cache, self.step)?;
        let logits = self.model.logits(&hidden)?;
        match one_token::serves(&logits) {
            true => one_token::best(&logits)?.ok_or_else(|| self.nan()),
            false => Ok(argmax(&self.on_host(&logits)?)),
        }
    }

    fn logits(&self, hidden: &Tensor) -> Result<Vec<f32>> {
        self.on_host(&self.model.logits(hidden)?)
    }

    fn on_host(&self, logits: &Tensor) -> Result<Vec<f32>> {
        let logits: Vec<f32> = logits.get(0)?.to_dtype(DType::F32)?.to_vec1()?;
        match logits.iter().any(|logit| logit.is_nan()) {
            true => Err(self.nan()),
            false => Ok(logits),
        }
    }

    fn nan(&self) -> Error {
        Error::NanLogits { tokens: self.cache.tokens }
    }
}
