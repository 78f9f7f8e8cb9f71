//! Checkpoint folders: any headers, any bytes, any index; what is read is of the shape that was asked for, finite, and from the file.
#![no_main]

use std::fmt::Write as _;
use std::fs;

use arbitrary::Arbitrary;
use candle_core::{DType, Device};
use libfuzzer_sys::fuzz_target;
use ssm_engine::checkpoint::{Checkpoint, Quantization};
use ssm_engine::config::Config;
use ssm_engine::matrix::Matrix;
use ssm_update_fuzz::folder;

const NAMES: [&str; 10] = [
    "a.weight",
    "a.scales",
    "a.biases",
    "b.weight",
    "model.layers.0.mamba.conv1d.weight",
    "model.layers.0.block_sparse_moe.input_linear.weight",
    "model.layers.0.block_sparse_moe.switch_mlp.gate_proj.weight",
    "model.layers.0.block_sparse_moe.switch_mlp.up_proj.weight",
    "backbone.layers.1.mixer.experts.0.up_proj.weight",
    "backbone.layers.1.mixer.switch_mlp.fc1.weight",
];
const DTYPES: [&str; 8] = ["F32", "F16", "BF16", "U32", "I64", "F8_E4M3", "BOOL", "x"];
const BITS: [&str; 7] = ["2", "3", "4", "5", "6", "8", "7"];
const GROUPS: [&str; 4] = ["32", "64", "128", "33"];

#[derive(Debug, Arbitrary)]
struct Tensor {
    name: u8,
    dtype: u8,
    shape: Vec<u8>,
    /// Where it begins behind the one before, and its bytes beyond those of its shape: none, mostly.
    shift: (i8, i8),
    is_odd: u8,
}

#[derive(Debug, Arbitrary)]
struct Shard {
    header: Option<Vec<u8>>,
    tensors: Vec<Tensor>,
    /// Of the header's length, where it is odd.
    length: Option<i64>,
    is_mlx: bool,
    data: Vec<u8>,
    /// Bytes that are missing at the end.
    missing: u8,
}

#[derive(Debug, Arbitrary)]
enum Ask {
    Tensor(u8, Vec<u8>),
    Matrix(u8, [u8; 2]),
    Experts(u8, [u8; 3]),
}

#[derive(Debug, Arbitrary)]
struct Input {
    shard: Shard,
    second: Option<Shard>,
    index: Option<Vec<u8>>,
    /// Bits and group size.
    quantization: Option<(u8, u8)>,
    own: Option<(u8, bool)>,
    asks: Vec<Ask>,
}

fuzz_target!(|input: Input| run(&input));

fn name(number: u8) -> &'static str {
    NAMES[usize::from(number) % NAMES.len()]
}

/// Sizes: small ones, and multiples that groups of quantised columns have.
fn size(number: u8) -> usize {
    if number < 128 { usize::from(number % 9) } else { 32 * usize::from(number % 5) }
}

fn bytes(shard: &Shard) -> Vec<u8> {
    let mut data = shard.data.clone();
    let header = shard.header.clone().unwrap_or_else(|| {
        let mut text = format!("{{\"__metadata__\":{{\"format\":\"{}\"}}", if shard.is_mlx { "mlx" } else { "pt" });
        let mut at = 0_i64;
        for tensor in shard.tensors.iter().take(12) {
            let dtype = usize::from(tensor.dtype % 16);
            let dtype = if dtype < 8 { dtype } else { dtype % 4 };
            let shape: Vec<usize> = tensor.shape.iter().take(4).map(|&number| size(number)).collect();
            let element = [4, 2, 2, 4, 8, 1, 1, 1][dtype] as i64;
            let mut end = at + shape.iter().product::<usize>().min(1 << 20) as i64 * element;
            if tensor.is_odd > 240 {
                at += i64::from(tensor.shift.0);
                end += i64::from(tensor.shift.1);
            }
            let _ = write!(
                text,
                ",\"{}\":{{\"dtype\":\"{}\",\"shape\":{shape:?},\"data_offsets\":[{at},{end}]}}",
                name(tensor.name),
                DTYPES[dtype]
            );
            at = end;
        }
        text.push('}');
        // As many bytes as were announced; the given ones again and again.
        let wanted = at.clamp(0, 1 << 16) as usize;
        if data.is_empty() {
            data.push(0);
        }
        data = data.iter().copied().cycle().take(wanted).collect();
        text.into_bytes()
    });
    let length = shard.length.unwrap_or(header.len() as i64);
    let mut bytes = [&length.to_le_bytes()[..], &header, &data].concat();
    if shard.missing > 200 {
        bytes.truncate(bytes.len().saturating_sub(usize::from(shard.missing - 200)));
    }
    bytes
}

fn run(input: &Input) {
    let folder = folder();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).expect("the folder can be written");
    let mut config = "{\"x\":1".to_owned();
    if let Some((bits, group)) = input.quantization {
        let (bits, group) = (BITS[usize::from(bits) % BITS.len()], GROUPS[usize::from(group) % GROUPS.len()]);
        let _ = write!(config, ",\"quantization\":{{\"bits\":{bits},\"group_size\":{group}");
        if let Some((module, is_quantized)) = input.own {
            let module = name(module).trim_end_matches(".weight");
            let _ = write!(config, ",\"{module}\":{is_quantized}");
        }
        config.push('}');
    }
    config.push('}');
    put("config.json", config.as_bytes());
    put("model.safetensors", &bytes(&input.shard));
    let _ = fs::remove_file(folder.join("model.safetensors.index.json"));
    if let Some(second) = &input.second {
        put("second.safetensors", &bytes(second));
        let mut index = "{\"weight_map\":{".to_owned();
        for (at, tensor) in input.shard.tensors.iter().chain(&second.tensors).take(24).enumerate() {
            let file = if at < input.shard.tensors.len() { "model.safetensors" } else { "second.safetensors" };
            let _ = write!(index, "{}\"{}\":\"{file}\"", if at > 0 { "," } else { "" }, name(tensor.name));
        }
        index.push_str("}}");
        put("model.safetensors.index.json", index.as_bytes());
    }
    if let Some(index) = &input.index {
        put("model.safetensors.index.json", index);
    }

    let config = Config::open(&folder).expect("it was written above");
    let Ok(quantization) = Quantization::read(&config) else { return };
    let Ok(checkpoint) = Checkpoint::open(&folder, &Device::Cpu, None, quantization, |_| ()) else { return };
    let _ = (checkpoint.bytes(), checkpoint.format());
    for ask in input.asks.iter().take(8) {
        match ask {
            Ask::Tensor(number, shape) => {
                let shape: Vec<usize> = shape.iter().take(4).map(|&number| size(number)).collect();
                if let Ok(tensor) = checkpoint.tensor_f32(name(*number), &shape) {
                    assert_eq!(tensor.dims(), shape);
                    let values = tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("f32");
                    assert!(values.iter().all(|value| value.is_finite()));
                }
            }
            Ask::Matrix(number, [out, inputs]) => {
                let shape = [size(*out), size(*inputs)];
                if let Ok(matrix) = checkpoint.matrix(name(*number), &shape) {
                    multiply(&matrix, shape);
                }
            }
            Ask::Experts(number, [experts, out, inputs]) => {
                let shape = [size(*experts), size(*out), size(*inputs)];
                if let Ok(matrices) = checkpoint.experts(name(*number), &shape) {
                    assert_eq!(matrices.len(), shape[0]);
                    matrices.iter().for_each(|matrix| multiply(matrix, [shape[1], shape[2]]));
                }
            }
        }
    }
}

/// One row through the matrix: whatever the weights are, there is a number for each of its outputs, and each row can be taken out.
fn multiply(matrix: &Matrix, [out, inputs]: [usize; 2]) {
    assert_eq!([matrix.outputs(), matrix.inputs()], [out, inputs]);
    let ones = candle_core::Tensor::ones((1, inputs), DType::F32, &Device::Cpu).expect("memory");
    assert_eq!(matrix.multiply(&ones).expect("a row of that many").dims(), [1, out]);
    let last = u32::try_from(out - 1).expect("few");
    assert_eq!(matrix.rows(&[0, last]).expect("rows that are there").dims(), [2, inputs]);
}
