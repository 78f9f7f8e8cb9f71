//! Making a trace.

use candle_core::DType;
use sha2::{Digest, Sha256};

use super::{Plan, Row, Span};
use crate::decoder::PROMPT_CHUNK;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::ssm::Step;

/// Traces `tokens` and hands each position to `on_row` as it comes.
///
/// Each chunk begins with an empty memory. It is not continued from the chunk before, although that would save the context's
/// passes: where the context does not reach back to the beginning of the text, or the chunks went through the kernel and the
/// context through the graph, the numbers would be others.
///
/// # Errors
///
/// A text that is too short; a token outside the vocabulary; NaN logits; faults of the kernel port; what `on_row` returns.
pub fn record(
    model: &dyn Model,
    step: &Step,
    tokens: &[u32],
    plan: &Plan,
    mut on_row: impl FnMut(Row) -> Result<()>,
) -> Result<()> {
    let vocabulary = model.info().vocabulary;
    if plan.top_k > vocabulary {
        let text = format!("TOPK: expected at most the model's vocabulary of {vocabulary}, got {}", plan.top_k);
        return Err(Error::Request(text));
    }
    for (chunk, Span { context, traced }) in plan.spans(tokens.len())?.into_iter().enumerate() {
        let mut cache = model.new_cache()?;
        for part in tokens[context].chunks(PROMPT_CHUNK) {
            model.forward(part, &mut cache, step)?;
        }
        let hidden = model.forward(&tokens[traced.clone()], &mut cache, step)?;
        let logits: Vec<Vec<f32>> = model.logits(&hidden)?.to_dtype(DType::F32)?.to_vec2()?;
        let targets = &tokens[traced.start + 1..=traced.end];
        for (pos, (logits, &target)) in logits.iter().zip(targets).enumerate() {
            if logits.iter().any(|logit| logit.is_nan()) {
                return Err(Error::NanLogits { tokens: traced.start + pos + 1 });
            }
            let nll = negative_log_likelihood(logits, target)?;
            on_row(Row { chunk, pos, target, nll, top: largest(logits, plan.top_k) })?;
        }
    }
    Ok(())
}

/// SHA-256, in hexadecimal digits, of the tokens that a trace reads and predicts: two traces of the same tokens say the same.
///
/// # Errors
///
/// A text that is too short.
pub fn hash_tokens(tokens: &[u32], plan: &Plan) -> Result<String> {
    let spans = plan.spans(tokens.len())?;
    let begin = spans.first().map_or(0, |span| span.context.start);
    let end = spans.last().map_or(0, |span| span.traced.end);
    let mut hash = Sha256::new();
    tokens[begin..=end].iter().for_each(|token| hash.update(token.to_le_bytes()));
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `-ln softmax(logits)[target]`, summed in f64: with the vocabularies of large models, f32 would lose the last digits kept.
fn negative_log_likelihood(logits: &[f32], target: u32) -> Result<f64> {
    let logit = logits.get(target as usize).copied().ok_or_else(|| {
        let text =
            format!("token {target} is not in the model's vocabulary of {}; is this its tokenizer?", logits.len());
        Error::Request(text)
    })?;
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    // A probability that rounds to more than 1 would be a likelihood below zero.
    Ok((sum.ln() + largest - f64::from(logit)).max(0.0))
}

/// The `count` largest logits with their tokens, largest first; of equal ones the lower token first, as greedy decoding has it.
fn largest(logits: &[f32], count: usize) -> Vec<(u32, f64)> {
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let rank = |&a: &u32, &b: &u32| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b));
    if count < order.len() {
        order.select_nth_unstable_by(count, rank);
        order.truncate(count);
    }
    order.sort_unstable_by(rank);
    order.into_iter().map(|token| (token, f64::from(logits[token as usize]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_logits_come_in_order_and_ties_by_token() {
        let logits = [1.0, 5.0, -2.0, 5.0, 3.0];
        assert_eq!(largest(&logits, 3), [(1, 5.0), (3, 5.0), (4, 3.0)]);
        assert_eq!(largest(&logits, 5).last(), Some(&(2, -2.0)));
        assert_eq!(largest(&logits, 9).len(), 5);
    }

    #[test]
    fn likelihood_is_that_of_the_softmax() {
        // Two tokens, e^0 : e^1, far from zero.
        let expected = (1.0 + 1.0_f64.exp()).ln();
        for shift in [0.0, 300.0, -300.0] {
            let got = negative_log_likelihood(&[shift, shift + 1.0], 0).unwrap();
            assert!((got - expected).abs() < 1e-12, "{shift}: {got}");
        }
        assert_eq!(negative_log_likelihood(&[900.0, 0.0], 0).unwrap(), 0.0);
        assert!(negative_log_likelihood(&[900.0, 0.0], 1).unwrap() == 900.0);
        assert!(negative_log_likelihood(&[0.0, 0.0], 2).unwrap_err().to_string().contains("token 2"));
    }

    #[test]
    fn hash_covers_what_is_read_and_predicted() {
        let plan = Plan { chunk: 2, max_chunks: 2, top_k: 2, prefill: 1, start: 2 };
        let tokens: Vec<u32> = (0..9).collect();
        let hash = hash_tokens(&tokens, &plan).unwrap();
        assert_eq!(hash.len(), 64);
        // Tokens 1 to 6: one of context, four traced, and the one that the last of them predicts.
        for (index, matters) in [(0, false), (1, true), (2, true), (6, true), (7, false)] {
            let mut other = tokens.clone();
            other[index] += 100;
            assert_eq!(hash_tokens(&other, &plan).unwrap() != hash, matters, "token {index}");
        }
    }
}
