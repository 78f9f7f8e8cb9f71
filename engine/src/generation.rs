//! Writing text: prompt in, tokens out as they come, and how long both took.

use std::time::{Duration, Instant};

use crate::decoder::{Decoder, PROMPT_CHUNK};
use crate::error::Result;
use crate::sampling::Sampler;
use crate::tokenizer::Tokenizer;

/// What a generation did and how long it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Generation {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Time that the prompt took.
    pub prefill: Duration,
    /// Tokens chosen, the one that ended the text included.
    pub tokens: usize,
    /// Passes through the model for single tokens. The first token comes from the prompt's own logits and takes none.
    pub decode_steps: usize,
    /// Time that those passes, the sampling and the detokenizing took.
    pub decode: Duration,
    /// Whether the text ended with an end token rather than at the limit.
    pub ended: bool,
}

impl Generation {
    /// Prompt tokens per second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill)
    }

    /// Decoded tokens per second; 0 where none was decoded.
    pub fn decode_rate(&self) -> f64 {
        rate(self.decode_steps, self.decode)
    }
}

/// Events per second; 0 where there were none.
pub fn rate(count: usize, time: Duration) -> f64 {
    if count == 0 { 0.0 } else { count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE) }
}

/// Continues `prompt` by at most `max_tokens` tokens, up to one of `end_tokens`, and hands each piece of text to `write`.
///
/// # Errors
///
/// An empty prompt, a token outside the vocabulary, faults of the kernel port, what `write` returns.
pub fn generate(
    decoder: &mut Decoder<'_>,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    prompt: &[u32],
    max_tokens: usize,
    end_tokens: &[u32],
    mut write: impl FnMut(&str) -> Result<()>,
) -> Result<Generation> {
    let start = Instant::now();
    let mut token = sampler.choose(&decoder.prefill(prompt, PROMPT_CHUNK)?);
    let mut done = Generation { prompt_tokens: prompt.len(), prefill: start.elapsed(), ..Generation::default() };

    let start = Instant::now();
    let mut text = tokenizer.stream();
    while done.tokens < max_tokens {
        done.tokens += 1;
        if end_tokens.contains(&token) {
            done.ended = true;
            break;
        }
        write(&text.push(token)?)?;
        if done.tokens < max_tokens {
            token = match sampler.is_greedy() {
                true => decoder.decode_greedy(token)?,
                false => sampler.choose(&decoder.decode(token)?),
            };
            done.decode_steps += 1;
        }
    }
    write(&text.finish()?)?;
    done.decode = start.elapsed();
    Ok(done)
}
