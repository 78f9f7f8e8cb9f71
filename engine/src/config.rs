//! Reading `config.json`: typed fields with defaults and permitted ranges. Which fields a family has, and their defaults, is
//! said in the family's own module.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Largest size that any field may state. Products of two such sizes cannot overflow, and no real model comes near it.
const SIZE_MAX: usize = 1 << 24;

/// Sizes that may not be zero.
pub const POSITIVE: RangeInclusive<usize> = 1..=SIZE_MAX;

/// Sizes that may be zero.
pub const ANY: RangeInclusive<usize> = 0..=SIZE_MAX;

/// The `config.json` of a checkpoint.
///
/// A field that is absent or `null` takes the default, as in `transformers`. Names with dots reach into nested objects.
#[derive(Debug)]
pub struct Config {
    path: PathBuf,
    fields: Map<String, Value>,
}

impl Config {
    /// Reads `config.json` of the checkpoint folder.
    ///
    /// # Errors
    ///
    /// The file is missing, unreadable or no JSON object.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let text = std::fs::read_to_string(&path)
            .map_err(|source| Error::read(&path, source, "a checkpoint folder holds config.json beside its weights"))?;
        match serde_json::from_str(&quote_bare_numbers(&text)) {
            Ok(Value::Object(fields)) => Ok(Self { path, fields }),
            Ok(_) => Err(Error::malformed(&path, "expected a JSON object")),
            Err(error) => Err(Error::malformed(&path, format!("not valid JSON: {error}"))),
        }
    }

    /// The file, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The architecture's class name in `transformers`.
    ///
    /// # Errors
    ///
    /// `architectures` is not a list that begins with a name.
    pub fn architecture(&self) -> Result<&str> {
        let field = self.get("architectures");
        let first = field.and_then(Value::as_array).and_then(|names| names.first()).and_then(Value::as_str);
        first.ok_or_else(|| self.error("architectures", "a list with one class name", field))
    }

    /// The field's value, unless it is absent or null.
    pub fn get(&self, field: &str) -> Option<&Value> {
        let mut names = field.split('.');
        let mut value = self.fields.get(names.next()?)?;
        for name in names {
            value = value.get(name)?;
        }
        (!value.is_null()).then_some(value)
    }

    /// Whether the field is there and null.
    pub fn is_null(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(Value::is_null)
    }

    /// A size within `range`.
    ///
    /// # Errors
    ///
    /// The field is not an integer in `range`.
    pub fn size(&self, field: &str, default: usize, range: RangeInclusive<usize>) -> Result<usize> {
        Ok(self.size_if_set(field, range)?.unwrap_or(default))
    }

    /// A size within `range` that has no default.
    ///
    /// # Errors
    ///
    /// The field is absent or not an integer in `range`.
    pub fn required_size(&self, field: &str, range: RangeInclusive<usize>) -> Result<usize> {
        let expected = format!("an integer from {} to {}", range.start(), range.end());
        self.size_if_set(field, range)?.ok_or_else(|| self.error(field, expected, None))
    }

    /// A size within `range`, or nothing where the field is absent.
    ///
    /// # Errors
    ///
    /// The field is not an integer in `range`.
    pub fn size_if_set(&self, field: &str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let size = value.as_u64().and_then(|size| usize::try_from(size).ok()).filter(|size| range.contains(size));
        let expected = || format!("an integer from {} to {}", range.start(), range.end());
        size.map(Some).ok_or_else(|| self.error(field, expected(), Some(value)))
    }

    /// A finite number.
    ///
    /// # Errors
    ///
    /// The field is no number, or not finite.
    pub fn number(&self, field: &str, default: f64) -> Result<f64> {
        let Some(value) = self.get(field) else { return Ok(default) };
        as_number(value)
            .filter(|number| number.is_finite())
            .ok_or_else(|| self.error(field, "a finite number", Some(value)))
    }

    /// A finite number above zero.
    ///
    /// # Errors
    ///
    /// The field is anything else.
    pub fn positive_number(&self, field: &str, default: f64) -> Result<f64> {
        let number = self.number(field, default)?;
        if number > 0.0 { Ok(number) } else { Err(self.error(field, "a number above zero", self.get(field))) }
    }

    /// `N` finite numbers.
    ///
    /// # Errors
    ///
    /// The field is anything else.
    pub fn numbers<const N: usize>(&self, field: &str, default: [f64; N]) -> Result<[f64; N]> {
        let Some(value) = self.get(field) else { return Ok(default) };
        let number = |value: &Value| as_number(value).filter(|number| number.is_finite());
        let numbers: Option<Vec<f64>> = value.as_array().and_then(|list| list.iter().map(number).collect());
        numbers
            .and_then(|numbers| numbers.try_into().ok())
            .ok_or_else(|| self.error(field, format!("{N} finite numbers"), Some(value)))
    }

    /// A pair of numbers in ascending order; infinity is permitted, NaN is not.
    ///
    /// # Errors
    ///
    /// The field is anything else.
    pub fn limits(&self, field: &str, default: (f64, f64)) -> Result<(f64, f64)> {
        let Some(value) = self.get(field) else { return Ok(default) };
        let numbers: Option<Vec<f64>> = value.as_array().and_then(|list| list.iter().map(as_number).collect());
        match numbers.as_deref() {
            Some(&[low, high]) if low <= high => Ok((low, high)),
            _ => Err(self.error(field, "two numbers in ascending order", Some(value))),
        }
    }

    /// A boolean.
    ///
    /// # Errors
    ///
    /// The field is anything else.
    pub fn flag(&self, field: &str, default: bool) -> Result<bool> {
        let Some(value) = self.get(field) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.error(field, "true or false", Some(value)))
    }

    /// One of the given words.
    ///
    /// # Errors
    ///
    /// The field is anything else.
    pub fn word<'a>(&'a self, field: &str, default: &'a str, words: &[&str]) -> Result<&'a str> {
        let Some(value) = self.get(field) else { return Ok(default) };
        value
            .as_str()
            .filter(|word| words.contains(word))
            .ok_or_else(|| self.error(field, format!("one of {words:?}"), Some(value)))
    }

    /// One token id or a list of them; empty where the field is absent.
    ///
    /// # Errors
    ///
    /// The field is anything else.
    pub fn token_ids(&self, field: &str) -> Result<Vec<u32>> {
        let Some(value) = self.get(field) else { return Ok(Vec::new()) };
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = match value {
            Value::Array(list) => list.iter().map(id).collect(),
            other => id(other).map(|id| vec![id]),
        };
        ids.ok_or_else(|| self.error(field, "a token id or a list of them", Some(value)))
    }

    /// The error that says what a field should have been.
    pub fn error(&self, field: &str, expected: impl Into<String>, got: Option<&Value>) -> Error {
        Error::Config {
            path: self.path.clone(),
            field: field.to_owned(),
            expected: expected.into(),
            got: got.map_or_else(|| "nothing".to_owned(), Value::to_string),
        }
    }
}

/// A JSON number, one of the bare words that [`quote_bare_numbers`] turned into a string, or the object that newer versions
/// of `transformers` write in place of such a word: `{"__float__": "Infinity"}`.
fn as_number(value: &Value) -> Option<f64> {
    match value.get("__float__").unwrap_or(value).as_str() {
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => value.as_f64(),
    }
}

/// Puts quotes around `Infinity`, `-Infinity` and `NaN`, which Python's `json` writes bare and no strict parser accepts.
fn quote_bare_numbers(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 16);
    let (mut in_string, mut escaped) = (false, false);
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let word = ["Infinity", "-Infinity", "NaN"].into_iter().find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = word {
            quoted.extend(["\"", word, "\""]);
            rest = &rest[word.len()..];
            continue;
        }
        in_string ^= char == '"' && !escaped;
        escaped = in_string && char == '\\' && !escaped;
        quoted.push(char);
        rest = &rest[char.len_utf8()..];
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_numbers_are_quoted_outside_of_strings_only() {
        let text = r#"{"a": [0.0, Infinity], "b": -Infinity, "c": "an \"Infinity\" \\", "d": NaN}"#;
        let quoted = quote_bare_numbers(text);
        assert_eq!(quoted, r#"{"a": [0.0, "Infinity"], "b": "-Infinity", "c": "an \"Infinity\" \\", "d": "NaN"}"#);
        assert!(serde_json::from_str::<Value>(&quoted).is_ok());
    }

    #[test]
    fn infinity_is_read_in_every_spelling() {
        for text in ["Infinity", "\"Infinity\"", r#"{"__float__": "Infinity"}"#] {
            let value = serde_json::from_str(&quote_bare_numbers(text)).unwrap();
            assert_eq!(as_number(&value), Some(f64::INFINITY), "{text}");
        }
        assert_eq!(as_number(&Value::from("NaN")), None);
    }
}
