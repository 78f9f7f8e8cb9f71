//! The two ways in which published checkpoints name and lay out the same weights. The rest of the engine speaks of them as
//! Hugging Face does; what is different with MLX is decided here.

use safetensors::tensor::TensorInfo;

/// Who wrote a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `transformers`.
    HuggingFace,
    /// `mlx-lm`. For some families it changes values too, when it converts: multipliers of the configuration are folded into
    /// the weights.
    Mlx,
}

/// Modules that MLX has in other modules' place: by the ends of their names. Where there are two, the first one's rows stand
/// above the second one's.
const MLX_NAMES: [(&str, &[&str]); 4] = [
    ("shared_mlp.input_linear", &["mlp.gate_proj", "mlp.up_proj"]),
    ("shared_mlp.output_linear", &["mlp.down_proj"]),
    (
        "block_sparse_moe.input_linear",
        &["block_sparse_moe.switch_mlp.gate_proj", "block_sparse_moe.switch_mlp.up_proj"],
    ),
    ("block_sparse_moe.output_linear", &["block_sparse_moe.switch_mlp.down_proj"]),
];

/// Projections that Hugging Face keeps expert by expert, as `experts.{index}.{first}`, and MLX in one tensor,
/// `switch_mlp.{second}`.
const MLX_STACKS: [(&str, &str); 2] = [("up_proj", "fc1"), ("down_proj", "fc2")];

/// Where a matrix is, or some of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The module's name in the file.
    pub(super) module: String,
    /// Index along the tensor's first dimension, where that counts experts and only one is meant.
    pub(super) expert: Option<usize>,
}

impl Place {
    /// A whole module.
    pub(super) fn whole(module: impl Into<String>) -> Self {
        Self { module: module.into(), expert: None }
    }
}

/// Where MLX keeps the matrix of the module that Hugging Face calls `module`, if elsewhere.
pub(super) fn mlx_places(module: &str) -> Option<Vec<Place>> {
    for (theirs, ours) in MLX_NAMES {
        if let Some(start) = module.strip_suffix(theirs).filter(|start| start.is_empty() || start.ends_with('.')) {
            return Some(ours.iter().map(|end| Place::whole(format!("{start}{end}"))).collect());
        }
    }
    let (start, rest) = module.split_once("experts.").filter(|(start, _)| start.is_empty() || start.ends_with('.'))?;
    let (expert, projection) = rest.split_once('.')?;
    let (_, stack) = MLX_STACKS.iter().find(|(theirs, _)| *theirs == projection)?;
    Some(vec![Place { module: format!("{start}switch_mlp.{stack}"), expert: Some(expert.parse().ok()?) }])
}

/// Whether the tensor is what only MLX would write: a depthwise convolution's `[channels, taps, 1]`.
pub(super) fn looks_like_mlx(name: &str, info: &TensorInfo) -> bool {
    name.ends_with("conv1d.weight") && matches!(info.shape[..], [_, taps, 1] if taps > 1)
}

/// The shape in which MLX writes a tensor of this name and shape, where the values are in the same order.
pub(super) fn mlx_shape(name: &str, shape: &[usize]) -> Vec<usize> {
    match *shape {
        [channels, 1, taps] if name.ends_with("conv1d.weight") => vec![channels, taps, 1],
        _ => shape.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_mlx_keeps_elsewhere() {
        let whole = |modules: &[&str]| Some(modules.iter().map(|module| Place::whole(*module)).collect::<Vec<_>>());
        let layer = "model.layers.3";
        for (module, expected) in [
            ("shared_mlp.input_linear", &["mlp.gate_proj", "mlp.up_proj"][..]),
            ("shared_mlp.output_linear", &["mlp.down_proj"]),
            ("block_sparse_moe.output_linear", &["block_sparse_moe.switch_mlp.down_proj"]),
        ] {
            let expected: Vec<String> = expected.iter().map(|end| format!("{layer}.{end}")).collect();
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            assert_eq!(mlx_places(&format!("{layer}.{module}")), whole(&expected));
        }
        let place = Place { module: "backbone.layers.1.mixer.switch_mlp.fc2".to_owned(), expert: Some(12) };
        assert_eq!(mlx_places("backbone.layers.1.mixer.experts.12.down_proj"), Some(vec![place]));
        for module in ["model.layers.0.mamba.in_proj", "a.experts.x.up_proj", "a.experts.1.gate", "my_shared_mlp.input"]
        {
            assert_eq!(mlx_places(module), None, "{module}");
        }
    }
}
