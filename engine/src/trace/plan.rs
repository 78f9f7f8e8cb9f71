//! Which tokens of a text a trace feeds to the model, in which passes.

use std::ops::Range;

use crate::error::{Error, Result};

/// The shape of a trace.
///
/// The width of a pass decides which code computes it: one token goes through the fused step, more through the graph. The
/// context before it is given separately, so that a pass of one token can have a long one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Tokens of a traced pass; at least 1.
    pub chunk: usize,
    /// Traced passes at most; at least 1.
    pub max_chunks: usize,
    /// Logits kept per position; at least 2, since a comparison needs the gap between the two largest.
    pub top_k: usize,
    /// Tokens of context before each traced pass; fewer where the text does not reach so far back.
    pub prefill: usize,
    /// The token of the text at which the first chunk begins.
    pub start: usize,
}

/// One chunk's tokens, as positions in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Read first, into an empty memory.
    pub context: Range<usize>,
    /// Read in one pass. Each position predicts the token after it.
    pub traced: Range<usize>,
}

impl Plan {
    /// The chunks of a text of `tokens` tokens, in order: as many as it has, up to the plan's number.
    ///
    /// # Errors
    ///
    /// The text does not hold one chunk and the token after it; a size is zero.
    pub fn spans(&self, tokens: usize) -> Result<Vec<Span>> {
        let Self { chunk, max_chunks, top_k, prefill, start } = *self;
        for (name, value, least) in [("CHUNK", chunk, 1), ("MAX_CHUNKS", max_chunks, 1), ("TOPK", top_k, 2)] {
            if value < least {
                return Err(Error::Request(format!("{name}: expected at least {least}, got {value}")));
            }
        }
        let needed = start.saturating_add(chunk).saturating_add(1);
        if tokens < needed {
            return Err(Error::Request(format!(
                "the text has {tokens} tokens, and one chunk of {chunk} from token {start} on needs {needed}, the token that \
                 its last position predicts included; give a longer text, a smaller CHUNK or an earlier --start-token"
            )));
        }
        let count = ((tokens - start - 1) / chunk).min(max_chunks);
        let span = |index: usize| {
            let begin = start + index * chunk;
            Span { context: begin.saturating_sub(prefill)..begin, traced: begin..begin + chunk }
        };
        Ok((0..count).map(span).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { chunk: 10, max_chunks: 4, top_k: 8, prefill: 0, start: 0 };

    fn spans(plan: Plan, tokens: usize) -> Vec<(Range<usize>, Range<usize>)> {
        plan.spans(tokens).unwrap().into_iter().map(|span| (span.context, span.traced)).collect()
    }

    #[test]
    fn chunks_follow_one_another_up_to_the_number_or_the_end() {
        assert_eq!(spans(PLAN, 31), [(0..0, 0..10), (10..10, 10..20), (20..20, 20..30)]);
        // The 30th token has nothing to predict.
        assert_eq!(spans(PLAN, 30).len(), 2);
        assert_eq!(spans(PLAN, 1000).len(), 4);
    }

    #[test]
    fn context_is_what_precedes_up_to_the_beginning_of_the_text() {
        let plan = Plan { prefill: 15, max_chunks: 3, ..PLAN };
        assert_eq!(spans(plan, 100), [(0..0, 0..10), (0..10, 10..20), (5..20, 20..30)]);
        let single = Plan { chunk: 1, prefill: 512, start: 512, max_chunks: 2, ..PLAN };
        assert_eq!(spans(single, 515), [(0..512, 512..513), (1..513, 513..514)]);
    }

    #[test]
    fn short_texts_are_told_what_they_need() {
        let plan = Plan { start: 7, ..PLAN };
        let error = plan.spans(17).unwrap_err().to_string();
        assert!(error.contains("has 17 tokens") && error.contains("needs 18"), "{error}");
        assert_eq!(plan.spans(18).unwrap().len(), 1);
        assert!(Plan { start: usize::MAX, ..PLAN }.spans(5).is_err());
    }

    #[test]
    fn sizes_below_their_least_are_named() {
        for (plan, name) in [
            (Plan { chunk: 0, ..PLAN }, "CHUNK"),
            (Plan { max_chunks: 0, ..PLAN }, "MAX_CHUNKS"),
            (Plan { top_k: 1, ..PLAN }, "TOPK"),
        ] {
            assert!(plan.spans(100).unwrap_err().to_string().starts_with(name), "{name}");
        }
    }
}
