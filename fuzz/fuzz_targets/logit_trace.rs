//! Traces of logits: what is read can be written, and reads as the same rows.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ssm_engine::trace::{Row, Trace, parse, write_row};

fn written(rows: &[Row]) -> Vec<u8> {
    let mut text = Vec::new();
    rows.iter().for_each(|row| write_row(&mut text, row).expect("memory takes it"));
    text
}

fuzz_target!(|input: &[u8]| {
    let path = Path::new("input.tsv");
    let Ok(Trace { rows, header }) = parse(path, input) else { return };
    let _ = header.entries().count();
    // Six decimals are kept, so that the second time nothing is lost.
    let once = written(&rows);
    let again = parse(path, &once[..]).expect("what was written is a trace");
    assert_eq!(again.rows.len(), rows.len());
    assert_eq!(written(&again.rows), once);
});
