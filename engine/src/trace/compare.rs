//! Two traces of the same tokens: how often they choose differently, and how much it matters.
//!
//! A model that hardly prefers its first token to its second has no right answer that another computation could miss. So
//! positions are told apart by the reference's gap between the two: those where it is large are *decided*, and a different
//! choice at one of them is a fault.

use serde::Serialize;

use super::{Row, Trace};
use crate::error::{Error, Result};
use crate::statistics::quantile;

/// Lower ends of the classes of gaps; the last has no upper one.
const BUCKETS: [f64; 6] = [0.0, 0.5, 1.0, 2.0, 5.0, 10.0];

/// Decided differences that are told one by one.
const SHOWN: usize = 10;

/// What two traces have in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What it comes to.
    pub verdict: Verdict,
    /// Positions compared.
    pub positions: usize,
    /// Positions at which the first choices differ.
    pub disagreements: usize,
    /// Gap from which on a position counts as decided.
    pub decided_gap: f64,
    /// Positions that are decided.
    pub decided: usize,
    /// Decided positions at which the first choices differ, each with what was chosen.
    pub decided_differences: Vec<Difference>,
    /// Positions by the reference's gap.
    pub buckets: Vec<Bucket>,
    /// Where the candidate ranks the reference's choice.
    pub ranks: Ranks,
    /// Of the absolute differences between the two logits of the reference's choice; `None` where the candidate kept none.
    pub logit_difference: Option<Percentiles>,
    /// Perplexity of the text by the reference.
    pub reference_perplexity: f64,
    /// Perplexity of the text by the candidate.
    pub candidate_perplexity: f64,
}

/// What a comparison comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every decided position has the same choice.
    Agree,
    /// A decided position has not.
    Differ,
    /// No position is decided: nothing was shown.
    Inconclusive,
}

/// A decided position with another choice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Chunk of the text.
    pub chunk: usize,
    /// Position in the chunk.
    pub pos: usize,
    /// The reference's gap.
    pub gap: f64,
    /// The reference's choice.
    pub reference: u32,
    /// The candidate's choice.
    pub candidate: u32,
}

/// The positions whose gap is at least `from` and below `to`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// Least gap.
    pub from: f64,
    /// Next bucket's least gap; `None` in the last.
    pub to: Option<f64>,
    /// Positions.
    pub positions: usize,
    /// Positions at which the first choices differ.
    pub disagreements: usize,
}

/// Where the candidate ranks the reference's choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ranks {
    /// Positions at which it has rank 1, 2 and so on.
    pub at: Vec<usize>,
    /// Positions at which the candidate kept no logit of it.
    pub beyond: usize,
}

/// Percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// Compares. `decided_gap` is the gap from which on a position counts as decided.
///
/// # Errors
///
/// The traces are not of the same tokens in the same passes, or the reference kept fewer than two logits.
pub fn compare(reference: &Trace, candidate: &Trace, decided_gap: f64) -> Result<Comparison> {
    check_comparable(reference, candidate)?;
    let mut buckets: Vec<Bucket> = (0..BUCKETS.len())
        .map(|i| Bucket { from: BUCKETS[i], to: BUCKETS.get(i + 1).copied(), positions: 0, disagreements: 0 })
        .collect();
    let longest = candidate.rows.iter().map(|row| row.top.len()).max().unwrap_or(0);
    let mut ranks = Ranks { at: vec![0; longest], beyond: 0 };
    let (mut decided, mut decided_differences, mut logit_differences) = (0, Vec::new(), Vec::new());
    for (row, other) in reference.rows.iter().zip(&candidate.rows) {
        let (Some((choice, logit)), Some(gap), Some((other_choice, _))) = (row.choice(), row.gap(), other.choice())
        else {
            let text = "a row of the reference keeps fewer than two logits: a gap takes two; trace it again with TOPK of 2 or more";
            return Err(Error::Request(format!("not comparable: {text}")));
        };
        let differs = choice != other_choice;
        if let Some(bucket) = buckets.iter_mut().rev().find(|bucket| gap >= bucket.from) {
            bucket.positions += 1;
            bucket.disagreements += usize::from(differs);
        }
        if gap >= decided_gap {
            decided += 1;
            if differs {
                let (chunk, pos) = (row.chunk, row.pos);
                decided_differences.push(Difference { chunk, pos, gap, reference: choice, candidate: other_choice });
            }
        }
        match other.top.iter().position(|&(token, _)| token == choice) {
            Some(rank) => {
                ranks.at[rank] += 1;
                logit_differences.push((other.top[rank].1 - logit).abs());
            }
            None => ranks.beyond += 1,
        }
    }
    logit_differences.sort_by(f64::total_cmp);
    Ok(Comparison {
        verdict: match (decided, decided_differences.len()) {
            (0, _) => Verdict::Inconclusive,
            (_, 0) => Verdict::Agree,
            _ => Verdict::Differ,
        },
        positions: reference.rows.len(),
        disagreements: buckets.iter().map(|bucket| bucket.disagreements).sum(),
        decided_gap,
        decided,
        decided_differences,
        buckets,
        ranks,
        logit_difference: quantile(&logit_differences, 0.5).map(|p50| {
            let at = |fraction| quantile(&logit_differences, fraction).unwrap_or(p50);
            Percentiles { p50, p90: at(0.9), p99: at(0.99), max: at(1.0) }
        }),
        reference_perplexity: perplexity(&reference.rows),
        candidate_perplexity: perplexity(&candidate.rows),
    })
}

/// Keys of the header that have to be equal where both traces have them, and what they say.
const SAME: [(&str, &str); 4] = [
    ("tokens_sha256", "hash of the tokens"),
    ("chunk_tokens", "width of a pass"),
    ("prefill", "tokens of context"),
    ("start_token", "first token"),
];

fn check_comparable(reference: &Trace, candidate: &Trace) -> Result<()> {
    let refuse = |what: String| Err(Error::Request(format!("not comparable: {what}")));
    for (key, what) in SAME {
        if let (Some(a), Some(b)) = (reference.header.get(key), candidate.header.get(key))
            && a != b
        {
            return refuse(format!("`{key}`, the {what}: {a} in the reference, {b} in the candidate"));
        }
    }
    let (rows, others) = (reference.rows.len(), candidate.rows.len());
    if rows != others {
        return refuse(format!("the reference has {rows} positions, the candidate {others}"));
    }
    let place = |row: &Row| (row.chunk, row.pos, row.target);
    match reference.rows.iter().zip(&candidate.rows).find(|(a, b)| place(a) != place(b)) {
        None => Ok(()),
        Some((a, b)) => {
            let text = |row: &Row| format!("chunk {}, pos {}, target {}", row.chunk, row.pos, row.target);
            refuse(format!("the reference has {} where the candidate has {}", text(a), text(b)))
        }
    }
}

fn perplexity(rows: &[Row]) -> f64 {
    (rows.iter().map(|row| row.nll).sum::<f64>() / rows.len().max(1) as f64).exp()
}

impl Comparison {
    /// Lines for a person; the verdict is the last.
    pub fn lines(&self) -> Vec<String> {
        let gap = self.decided_gap;
        let differences = self.decided_differences.len();
        let mut lines = vec![
            format!("top-1 differs at     {}", share(self.disagreements, self.positions)),
            format!("  where decided      {}, gap at least {gap}", share(differences, self.decided)),
        ];
        lines.extend(self.decided_differences.iter().take(SHOWN).map(|difference| {
            let Difference { chunk, pos, gap, reference, candidate } = difference;
            format!("    chunk {chunk} pos {pos}: token {reference}, candidate {candidate}, gap {gap:.3}")
        }));
        if differences > SHOWN {
            lines.push(format!("    and {} more", differences - SHOWN));
        }
        lines.push("by gap of the reference".to_owned());
        lines.extend(self.buckets.iter().map(|bucket| {
            let to = bucket.to.map_or_else(|| "inf".to_owned(), |to| to.to_string());
            format!("  {:>4} to {to:>4}       {}", bucket.from, share(bucket.disagreements, bucket.positions))
        }));
        lines.push("rank of the reference's choice".to_owned());
        let ranks = self.ranks.at.iter().enumerate().filter(|(_, count)| **count > 0);
        lines.extend(ranks.map(|(rank, count)| format!("  {:<18} {count}", rank + 1)));
        if self.ranks.beyond > 0 {
            lines.push(format!("  {:<18} {}", format!("beyond {}", self.ranks.at.len()), self.ranks.beyond));
        }
        lines.push(match self.logit_difference {
            Some(Percentiles { p50, p90, p99, max }) => {
                format!("logit difference     p50 {p50:.6}, p90 {p90:.6}, p99 {p99:.6}, largest {max:.6}")
            }
            None => "logit difference     none: the candidate keeps no logit of the reference's choices".to_owned(),
        });
        lines.push(format!(
            "perplexity           {:.4}, candidate {:.4}",
            self.reference_perplexity, self.candidate_perplexity
        ));
        lines.push(self.verdict_line());
        lines
    }

    /// The verdict with its numbers.
    pub fn verdict_line(&self) -> String {
        let (differences, decided, gap) = (self.decided_differences.len(), self.decided, self.decided_gap);
        match self.verdict {
            Verdict::Agree => format!("verdict: agree (0 of {decided} decided positions differ)"),
            Verdict::Differ => format!("verdict: DIFFER ({differences} of {decided} decided positions)"),
            Verdict::Inconclusive => {
                format!("verdict: inconclusive (no position has a gap of {gap}; trace more text, or lower --decided)")
            }
        }
    }
}

fn share(part: usize, whole: usize) -> String {
    let percent = if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    format!("{part} of {whole} ({percent:.2} %)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Header;

    /// A position whose choice is `first`, `gap` above `second`.
    fn row(pos: usize, first: u32, second: u32, gap: f64) -> Row {
        Row { chunk: 0, pos, target: 9, nll: 2.0_f64.ln(), top: vec![(first, 10.0), (second, 10.0 - gap)] }
    }

    fn trace(rows: Vec<Row>) -> Trace {
        Trace { header: Header::default(), rows }
    }

    #[test]
    fn choices_are_counted_by_gap() {
        let reference = trace(vec![row(0, 1, 2, 0.0), row(1, 1, 2, 0.5), row(2, 1, 2, 2.0), row(3, 1, 2, 12.0)]);
        let candidate = trace(vec![row(0, 2, 1, 0.25), row(1, 3, 2, 1.0), row(2, 1, 2, 2.0), row(3, 1, 2, 1.0)]);
        let result = compare(&reference, &candidate, 2.0).unwrap();
        assert_eq!((result.positions, result.disagreements, result.decided), (4, 2, 2));
        assert_eq!(result.verdict, Verdict::Agree);
        let counts: Vec<_> = result.buckets.iter().map(|bucket| (bucket.positions, bucket.disagreements)).collect();
        assert_eq!(counts, [(1, 1), (1, 1), (0, 0), (1, 0), (0, 0), (1, 0)]);
        assert_eq!(result.ranks, Ranks { at: vec![2, 1], beyond: 1 });
        assert_eq!(result.logit_difference.unwrap().max, 0.25);
        assert!((result.reference_perplexity - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_decided_position_that_differs_decides() {
        let reference = trace(vec![row(0, 1, 2, 2.0), row(1, 1, 2, 3.0)]);
        let candidate = trace(vec![row(0, 1, 2, 2.0), row(1, 2, 1, 0.1)]);
        let result = compare(&reference, &candidate, 2.0).unwrap();
        assert_eq!(result.verdict, Verdict::Differ);
        let difference = Difference { chunk: 0, pos: 1, gap: 3.0, reference: 1, candidate: 2 };
        assert_eq!(result.decided_differences, [difference]);
        assert!(result.lines().iter().any(|line| line.contains("chunk 0 pos 1: token 1, candidate 2")));
        assert!(result.lines().last().unwrap().contains("DIFFER (1 of 2"));
        // The gap is the reference's: of the same files in the other order, the second position is not decided.
        assert_eq!(compare(&candidate, &reference, 2.0).unwrap().verdict, Verdict::Agree);
    }

    #[test]
    fn without_a_decided_position_nothing_is_shown() {
        let reference = trace(vec![row(0, 1, 2, 1.9)]);
        assert_eq!(compare(&reference, &reference, 2.0).unwrap().verdict, Verdict::Inconclusive);
        assert_eq!(compare(&reference, &reference, 1.9).unwrap().verdict, Verdict::Agree);
    }

    #[test]
    fn traces_of_other_tokens_are_refused_with_the_reason() {
        let base = trace(vec![row(0, 1, 2, 3.0), row(1, 1, 2, 3.0)]);
        let shorter = trace(vec![row(0, 1, 2, 3.0)]);
        let mut other_target = base.clone();
        other_target.rows[1].target = 8;
        let mut other_place = base.clone();
        other_place.rows[1].pos = 5;
        let mut single = base.clone();
        single.rows[0].top.truncate(1);
        for (reference, candidate, part) in [
            (&base, &shorter, "2 positions, the candidate 1"),
            (&base, &other_target, "target 8"),
            (&base, &other_place, "pos 5"),
            (&single, &base, "fewer than two"),
        ] {
            let error = compare(reference, candidate, 2.0).unwrap_err().to_string();
            assert!(error.starts_with("not comparable: ") && error.contains(part), "{error}");
        }
        for (key, _) in SAME {
            let with = |value| Trace { header: Header::default().with(key, value), rows: base.rows.clone() };
            assert!(compare(&with("1"), &with("2"), 2.0).unwrap_err().to_string().contains(key));
            // Other engines do not say it.
            assert!(compare(&with("1"), &base, 2.0).is_ok());
        }
    }

    #[test]
    fn choices_that_the_candidate_lost_are_beyond_its_ranks() {
        let reference = trace(vec![row(0, 1, 2, 3.0)]);
        let result = compare(&reference, &trace(vec![row(0, 5, 6, 3.0)]), 2.0).unwrap();
        assert_eq!((result.ranks.beyond, result.logit_difference), (1, None));
        assert!(result.lines().iter().any(|line| line.contains("beyond 2")));
    }
}
