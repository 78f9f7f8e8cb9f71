//! Tensors that MLX names, shapes or stacks in its own way are found under Hugging Face's names.

use std::collections::HashMap;

use candle_core::Device;
use safetensors::{Dtype, tensor::TensorView};
use ssm_engine::checkpoint::{Checkpoint, Format};
use tempfile::TempDir;

/// A checkpoint whose tensors count up from 0, each by itself.
fn checkpoint(tensors: &[(&str, &[usize])], format: Option<&str>) -> (TempDir, Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    let counted = |shape: &[usize]| -> Vec<u8> {
        (0..shape.iter().product::<usize>()).flat_map(|i| (i as f32).to_le_bytes()).collect()
    };
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, shape)| counted(shape)).collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, shape), bytes)| (*name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap()));
    let facts = format.map(|format| HashMap::from([("format".to_owned(), format.to_owned())]));
    std::fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, facts).unwrap()).unwrap();
    let checkpoint = Checkpoint::open(folder.path(), &Device::Cpu, None, None, |_| ()).unwrap();
    (folder, checkpoint)
}

#[test]
fn format_is_told_by_the_header_or_by_a_convolution() {
    let (conv, name) = ("model.layers.0.mamba.conv1d.weight", "model.norm.weight");
    for (tensor, shape, format, expected) in [
        (name, &[4][..], None, Format::HuggingFace),
        (name, &[4], Some("pt"), Format::HuggingFace),
        (name, &[4], Some("mlx"), Format::Mlx),
        (conv, &[6, 1, 4], None, Format::HuggingFace),
        (conv, &[6, 4, 1], None, Format::Mlx),
        (conv, &[6, 1, 1], None, Format::HuggingFace),
    ] {
        assert_eq!(checkpoint(&[(tensor, shape)], format).1.format(), expected, "{tensor} {shape:?} {format:?}");
    }
}

#[test]
fn convolutions_are_read_in_both_shapes() {
    let name = "model.layers.0.mamba.conv1d.weight";
    let read = |shape: &[usize], format| {
        let (_folder, checkpoint) = checkpoint(&[(name, shape)], format);
        checkpoint.tensor(name, &[6, 1, 4]).map(|tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap())
    };
    assert_eq!(read(&[6, 4, 1], Some("mlx")).unwrap(), read(&[6, 1, 4], None).unwrap());
    assert!(read(&[4, 6, 1], Some("mlx")).unwrap_err().to_string().contains("[4, 6, 1]"));
}

#[test]
fn an_expert_of_a_stack_is_found_under_its_own_name() {
    let stack = "backbone.layers.1.mixer.switch_mlp.fc1.weight";
    let (_folder, checkpoint) = checkpoint(&[(stack, &[3, 2, 4])], Some("mlx"));
    let expert = |e: usize, out: usize| {
        let name = format!("backbone.layers.1.mixer.experts.{e}.up_proj.weight");
        checkpoint.matrix(&name, &[out, 4])
    };
    let rows = expert(2, 2).unwrap().rows(&[1]).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(rows, [[20.0, 21.0, 22.0, 23.0]]);
    for (e, out) in [(3, 2), (0, 3)] {
        let error = expert(e, out).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(stack) && error.contains("[3, 2, 4]"), "{error}");
    }
}

#[test]
fn projections_that_mlx_splits_are_one_matrix() {
    let (gate, up) = ("model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight");
    let name = "model.layers.0.shared_mlp.input_linear.weight";
    let (_folder, whole) = checkpoint(&[(gate, &[2, 3]), (up, &[2, 3])], Some("mlx"));
    let rows = whole.matrix(name, &[4, 3]).unwrap().rows(&[1, 2]).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(rows, [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]]);

    let refused = |checkpoint: &Checkpoint| checkpoint.matrix(name, &[4, 3]).map(|_| ()).unwrap_err().to_string();
    let (_folder, half) = checkpoint(&[(gate, &[2, 3])], Some("mlx"));
    assert!(refused(&half).contains(up));
    let (_folder, none) = checkpoint(&[("model.norm.weight", &[3])], Some("mlx"));
    assert!(refused(&none).contains(name));
    // Hugging Face's checkpoints have no such names.
    let (_folder, foreign) = checkpoint(&[(gate, &[2, 3]), (up, &[2, 3])], None);
    assert!(refused(&foreign).contains(name));
}
