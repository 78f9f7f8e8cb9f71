//! A broken quantised checkpoint gives an error that names the file, and the tensor or the field. Nothing panics.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use candle_core::Device;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use ssm_engine::model;
use tempfile::TempDir;

const PROJECTION: &str = "model.layers.0.mamba.in_proj";
const EXPERTS: &str = "model.layers.1.block_sparse_moe.switch_mlp.up_proj";

/// A checkpoint of mlx-lm in memory, to be damaged at will before it is written.
struct Quantized {
    config: Value,
    tensors: BTreeMap<String, Stored>,
}

struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Quantized {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mlx-4bit-moe");
        let config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
        let stored = |view: TensorView<'_>| Stored {
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        };
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        Self { config, tensors: tensors.tensors().into_iter().map(|(name, view)| (name, stored(view))).collect() }
    }

    fn tensor(&mut self, name: &str) -> &mut Stored {
        self.tensors.get_mut(name).unwrap_or_else(|| panic!("the checkpoint has {name}"))
    }

    fn write(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        let views = self
            .tensors
            .iter()
            .map(|(name, stored)| (name, TensorView::new(stored.dtype, stored.shape.clone(), &stored.bytes).unwrap()));
        let facts = HashMap::from([("format".to_owned(), "mlx".to_owned())]);
        let bytes = safetensors::serialize(views, Some(facts)).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        folder
    }

    fn assert_refused(&self, words: &[&str]) {
        let folder = self.write();
        let error = model::load(folder.path(), &Device::Cpu, None, |_, _| ())
            .map(|_| ())
            .expect_err("it is broken")
            .to_string();
        for word in words {
            assert!(error.contains(word), "{error:?} does not name {word:?}");
        }
    }
}

impl Stored {
    /// Without the last column, `rows` rows of which take up all of the bytes.
    fn narrowed(&mut self) {
        let last = self.shape.len() - 1;
        let (old, new) = (self.shape[last], self.shape[last] - 1);
        let row = self.bytes.len() / self.shape[..last].iter().product::<usize>();
        let keep = row / old * new;
        self.bytes = self.bytes.chunks(row).flat_map(|bytes| &bytes[..keep]).copied().collect();
        self.shape[last] = new;
    }
}

#[test]
fn sound_checkpoint_loads() {
    assert!(model::load(Quantized::new().write().path(), &Device::Cpu, None, |_, _| ()).is_ok());
}

#[test]
fn every_tensor_is_missed_by_its_own_name() {
    let names: Vec<String> = Quantized::new().tensors.into_keys().collect();
    for name in names {
        // Without scales, or with scales only, a module looks as if it were not quantised, or is taken for another one.
        let mut broken = Quantized::new();
        broken.tensors.remove(&name);
        let module = name.rsplit_once('.').map_or(name.as_str(), |(module, _)| module);
        match name.strip_suffix(".scales") {
            Some(_) => broken.assert_refused(&["model.safetensors", module]),
            None if name.contains("mlp") && name.ends_with("_proj.weight") => broken.assert_refused(&["is missing"]),
            None => broken.assert_refused(&["model.safetensors", &name, "is missing"]),
        }
    }
}

#[test]
fn missing_scales_of_a_module_that_is_said_to_be_quantized() {
    let mut broken = Quantized::new();
    broken.config["quantization"][PROJECTION] = json!({ "bits": 4, "group_size": 64 });
    broken.tensors.remove(&format!("{PROJECTION}.scales"));
    broken.assert_refused(&[&format!("{PROJECTION}.scales"), "is missing"]);
}

#[test]
fn wrong_widths_are_refused_by_name() {
    for module in [PROJECTION, EXPERTS, "model.embed_tokens"] {
        for part in ["weight", "scales", "biases"] {
            let name = format!("{module}.{part}");
            let mut broken = Quantized::new();
            broken.tensor(&name).narrowed();
            broken.assert_refused(&["model.safetensors", &name, "shape"]);
        }
    }
    // Bits and group sizes other than those that the module was packed with.
    for (entry, part) in [
        (json!({ "bits": 8, "group_size": 64 }), "weight"),
        (json!({ "bits": 4, "group_size": 32 }), "scales"),
        (json!({ "bits": 8 }), "weight"),
    ] {
        let mut broken = Quantized::new();
        broken.config["quantization"][PROJECTION] = entry;
        broken.assert_refused(&[&format!("{PROJECTION}.{part}"), "shape"]);
    }
}

#[test]
fn wrong_dtypes_are_refused_by_name() {
    for (part, dtype) in [("weight", Dtype::I32), ("scales", Dtype::I16), ("biases", Dtype::F16)] {
        let name = format!("{PROJECTION}.{part}");
        let mut broken = Quantized::new();
        broken.tensor(&name).dtype = dtype;
        broken.assert_refused(&["model.safetensors", &name, &format!("{dtype:?}")]);
    }
    // Packed, but said not to be.
    let mut broken = Quantized::new();
    broken.config["quantization"]["model.layers.0.block_sparse_moe.router.layer"] = json!(false);
    broken.assert_refused(&["router.layer.weight"]);
}

#[test]
fn scales_that_are_not_finite() {
    for part in ["scales", "biases"] {
        for module in [PROJECTION, EXPERTS] {
            let name = format!("{module}.{part}");
            let mut broken = Quantized::new();
            broken.tensor(&name).bytes[6..8].copy_from_slice(&half::bf16::NAN.to_le_bytes());
            broken.assert_refused(&["model.safetensors", &name, "element 3", "NaN"]);
        }
    }
}

#[test]
fn group_size_that_does_not_divide_the_columns() {
    let mut broken = Quantized::new();
    broken.config["quantization"]["group_size"] = json!(128);
    broken.assert_refused(&["config.json", "group_size", PROJECTION, "64", "128"]);
}

#[test]
fn quantization_that_is_not_served_is_named() {
    for (field, value) in [
        ("mode", json!("mxfp4")),
        ("mode", json!("nvfp4")),
        ("mode", json!(4)),
        ("bits", json!(2)),
        ("bits", json!(3)),
        ("bits", json!(6)),
        ("bits", json!("4")),
        ("bits", json!(null)),
        ("group_size", json!(16)),
        ("group_size", json!(0)),
        ("group_size", json!(null)),
    ] {
        let mut broken = Quantized::new();
        broken.config["quantization"][field] = value.clone();
        broken.assert_refused(&[
            "config.json",
            &format!("`quantization.{field}`"),
            &value.to_string().replace("null", "nothing"),
        ]);
        if !value.is_null() {
            let mut broken = Quantized::new();
            broken.config["quantization"][PROJECTION] = json!({ field: value });
            broken.assert_refused(&[
                "config.json",
                &format!("`quantization.{PROJECTION}.{field}`"),
                &value.to_string(),
            ]);
        }
    }
    let mut broken = Quantized::new();
    broken.config["quantization"] = json!(4);
    broken.assert_refused(&["config.json", "`quantization`", "object"]);
}

#[test]
fn other_programs_quantization_is_named() {
    let mut broken = Quantized::new();
    broken.config["quantization"] = Value::Null;
    broken.config["quantization_config"] = json!({ "quant_method": "gptq", "bits": 4, "group_size": 128 });
    broken.assert_refused(&["config.json", "quantization_config.quant_method", "gptq"]);
}

#[test]
fn packed_weights_without_a_word_about_them_in_the_configuration() {
    let mut broken = Quantized::new();
    broken.config["quantization"] = Value::Null;
    broken.config["quantization_config"] = Value::Null;
    broken.assert_refused(&["model.safetensors", PROJECTION, "`quantization`"]);
}

#[test]
fn older_configurations_have_one_of_the_two_fields() {
    for (absent, present) in [("quantization", "quantization_config"), ("quantization_config", "quantization")] {
        let mut sound = Quantized::new();
        sound.config[absent] = Value::Null;
        sound.config[present]["mode"] = Value::Null;
        assert!(model::load(sound.write().path(), &Device::Cpu, None, |_, _| ()).is_ok(), "{present}");
    }
}
