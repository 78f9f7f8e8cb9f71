//! Any config.json, for every family: read or refused, with nothing allocated for sizes that no weights back.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use ssm_engine::model::load;
use ssm_update_fuzz::folder;

/// A safetensors file without tensors: what comes after the configuration is refused at its first tensor.
const EMPTY: &[u8] = b"\x02\0\0\0\0\0\0\0{}";

fuzz_target!(|input: &[u8]| {
    let folder = folder();
    fs::write(folder.join("config.json"), input).expect("the folder can be written");
    fs::write(folder.join("model.safetensors"), EMPTY).expect("the folder can be written");
    let why = load(&folder, &candle_core::Device::Cpu, None, |_, _| ()).expect_err("there are no weights").to_string();
    assert!(!why.is_empty());
});
