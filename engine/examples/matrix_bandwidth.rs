//! Times the product of one vector with a matrix of a mapped checkpoint, in each form that a checkpoint may have it in:
//!
//! ```text
//! cargo run -p ssm-engine --release --example matrix_bandwidth -- [out] [in] [rows of x]
//! ```
//!
//! Default: 8192 x 4096, one row. Times are medians of at least ten products; the forms take turns, so that other load on the
//! machine meets them all.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use candle_core::{Device, Tensor};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;
use ssm_engine::{checkpoint::Checkpoint, checkpoint::Quantization, config::Config, matrix::Matrix};

const ROUNDS: usize = 30;

fn main() -> Result<(), Box<dyn Error>> {
    let sizes = std::env::args().skip(1).map(|size| size.parse()).collect::<Result<Vec<usize>, _>>()?;
    let size = |place: usize, default| sizes.get(place).copied().unwrap_or(default);
    let (out, inputs, rows) = (size(0, 8192), size(1, 4096), size(2, 1));

    let mut forms = Vec::new();
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        let folder = tempfile::tempdir()?;
        let bytes = numbers(out * inputs, dtype);
        write(folder.path(), &[("m.weight", dtype, vec![out, inputs], &bytes)])?;
        forms.push((format!("{dtype:?}"), bytes.len(), open(folder.path(), None, out, inputs)?, folder));
    }
    for (bits, group_size) in [(8, 32), (8, 64), (8, 128), (4, 32), (4, 64), (4, 128)] {
        let folder = tempfile::tempdir()?;
        let words: Vec<u8> = (0..out * inputs / 8 * bits).map(|i| (i * 167 % 251) as u8).collect();
        let factors = numbers(out * inputs / group_size, Dtype::BF16);
        let groups = vec![out, inputs / group_size];
        write(
            folder.path(),
            &[
                ("m.weight", Dtype::U32, vec![out, inputs / 32 * bits], &words),
                ("m.scales", Dtype::BF16, groups.clone(), &factors),
                ("m.biases", Dtype::BF16, groups, &factors),
            ],
        )?;
        let quantization = json!({ "group_size": group_size, "bits": bits });
        let matrix = open(folder.path(), Some(quantization), out, inputs)?;
        forms.push((format!("{bits} bits, groups of {group_size}"), words.len() + 2 * factors.len(), matrix, folder));
    }

    let x: Vec<f32> = (0..rows * inputs).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let x = Tensor::from_vec(x, (rows, inputs), &Device::Cpu)?;
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); forms.len()];
    for round in 0..=ROUNDS {
        for ((_, _, matrix, _), times) in forms.iter().zip(&mut times) {
            let start = Instant::now();
            matrix.multiply(&x)?;
            // The first round faults the pages in.
            if round > 0 {
                times.push(start.elapsed());
            }
        }
    }
    println!("{out} x {inputs}, {rows} rows of x, {} threads", std::thread::available_parallelism()?);
    for ((name, bytes, ..), times) in forms.iter().zip(&mut times) {
        times.sort();
        let (median, best) = (times[times.len() / 2].as_secs_f64(), times[0].as_secs_f64());
        let rate = *bytes as f64 / median / 1e9;
        println!("{name:>24}  {:8.3} ms  (best {:8.3})  {rate:6.1} GB/s", median * 1e3, best * 1e3);
    }
    Ok(())
}

/// Little-endian numbers in -1 .. 1.
fn numbers(count: usize, dtype: Dtype) -> Vec<u8> {
    let values = (0..count).map(|i| (i * 7919 % 2003) as f32 / 1001.5 - 1.0);
    match dtype {
        Dtype::F32 => values.flat_map(f32::to_le_bytes).collect(),
        Dtype::F16 => values.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect(),
        _ => values.flat_map(|value| half::bf16::from_f32(value).to_le_bytes()).collect(),
    }
}

fn write(folder: &Path, tensors: &[(&str, Dtype, Vec<usize>, &Vec<u8>)]) -> Result<(), Box<dyn Error>> {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        Ok::<_, safetensors::SafeTensorError>((*name, TensorView::new(*dtype, shape.clone(), bytes)?))
    });
    let views = views.collect::<Result<Vec<_>, _>>()?;
    Ok(std::fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None)?)?)
}

fn open(
    folder: &Path,
    quantization: Option<serde_json::Value>,
    out: usize,
    inputs: usize,
) -> Result<Matrix, Box<dyn Error>> {
    std::fs::write(folder.join("config.json"), json!({ "quantization": quantization }).to_string())?;
    let quantization = Quantization::read(&Config::open(folder)?)?;
    Ok(Checkpoint::open(folder, &Device::Cpu, None, quantization, |_| ())?.matrix("m.weight", &[out, inputs])?)
}
