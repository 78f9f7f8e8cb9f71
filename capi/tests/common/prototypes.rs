//! What a header without comments declares beside structs and constants: functions and names of types, as texts that do not depend on
//! line breaks.

use std::collections::BTreeMap;

/// The header's statements, each on one line, without the preprocessor's lines.
fn statements(header: &str) -> Vec<String> {
    let lines = header.lines().filter(|line| !line.trim_start().starts_with('#'));
    let text = lines.collect::<Vec<_>>().join(" ");
    // What stands in braces are fields and constants; `extern "C" {` is a brace without an end that matters.
    let parts = text.split([';', '{', '}']);
    parts.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|part| !part.is_empty()).collect()
}

/// A parameter's type: its declaration without its name, which no caller depends on.
fn parameter(declaration: &str) -> &str {
    let declaration = declaration.trim();
    declaration.rfind([' ', '*']).map_or(declaration, |at| declaration[..=at].trim())
}

/// Functions by name: what they return and take.
pub fn functions(header: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in statements(header) {
        let Some((head, rest)) = statement.split_once('(') else { continue };
        let Some(at) = head.rfind("ssm_update_") else { continue };
        let parameters = rest.strip_suffix(')').unwrap_or_else(|| panic!("a plain declaration: {statement}"));
        assert!(!parameters.contains(['(', '[']), "parameters without functions and arrays: {statement}");
        let types: Vec<&str> = parameters.split(',').map(parameter).collect();
        found.insert(head[at..].to_owned(), format!("{} ({})", head[..at].trim(), types.join(", ")));
    }
    found
}

/// Second names of types, with what they stand for: all that are given, for C11 and for C23.
pub fn typedefs(header: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::<String, String>::new();
    for statement in statements(header) {
        // That of a struct with a body ends at its brace.
        let Some((of, name)) = statement.strip_prefix("typedef ").and_then(|rest| rest.rsplit_once(' ')) else {
            continue;
        };
        if of == "struct" {
            continue;
        }
        found.entry(name.to_owned()).and_modify(|known| *known = format!("{known} | {of}")).or_insert(of.to_owned());
    }
    found
}
