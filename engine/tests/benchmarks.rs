//! `bench-decode`, `compare-bench` and `verify-models`, with every exit status.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::Tiny;
use common::program::{assert_status, run, stderr, stdout};
use serde_json::{Value, json};
use ssm_update::switches;
use tempfile::TempDir;

/// Sizes that a tiny model takes no time for.
const SMALL: [&str; 8] = ["--prompt-tokens", "9", "--max-tokens", "5", "--warmup-tokens", "1", "--rounds", "2"];

/// Checkpoints `a` and `b`, and folders that are none.
fn models() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    Tiny::new(41, json!({})).write_into(folder.path(), "a");
    Tiny::new(42, json!({ "num_local_experts": 0 })).write_into(folder.path(), "b");
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    folder
}

/// Adds a checkpoint whose weights are cut off, and one of a foreign architecture.
fn spoil(models: &Path) {
    let cut = Tiny::new(43, json!({})).write_into(models, "cut").join("model.safetensors");
    let bytes = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 8]).unwrap();
    Tiny::new(44, json!({ "architectures": ["LlamaForCausalLM"] })).write_into(models, "foreign");
}

fn bench(arguments: &[&str]) -> Output {
    run(&[&["bench-decode"], arguments, &SMALL].concat(), &[])
}

/// The rows of a table by the names of their columns.
fn table(path: &Path) -> Vec<BTreeMap<String, String>> {
    csv::Reader::from_path(path).unwrap().into_deserialize().map(Result::unwrap).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn all_checkpoints_of_a_folder_become_rows() {
    let models = models();
    let output = models.path().join("results/bench.csv");
    let arguments = ["all", "--models-dir", text(models.path()), "--output", text(&output)];
    assert_status(&bench(&arguments), 0);
    // Again: the file is replaced.
    let result = bench(&arguments);
    assert_status(&result, 0);
    assert!(stdout(&result).contains("a ") && stdout(&result).contains("kernel, port cpu"), "{}", stdout(&result));
    let rows = table(&output);
    assert_eq!(rows.iter().map(|row| row["model"].as_str()).collect::<Vec<_>>(), ["a", "b"]);
    for row in &rows {
        for (column, expected) in [("prompt_tokens", "9"), ("max_tokens", "5"), ("generated_tokens", "5")] {
            assert_eq!(row[column], expected, "{column}");
        }
        assert_eq!((row["step"].as_str(), row["port"].as_str(), row["outcome"].as_str()), ("kernel", "cpu", "ok"));
        assert!(row["kernel_compiler"].starts_with("rustc 1."), "{row:?}");
        assert!(row.iter().all(|(column, cell)| !cell.is_empty() || column == "outcome"), "{row:?}");
        let number = |column: &str| row[column].parse::<f64>().unwrap();
        for (tokens, ms, rate) in [(9.0, "prefill_ms", "prefill_tok_s"), (5.0, "decode_ms", "decode_tok_s")] {
            let expected = tokens / number(ms) * 1e3;
            assert!((number(rate) / expected - 1.0).abs() < 0.05, "{ms} {rate} {row:?}");
        }
    }

    // The folder by the variable, the graph, a tag in the file's name.
    let arguments = ["bench-decode", "all", "--step", "graph", "--output", text(&output), "--suffix", "graph"];
    let result = run(&[&arguments[..], &SMALL].concat(), &[("MODELS_DIR", text(models.path()))]);
    assert_status(&result, 0);
    let rows = table(&output.with_file_name("bench_graph.csv"));
    assert_eq!((rows[1]["step"].as_str(), rows[1]["port"].as_str()), ("graph", ""));
}

#[test]
fn models_that_cannot_be_measured_are_rows_and_the_run_goes_on() {
    let models = models();
    spoil(models.path());
    let output = models.path().join("bench.csv");
    let arguments = ["all", "--models-dir", text(models.path()), "--output", text(&output), "--json"];
    let result = bench(&arguments);
    assert_status(&result, 1);
    let rows = table(&output);
    let outcomes: Vec<_> =
        rows.iter().map(|row| (row["model"].as_str(), &row["outcome"][..5.min(row["outcome"].len())])).collect();
    assert_eq!(outcomes, [("a", "ok"), ("b", "ok"), ("cut", "FAIL:"), ("foreign", "SKIP:")]);
    assert!(rows[2]["outcome"].contains("truncated") && rows[3]["outcome"].contains("LlamaForCausalLM"));
    assert!(rows[2]["decode_tok_s"].is_empty() && rows[3]["port"].is_empty());
    assert!(stderr(&result).contains("truncated"), "{}", stderr(&result));
    let report: Value = serde_json::from_slice(&result.stdout).unwrap();
    assert_eq!(report.as_array().unwrap().len(), 4);
    assert!(report[0]["decode_tok_s"].is_f64() && report[2]["decode_tok_s"].is_null());

    // A kernel that cannot be had is a failure of every row, not another step in silence.
    let a = models.path().join("a");
    let arguments = ["bench-decode", text(&a), "--step", "kernel"];
    let result = run(&[&arguments[..], &SMALL].concat(), &[(switches::KERNEL, "0")]);
    assert_status(&result, 1);
    assert!(stdout(&result).contains("FAIL:") && stdout(&result).contains(switches::KERNEL), "{}", stdout(&result));
}

#[test]
fn folders_without_checkpoints_and_files_without_place_are_errors() {
    let models = models();
    let result = bench(&["all", "--models-dir", text(&models.path().join("empty"))]);
    assert_status(&result, 1);
    assert!(stderr(&result).contains("config.json"), "{}", stderr(&result));
    let (a, file) = (models.path().join("a"), models.path().join("file/bench.csv"));
    let result = bench(&[text(&a), "--output", text(&file)]);
    assert_status(&result, 1);
    assert!(stderr(&result).contains("cannot be written"), "{}", stderr(&result));
}

/// A table with one row per model and rate.
fn write_table(folder: &Path, name: &str, rows: &[(&str, &str, f64)]) -> PathBuf {
    let path = folder.join(name);
    let lines = rows.iter().map(|(model, hardware, rate)| format!("{model},512,1000,{rate},{hardware}\n"));
    let header = "model,prompt_tokens,prefill_tok_s,decode_tok_s,hardware\n";
    std::fs::write(&path, header.to_owned() + &lines.collect::<String>()).unwrap();
    path
}

fn compare(before: &Path, after: &Path, more: &[&str]) -> Output {
    run(&[&["compare-bench", "--before", text(before), "--after", text(after)], more].concat(), &[])
}

#[test]
fn every_exit_status_of_compare_bench() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, rows: &[(&str, &str, f64)]| write_table(folder.path(), name, rows);
    let before = write("before.csv", &[("m", "h", 50.0), ("n", "h", 100.0), ("old", "h", 1.0)]);
    let after = write("after.csv", &[("m", "h", 75.0), ("n", "h", 80.0), ("new", "h", 1.0)]);

    let output = compare(&before, &after, &[]);
    assert_status(&output, 0);
    let lines = stdout(&output);
    for part in [
        "2 pairs",
        "median 1.150",
        "range 0.800 to 1.500",
        "before line 4, old",
        "after line 4, new",
        "n: 100.00 to 80.00",
    ] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    assert_status(&compare(&before, &after, &["--fail-below", "0.8"]), 0);
    let output = compare(&before, &after, &["--fail-below", "0.9", "--json"]);
    assert_status(&output, 1);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["pairs"][0]["regression"], &report["pairs"][1]["regression"]), (&json!(false), &json!(true)));
    assert_status(&compare(&before, &after, &["--fail-below", "0.9", "--metric", "prefill"]), 0);

    let elsewhere = write("elsewhere.csv", &[("m", "other", 75.0)]);
    let output = compare(&before, &elsewhere, &[]);
    assert_status(&output, 2);
    assert!(stderr(&output).contains("other hardware"), "{}", stderr(&output));
    // Dropped rows are told all the same.
    assert!(stdout(&output).contains("before line 3, n"), "{}", stdout(&output));
    assert_status(&compare(&before, &elsewhere, &["--allow-hardware-change"]), 0);
    assert_status(&compare(&before, &folder.path().join("absent.csv"), &[]), 2);

    let broken = write("broken.csv", &[("m", "h", f64::NAN)]);
    let output = compare(&before, &broken, &[]);
    assert_status(&output, 2);
    assert!(stderr(&output).contains("broken.csv:2: column `decode_tok_s`"), "{}", stderr(&output));

    // A model that is lost is a regression, where regressions are asked for.
    let lost = folder.path().join("lost.csv");
    let header = "model,prompt_tokens,prefill_tok_s,decode_tok_s,hardware";
    std::fs::write(&lost, format!("{header}\nm,512,1000,75,h\nn,512,,,h,FAIL:bench\n")).unwrap();
    assert_status(&compare(&before, &lost, &[]), 0);
    assert_status(&compare(&before, &lost, &["--fail-below", "0.5"]), 1);
}

#[test]
fn tables_of_bench_decode_are_what_compare_bench_reads() {
    let models = models();
    spoil(models.path());
    let files = ["graph", "kernel"].map(|step| {
        let file = models.path().join(format!("{step}.csv"));
        let arguments = ["all", "--models-dir", text(models.path()), "--step", step, "--output", text(&file)];
        assert_status(&bench(&arguments), 1);
        file
    });
    let output = compare(&files[0], &files[1], &[]);
    assert_status(&output, 0);
    assert!(
        stdout(&output).contains("2 pairs") && stdout(&output).contains("after line 4, cut: FAIL:"),
        "{}",
        stdout(&output)
    );
    // Another length of prompt.
    let (a, file) = (models.path().join("a"), models.path().join("long.csv"));
    let arguments = ["bench-decode", text(&a), "--prompt-tokens", "20", "--max-tokens", "5"];
    assert_status(&run(&[&arguments[..], &["--output", text(&file)]].concat(), &[]), 0);
    let output = compare(&files[0], &file, &[]);
    assert_status(&output, 2);
    assert!(stderr(&output).contains("9 tokens before and 20 after"), "{}", stderr(&output));
}

/// Runs the command with small sizes; what it printed, and the report.
fn verify(models: &Path, more: &[&str], status: i32) -> (Output, String) {
    let report = models.join("report.md");
    let sizes = ["--positions", "12", "--prefill", "10", "--max-tokens", "6", "--rounds", "1", "--decided", "0.05"];
    let arguments = ["verify-models", "--models-dir", text(models), "--report", text(&report)];
    // Of an option that is given twice, clap takes none.
    let sizes = if more.contains(&"--decided") { &sizes[..8] } else { &sizes[..] };
    let output = run(&[&arguments[..], sizes, more].concat(), &[]);
    assert_status(&output, status);
    (output, std::fs::read_to_string(&report).unwrap_or_default())
}

#[test]
fn every_exit_status_of_verify_models() {
    let models = models();
    let (output, report) = verify(models.path(), &[], 0);
    assert!(stdout(&output).contains("a ") && stdout(&output).contains("agree"), "{}", stdout(&output));
    for part in ["| a | agree | 0 of ", "| b | agree | 0 of ", "| same |", "## b", "verdict: agree", "hardware: "] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert!(report.contains(" of 12 | same |"), "every position is traced: {report}");

    let (output, report) = verify(models.path(), &["--decided", "1000", "--json"], 3);
    assert!(report.contains("| a | inconclusive | 0 of 0 |"), "{report}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["models"][1]["outcome"], "inconclusive");
    assert!(json["models"][0]["checks"]["speed"]["ratio"].as_f64().unwrap() > 0.0);

    Tiny::new(45, json!({ "architectures": ["LlamaForCausalLM"] })).write_into(models.path(), "foreign");
    let (_, report) = verify(models.path(), &[], 3);
    assert!(report.contains("| foreign | SKIP:") && report.contains("| a | agree"), "{report}");

    std::fs::remove_file(models.path().join("b/tokenizer.json")).unwrap();
    let (output, report) = verify(models.path(), &[], 1);
    assert!(report.contains("| b | FAIL:") && stderr(&output).contains("tokenizer.json"), "{report}");

    // Nothing is verified without the kernel.
    let report = models.path().join("without-kernel.md");
    let arguments = ["verify-models", "--models-dir", text(models.path()), "--report", text(&report)];
    let output = run(&arguments, &[(switches::KERNEL, "0")]);
    assert_status(&output, 1);
    assert!(stdout(&output).contains(switches::KERNEL), "{}", stdout(&output));
}
