//! The committed declarations against those of some headers.

use std::collections::BTreeMap;

use syn::Item;

use crate::Error;
use crate::items::{Declaration, declarations};

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Names of the declarations on both sides, equal or not.
    pub compared: Vec<String>,
    /// Each difference: the declaration's name, and its lines.
    pub differences: Vec<String>,
    /// Names of committed declarations that the headers do not have, where these are known to be incomplete.
    pub not_compared: Vec<String>,
}

/// Compares the text of `bindings.rs` with what was generated. `complete` headers have to have every declaration.
///
/// # Errors
///
/// [`Error::Failed`] where the text is not Rust.
pub fn compare(committed: &str, generated: Vec<Item>, complete: bool) -> Result<Comparison, Error> {
    let committed = syn::parse_file(committed)
        .map_err(|error| Error::Failed(format!("the committed declarations are not Rust: {error}")))?;
    let generated = declarations(generated).into_iter();
    let mut generated: BTreeMap<_, _> = generated.map(|Declaration { name, text }| (name, text)).collect();
    let mut found = Comparison::default();
    for Declaration { name, text } in declarations(committed.items) {
        match generated.remove(&name) {
            None if complete => found.differences.push(format!("{name}: not in the headers")),
            None => found.not_compared.push(name),
            Some(other) => {
                if text != other {
                    found.differences.push(format!("{name}:\n{}", changed_lines(&text, &other)));
                }
                found.compared.push(name);
            }
        }
    }
    found.differences.extend(generated.into_keys().map(|name| format!("{name}: in the headers alone")));
    Ok(found)
}

/// The lines from the first to the last that differ: `-` the committed ones, `+` those of the headers.
fn changed_lines(committed: &str, generated: &str) -> String {
    let (a, b): (Vec<_>, Vec<_>) = (committed.lines().collect(), generated.lines().collect());
    let start = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let minus = a[..a.len() - end].iter().map(|line| format!("  - {}", line.trim()));
    let plus = b[..b.len() - end].iter().map(|line| format!("  + {}", line.trim()));
    minus.chain(plus).collect::<Vec<_>>().join("\n")
}
