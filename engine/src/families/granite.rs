//! Granite 4.0 hybrid: `GraniteMoeHybridForCausalLM`.
//!
//! Mamba2 and attention layers in any order, each followed by a mixture of experts with a shared expert, or by the shared
//! expert alone where there are no others ("dense"). Semantics and defaults are those of `transformers`' own
//! implementation.

use super::fields;
use super::stack::{Block, Frame, Part, Stack};
use crate::checkpoint::Checkpoint;
use crate::config::{ANY, Config, POSITIVE};
use crate::error::Result;
use crate::layers::{
    Activation, Attention, AttentionConfig, GatedNorm, Linear, Mamba2, Mamba2Config, MixtureOfExperts, Mlp, RmsNorm,
    Rotary, Router, Scoring,
};
use crate::model::{Family, Model};

/// The row of the table.
pub const FAMILY: Family = Family { architecture: "GraniteMoeHybridForCausalLM", load };

fn load(config: &Config, checkpoint: &Checkpoint) -> Result<Box<dyn Model>> {
    Ok(Box::new(GraniteConfig::read(config)?.load(checkpoint)?))
}

/// What a layer does between its two norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerKind {
    Mamba2,
    Attention,
}

/// The fields of config.json that decoding depends on.
#[derive(Debug)]
struct GraniteConfig {
    vocabulary: usize,
    hidden: usize,
    layers: Vec<LayerKind>,
    attention: AttentionConfig,
    rotary: Option<Rotary>,
    mamba: Mamba2Config,
    /// `None`: dense.
    moe: Option<MoeConfig>,
    shared_width: usize,
    norm_eps: f64,
    embedding_multiplier: f64,
    residual_multiplier: f64,
    logits_scaling: f64,
    tied: bool,
    end_tokens: Vec<u32>,
}

/// Sizes of a mixture of experts.
#[derive(Clone, Copy, Debug)]
struct MoeConfig {
    width: usize,
    experts: usize,
    per_token: usize,
}

impl GraniteConfig {
    fn read(config: &Config) -> Result<Self> {
        let hidden = config.required_size("hidden_size", POSITIVE)?;
        config.word("hidden_act", "silu", &["silu"])?;
        let norm_eps = config.positive_number("rms_norm_eps", 1e-6)?;
        let attention = read_attention(config, hidden)?;
        Ok(Self {
            vocabulary: config.required_size("vocab_size", POSITIVE)?,
            hidden,
            layers: read_layers(config)?,
            rotary: read_rotary(config, attention.head_dim)?,
            attention,
            mamba: read_mamba(config, hidden, norm_eps)?,
            moe: read_moe(config)?,
            shared_width: config.size("shared_intermediate_size", 1024, POSITIVE)?,
            norm_eps,
            embedding_multiplier: config.number("embedding_multiplier", 1.0)?,
            residual_multiplier: config.number("residual_multiplier", 1.0)?,
            logits_scaling: config.positive_number("logits_scaling", 1.0)?,
            tied: config.flag("tie_word_embeddings", false)?,
            end_tokens: config.token_ids("eos_token_id")?,
        })
    }
}

fn read_layers(config: &Config) -> Result<Vec<LayerKind>> {
    let count = fields::layer_count(config)?;
    // Published configurations say "mamba" and "attention", those of transformers 5 the longer words; `layers_block_type`
    // is an older name of the field.
    let field = if config.get("layer_types").is_some() { "layer_types" } else { "layers_block_type" };
    let Some(value) = config.get(field) else { return Ok(vec![LayerKind::Mamba2; count]) };
    fields::layer_kinds(config, field, value, Some(count), "\"mamba\" or \"attention\"", |word| match word {
        "mamba" | "linear_attention" => Some(LayerKind::Mamba2),
        "attention" | "full_attention" => Some(LayerKind::Attention),
        _ => None,
    })
}

fn read_attention(config: &Config, hidden: usize) -> Result<AttentionConfig> {
    let (scale, bias) = (config.number("attention_multiplier", 1.0)?, config.flag("attention_bias", false)?);
    Ok(AttentionConfig { scale, bias, ..fields::attention(config, hidden, None)? })
}

fn read_rotary(config: &Config, head_dim: usize) -> Result<Option<Rotary>> {
    match config.word("position_embedding_type", "nope", &["nope", "rope"])? {
        "nope" => Ok(None),
        _ => fields::rotary(config, "head_dim", head_dim).map(Some),
    }
}

fn read_mamba(config: &Config, hidden: usize, norm_eps: f64) -> Result<Mamba2Config> {
    let channels = config.size("mamba_expand", 2, POSITIVE)? * hidden;
    let ssm = fields::ssm_dims(config, channels, "mamba_expand * hidden_size")?;
    // Over all channels, whatever the groups; published models have one.
    let norm = Some(GatedNorm { eps: norm_eps, groups: 1, before_gate: false });
    Ok(Mamba2Config { norm, ..fields::mamba2(config, hidden, ssm)? })
}

fn read_moe(config: &Config) -> Result<Option<MoeConfig>> {
    let experts = config.size("num_local_experts", 8, ANY)?;
    if experts == 0 {
        return Ok(None);
    }
    let per_token = config.size("num_experts_per_tok", 2, 1..=experts)?;
    Ok(Some(MoeConfig { width: config.size("intermediate_size", 11_008, POSITIVE)?, experts, per_token }))
}

impl GraniteConfig {
    fn load(self, checkpoint: &Checkpoint) -> Result<Stack> {
        let mut blocks = Vec::with_capacity(2 * self.layers.len());
        for (index, kind) in self.layers.iter().enumerate() {
            blocks.extend(self.load_layer(checkpoint, &format!("model.layers.{index}"), *kind)?);
        }
        let norm = RmsNorm::load(checkpoint, "model.norm", self.hidden, self.norm_eps)?;
        let frame = Frame {
            architecture: FAMILY.architecture,
            vocabulary: self.vocabulary,
            hidden: self.hidden,
            ssm: self.mamba.ssm,
            rotary: self.rotary,
            embedding_multiplier: self.embedding_multiplier,
            logits_multiplier: self.logits_scaling.recip(),
            end_tokens: self.end_tokens,
        };
        Stack::load(checkpoint, frame, "model.embed_tokens", blocks, norm, self.tied)
    }

    fn load_layer(&self, checkpoint: &Checkpoint, name: &str, kind: LayerKind) -> Result<[Block; 2]> {
        let part = |part: &str| format!("{name}.{part}");
        let norm = |norm: &str| RmsNorm::load(checkpoint, &part(norm), self.hidden, self.norm_eps);
        let mixer = match kind {
            LayerKind::Mamba2 => Part::Mamba2(Box::new(Mamba2::load(checkpoint, &part("mamba"), self.mamba)?)),
            LayerKind::Attention => {
                Part::Attention(Box::new(Attention::load(checkpoint, &part("self_attn"), self.attention)?))
            }
        };
        let mut feed_forward =
            vec![(Part::Mlp(self.load_shared(checkpoint, &part("shared_mlp"))?), self.residual_multiplier)];
        if let Some(moe) = self.moe {
            let experts = self.load_experts(checkpoint, &part("block_sparse_moe"), moe)?;
            feed_forward.push((Part::Experts(experts), self.residual_multiplier));
        }
        Ok([
            Block::new(norm("input_layernorm")?, vec![(mixer, self.residual_multiplier)]),
            Block::new(norm("post_attention_layernorm")?, feed_forward),
        ])
    }

    fn load_shared(&self, checkpoint: &Checkpoint, name: &str) -> Result<Mlp> {
        let (hidden, width) = (self.hidden, self.shared_width);
        let gate_up = Linear::load(checkpoint, &format!("{name}.input_linear"), 2 * width, hidden, false)?;
        let down = Linear::load(checkpoint, &format!("{name}.output_linear"), hidden, width, false)?;
        Ok(Mlp::new(gate_up, Activation::SiluGated, down))
    }

    fn load_experts(&self, checkpoint: &Checkpoint, name: &str, config: MoeConfig) -> Result<MixtureOfExperts> {
        let (hidden, MoeConfig { width, experts, per_token }) = (self.hidden, config);
        let router = Linear::load_f32(checkpoint, &format!("{name}.router.layer"), experts, hidden)?;
        let gate_up = checkpoint.experts(&format!("{name}.input_linear.weight"), &[experts, 2 * width, hidden])?;
        let down = checkpoint.experts(&format!("{name}.output_linear.weight"), &[experts, hidden, width])?;
        let expert =
            |(gate_up, down)| Mlp::new(Linear::new(gate_up, None), Activation::SiluGated, Linear::new(down, None));
        let experts = gate_up.into_iter().zip(down).map(expert).collect();
        MixtureOfExperts::new(Router::new(router, per_token, Scoring::Softmax), experts)
    }
}
