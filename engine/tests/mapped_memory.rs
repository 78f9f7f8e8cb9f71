//! Weights are used from the mapped file: loading a checkpoint and decoding with it takes little memory of the process' own.
#![cfg(target_os = "linux")]

mod common;

use candle_core::Device;
use common::Tiny;
use safetensors::Dtype;
use serde_json::json;
use ssm_engine::decoder::Decoder;
use ssm_engine::model;
use ssm_engine::ssm::{Step, StepChoice};

/// Bytes of memory that belong to no file.
fn own_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("Linux tells RssAnon");
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

// The only test of this program: others would use memory at the same time.
#[test]
fn weights_are_not_copied() {
    let changes = json!({ "vocab_size": 60_000, "hidden_size": 256, "num_attention_heads": 8, "mamba_d_head": 128 });
    for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
        let folder = Tiny::new(1, changes.clone()).into_dtype(dtype).write();
        let file = std::fs::metadata(folder.path().join("model.safetensors")).unwrap().len();
        let before = own_memory();
        let model = model::load(folder.path(), &Device::Cpu, None, |_, _| ()).unwrap();
        let step = Step::for_model(StepChoice::Auto, &*model).unwrap();
        let mut decoder = Decoder::new(&*model, &step).unwrap();
        decoder.prefill(&[1, 2], 8).unwrap();
        decoder.decode(3).unwrap();
        let grown = own_memory().saturating_sub(before);
        println!("{dtype:?}: {grown} bytes beside a file of {file}");
        assert!(file > 30 << 20 && grown < file / 8, "{dtype:?}: {grown} bytes for a file of {file}");
    }
}
