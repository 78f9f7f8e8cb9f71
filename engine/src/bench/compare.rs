//! Two tables of measurements: which models became faster or slower.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Row;
use crate::statistics::quantile;

/// Which rate is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Decoded tokens per second.
    #[default]
    Decode,
    /// Prompt tokens per second.
    Prefill,
}

/// What makes two rows comparable, and what is worth telling.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Which rate.
    pub metric: Metric,
    /// Rows whose ratio is further from 1 than this have moved.
    pub moved_threshold: f64,
    /// Prompts may differ by this fraction of the longer one.
    pub prompt_tolerance: f64,
    /// Whether other hardware is permitted.
    pub allow_hardware_change: bool,
    /// Ratio below which a model counts as a regression.
    pub fail_below: Option<f64>,
}

/// What two tables have in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Which rate.
    pub metric: Metric,
    /// Models with a rate in both, by name.
    pub pairs: Vec<Pair>,
    /// Of the ratios.
    pub summary: Option<Summary>,
    /// Rows that took no part.
    pub dropped: Vec<Dropped>,
    /// Why the tables must not be compared; empty where they may.
    pub refusals: Vec<String>,
}

/// A model in both tables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// Its name.
    pub model: String,
    /// Tokens per second before.
    pub before: f64,
    /// Tokens per second after.
    pub after: f64,
    /// `after / before`: above 1 is faster.
    pub ratio: f64,
    /// Whether the ratio is further from 1 than the threshold.
    pub moved: bool,
    /// Whether it is below the limit.
    pub regression: bool,
}

/// Of the ratios of all pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The smallest.
    pub low: f64,
    /// The lower quartile.
    pub quartile_1: f64,
    /// The median.
    pub median: f64,
    /// The upper quartile.
    pub quartile_3: f64,
    /// The largest.
    pub high: f64,
}

/// A row that took no part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dropped {
    /// `before` or `after`.
    pub table: &'static str,
    /// Line of the file.
    pub line: u64,
    /// Name of the model.
    pub model: String,
    /// Why.
    pub why: String,
}

/// Pairs the rows by model, the last one of each, and compares their rates.
pub fn compare(before: &[Row], after: &[Row], limits: Limits) -> Comparison {
    let mut dropped = Vec::new();
    let mut before = usable("before", before, limits.metric, &mut dropped);
    let after = usable("after", after, limits.metric, &mut dropped);
    let (mut pairs, mut refusals) = (Vec::new(), Vec::new());
    for (model, (row, rate)) in after {
        let Some((earlier, earlier_rate)) = before.remove(model) else {
            dropped.push(drop_row("after", row, "the other table has no rate of this model"));
            continue;
        };
        refusals.extend(objections(earlier, row, limits));
        let ratio = rate / earlier_rate;
        pairs.push(Pair {
            model: model.to_owned(),
            before: earlier_rate,
            after: rate,
            ratio,
            moved: (ratio - 1.0).abs() > limits.moved_threshold,
            regression: limits.fail_below.is_some_and(|limit| ratio < limit),
        });
    }
    let alone = before.into_values().map(|(row, _)| row);
    dropped.extend(alone.map(|row| drop_row("before", row, "the other table has no rate of this model")));
    dropped.sort_by_key(|row| (row.table == "after", row.line));
    if pairs.is_empty() {
        refusals.push("no model has a rate in both tables".to_owned());
    }
    Comparison { metric: limits.metric, summary: Summary::of(&pairs), pairs, dropped, refusals }
}

/// The last row of each model, where it has a rate; all others are dropped.
fn usable<'a>(
    table: &'static str,
    rows: &'a [Row],
    metric: Metric,
    dropped: &mut Vec<Dropped>,
) -> BTreeMap<&'a str, (&'a Row, f64)> {
    let mut last: BTreeMap<&str, &Row> = BTreeMap::new();
    for row in rows {
        if let Some(earlier) = last.insert(&row.model, row) {
            dropped.push(drop_row(
                table,
                earlier,
                format!("line {} has the same model, and the last row counts", row.line),
            ));
        }
    }
    let mut usable = BTreeMap::new();
    for (model, row) in last {
        let rate = match metric {
            Metric::Decode => row.decode_tok_s,
            Metric::Prefill => row.prefill_tok_s,
        };
        match (&row.failure, rate) {
            (Some(failure), _) => dropped.push(drop_row(table, row, failure)),
            (None, Some(rate)) if rate > 0.0 => _ = usable.insert(model, (row, rate)),
            (None, Some(_)) => dropped.push(drop_row(table, row, "its rate is 0")),
            (None, None) => dropped.push(drop_row(table, row, "it has no rate")),
        }
    }
    usable
}

fn drop_row(table: &'static str, row: &Row, why: impl ToString) -> Dropped {
    Dropped { table, line: row.line, model: row.model.clone(), why: why.to_string() }
}

/// Why two rows of a model must not be compared.
fn objections(before: &Row, after: &Row, limits: Limits) -> Vec<String> {
    let mut list = Vec::new();
    let model = &after.model;
    if before.hardware != after.hardware && !limits.allow_hardware_change {
        let (one, other) = (&before.hardware, &after.hardware);
        list.push(format!(
            "{model}: other hardware: {one:?} before, {other:?} after (--allow-hardware-change permits it)"
        ));
    }
    match (before.prompt_tokens, after.prompt_tokens) {
        (Some(one), Some(other)) => {
            let difference = one.abs_diff(other) as f64 / one.max(other).max(1) as f64;
            if difference > limits.prompt_tolerance {
                list.push(format!(
                    "{model}: prompts of {one} tokens before and {other} after, more than --prompt-tolerance {} apart",
                    limits.prompt_tolerance
                ));
            }
        }
        (one, other) => {
            let text = |tokens: Option<usize>| tokens.map_or_else(|| "unknown".to_owned(), |tokens| tokens.to_string());
            list.push(format!("{model}: the length of the prompt is {} before and {} after", text(one), text(other)));
        }
    }
    list
}

impl Summary {
    fn of(pairs: &[Pair]) -> Option<Self> {
        let mut ratios: Vec<f64> = pairs.iter().map(|pair| pair.ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |fraction| quantile(&ratios, fraction);
        Some(Self { low: at(0.0)?, quartile_1: at(0.25)?, median: at(0.5)?, quartile_3: at(0.75)?, high: at(1.0)? })
    }
}

impl Comparison {
    /// Models that were measured before and failed after. They are regressions whatever the limit is.
    pub fn lost<'a>(&'a self, before: &'a [Row]) -> impl Iterator<Item = &'a Dropped> {
        let was_measured =
            |model: &str| before.iter().rfind(|row| row.model == model).is_some_and(|row| row.failure.is_none());
        self.dropped
            .iter()
            .filter(move |row| row.table == "after" && row.why.starts_with("FAIL:") && was_measured(&row.model))
    }

    /// Lines for a person.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for Dropped { table, line, model, why } in &self.dropped {
            lines.push(format!("dropped  {table} line {line}, {model}: {why}"));
        }
        if !self.refusals.is_empty() {
            return lines;
        }
        let metric = match self.metric {
            Metric::Decode => "decode",
            Metric::Prefill => "prefill",
        };
        if let Some(Summary { low, quartile_1, median, quartile_3, high }) = self.summary {
            lines.push(format!(
                "{metric}   {} pairs, after / before: median {median:.3}, quartiles {quartile_1:.3} and {quartile_3:.3}, \
                 range {low:.3} to {high:.3}",
                self.pairs.len()
            ));
        }
        let told = |pair: &&Pair| pair.moved || pair.regression;
        lines.extend(self.pairs.iter().filter(told).map(|pair| {
            let Pair { model, before, after, ratio, regression, .. } = pair;
            let note = if *regression { "   REGRESSION" } else { "" };
            format!("moved    {model}: {before:.2} to {after:.2} tok/s, {ratio:.3}{note}")
        }));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        metric: Metric::Decode,
        moved_threshold: 0.1,
        prompt_tolerance: 0.1,
        allow_hardware_change: false,
        fail_below: None,
    };

    fn row(line: u64, model: &str, rate: f64) -> Row {
        Row {
            line,
            model: model.to_owned(),
            hardware: "h".to_owned(),
            prompt_tokens: Some(512),
            prefill_tok_s: Some(2.0 * rate),
            decode_tok_s: Some(rate),
            failure: None,
        }
    }

    fn failed(line: u64, model: &str) -> Row {
        Row { decode_tok_s: None, failure: Some("FAIL:x".to_owned()), ..row(line, model, 1.0) }
    }

    #[test]
    fn ratios_are_after_over_before_with_their_quartiles() {
        let before: Vec<Row> = ["a", "b", "c", "d", "e"].iter().map(|model| row(2, model, 100.0)).collect();
        let rates = [("a", 50.0), ("b", 95.0), ("c", 100.0), ("d", 105.0), ("e", 300.0)];
        let after: Vec<Row> = rates.iter().map(|(model, rate)| row(2, model, *rate)).collect();
        let result = compare(&before, &after, Limits { fail_below: Some(0.95), ..LIMITS });
        let expected = Summary { low: 0.5, quartile_1: 0.95, median: 1.0, quartile_3: 1.05, high: 3.0 };
        assert_eq!(result.summary, Some(expected));
        let names = |wanted: fn(&Pair) -> bool| -> Vec<&str> {
            result.pairs.iter().filter(|pair| wanted(pair)).map(|pair| pair.model.as_str()).collect()
        };
        assert_eq!(names(|pair| pair.moved), ["a", "e"]);
        // 0.95 is not below 0.95.
        assert_eq!(names(|pair| pair.regression), ["a"]);
        assert!(result.dropped.is_empty() && result.refusals.is_empty());
    }

    #[test]
    fn the_last_row_of_a_model_counts_and_every_other_is_told() {
        let before = [row(2, "a", 1.0), row(3, "a", 10.0), row(4, "gone", 1.0), failed(5, "f"), row(6, "z", 0.0)];
        let after = [row(2, "a", 10.0), row(3, "new", 1.0), row(4, "f", 1.0), row(5, "z", 1.0)];
        let result = compare(&before, &after, LIMITS);
        assert_eq!((result.pairs.len(), result.pairs[0].ratio), (1, 1.0));
        let told: Vec<_> = result.dropped.iter().map(|row| (row.table, row.line, row.why.as_str())).collect();
        let alone = "the other table has no rate of this model";
        assert_eq!(
            told,
            [
                ("before", 2, "line 3 has the same model, and the last row counts"),
                ("before", 4, alone),
                ("before", 5, "FAIL:x"),
                ("before", 6, "its rate is 0"),
                ("after", 3, alone),
                ("after", 4, alone),
                ("after", 5, alone),
            ]
        );
    }

    #[test]
    fn a_failure_in_the_last_row_hides_earlier_rates() {
        let before = [row(2, "a", 1.0), row(3, "b", 1.0)];
        let after = [row(2, "a", 1.0), failed(3, "a"), row(4, "b", 1.0)];
        let result = compare(&before, &after, LIMITS);
        assert_eq!(result.pairs.len(), 1);
        assert_eq!(result.lost(&before).map(|row| row.line).collect::<Vec<_>>(), [3]);
        assert_eq!(result.lost(&[failed(2, "a")]).count(), 0);
    }

    #[test]
    fn other_hardware_and_other_prompts_are_refused() {
        let before = [row(2, "a", 1.0)];
        let refusals = |change: fn(&mut Row), limits| {
            let mut after = before.clone();
            change(&mut after[0]);
            compare(&before, &after, limits).refusals.join("; ")
        };
        assert_eq!(refusals(|_| (), LIMITS), "");
        assert!(refusals(|row| row.hardware = "i".to_owned(), LIMITS).contains("\"h\" before, \"i\" after"));
        let allowed = Limits { allow_hardware_change: true, ..LIMITS };
        assert_eq!(refusals(|row| row.hardware = "i".to_owned(), allowed), "");
        assert_eq!(refusals(|row| row.prompt_tokens = Some(465), LIMITS), "");
        assert!(refusals(|row| row.prompt_tokens = Some(450), LIMITS).contains("512 tokens before and 450 after"));
        assert!(refusals(|row| row.prompt_tokens = None, LIMITS).contains("unknown after"));
        assert!(refusals(|row| row.model = "b".to_owned(), LIMITS).contains("no model"));
    }

    #[test]
    fn the_metric_is_chosen() {
        let (before, mut after) = ([row(2, "a", 1.0)], [row(2, "a", 1.0)]);
        after[0].prefill_tok_s = Some(1.0);
        assert_eq!(compare(&before, &after, LIMITS).pairs[0].ratio, 1.0);
        assert_eq!(compare(&before, &after, Limits { metric: Metric::Prefill, ..LIMITS }).pairs[0].ratio, 0.5);
    }
}
