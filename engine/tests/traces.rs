//! `logit-trace` and `compare-logit-traces`, from text to exit status.

mod common;

use std::path::{Path, PathBuf};

use candle_core::Device;
use common::Tiny;
use common::program::{assert_status, run, stderr, stdout};
use serde_json::{Value, json};
use ssm_engine::decoder::Decoder;
use ssm_engine::model;
use ssm_engine::ssm::{Step, StepChoice};
use ssm_engine::trace::{Row, Trace, read};
use tempfile::TempDir;

/// With the byte-level tokenizer, as many tokens as letters.
const TEXT: &str = "the quick brown fox jumps over the lazy dog";

/// A checkpoint, a text, and room for traces.
struct Place {
    folder: TempDir,
    model: TempDir,
}

impl Place {
    fn new(seed: u64) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap(), model: Tiny::new(seed, json!({})).write() };
        std::fs::write(place.file("text"), TEXT).unwrap();
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Traces to the file `name`.
    fn trace(&self, name: &str, arguments: &[&str]) -> PathBuf {
        let (model, text) = (self.model.path().to_str().unwrap(), self.file("text"));
        let output = run(&[&["logit-trace", model, text.to_str().unwrap()], arguments].concat(), &[]);
        assert_status(&output, 0);
        let path = self.file(name);
        std::fs::write(&path, output.stdout).unwrap();
        path
    }

    /// Compares and checks the status; stdout and stderr.
    fn compare(&self, reference: &Path, candidate: &Path, more: &[&str], status: i32) -> (String, String) {
        let files = ["compare-logit-traces", reference.to_str().unwrap(), candidate.to_str().unwrap()];
        let output = run(&[&files[..], more].concat(), &[]);
        assert_status(&output, status);
        (stdout(&output), stderr(&output))
    }

    /// A copy of a trace with its lines changed.
    fn changed(&self, trace: &Path, change: impl Fn(usize, &str) -> String) -> PathBuf {
        let text = std::fs::read_to_string(trace).unwrap();
        let lines: Vec<String> = text.lines().enumerate().map(|(index, line)| change(index, line) + "\n").collect();
        let path = self.file("changed.tsv");
        std::fs::write(&path, lines.concat()).unwrap();
        path
    }
}

/// What the decoder says after `context` in one prompt and then each of `single`.
fn logits(place: &Place, choice: StepChoice, context: &[u8], single: &[u8]) -> Vec<f32> {
    let model = model::load(place.model.path(), &Device::Cpu, None, |_, _| ()).unwrap();
    let step = Step::for_model(choice, &*model).unwrap();
    let mut decoder = Decoder::new(&*model, &step).unwrap();
    let tokens = |bytes: &[u8]| -> Vec<u32> { bytes.iter().map(|&byte| byte.into()).collect() };
    let mut last = Vec::new();
    if !context.is_empty() {
        last = decoder.prefill(&tokens(context), 256).unwrap();
    }
    for token in tokens(single) {
        last = decoder.decode(token).unwrap();
    }
    last
}

fn assert_row(row: &Row, logits: &[f32], target: u8) {
    let place = format!("chunk {} pos {}", row.chunk, row.pos);
    assert_eq!(row.target, u32::from(target), "{place}");
    let mut sorted: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    for ((token, logit), (wanted, value)) in row.top.iter().zip(&sorted) {
        assert_eq!(token, wanted, "{place}");
        assert!((logit - f64::from(*value)).abs() < 2e-4, "{place}: {logit}, expected {value}");
    }
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
    let nll = sum.ln() - f64::from(logits[usize::from(target)]);
    assert!((row.nll - nll).abs() < 2e-4, "{place}: nll {}, expected {nll}", row.nll);
}

#[test]
fn each_row_is_what_the_decoder_says_there() {
    let place = Place::new(31);
    let text = TEXT.as_bytes();
    let Trace { header, rows } = read(&place.trace("wide.tsv", &["8", "3", "5"])).unwrap();
    assert_eq!((header.get("dtype"), header.get("tensors")), (Some("f32"), Some("Cpu")));
    let keys = ["tokens", "chunks", "chunk_tokens", "topk", "prefill", "start_token", "positions"];
    assert_eq!(keys.map(|key| header.get(key).unwrap()), ["43", "3", "8", "5", "0", "0", "24"]);
    assert_eq!((rows.len(), rows[0].top.len()), (24, 5));
    assert_row(&rows[0], &logits(&place, StepChoice::Graph, &text[..1], &[]), text[1]);
    assert_row(&rows[7], &logits(&place, StepChoice::Graph, &text[..8], &[]), text[8]);
    // The second chunk has not seen the first.
    assert_eq!((rows[9].chunk, rows[9].pos), (1, 1));
    assert_row(&rows[9], &logits(&place, StepChoice::Graph, &text[8..10], &[]), text[10]);

    let context = read(&place.trace("context.tsv", &["8", "3", "5", "6"])).unwrap().rows;
    assert_row(&context[7], &logits(&place, StepChoice::Graph, &text[..8], &[]), text[8]);
    assert_row(&context[9], &logits(&place, StepChoice::Graph, &text[2..10], &[]), text[10]);
}

#[test]
fn passes_of_one_token_go_through_the_step_after_their_context() {
    let place = Place::new(32);
    let text = TEXT.as_bytes();
    for (name, choice) in [("kernel", StepChoice::Kernel), ("graph", StepChoice::Graph)] {
        let arguments = ["1", "6", "8", "20", "--start-token", "20", "--step", name];
        let Trace { header, rows } = read(&place.trace(name, &arguments)).unwrap();
        assert_eq!(header.get("port").unwrap() == "graph", name == "graph");
        assert_eq!(rows.len(), 6);
        for (i, row) in rows.iter().enumerate() {
            assert_eq!((row.chunk, row.pos), (i, 0));
            assert_row(row, &logits(&place, choice, &text[i..20 + i], &text[20 + i..=20 + i]), text[21 + i]);
        }
    }
    // The two are not the same file: the step was really another.
    let (kernel, graph) = (place.file("kernel"), place.file("graph"));
    let (text, _) = place.compare(&graph, &kernel, &["--decided", "0.05"], 0);
    assert!(text.contains("verdict: agree") && text.contains("top-1 differs at     0 of 6"), "{text}");
}

#[test]
fn lines_of_json_say_what_the_table_says() {
    let place = Place::new(36);
    let arguments = ["8", "2", "3"];
    let Trace { header, rows } = read(&place.trace("t.tsv", &arguments)).unwrap();
    let lines = std::fs::read_to_string(place.trace("t.json", &[&arguments[..], &["--json"]].concat())).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys: Vec<(&str, &str)> =
        lines[0].as_object().unwrap().iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap())).collect();
    assert_eq!(keys.len(), header.entries().count());
    assert!(keys.iter().all(|&(key, value)| header.get(key) == Some(value)), "{keys:?}");
    assert_eq!((lines.len() - 1, rows.len()), (16, 16));
    for (line, row) in lines[1..].iter().zip(&rows) {
        assert_eq!(line["chunk"], row.chunk);
        assert_eq!(line["pos"], row.pos);
        assert_eq!(line["target"], row.target);
        assert!((line["nll"].as_f64().unwrap() - row.nll).abs() < 1e-6);
        for (i, (token, logit)) in row.top.iter().enumerate() {
            assert_eq!(line["top_ids"][i], *token);
            assert!((line["top_logits"][i].as_f64().unwrap() - logit).abs() < 1e-6);
        }
    }
}

#[test]
fn short_texts_and_vocabularies_are_told_what_is_needed() {
    let place = Place::new(33);
    let (model, text) = (place.model.path().to_str().unwrap(), place.file("text"));
    for (arguments, parts) in [
        (&["43"][..], ["has 43 tokens", "needs 44"]),
        (&["1", "4", "8", "0", "--start-token", "50"], ["has 43 tokens", "needs 52"]),
        (&["8", "1", "261"], ["TOPK", "vocabulary of 260"]),
    ] {
        let output = run(&[&["logit-trace", model, text.to_str().unwrap()], arguments].concat(), &[]);
        assert_status(&output, 1);
        assert!(parts.iter().all(|part| stderr(&output).contains(part)), "{}", stderr(&output));
    }
    // As many chunks as the text has.
    assert_eq!(read(&place.trace("all.tsv", &["10", "99"])).unwrap().header.get("chunks"), Some("4"));
}

#[test]
fn every_exit_status_of_a_comparison() {
    let place = Place::new(34);
    let trace = place.trace("t.tsv", &["8", "4"]);
    place.compare(&trace, &trace, &["--decided", "0.01"], 0);

    // Another first choice everywhere, since no vocabulary has it.
    let other = place.changed(&trace, |_, line| match line.rsplit_once('\t') {
        Some((rest, _)) if !line.starts_with('#') => {
            let place = rest.rsplit_once('\t').unwrap().0;
            format!("{place}\t998,999\t3.0,1.0")
        }
        _ => line.to_owned(),
    });
    let (text, _) = place.compare(&trace, &other, &["--decided", "0.01"], 1);
    assert!(text.contains("DIFFER"), "{text}");
    let (text, _) = place.compare(&trace, &other, &["--decided", "0.01", "--json"], 1);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&report["verdict"], &report["positions"], &report["disagreements"]),
        (&json!("differ"), &json!(32), &json!(32))
    );
    assert_eq!(report["buckets"].as_array().unwrap().len(), 6);

    let (text, _) = place.compare(&trace, &trace, &["--decided", "1000"], 3);
    assert!(text.contains("inconclusive"), "{text}");

    let shorter = place.trace("shorter.tsv", &["8", "3"]);
    let (_, error) = place.compare(&trace, &shorter, &[], 2);
    assert!(error.contains("not comparable"), "{error}");
    let (_, error) = place.compare(&trace, &place.file("absent.tsv"), &[], 2);
    assert!(error.contains("absent.tsv: not found"), "{error}");
    let cut = place.changed(&trace, |_, line| if line.starts_with("3\t7") { String::new() } else { line.to_owned() });
    let (_, error) = place.compare(&trace, &cut, &[], 2);
    assert!(error.contains("ends early"), "{error}");
}

#[test]
fn lines_between_the_rows_are_skipped_and_broken_ones_named() {
    let place = Place::new(35);
    let trace = place.trace("t.tsv", &["8", "2"]);
    let chatty = place.changed(&trace, |index, line| format!("[engine] line {index}\n{line}"));
    place.compare(&trace, &chatty, &["--decided", "0.01"], 0);

    let text = std::fs::read_to_string(&trace).unwrap();
    let rows = text.lines().position(|line| !line.starts_with('#')).unwrap();
    let broken =
        place.changed(&trace, |index, line| if index == rows { line.replacen('0', "x", 1) } else { line.to_owned() });
    let (_, error) = place.compare(&trace, &broken, &[], 2);
    let expected = format!("changed.tsv:{}: column `chunk`: expected a whole number, got x", rows + 1);
    assert!(error.contains(&expected), "{error}");
}
