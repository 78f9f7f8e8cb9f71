//! A trace as lines of JSON, for programs that read no tables: an object of the header's keys, then one for each position. It is for other
//! programs; `compare-logit-traces` reads the table.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::{Header, Row};
use crate::error::Result;

/// Writes the header's line. Values are texts, as in the table.
///
/// # Errors
///
/// Those of `out`.
pub fn write_header_json(out: &mut impl Write, header: &Header) -> Result<()> {
    let pairs: Map<String, Value> = header.entries().map(|(key, value)| (key.to_owned(), value.into())).collect();
    Ok(writeln!(out, "{}", Value::Object(pairs))?)
}

/// Writes a position: the columns of the table, with lists as such.
///
/// # Errors
///
/// Those of `out`.
pub fn write_row_json(out: &mut impl Write, row: &Row) -> Result<()> {
    let Row { chunk, pos, target, nll, top } = row;
    let (top_ids, top_logits): (Vec<_>, Vec<_>) = top.iter().copied().unzip();
    let line = json!({
        "chunk": chunk, "pos": pos, "target": target, "nll": nll, "top_ids": top_ids, "top_logits": top_logits,
    });
    Ok(writeln!(out, "{line}")?)
}
