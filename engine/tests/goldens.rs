//! Logits and greedy text against those of each family's reference implementation (f32, CPU), which `goldens.py`, `families.py`,
//! `plamo2.py` and `mlx_goldens.py` in `models/train` recorded, with the kernel and with the graph.
//!
//! A golden file holds a prompt, tokens forced after it with the logits at each of their positions, and a greedy
//! continuation with the gap between its two best logits per step. Every golden file is tested; a missing one is a failure.
//!
//! `SSM_ENGINE_TEST_DEVICE=cuda` or `metal` runs them on that device of candle's, with activations in f32 (the feature of that name).

use std::path::{Path, PathBuf};

use candle_core::{DType, Device};
use safetensors::{Dtype, SafeTensors};
use ssm_engine::decoder::{Decoder, PROMPT_CHUNK};
use ssm_engine::model::{self, Model};
use ssm_engine::sampling::argmax;
use ssm_engine::ssm::{Step, StepChoice};

/// Largest permitted difference of a logit.
const LOGIT_TOLERANCE: f32 = 2e-3;

/// Where the reference's two best logits are at least this far apart, the greedy token has to be the same.
const DECIDED_GAP: f32 = 0.05;

/// Each golden file, and the checkpoint that it was made from.
const GOLDENS: [(&str, &str); 17] = [
    ("kjv", "models/kjv"),
    ("switches-moe", "tests/golden/switches-moe"),
    ("switches-dense", "tests/golden/switches-dense"),
    ("falcon-h1-gated", "tests/golden/falcon-h1-gated"),
    ("falcon-h1-normed", "tests/golden/falcon-h1-normed"),
    ("falcon-h1-gate-first", "tests/golden/falcon-h1-gate-first"),
    ("nemotron-h-pattern", "tests/golden/nemotron-h-pattern"),
    ("nemotron-h-grouped", "tests/golden/nemotron-h-grouped"),
    ("plamo2-windowed", "tests/golden/plamo2-windowed"),
    ("plamo2-last", "tests/golden/plamo2-last"),
    ("mamba2-grouped", "tests/golden/mamba2-grouped"),
    ("mamba2-biased", "tests/golden/mamba2-biased"),
    ("bamba-biased", "tests/golden/bamba-biased"),
    ("bamba-grouped", "tests/golden/bamba-grouped"),
    ("mlx-4bit-moe", "tests/golden/mlx-4bit-moe"),
    ("mlx-8bit-dense", "tests/golden/mlx-8bit-dense"),
    ("mlx-mixed", "tests/golden/mlx-mixed"),
];

struct Golden {
    prompt: Vec<u32>,
    forced: Vec<u32>,
    /// Row `i` predicts `forced[i]`.
    logits: Vec<f32>,
    greedy: Vec<u32>,
    gaps: Vec<f32>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn device() -> Device {
    match std::env::var("SSM_ENGINE_TEST_DEVICE").as_deref() {
        Err(_) | Ok("cpu") => Device::Cpu,
        Ok("cuda") => Device::new_cuda(0).unwrap(),
        Ok("metal") => Device::new_metal(0).unwrap(),
        Ok(other) => panic!("SSM_ENGINE_TEST_DEVICE: expected cpu, cuda or metal, got {other:?}"),
    }
}

fn golden_folder() -> PathBuf {
    root().join("tests/golden")
}

impl Golden {
    fn read(name: &str) -> Self {
        let path = golden_folder().join(format!("{name}.safetensors"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let ids = |name: &str| -> Vec<u32> {
            let tensor = file.tensor(name).unwrap();
            assert_eq!(tensor.dtype(), Dtype::I64, "{name}");
            let words = tensor.data().as_chunks::<8>().0;
            words.iter().map(|word| u32::try_from(i64::from_le_bytes(*word)).unwrap()).collect()
        };
        let floats = |name: &str| -> Vec<f32> {
            let tensor = file.tensor(name).unwrap();
            assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
            tensor.data().as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
        };
        Self {
            prompt: ids("prompt_ids"),
            forced: ids("forced_ids"),
            logits: floats("logits"),
            greedy: ids("greedy_ids"),
            gaps: floats("greedy_gap"),
        }
    }

    fn check_logits(&self, model: &dyn Model, step: &Step, chunk: usize) {
        let mut decoder = Decoder::new(model, step).unwrap();
        let mut logits = decoder.prefill(&self.prompt, chunk).unwrap();
        let (mut largest, vocabulary) = (0.0_f32, model.info().vocabulary);
        assert_eq!(self.logits.len(), self.forced.len() * vocabulary);
        for (position, expected) in self.logits.chunks_exact(vocabulary).enumerate() {
            if position > 0 {
                logits = decoder.decode(self.forced[position - 1]).unwrap();
            }
            for (token, (got, expected)) in logits.iter().zip(expected).enumerate() {
                let difference = (got - expected).abs();
                assert!(
                    difference <= LOGIT_TOLERANCE,
                    "{}, position {position}, token {token}: {got}, expected {expected}",
                    step.describe()
                );
                largest = largest.max(difference);
            }
        }
        println!("{}: largest logit difference {largest:.1e} at {} positions", step.name(), self.forced.len());
    }

    /// At every step the reference's token is given on, whatever this engine would have chosen, so that one permitted
    /// difference does not end the comparison.
    fn check_greedy(&self, model: &dyn Model, step: &Step) {
        let mut decoder = Decoder::new(model, step).unwrap();
        let mut logits = decoder.prefill(&self.prompt, PROMPT_CHUNK).unwrap();
        assert_eq!(self.greedy.len(), self.gaps.len());
        let mut decided = 0;
        for (position, (&expected, &gap)) in self.greedy.iter().zip(&self.gaps).enumerate() {
            if gap >= DECIDED_GAP {
                decided += 1;
                assert_eq!(argmax(&logits), expected, "{}, greedy token {position}, gap {gap}", step.describe());
            }
            let greedy = decoder.fork(step).unwrap().decode_greedy(expected).unwrap();
            logits = decoder.decode(expected).unwrap();
            assert_eq!(
                greedy,
                argmax(&logits),
                "{}, greedy token {position}, chosen where the logits are",
                step.describe()
            );
        }
        println!("{}: {decided} of {} greedy tokens are decided, and the same", step.name(), self.greedy.len());
        assert!(decided * 2 > self.greedy.len(), "a golden whose text is mostly undecided tests little");
    }
}

fn check(name: &str, choice: StepChoice) {
    let checkpoint = GOLDENS.iter().find(|golden| golden.0 == name).unwrap().1;
    let golden = Golden::read(name);
    let model = model::load(&root().join(checkpoint), &device(), Some(DType::F32), |_, _| ()).unwrap();
    let step = Step::for_model(choice, &*model).unwrap();
    golden.check_logits(&*model, &step, PROMPT_CHUNK);
    // Seven does not divide any prompt's length, so that the last chunk is a short one.
    golden.check_logits(&*model, &step, 7);
    golden.check_greedy(&*model, &step);
}

fn check_both(name: &str) {
    check(name, StepChoice::Kernel);
    check(name, StepChoice::Graph);
}

#[test]
fn every_golden_file_is_tested() {
    let mut files: Vec<String> = std::fs::read_dir(golden_folder())
        .expect("tests/golden holds the golden files")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let mut tested = GOLDENS.map(|golden| golden.0.to_owned());
    tested.sort();
    assert_eq!(files, tested);
}

#[test]
fn trained_checkpoint_by_kernel() {
    check("kjv", StepChoice::Kernel);
}

#[test]
fn trained_checkpoint_by_graph() {
    check("kjv", StepChoice::Graph);
}

#[test]
fn mixture_with_rotary_groups_limits_and_biases_by_kernel() {
    check("switches-moe", StepChoice::Kernel);
}

#[test]
fn mixture_with_rotary_groups_limits_and_biases_by_graph() {
    check("switches-moe", StepChoice::Graph);
}

#[test]
fn dense_by_kernel() {
    check("switches-dense", StepChoice::Kernel);
}

#[test]
fn dense_by_graph() {
    check("switches-dense", StepChoice::Graph);
}

#[test]
fn falcon_h1_with_gate_alone_and_biases() {
    check_both("falcon-h1-gated");
}

#[test]
fn falcon_h1_with_norm_per_group_and_limits() {
    check_both("falcon-h1-normed");
}

#[test]
fn falcon_h1_with_the_gate_before_the_norm() {
    check_both("falcon-h1-gate-first");
}

#[test]
fn nemotron_h_by_pattern_with_limits() {
    check_both("nemotron-h-pattern");
}

#[test]
fn nemotron_h_with_groups_of_experts_on_fewer_channels() {
    check_both("nemotron-h-grouped");
}

#[test]
fn plamo2_with_attention_in_a_window_and_without() {
    check_both("plamo2-windowed");
}

#[test]
fn plamo2_with_attention_last_of_all() {
    check_both("plamo2-last");
}

#[test]
fn mamba2_alone_with_groups_and_limits() {
    check_both("mamba2-grouped");
}

#[test]
fn mamba2_alone_with_biases() {
    check_both("mamba2-biased");
}

#[test]
fn bamba_with_biases() {
    check_both("bamba-biased");
}

#[test]
fn bamba_with_groups_and_limits() {
    check_both("bamba-grouped");
}

#[test]
fn mixture_of_4_bits_from_mlx() {
    check_both("mlx-4bit-moe");
}

#[test]
fn dense_of_8_bits_from_mlx() {
    check_both("mlx-8bit-dense");
}

#[test]
fn mixed_bits_and_group_sizes_from_mlx() {
    check_both("mlx-mixed");
}
