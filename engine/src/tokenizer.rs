//! Text to tokens and back, the latter as a stream.

use std::path::Path;

use crate::error::{Error, Result};

/// Bytes of the longest UTF-8 character. A byte-level token holds at least one byte, so that a character is complete
/// after this many tokens at the latest; what is not a character by then never becomes one.
const CHARACTER_BYTES_MAX: usize = 4;

/// The tokenizer of a checkpoint.
#[derive(Debug)]
pub struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Reads `tokenizer.json` of the checkpoint folder.
    ///
    /// # Errors
    ///
    /// The file is missing or not a tokenizer.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let bytes = std::fs::read(&path).map_err(|source| {
            Error::read(&path, source, "a checkpoint folder holds tokenizer.json beside its weights")
        })?;
        let tokenizer = tokenizers::Tokenizer::from_bytes(bytes)
            .map_err(|error| Error::malformed(&path, format!("not a tokenizer: {error}")))?;
        Ok(Self(tokenizer))
    }

    /// Tokens of a text, with the special tokens that the tokenizer's own template adds.
    ///
    /// # Errors
    ///
    /// A text that the tokenizer cannot represent.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.0.encode(text, true).map_err(|error| Error::Request(format!("tokenizing: {error}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Text of tokens, special ones left out. Bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    ///
    /// Tokens that the tokenizer's decoder refuses.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.0.decode(tokens, true).map_err(|error| Error::Request(format!("decoding tokens: {error}")))
    }

    /// A stream of text, for tokens one at a time.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream { tokenizer: self, tokens: Vec::new(), shown: 0, pending: 0 }
    }
}

/// Turns tokens into text as they come, never splitting a character whose bytes are spread over several tokens.
#[derive(Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    /// Tokens from the last piece on: it is the context in which the next piece is decoded, since decoders treat the
    /// first token of a text differently (a space in front of it, say).
    tokens: Vec<u32>,
    /// Tokens of `tokens` whose text was given out.
    shown: usize,
    /// Tokens of `tokens` whose text was not.
    pending: usize,
}

impl TextStream<'_> {
    /// Takes a token and returns the text that is complete now; empty in the middle of a character.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::decode`].
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        self.pending += 1;
        let text = self.text()?;
        if text.ends_with(char::REPLACEMENT_CHARACTER) && self.pending < CHARACTER_BYTES_MAX {
            return Ok(String::new());
        }
        self.settle();
        Ok(text)
    }

    /// The text still held back at the end of the tokens.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::decode`].
    pub fn finish(&mut self) -> Result<String> {
        let text = self.text()?;
        self.settle();
        Ok(text)
    }

    fn text(&self) -> Result<String> {
        let before = self.tokenizer.decode(&self.tokens[..self.shown])?;
        let mut all = self.tokenizer.decode(&self.tokens)?;
        // Where the context ends in the middle of a character, its replacement may be gone from `all`.
        let common = before.len().min(all.len());
        let start = (0..=common).rev().find(|&at| all.is_char_boundary(at)).unwrap_or(0);
        Ok(all.split_off(start))
    }

    fn settle(&mut self) {
        self.tokens.drain(..self.shown);
        self.shown = self.tokens.len();
        self.pending = 0;
    }
}
