//! What decoding promises on any model, tried on tiny random ones.

mod common;

use candle_core::Device;
use common::{Tiny, golden_checkpoints};
use safetensors::Dtype;
use serde_json::{Value, json};
use ssm_engine::decoder::{Decoder, PROMPT_CHUNK};
use ssm_engine::generation::{Generation, generate};
use ssm_engine::model::{self, Model};
use ssm_engine::sampling::{Sampler, argmax};
use ssm_engine::ssm::{Step, StepChoice};
use ssm_engine::tokenizer::Tokenizer;

/// f32 sums in another order; the logits of the tiny models are below 30.
const TOLERANCE: f32 = 2e-4;

/// Every switch of the family at least once, edges of the sizes among them.
fn variants() -> Vec<Value> {
    vec![
        json!({}),
        json!({ "num_local_experts": 0, "tie_word_embeddings": false }),
        json!({ "num_experts_per_tok": 4, "position_embedding_type": "rope", "rope_theta": 50.0 }),
        json!({ "mamba_d_conv": 1, "mamba_conv_bias": false }),
        json!({ "mamba_d_conv": 2, "mamba_proj_bias": true, "attention_bias": true }),
        json!({ "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 8, "mamba_d_state": 48 }),
        json!({ "mamba_n_heads": 1, "mamba_d_head": 64, "mamba_n_groups": 1 }),
        json!({ "mamba_n_heads": 64, "mamba_d_head": 1, "mamba_n_groups": 4, "time_step_limit": [0.05, 0.9] }),
        json!({ "hidden_size": 36, "mamba_n_heads": 6, "mamba_d_head": 12, "num_key_value_heads": 4, "head_dim": 10 }),
        json!({ "num_key_value_heads": 1, "num_experts_per_tok": 1, "layer_types": ["attention", "attention", "mamba"] }),
        json!({ "layer_types": ["mamba", "mamba", "mamba"] }),
    ]
}

fn load(tiny: &Tiny) -> Box<dyn Model> {
    model::load(tiny.write().path(), &Device::Cpu, None, |_, _| ()).unwrap()
}

fn step(choice: StepChoice, model: &dyn Model) -> Step {
    Step::for_model(choice, model).unwrap()
}

fn prompt(length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| i * i * 7 % 251).collect()
}

/// Logits after the prompt and after each of a few tokens more.
fn trace(model: &dyn Model, step: &Step, length: usize, chunk: usize) -> Vec<Vec<f32>> {
    let mut decoder = Decoder::new(model, step).unwrap();
    let mut trace = vec![decoder.prefill(&prompt(length), chunk).unwrap()];
    trace.extend([3, 77, 250, 0].map(|token| decoder.decode(token).unwrap()));
    trace
}

fn assert_close(got: &[Vec<f32>], expected: &[Vec<f32>], what: &str) {
    for (row, (got, expected)) in got.iter().zip(expected).enumerate() {
        let largest = got.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(largest <= TOLERANCE, "{what}, row {row}: logits differ by {largest}");
    }
}

#[test]
fn prompts_give_the_same_logits_in_chunks_of_any_size() {
    for changes in variants() {
        let model = load(&Tiny::new(2, changes.clone()));
        let graph = step(StepChoice::Graph, &*model);
        // Chunks of one token are the recurrence itself, token by token.
        let expected = trace(&*model, &graph, 150, 1);
        for chunk in [2, 63, 64, 65, 149, 150, 1000] {
            assert_close(&trace(&*model, &graph, 150, chunk), &expected, &format!("{changes}, chunk {chunk}"));
        }
    }
}

#[test]
fn kernel_and_graph_give_the_same_logits() {
    for changes in variants() {
        let model = load(&Tiny::new(3, changes.clone()));
        let (kernel, graph) = (step(StepChoice::Kernel, &*model), step(StepChoice::Graph, &*model));
        for chunk in [1, PROMPT_CHUNK] {
            let expected = trace(&*model, &graph, 40, chunk);
            assert_close(&trace(&*model, &kernel, 40, chunk), &expected, &format!("{changes}, chunk {chunk}"));
        }
    }
}

#[test]
fn every_family_reads_prompts_in_chunks_and_decodes_by_either_step() {
    for folder in golden_checkpoints() {
        let model = model::load(&folder, &Device::Cpu, None, |_, _| ()).unwrap();
        let (kernel, graph) = (step(StepChoice::Kernel, &*model), step(StepChoice::Graph, &*model));
        let expected = trace(&*model, &graph, 100, 1);
        for chunk in [2, 33, 64, 99, 100] {
            assert_close(&trace(&*model, &graph, 100, chunk), &expected, &format!("{}, {chunk}", folder.display()));
        }
        assert_close(&trace(&*model, &kernel, 100, 1), &expected, &format!("{}, kernel", folder.display()));
    }
}

#[test]
fn first_token_of_a_sequence_goes_through_the_step() {
    let model = load(&Tiny::new(4, json!({})));
    let (kernel, graph) = (step(StepChoice::Kernel, &*model), step(StepChoice::Graph, &*model));
    assert_close(&trace(&*model, &kernel, 1, 8), &trace(&*model, &graph, 1, 8), "prompt of one token");
}

#[test]
fn forks_go_on_by_themselves() {
    let model = load(&Tiny::new(5, json!({})));
    for choice in [StepChoice::Kernel, StepChoice::Graph] {
        let step = step(choice, &*model);
        let mut base = Decoder::new(&*model, &step).unwrap();
        base.prefill(&prompt(20), PROMPT_CHUNK).unwrap();
        let mut first = base.fork(&step).unwrap();
        let expected: Vec<_> = (0..5).map(|token| first.decode(token).unwrap()).collect();
        // Neither the fork nor another one has moved the base.
        let mut other = base.fork(&step).unwrap();
        (90..95).for_each(|token| drop(other.decode(token).unwrap()));
        let again: Vec<_> = (0..5).map(|token| base.decode(token).unwrap()).collect();
        assert_eq!(again, expected, "{choice:?}");
    }
}

#[test]
fn sixteen_bit_checkpoints_equal_their_widened_values() {
    for dtype in [Dtype::BF16, Dtype::F16] {
        let narrow = Tiny::new(6, json!({})).into_dtype(dtype);
        let wide = narrow.clone().into_dtype(Dtype::F32);
        let (narrow, wide) = (load(&narrow), load(&wide));
        let step = step(StepChoice::Kernel, &*narrow);
        assert_eq!(trace(&*narrow, &step, 30, 16), trace(&*wide, &step, 30, 16), "{dtype:?}");
    }
}

#[test]
fn sharded_checkpoint_equals_the_single_file() {
    let tiny = Tiny::new(7, json!({}));
    let (single, sharded) =
        (load(&tiny), model::load(tiny.write_sharded().path(), &Device::Cpu, None, |_, _| ()).unwrap());
    let step = step(StepChoice::Kernel, &*single);
    assert_eq!(trace(&*single, &step, 30, 16), trace(&*sharded, &step, 30, 16));
}

#[test]
fn older_and_newer_field_names_mean_the_same() {
    let expected = Tiny::new(8, json!({}));
    for changes in [
        json!({ "layer_types": null, "layers_block_type": ["mamba", "attention", "mamba"] }),
        json!({ "layer_types": ["linear_attention", "full_attention", "linear_attention"] }),
        json!({ "mamba_d_head": "auto", "time_step_limit": [0.0, { "__float__": "Infinity" }], "position_embedding_type": null }),
    ] {
        let mut tiny = expected.clone();
        for (field, value) in changes.as_object().unwrap() {
            tiny.config[field] = value.clone();
        }
        let (model, expected) = (load(&tiny), load(&expected));
        let step = step(StepChoice::Graph, &*model);
        assert_eq!(trace(&*model, &step, 10, 8), trace(&*expected, &step, 10, 8), "{changes}");
    }
}

#[test]
fn bad_requests_are_errors() {
    let model = load(&Tiny::new(9, json!({})));
    let step = step(StepChoice::Auto, &*model);
    let decoder = || Decoder::new(&*model, &step).unwrap();
    assert!(decoder().prefill(&[], 8).unwrap_err().to_string().contains("no tokens"));
    assert!(decoder().prefill(&[1], 0).unwrap_err().to_string().contains("chunk"));
    assert!(decoder().prefill(&[1, 260], 8).unwrap_err().to_string().contains("260"));
    assert!(decoder().decode(u32::MAX).unwrap_err().to_string().contains("vocabulary"));
}

#[test]
fn cache_of_another_model_is_refused() {
    let model = load(&Tiny::new(9, json!({})));
    let step = step(StepChoice::Graph, &*model);
    for layers in [
        json!(["mamba", "attention"]),
        json!(["mamba", "attention", "mamba", "mamba"]),
        json!(["attention", "mamba", "mamba"]),
    ] {
        let changes = json!({ "num_hidden_layers": layers.as_array().unwrap().len(), "layer_types": layers });
        let mut cache = load(&Tiny::new(9, changes)).new_cache().unwrap();
        let error = model.forward(&[1], &mut cache, &step).unwrap_err().to_string();
        assert!(error.contains("other layers"), "{error}");
    }
}

#[test]
fn logits_that_overflow_are_reported() {
    let mut tiny = Tiny::new(10, json!({}));
    tiny.tensors.get_mut("model.norm.weight").unwrap().values.fill(f32::MAX);
    let model = load(&tiny);
    let step = step(StepChoice::Graph, &*model);
    let error = Decoder::new(&*model, &step).unwrap().prefill(&[1, 2], 8).unwrap_err().to_string();
    assert!(error.contains("NaN"), "{error}");
}

/// Text and counts of a generation on a tiny model.
fn write(tiny: &Tiny, sampler: &mut Sampler, max_tokens: usize) -> (String, Generation) {
    let folder = tiny.write();
    let (model, tokenizer) =
        (model::load(folder.path(), &Device::Cpu, None, |_, _| ()).unwrap(), Tokenizer::open(folder.path()).unwrap());
    let step = step(StepChoice::Auto, &*model);
    let mut decoder = Decoder::new(&*model, &step).unwrap();
    let mut text = String::new();
    let prompt = tokenizer.encode("abc").unwrap();
    let done = generate(&mut decoder, &tokenizer, sampler, &prompt, max_tokens, &model.info().end_tokens, |piece| {
        text.push_str(piece);
        Ok(())
    });
    (text, done.unwrap())
}

#[test]
fn same_seed_writes_the_same_text() {
    let tiny = Tiny::new(11, json!({ "logits_scaling": 4.0 }));
    let text = |seed| write(&tiny, &mut Sampler::new(1.0, 0.95, seed).unwrap(), 60).0;
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

#[test]
fn generation_stops_at_the_limit_and_at_the_end_token() {
    let tiny = Tiny::new(12, json!({}));
    for max_tokens in [0, 1, 7] {
        let (_, done) = write(&tiny, &mut Sampler::greedy(), max_tokens);
        assert_eq!((done.prompt_tokens, done.tokens, done.decode_steps), (3, max_tokens, max_tokens.saturating_sub(1)));
        assert!(!done.ended);
    }
    // The token that would come first is made the one that ends the text.
    let model = load(&tiny);
    let step = step(StepChoice::Auto, &*model);
    let first = argmax(&Decoder::new(&*model, &step).unwrap().prefill(&[97, 98, 99], 8).unwrap());
    let mut ending = tiny;
    ending.config["eos_token_id"] = json!([259, first]);
    let (text, done) = write(&ending, &mut Sampler::greedy(), 7);
    assert_eq!((text.as_str(), done.tokens, done.ended), ("", 1, true));
}
