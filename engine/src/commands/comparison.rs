//! Kernel against graph on one model in one process: how far they differ, and tokens per second of both alternately.

use std::hint::black_box;
use std::time::Instant;

use indicatif::ProgressBar;
use serde::Serialize;
use ssm_engine::Result;
use ssm_engine::bench::Plan;
use ssm_engine::decoder::{Decoder, PROMPT_CHUNK};
use ssm_engine::generation::rate;
use ssm_engine::model::Model;
use ssm_engine::sampling::argmax;
use ssm_engine::ssm::{Step, StepChoice};
use ssm_engine::statistics::median;

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// As in config.json.
    pub architecture: &'static str,
    /// Where the tensors are.
    pub tensors: String,
    /// Of activations.
    pub dtype: &'static str,
    /// Port of the kernel.
    pub port: &'static str,
    /// Its device and path.
    pub device: String,
    /// Tokens before the decoded ones.
    pub prompt_tokens: usize,
    /// Tokens timed per round and arm.
    pub tokens: usize,
    /// Rounds.
    pub rounds: usize,
    /// Prompt tokens per second, once.
    pub prefill_tok_s: f64,
    /// Decoded tokens per second of each round, by the kernel.
    pub kernel_tok_s: Vec<f64>,
    /// Decoded tokens per second of each round, by the graph.
    pub graph_tok_s: Vec<f64>,
    /// Median of `kernel_tok_s`.
    pub kernel_median_tok_s: f64,
    /// Median of `graph_tok_s`.
    pub graph_median_tok_s: f64,
    /// Of the two medians.
    pub ratio: f64,
    /// How far the two differ.
    pub agreement: Agreement,
}

/// Both arms on the same tokens: the kernel's greedy continuation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Agreement {
    /// Positions compared.
    pub positions: usize,
    /// Largest absolute difference between two logits.
    pub max_abs_logit_difference: f32,
    /// Whether both arms choose the same greedy text.
    pub greedy_equal: bool,
    /// Position of the first token at which they do not.
    pub first_greedy_difference: Option<usize>,
}

/// Measures after a prompt of at least one token, a plan's warm-up per round and arm. Every round times both arms, and the first of them alternates.
///
/// # Errors
///
/// No kernel port; what the decoder refuses.
pub fn compare(model: &dyn Model, prompt: &[u32], plan: Plan) -> Result<Comparison> {
    let kernel = Step::for_model(StepChoice::Kernel, model)?;
    let graph = Step::for_model(StepChoice::Graph, model)?;
    let device = match &kernel {
        Step::Kernel(kernel) => kernel.describe(),
        Step::Graph { reason } => reason.clone(),
    };
    let bar = super::progress_bar("{msg} {pos}/{len} tokens {wide_bar} {eta}");
    bar.set_length((2 * plan.rounds + 1) as u64 * (plan.warmup_tokens + plan.max_tokens) as u64);

    bar.set_message("prefill");
    let start = Instant::now();
    let mut base = Decoder::new(model, &kernel)?;
    let first = argmax(&base.prefill(prompt, PROMPT_CHUNK)?);
    let prefill_tok_s = rate(prompt.len(), start.elapsed());

    bar.set_message("agreement");
    let total = plan.warmup_tokens + plan.max_tokens;
    let (tokens, agreement) = agree(base.fork(&kernel)?, base.fork(&graph)?, first, total, &bar)?;

    let (mut kernel_tok_s, mut graph_tok_s) = (Vec::new(), Vec::new());
    bar.set_message("timing");
    for round in 0..plan.rounds {
        let mut arms = [(&kernel, &mut kernel_tok_s), (&graph, &mut graph_tok_s)];
        if round % 2 == 1 {
            arms.reverse();
        }
        for (step, rates) in arms {
            let mut decoder = base.fork(step)?;
            let (warmup, timed) = tokens.split_at(plan.warmup_tokens);
            decode_all(&mut decoder, warmup)?;
            let start = Instant::now();
            decode_all(&mut decoder, timed)?;
            rates.push(rate(timed.len(), start.elapsed()));
            bar.inc(total as u64);
        }
    }
    bar.finish_and_clear();

    let middle = |rates: &[f64]| median(rates).unwrap_or_default();
    let (kernel_median_tok_s, graph_median_tok_s) = (middle(&kernel_tok_s), middle(&graph_tok_s));
    Ok(Comparison {
        architecture: model.info().architecture,
        tensors: format!("{:?}", model.place().device.location()),
        dtype: model.place().dtype.as_str(),
        port: kernel.name(),
        device,
        prompt_tokens: prompt.len(),
        tokens: plan.max_tokens,
        rounds: plan.rounds,
        prefill_tok_s,
        kernel_tok_s,
        graph_tok_s,
        kernel_median_tok_s,
        graph_median_tok_s,
        ratio: kernel_median_tok_s / graph_median_tok_s,
        agreement,
    })
}

impl Comparison {
    /// Lines for a person.
    pub fn lines(&self) -> Vec<String> {
        let range = |rates: &[f64]| {
            let (low, high) = rates.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &r| (low.min(r), high.max(r)));
            format!("from {low:.1} to {high:.1}")
        };
        let Agreement { positions, max_abs_logit_difference, first_greedy_difference, .. } = self.agreement;
        vec![
            format!(
                "kernel   {:>8.1} tok/s   {}   port {}: {}",
                self.kernel_median_tok_s,
                range(&self.kernel_tok_s),
                self.port,
                self.device
            ),
            format!("graph    {:>8.1} tok/s   {}", self.graph_median_tok_s, range(&self.graph_tok_s)),
            format!(
                "ratio    {:>8.2}         medians of {} rounds, {} tokens each after a prompt of {}",
                self.ratio, self.rounds, self.tokens, self.prompt_tokens
            ),
            format!(
                "differ   {max_abs_logit_difference:>8.1e}         largest logit difference over {positions} tokens"
            ),
            match first_greedy_difference {
                None => "text     the same greedy text from both".to_owned(),
                Some(position) => format!("text     greedy texts part at token {position}"),
            },
        ]
    }
}

/// Decodes `count` tokens greedily by `kernel` and gives the same ones to `graph`. As long as both choose the same token,
/// the graph's own greedy text is the kernel's.
fn agree(
    mut kernel: Decoder<'_>,
    mut graph: Decoder<'_>,
    first: u32,
    count: usize,
    bar: &ProgressBar,
) -> Result<(Vec<u32>, Agreement)> {
    let mut tokens = vec![first];
    let mut agreement = Agreement {
        positions: count,
        max_abs_logit_difference: 0.0,
        greedy_equal: true,
        first_greedy_difference: None,
    };
    for position in 0..count {
        let (by_kernel, by_graph) = (kernel.decode(tokens[position])?, graph.decode(tokens[position])?);
        let differences = by_kernel.iter().zip(&by_graph).map(|(a, b)| (a - b).abs());
        agreement.max_abs_logit_difference = differences.fold(agreement.max_abs_logit_difference, f32::max);
        let token = argmax(&by_kernel);
        if token != argmax(&by_graph) && agreement.greedy_equal {
            agreement.greedy_equal = false;
            agreement.first_greedy_difference = Some(position + 1);
        }
        tokens.push(token);
        bar.inc(1);
    }
    tokens.truncate(count);
    Ok((tokens, agreement))
}

/// Decodes given tokens, the choice of the next one included, since every generation has it.
fn decode_all(decoder: &mut Decoder<'_>, tokens: &[u32]) -> Result<()> {
    for &token in tokens {
        black_box(decoder.decode_greedy(token)?);
    }
    Ok(())
}
