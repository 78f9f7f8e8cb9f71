//! The text that prompts and traces are made of where the caller gives none.

use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

/// Genesis 50 of the King James Version (1611, public domain), as Debian's package bible-kjv has it. The small checkpoint of
/// the repository was not trained on it.
pub const TEXT: &str = include_str!("genesis-50.txt");

/// `count` tokens of a vocabulary, where there is no tokenizer: what they are makes no difference to a model of random weights.
pub fn any_prompt(vocabulary: usize, count: usize) -> Vec<u32> {
    // Steps by a prime larger than a few, so that neighbours differ.
    (0..count).map(|i| (i * 7919 % vocabulary.max(1)) as u32).collect()
}

/// The first `count` tokens of [`TEXT`], repeated as often as needed.
///
/// # Errors
///
/// The tokenizer turns text into no tokens.
pub fn prompt(tokenizer: &Tokenizer, count: usize) -> Result<Vec<u32>> {
    let once = tokenizer.encode(TEXT)?;
    if once.is_empty() {
        return Err(Error::Request("the tokenizer turns text into no tokens".to_owned()));
    }
    Ok(once.into_iter().cycle().take(count).collect())
}
