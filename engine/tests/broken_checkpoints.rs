//! A broken checkpoint gives an error that names the file, and the tensor or the field. Nothing panics.

mod common;

use std::path::Path;

use candle_core::Device;
use common::Tiny;
use safetensors::Dtype;
use serde_json::{Value, json};
use ssm_engine::checkpoint::Checkpoint;
use ssm_engine::model;
use ssm_engine::tokenizer::Tokenizer;

fn tiny() -> Tiny {
    Tiny::new(1, json!({}))
}

/// Loads the folder and expects an error with all of `words` in it.
fn assert_refused(folder: &Path, words: &[&str]) {
    let error = model::load(folder, &Device::Cpu, None, |_, _| ())
        .map(|_| ())
        .expect_err("the checkpoint is broken")
        .to_string();
    for word in words {
        assert!(error.contains(word), "{error:?} does not name {word:?}");
    }
}

fn assert_config_refused(changes: Value, words: &[&str]) {
    // The weights are those of the sound configuration: the field is refused before they matter.
    let mut tiny = tiny();
    for (field, value) in changes.as_object().unwrap() {
        tiny.config[field] = value.clone();
    }
    assert_refused(tiny.write().path(), &[&["config.json"], words].concat());
}

#[test]
fn sound_checkpoint_loads() {
    assert!(model::load(tiny().write().path(), &Device::Cpu, None, |_, _| ()).is_ok());
}

#[test]
fn missing_folder() {
    assert_refused(Path::new("no/such/folder"), &["no/such/folder", "config.json"]);
}

#[test]
fn missing_file() {
    for file in ["config.json", "model.safetensors"] {
        let folder = tiny().write();
        std::fs::remove_file(folder.path().join(file)).unwrap();
        assert_refused(folder.path(), &[file, "not found"]);
    }
    let folder = tiny().write();
    std::fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    let error = Tokenizer::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json") && error.contains("not found"), "{error}");
}

#[test]
fn missing_shard() {
    let folder = tiny().write_sharded();
    std::fs::remove_file(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    assert_refused(folder.path(), &["model-00002-of-00002.safetensors", "not found"]);
}

#[test]
fn index_that_names_a_tensor_its_file_lacks() {
    let folder = tiny().write_sharded();
    let path = folder.path().join("model.safetensors.index.json");
    let mut index: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let (first, second) = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
    let map = index["weight_map"].as_object_mut().unwrap();
    let (name, file) = map.iter_mut().find(|(_, file)| **file == second).unwrap();
    *file = first.into();
    let name = name.clone();
    std::fs::write(&path, index.to_string()).unwrap();
    assert_refused(folder.path(), &[first, &name, "is missing"]);
}

#[test]
fn index_that_leaves_the_folder_or_is_no_index() {
    for (text, word) in [
        (json!({ "weight_map": { "model.norm.weight": "../elsewhere.safetensors" } }).to_string(), "elsewhere"),
        ("{}".to_owned(), "weight_map"),
        ("nonsense".to_owned(), "weight_map"),
    ] {
        let folder = tiny().write_sharded();
        std::fs::write(folder.path().join("model.safetensors.index.json"), text).unwrap();
        assert_refused(folder.path(), &["model.safetensors.index.json", word]);
    }
}

#[test]
fn every_tensor_is_missed_by_name() {
    let sound = tiny();
    for name in sound.tensors.keys() {
        let mut broken = sound.clone();
        broken.tensors.remove(name);
        assert_refused(broken.write().path(), &["model.safetensors", name, "is missing"]);
    }
    let mut broken = sound;
    broken.tensors.remove("model.norm.weight");
    assert_refused(broken.write_sharded().path(), &["model.safetensors.index.json", "model.norm.weight", "is missing"]);
}

#[test]
fn every_tensor_of_the_wrong_shape_is_refused_by_name() {
    let sound = tiny();
    for name in sound.tensors.keys() {
        let mut broken = sound.clone();
        let weight = broken.tensors.get_mut(name).unwrap();
        weight.shape.insert(0, 1);
        assert_refused(broken.write().path(), &["model.safetensors", name, "shape"]);
    }
}

#[test]
fn every_tensor_that_is_not_finite_is_refused_by_name() {
    let sound = tiny();
    for (i, name) in sound.tensors.keys().enumerate() {
        let mut broken = sound.clone();
        let value = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][i % 3];
        let values = &mut broken.tensors.get_mut(name).unwrap().values;
        let last = values.len() - 1;
        values[last] = value;
        let element = format!("element {last}");
        assert_refused(broken.write().path(), &["model.safetensors", name, &element]);
    }
}

/// Found by fuzzing: the second time, a tensor that had been refused was given out.
#[test]
fn what_is_not_finite_is_refused_each_time() {
    let name = "model.layers.2.mamba.A_log";
    let mut broken = tiny();
    let values = &mut broken.tensors.get_mut(name).unwrap().values;
    values[1] = f32::NAN;
    let shape = [values.len()];
    let folder = broken.write();
    let checkpoint =
        Checkpoint::open(folder.path(), &Device::Cpu, None, None, |_| panic!("nothing is counted")).unwrap();
    for _ in 0..3 {
        let error = checkpoint.tensor_f32(name, &shape).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("NaN"), "{error}");
    }
}

#[test]
fn not_finite_in_16_bit_is_refused_too() {
    for dtype in [Dtype::BF16, Dtype::F16] {
        let mut broken = tiny().into_dtype(dtype);
        broken.tensors.get_mut("model.layers.2.mamba.A_log").unwrap().values[1] = f32::NAN;
        assert_refused(broken.write().path(), &["model.safetensors", "model.layers.2.mamba.A_log", "element 1", "NaN"]);
    }
}

#[test]
fn dtype_that_is_not_served() {
    let mut broken = tiny();
    broken.tensors.get_mut("model.norm.weight").unwrap().dtype = Dtype::F64;
    assert_refused(broken.write().path(), &["model.safetensors", "model.norm.weight", "F64"]);
}

#[test]
fn truncated_at_any_length() {
    let folder = tiny().write();
    let path = folder.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for length in [0, 7, 8, 100, header - 1, header, header + 1, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert_refused(folder.path(), &["model.safetensors", "truncated"]);
    }
    // What the last tensor lacks is said of that tensor.
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert_refused(folder.path(), &["tensor `model"]);
}

#[test]
fn file_that_is_no_safetensors() {
    let folder = tiny().write();
    let path = folder.path().join("model.safetensors");
    for bytes in
        [b"version https://git-lfs.github.com/spec/v1".to_vec(), [&[2, 0, 0, 0, 0, 0, 0, 0], &b"{]"[..]].concat()]
    {
        std::fs::write(&path, bytes).unwrap();
        assert_refused(folder.path(), &["model.safetensors", "safetensors"]);
    }
}

#[test]
fn overlapping_or_reversed_offsets() {
    let folder = tiny().write();
    for offsets in ["[4,0]", "[0,8]", "[0,18446744073709551615]"] {
        let header = format!(r#"{{"a":{{"dtype":"F32","shape":[1],"data_offsets":{offsets}}}}}"#);
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 16]].concat();
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        assert_refused(folder.path(), &["model.safetensors"]);
    }
}

#[test]
fn unknown_architecture_lists_the_known_ones() {
    assert_config_refused(
        json!({ "architectures": ["LlamaForCausalLM"] }),
        &["LlamaForCausalLM", "GraniteMoeHybridForCausalLM"],
    );
    for architectures in [json!(null), json!([]), json!("GraniteMoeHybridForCausalLM"), json!([1])] {
        assert_config_refused(json!({ "architectures": architectures }), &["architectures"]);
    }
}

#[test]
fn config_that_is_no_json_object() {
    for text in ["", "{", "[1]", "nonsense", "{\"hidden_size\": 1,}"] {
        let folder = tiny().write();
        std::fs::write(folder.path().join("config.json"), text).unwrap();
        assert_refused(folder.path(), &["config.json"]);
    }
}

#[test]
fn config_fields_out_of_range_are_refused_by_name() {
    for (field, values) in [
        ("hidden_size", vec![json!(0), json!(-1), json!(1.5), json!("32"), json!(null), json!(1_u64 << 40)]),
        ("vocab_size", vec![json!(0), json!(null)]),
        ("num_hidden_layers", vec![json!(0), json!(1_000_000)]),
        ("layer_types", vec![json!(["mamba"]), json!(["mamba", "attention", "rwkv"]), json!("mamba")]),
        ("num_attention_heads", vec![json!(0), json!(6)]),
        ("num_key_value_heads", vec![json!(0), json!(3)]),
        ("head_dim", vec![json!(0)]),
        ("mamba_n_heads", vec![json!(0), json!(3), json!(8), json!(5)]),
        ("mamba_d_head", vec![json!(0), json!("half")]),
        ("mamba_d_state", vec![json!(0), json!(-16)]),
        ("mamba_n_groups", vec![json!(0), json!(3)]),
        ("mamba_d_conv", vec![json!(0), json!(1000)]),
        ("mamba_expand", vec![json!(0)]),
        ("num_local_experts", vec![json!(-1), json!("many")]),
        ("num_experts_per_tok", vec![json!(0), json!(5)]),
        ("intermediate_size", vec![json!(0)]),
        ("shared_intermediate_size", vec![json!(0)]),
        ("rms_norm_eps", vec![json!(0.0), json!(-1e-5), json!("small")]),
        ("embedding_multiplier", vec![json!("x"), json!([])]),
        ("residual_multiplier", vec![json!({ "__float__": "Infinity" })]),
        ("logits_scaling", vec![json!(0.0), json!(-2.0)]),
        ("tie_word_embeddings", vec![json!(1), json!("yes")]),
        ("hidden_act", vec![json!("gelu")]),
        ("position_embedding_type", vec![json!("alibi")]),
        ("time_step_limit", vec![json!([0.1]), json!([1.0, 0.5]), json!([0.0, "NaN"]), json!(3)]),
        ("eos_token_id", vec![json!(-1), json!(["a"])]),
    ] {
        for value in values {
            assert_config_refused(json!({ field: value }), &[&format!("`{field}`")]);
        }
    }
}

#[test]
fn rotary_scaling_is_refused_where_rotary_is_on() {
    let scaled = json!({ "rope_type": "yarn", "factor": 4.0 });
    let changes = json!({ "position_embedding_type": "rope", "rope_parameters": scaled });
    assert_config_refused(changes, &["rope_parameters.rope_type", "yarn"]);
    let changes = json!({ "position_embedding_type": "rope", "rope_scaling": { "type": "linear" } });
    assert_config_refused(changes, &["rope_scaling.type", "linear"]);
    let changes = json!({ "position_embedding_type": "rope", "rope_theta": 0 });
    assert_config_refused(changes, &["rope_theta"]);
}

#[test]
fn broken_tokenizer() {
    for text in ["", "{}", "[1, 2]"] {
        let folder = tiny().write();
        std::fs::write(folder.path().join("tokenizer.json"), text).unwrap();
        let error = Tokenizer::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("tokenizer.json"), "{error}");
    }
}
