//! How fast a model reads a prompt and decodes.

use std::hint::black_box;
use std::time::Instant;

use super::prompt;
use crate::decoder::{Decoder, PROMPT_CHUNK};
use crate::error::Result;
use crate::generation::rate;
use crate::model::Model;
use crate::sampling::argmax;
use crate::ssm::Step;
use crate::statistics::median;
use crate::tokenizer::Tokenizer;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Tokens before the decoded ones; at least 1.
    pub prompt_tokens: usize,
    /// Tokens decoded and timed per round; at least 1. A token that ends a text does not end the round.
    pub max_tokens: usize,
    /// Tokens decoded before the clock starts.
    pub warmup_tokens: usize,
    /// Rounds; at least 1.
    pub rounds: usize,
}

/// What was measured: medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Milliseconds that the prompt took.
    pub prefill_ms: f64,
    /// Prompt tokens per second.
    pub prefill_tok_s: f64,
    /// Milliseconds that the decoded tokens took.
    pub decode_ms: f64,
    /// Decoded tokens per second.
    pub decode_tok_s: f64,
}

/// Reads the prompt and decodes greedily, round after round. A first round that is not timed warms up what is used for the
/// first time: weights in the page cache, compiled kernels, the thread pool.
///
/// `progress` is called with the number of tokens read or decoded since its last call; [`Plan::tokens`] in all.
///
/// # Errors
///
/// What the decoder refuses.
pub fn measure(
    model: &dyn Model,
    tokenizer: &Tokenizer,
    step: &Step,
    plan: Plan,
    mut progress: impl FnMut(usize),
) -> Result<Speed> {
    let prompt = prompt(tokenizer, plan.prompt_tokens)?;
    let mut round = |count: usize| -> Result<(f64, f64)> {
        let mut decoder = Decoder::new(model, step)?;
        let start = Instant::now();
        let mut token = argmax(&decoder.prefill(&prompt, PROMPT_CHUNK)?);
        let prefill = start.elapsed();
        progress(prompt.len());
        let start = Instant::now();
        for _ in 0..count {
            token = decoder.decode_greedy(token)?;
        }
        black_box(token);
        let decode = start.elapsed();
        progress(count);
        Ok((prefill.as_secs_f64() * 1e3, decode.as_secs_f64() * 1e3))
    };
    round(plan.warmup_tokens)?;
    let times: Vec<(f64, f64)> = (0..plan.rounds).map(|_| round(plan.max_tokens)).collect::<Result<_>>()?;
    let middle = |time: fn(&(f64, f64)) -> f64| median(&times.iter().map(time).collect::<Vec<_>>()).unwrap_or_default();
    let (prefill_ms, decode_ms) = (middle(|times| times.0), middle(|times| times.1));
    let per_second = |count, ms: f64| rate(count, std::time::Duration::from_secs_f64(ms / 1e3));
    Ok(Speed {
        prefill_ms,
        prefill_tok_s: per_second(plan.prompt_tokens, prefill_ms),
        decode_ms,
        decode_tok_s: per_second(plan.max_tokens, decode_ms),
    })
}

impl Plan {
    /// Tokens that [`measure`] reads and decodes.
    pub fn tokens(&self) -> usize {
        let Self { prompt_tokens, max_tokens, warmup_tokens, rounds } = *self;
        prompt_tokens + warmup_tokens + rounds * (prompt_tokens + max_tokens)
    }
}
