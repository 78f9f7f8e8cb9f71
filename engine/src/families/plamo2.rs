//! PLaMo 2: `Plamo2ForCausalLM`.
//!
//! Mamba2 and attention layers in turn, each followed by a gated feed-forward layer, with norms before and after both. B, C
//! and dt of a Mamba2 layer are projected from the convolved x. Attention sees a window of positions, except in the layers of
//! `full_attention_idx`, and normalises each head's queries and keys. Semantics and defaults are those of the models' own
//! code, which mlx-lm follows but for the window: it leaves that out.

use serde_json::Value;

use super::fields::{self, Heads};
use super::stack::{Block, Frame, Part, Stack};
use crate::checkpoint::Checkpoint;
use crate::config::{Config, POSITIVE};
use crate::error::Result;
use crate::layers::{
    Activation, Attention, AttentionConfig, Linear, Mamba2, Mamba2Config, Mlp, RmsNorm, Rotary, Selection,
};
use crate::model::{Family, Model};
use crate::ssm::SsmDims;

/// The row of the table.
pub const FAMILY: Family = Family { architecture: "Plamo2ForCausalLM", load };

/// The row for checkpoints that have the class name of the first PLaMo.
pub const OLDER_FAMILY: Family = Family { architecture: "PlamoForCausalLM", load: load_older };

/// Limits of dt', which no configuration states.
const DT_LIMITS: (f32, f32) = (0.001, 100.0);

/// Of the norms of queries and keys, whatever `rms_norm_eps` says.
const HEAD_NORM_EPS: f64 = 1e-6;

/// Norms are stored as differences from these.
const PRE_NORM: f64 = 1.0;
const POST_MIXER_NORM: f64 = 0.2;
const POST_MLP_NORM: f64 = 0.089_442_719_099_991_59; // 5^-1.5

fn load(config: &Config, checkpoint: &Checkpoint) -> Result<Box<dyn Model>> {
    Ok(Box::new(PlamoConfig::read(config)?.load(checkpoint, FAMILY.architecture)?))
}

fn load_older(config: &Config, checkpoint: &Checkpoint) -> Result<Box<dyn Model>> {
    let model_type = config.get("model_type");
    if model_type.and_then(Value::as_str) != Some("plamo2") {
        return Err(config.error("model_type", "\"plamo2\"", model_type));
    }
    Ok(Box::new(PlamoConfig::read(config)?.load(checkpoint, OLDER_FAMILY.architecture)?))
}

/// What a layer does before its feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerKind {
    Mamba2,
    FullAttention,
    WindowedAttention,
}

/// The fields of config.json that decoding depends on.
#[derive(Debug)]
struct PlamoConfig {
    vocabulary: usize,
    hidden: usize,
    layers: Vec<LayerKind>,
    attention: AttentionConfig,
    window: usize,
    rotary: Rotary,
    mamba: Mamba2Config,
    mlp_width: usize,
    norm_eps: f64,
    tied: bool,
    end_tokens: Vec<u32>,
}

impl PlamoConfig {
    fn read(config: &Config) -> Result<Self> {
        let hidden = config.required_size("hidden_size", POSITIVE)?;
        config.word("linear_type", "normal", &["normal"])?;
        let norm_eps = config.positive_number("rms_norm_eps", 1e-6)?;
        let head_dim = config.size("hidden_size_per_head", 128, POSITIVE)?;
        let Heads { heads, kv_heads } = fields::heads(config, Some(4))?;
        Ok(Self {
            vocabulary: config.required_size("vocab_size", POSITIVE)?,
            hidden,
            layers: read_layers(config)?,
            attention: AttentionConfig::new(hidden, heads, kv_heads, head_dim),
            window: config.size("attention_window_size", 2048, POSITIVE)?,
            rotary: fields::rotary(config, "hidden_size_per_head", head_dim)?,
            mamba: read_mamba(config, hidden, head_dim, norm_eps)?,
            mlp_width: config.size("intermediate_size", 13_312, POSITIVE)?,
            norm_eps,
            tied: config.flag("tie_word_embeddings", true)?,
            end_tokens: config.token_ids("eos_token_id")?,
        })
    }
}

fn read_layers(config: &Config) -> Result<Vec<LayerKind>> {
    let count = fields::layer_count(config)?;
    let (mamba, step) = (config.flag("mamba_enabled", true)?, config.size("mamba_step", 2, 2..=*POSITIVE.end())?);
    let full = fields::layer_indices(config, "full_attention_idx", count)?;
    let kind = |layer: usize| {
        // One layer of each run of `mamba_step` is attention: the middle one, or where there are too few, the last of all.
        let attention = if count <= step / 2 { layer == count - 1 } else { layer % step == step / 2 };
        match (mamba && !attention, full.contains(&layer)) {
            (true, _) => LayerKind::Mamba2,
            (false, true) => LayerKind::FullAttention,
            (false, false) => LayerKind::WindowedAttention,
        }
    };
    Ok((0..count).map(kind).collect())
}

fn read_mamba(config: &Config, hidden: usize, head_dim: usize, norm_eps: f64) -> Result<Mamba2Config> {
    Ok(Mamba2Config {
        hidden,
        ssm: SsmDims {
            heads: config.size("mamba_num_heads", 64, POSITIVE)?,
            head_dim,
            groups: 1,
            d_state: config.size("mamba_d_state", 64, POSITIVE)?,
        },
        selection: Selection::FromX { dt_rank: (hidden / 16).max(64), norm_eps },
        d_conv: config.size("mamba_d_conv", 4, fields::D_CONV)?,
        conv_bias: false,
        in_bias: false,
        out_bias: false,
        dt_limits: DT_LIMITS,
        norm: None,
    })
}

impl PlamoConfig {
    fn load(self, checkpoint: &Checkpoint, architecture: &'static str) -> Result<Stack> {
        let mut blocks = Vec::with_capacity(2 * self.layers.len());
        for (index, kind) in self.layers.iter().enumerate() {
            blocks.extend(self.load_layer(checkpoint, &format!("model.layers.layers.{index}"), *kind)?);
        }
        let norm = self.load_norm(checkpoint, "model.norm", PRE_NORM)?;
        let frame = Frame {
            architecture,
            vocabulary: self.vocabulary,
            hidden: self.hidden,
            ssm: self.mamba.ssm,
            rotary: Some(self.rotary),
            embedding_multiplier: 1.0,
            logits_multiplier: 1.0,
            end_tokens: self.end_tokens,
        };
        Stack::load(checkpoint, frame, "model.embed_tokens", blocks, norm, self.tied)
    }

    fn load_layer(&self, checkpoint: &Checkpoint, name: &str, kind: LayerKind) -> Result<[Block; 2]> {
        let part = |part: &str| format!("{name}.{part}");
        let norm = |norm: &str, offset| self.load_norm(checkpoint, &part(norm), offset);
        let mixer = match kind {
            LayerKind::Mamba2 => Part::Mamba2(Box::new(Mamba2::load(checkpoint, &part("mixer"), self.mamba)?)),
            LayerKind::FullAttention => self.load_attention(checkpoint, &part("mixer"), None)?,
            LayerKind::WindowedAttention => self.load_attention(checkpoint, &part("mixer"), Some(self.window))?,
        };
        let mlp = self.load_mlp(checkpoint, &part("mlp"))?;
        Ok([
            Block {
                norm: norm("pre_mixer_norm", PRE_NORM)?,
                parts: vec![(mixer, 1.0)],
                post_norm: Some(norm("post_mixer_norm", POST_MIXER_NORM)?),
            },
            Block {
                norm: norm("pre_mlp_norm", PRE_NORM)?,
                parts: vec![(mlp, 1.0)],
                post_norm: Some(norm("post_mlp_norm", POST_MLP_NORM)?),
            },
        ])
    }

    fn load_norm(&self, checkpoint: &Checkpoint, name: &str, offset: f64) -> Result<RmsNorm> {
        let weight = (checkpoint.tensor_f32(&format!("{name}.weight"), &[self.hidden])? + offset)?;
        Ok(RmsNorm::new(weight.to_dtype(checkpoint.place().dtype)?, self.norm_eps))
    }

    fn load_attention(&self, checkpoint: &Checkpoint, name: &str, window: Option<usize>) -> Result<Part> {
        let AttentionConfig { hidden, heads, kv_heads, head_dim, .. } = self.attention;
        let projected = (heads + 2 * kv_heads) * head_dim;
        let qkv = Linear::load(checkpoint, &format!("{name}.qkv_proj"), projected, hidden, false)?;
        let out = Linear::load(checkpoint, &format!("{name}.o_proj"), hidden, heads * head_dim, false)?;
        let norm = |part: &str, count: usize| -> Result<RmsNorm> {
            let weight = checkpoint.tensor(&format!("{name}.{part}_weight"), &[count, head_dim])?;
            Ok(RmsNorm::new(weight.flatten_all()?, HEAD_NORM_EPS))
        };
        let attention = Attention::new(AttentionConfig { window, ..self.attention }, qkv, out, checkpoint.place())?;
        Ok(Part::Attention(Box::new(attention.with_norms(norm("q", heads)?, norm("k", kv_heads)?)?)))
    }

    fn load_mlp(&self, checkpoint: &Checkpoint, name: &str) -> Result<Part> {
        let (hidden, width) = (self.hidden, self.mlp_width);
        let gate_up = Linear::load(checkpoint, &format!("{name}.gate_up_proj"), 2 * width, hidden, false)?;
        let down = Linear::load(checkpoint, &format!("{name}.down_proj"), hidden, width, false)?;
        Ok(Part::Mlp(Mlp::new(gate_up, Activation::SiluGated, down)))
    }
}
