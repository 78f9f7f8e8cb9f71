//! The report of `verify-models`.

use std::fmt::Write;

use super::{Checks, Judged, Verification};

/// One line per checkpoint, for the terminal.
pub(super) fn line(judged: &Judged) -> String {
    let Some(checks) = &judged.checks else { return format!("{:<32} {}", judged.model, judged.outcome) };
    format!(
        "{:<32} {:<12} {} of {} decided positions differ; {} greedy text; decode {:.1} tok/s by graph, {:.1} by kernel ({:.2})",
        judged.model,
        judged.outcome,
        checks.trace.decided_differences.len(),
        checks.trace.decided,
        if checks.same_text() { "same" } else { "other" },
        checks.speed.graph_median_tok_s,
        checks.speed.kernel_median_tok_s,
        checks.speed.ratio,
    )
}

/// The report, in Markdown.
pub(super) fn markdown(verification: &Verification) -> String {
    let Verification { date, hardware, version, traced, decided_gap, models, .. } = verification;
    let mut text = format!(
        "# Kernel against graph\n\n\
         - {date}, ssm-engine {version}\n\
         - hardware: {hardware}\n\
         - traced: {traced}\n\
         - decided: positions where the graph's two largest logits are at least {decided_gap} apart\n\n\
         | model | outcome | decided positions that differ | all positions that differ | greedy text | graph, tok/s | kernel, tok/s | ratio |\n\
         |---|---|---:|---:|---|---:|---:|---:|\n"
    );
    models.iter().for_each(|judged| row(&mut text, judged));
    for judged in models {
        if let Some(checks) = &judged.checks {
            section(&mut text, judged, checks, verification);
        }
    }
    text
}

fn row(text: &mut String, judged: &Judged) {
    // A bar would begin another cell, a line break another row.
    let cell = |text: &str| text.replace('|', "\\|").replace(['\n', '\r'], " ");
    let (model, outcome) = (cell(&judged.model), cell(&judged.outcome));
    let rest = match &judged.checks {
        None => "| | | | | |".to_owned(),
        Some(checks) => format!(
            "{} of {} | {} of {} | {} | {:.1} | {:.1} | {:.2} |",
            checks.trace.decided_differences.len(),
            checks.trace.decided,
            checks.trace.disagreements,
            checks.trace.positions,
            if checks.same_text() { "same" } else { "other" },
            checks.speed.graph_median_tok_s,
            checks.speed.kernel_median_tok_s,
            checks.speed.ratio,
        ),
    };
    // Writing to a String does not fail.
    let _ = writeln!(text, "| {model} | {outcome} | {rest}");
}

fn section(text: &mut String, judged: &Judged, checks: &Checks, verification: &Verification) {
    let Checks { architecture, mamba_layers, attention_layers, kernel_text, graph_text, trace, speed } = checks;
    let _ = write!(
        text,
        "\n## {}\n\n{architecture}, {mamba_layers} Mamba2 and {attention_layers} attention layers.\n",
        judged.model
    );
    block(text, "Logit traces, the graph's as the reference", &trace.lines());
    block(text, "Decode, kernel and graph alternately", &speed.lines());
    let lines = |written: &str| -> Vec<String> {
        format!("{}{written}", verification.prompt).lines().map(str::to_owned).collect()
    };
    if checks.same_text() {
        block(text, "Greedy text, the same by both", &lines(kernel_text));
    } else {
        block(text, "Greedy text by the kernel", &lines(kernel_text));
        block(text, "Greedy text by the graph", &lines(graph_text));
    }
}

/// Lines as they are. Indentation marks them, since text of a model may hold the marks of a fenced block.
fn block(text: &mut String, title: &str, lines: &[String]) {
    let _ = write!(text, "\n{title}:\n\n");
    for line in lines {
        let _ = writeln!(text, "{}", format!("    {line}").trim_end());
    }
}

impl Checks {
    fn same_text(&self) -> bool {
        self.kernel_text == self.graph_text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stay_in_their_cell() {
        let outcome = "FAIL:a | b\nc".to_owned();
        let models = vec![Judged { model: "m|n".to_owned(), outcome, checks: None }];
        let report = markdown(&Verification {
            date: "today".to_owned(),
            hardware: "h".to_owned(),
            version: "1",
            prompt: String::new(),
            traced: "t".to_owned(),
            decided_gap: 2.0,
            models,
        });
        assert!(report.ends_with("| m\\|n | FAIL:a \\| b c | | | | | | |\n"), "{report}");
    }
}
