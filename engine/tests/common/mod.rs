//! Tiny random checkpoints, written to a folder that goes away with the test.

#![allow(dead_code, unreachable_pub)] // every test crate uses another part of this module

pub mod program;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The token that ends a text in the tiny checkpoints; the 256 before it are the bytes.
pub const END: u32 = 256;

/// A checkpoint in memory, to be damaged at will before it is written.
#[derive(Clone, Debug)]
pub struct Tiny {
    pub config: Value,
    pub tensors: BTreeMap<String, Weight>,
}

/// A tensor of a [`Tiny`].
#[derive(Clone, Debug)]
pub struct Weight {
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
    pub dtype: Dtype,
}

impl Tiny {
    /// Three layers with everything switched on that a small size permits; `changes` overrides fields of its configuration.
    pub fn new(seed: u64, changes: Value) -> Self {
        let mut config = json!({
            "architectures": ["GraniteMoeHybridForCausalLM"],
            "vocab_size": 260, "hidden_size": 32, "num_hidden_layers": 3, "eos_token_id": END,
            "layer_types": ["mamba", "attention", "mamba"],
            "embedding_multiplier": 3.0, "residual_multiplier": 0.7, "logits_scaling": 0.5, "attention_multiplier": 0.3,
            "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
            "num_attention_heads": 4, "num_key_value_heads": 2,
            "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_d_conv": 4,
            "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 24, "shared_intermediate_size": 40,
        });
        for (field, value) in changes.as_object().expect("changes are an object") {
            config[field] = value.clone();
        }
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut tensors = BTreeMap::new();
        for (name, shape, low, high) in tensors_of(&config) {
            let values = (0..shape.iter().product()).map(|_| rng.random_range(low..high)).collect();
            tensors.insert(name, Weight { shape, values, dtype: Dtype::F32 });
        }
        Self { config, tensors }
    }

    /// Writes config.json, tokenizer.json and model.safetensors.
    pub fn write(&self) -> TempDir {
        let folder = self.write_without_weights();
        save(&folder.path().join("model.safetensors"), self.tensors.iter());
        folder
    }

    /// As [`write`](Self::write), the weights in two files with an index.
    pub fn write_sharded(&self) -> TempDir {
        let folder = self.write_without_weights();
        let mut map = BTreeMap::new();
        for half in [0, 1] {
            let file = format!("model-0000{}-of-00002.safetensors", half + 1);
            let part = || self.tensors.iter().skip(half).step_by(2);
            save(&folder.path().join(&file), part());
            map.extend(part().map(|(name, _)| (name.clone(), file.clone())));
        }
        let index = json!({ "metadata": {}, "weight_map": map });
        std::fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
        folder
    }

    /// As [`write`](Self::write), to a folder of this name in `parent`.
    pub fn write_into(&self, parent: &Path, name: &str) -> PathBuf {
        let folder = parent.join(name);
        std::fs::create_dir(&folder).unwrap();
        let written = self.write();
        for file in ["config.json", "tokenizer.json", "model.safetensors"] {
            std::fs::copy(written.path().join(file), folder.join(file)).unwrap();
        }
        folder
    }

    fn write_without_weights(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer().to_string()).unwrap();
        folder
    }

    /// Changes every tensor's dtype, and the values to what that dtype can hold.
    pub fn into_dtype(mut self, dtype: Dtype) -> Self {
        for weight in self.tensors.values_mut() {
            weight.dtype = dtype;
            for value in &mut weight.values {
                *value = match dtype {
                    Dtype::BF16 => bf16::from_f32(*value).to_f32(),
                    Dtype::F16 => f16::from_f32(*value).to_f32(),
                    _ => *value,
                };
            }
        }
        self
    }
}

/// The folders of random checkpoints that golden vectors were made from: at least one for each family.
pub fn golden_checkpoints() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut folders: Vec<_> = std::fs::read_dir(folder)
        .expect("tests/golden holds the golden files")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

/// A golden checkpoint with other fields in its configuration.
pub fn golden_with(name: &str, changes: &Value) -> TempDir {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(golden.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let mut config: Value = serde_json::from_slice(&std::fs::read(golden.join("config.json")).unwrap()).unwrap();
    for (field, value) in changes.as_object().expect("changes are an object") {
        config[field] = value.clone();
    }
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    folder
}

/// Name, shape and range of every tensor that a configuration implies.
fn tensors_of(config: &Value) -> Vec<(String, Vec<usize>, f32, f32)> {
    let size = |field: &str| config[field].as_u64().unwrap_or_else(|| panic!("{field} is set")) as usize;
    let flag = |field: &str, default| config.get(field).and_then(Value::as_bool).unwrap_or(default);
    let (vocabulary, hidden) = (size("vocab_size"), size("hidden_size"));
    let (heads, kv_heads) = (size("num_attention_heads"), size("num_key_value_heads"));
    let head_dim = config.get("head_dim").map_or(hidden / heads, |_| size("head_dim"));
    let (ssm_heads, columns) = (size("mamba_n_heads"), size("mamba_n_groups") * size("mamba_d_state"));
    let channels = ssm_heads * size("mamba_d_head");
    let conv_channels = channels + 2 * columns;
    let (experts, width, shared) =
        (size("num_local_experts"), size("intermediate_size"), size("shared_intermediate_size"));

    let mut list = Vec::new();
    let mut add = |name: String, shape: &[usize], low: f32, high: f32| list.push((name, shape.to_vec(), low, high));
    add("model.embed_tokens.weight".to_owned(), &[vocabulary, hidden], -0.5, 0.5);
    add("model.norm.weight".to_owned(), &[hidden], 0.5, 1.5);
    if !flag("tie_word_embeddings", false) {
        add("lm_head.weight".to_owned(), &[vocabulary, hidden], -0.5, 0.5);
    }
    for (index, kind) in config["layer_types"].as_array().unwrap().iter().enumerate() {
        let name = |part: &str| format!("model.layers.{index}.{part}");
        add(name("input_layernorm.weight"), &[hidden], 0.5, 1.5);
        add(name("post_attention_layernorm.weight"), &[hidden], 0.5, 1.5);
        if kind == "mamba" {
            add(name("mamba.in_proj.weight"), &[channels + conv_channels + ssm_heads, hidden], -0.3, 0.3);
            add(name("mamba.out_proj.weight"), &[hidden, channels], -0.3, 0.3);
            add(name("mamba.conv1d.weight"), &[conv_channels, 1, size("mamba_d_conv")], -0.6, 0.6);
            if flag("mamba_conv_bias", true) {
                add(name("mamba.conv1d.bias"), &[conv_channels], -0.3, 0.3);
            }
            if flag("mamba_proj_bias", false) {
                add(name("mamba.in_proj.bias"), &[channels + conv_channels + ssm_heads], -0.3, 0.3);
                add(name("mamba.out_proj.bias"), &[hidden], -0.3, 0.3);
            }
            add(name("mamba.A_log"), &[ssm_heads], 0.0, 2.0);
            add(name("mamba.D"), &[ssm_heads], 0.5, 1.5);
            add(name("mamba.dt_bias"), &[ssm_heads], -4.0, 0.5);
            add(name("mamba.norm.weight"), &[channels], 0.5, 1.5);
        } else {
            for (part, out, inputs) in [
                ("q", heads * head_dim, hidden),
                ("k", kv_heads * head_dim, hidden),
                ("v", kv_heads * head_dim, hidden),
                ("o", hidden, heads * head_dim),
            ] {
                add(name(&format!("self_attn.{part}_proj.weight")), &[out, inputs], -0.3, 0.3);
                if flag("attention_bias", false) {
                    add(name(&format!("self_attn.{part}_proj.bias")), &[out], -0.3, 0.3);
                }
            }
        }
        if experts > 0 {
            add(name("block_sparse_moe.router.layer.weight"), &[experts, hidden], -0.5, 0.5);
            add(name("block_sparse_moe.input_linear.weight"), &[experts, 2 * width, hidden], -0.3, 0.3);
            add(name("block_sparse_moe.output_linear.weight"), &[experts, hidden, width], -0.3, 0.3);
        }
        add(name("shared_mlp.input_linear.weight"), &[2 * shared, hidden], -0.3, 0.3);
        add(name("shared_mlp.output_linear.weight"), &[hidden, shared], -0.3, 0.3);
    }
    list
}

/// Writes tensors to a safetensors file.
pub fn save<'a>(path: &Path, tensors: impl Iterator<Item = (&'a String, &'a Weight)>) {
    let bytes: Vec<(&String, Vec<u8>, &Weight)> = tensors
        .map(|(name, weight)| {
            let bytes = weight.values.iter().flat_map(|&value| match weight.dtype {
                Dtype::BF16 => bf16::from_f32(value).to_le_bytes().to_vec(),
                Dtype::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
                Dtype::F64 => f64::from(value).to_le_bytes().to_vec(),
                _ => value.to_le_bytes().to_vec(),
            });
            (name, bytes.collect(), weight)
        })
        .collect();
    let views = bytes
        .iter()
        .map(|(name, bytes, weight)| (*name, TensorView::new(weight.dtype, weight.shape.clone(), bytes).unwrap()));
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// A byte-level tokenizer: token `b` is the byte `b`, and the one after the bytes ends a text.
pub fn tokenizer() -> Value {
    // Byte-level vocabularies write bytes that are no printable Latin-1 character as characters from U+0100 on.
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut vocabulary = serde_json::Map::new();
    let mut replaced = 0;
    for byte in 0..256_u32 {
        let code = if printable(byte) { byte } else { 0x100 + replaced };
        replaced += u32::from(!printable(byte));
        vocabulary.insert(char::from_u32(code).unwrap().to_string(), byte.into());
    }
    let end = "<|endoftext|>";
    vocabulary.insert(end.to_owned(), END.into());
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [{
            "id": END, "content": end, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true,
        }],
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": [],
        },
    })
}
