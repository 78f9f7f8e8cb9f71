//! Granite 4.0 hybrid: `GraniteMoeHybridForCausalLM`.
//!
//! Mamba2 and attention layers in any order, each followed by a mixture of experts with a shared expert, or by the shared
//! expert alone where there are no others ("dense"). Semantics and defaults are those of `transformers`' own
//! implementation.

use candle_core::Tensor;
use serde_json::Value;

use crate::cache::{Cache, LayerCache};
use crate::checkpoint::Checkpoint;
use crate::config::{ANY, Config, POSITIVE};
use crate::error::Result;
use crate::layers::{
    Attention, AttentionConfig, Embedding, GatedMlp, Linear, Mamba2, Mamba2Config, MixtureOfExperts, MoeConfig,
    Positions, RmsNorm, Rotary,
};
use crate::model::{Family, Model, ModelInfo};
use crate::place::Place;
use crate::ssm::{SsmDims, Step};

/// The row of the table.
pub const FAMILY: Family = Family { architecture: "GraniteMoeHybridForCausalLM", load };

/// Most layers that a configuration may state.
const LAYERS_MAX: usize = 4096;

fn load(config: &Config, checkpoint: &Checkpoint) -> Result<Box<dyn Model>> {
    Ok(Box::new(Granite::load(&GraniteConfig::read(config)?, checkpoint)?))
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
            moe: read_moe(config, hidden)?,
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
    let count = config.required_size("num_hidden_layers", 1..=LAYERS_MAX)?;
    // Published configurations say "mamba" and "attention", those of transformers 5 the longer words; `layers_block_type`
    // is an older name of the field.
    let field = if config.get("layer_types").is_some() { "layer_types" } else { "layers_block_type" };
    let Some(value) = config.get(field) else { return Ok(vec![LayerKind::Mamba2; count]) };
    let kind = |value: &Value| match value.as_str() {
        Some("mamba" | "linear_attention") => Some(LayerKind::Mamba2),
        Some("attention" | "full_attention") => Some(LayerKind::Attention),
        _ => None,
    };
    let layers: Option<Vec<_>> = value.as_array().and_then(|list| list.iter().map(kind).collect());
    layers.filter(|layers| layers.len() == count).ok_or_else(|| {
        config.error(field, format!("num_hidden_layers = {count} times \"mamba\" or \"attention\""), Some(value))
    })
}

fn read_attention(config: &Config, hidden: usize) -> Result<AttentionConfig> {
    let heads = config.size("num_attention_heads", 32, POSITIVE)?;
    let kv_heads = config.size("num_key_value_heads", heads, POSITIVE)?;
    if !heads.is_multiple_of(kv_heads) {
        let expected = format!("a divisor of num_attention_heads = {heads}");
        return Err(config.error("num_key_value_heads", expected, Some(&kv_heads.into())));
    }
    let head_dim = match config.size_if_set("head_dim", POSITIVE)? {
        Some(head_dim) => head_dim,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let expected = format!("a divisor of hidden_size = {hidden}, since head_dim is not set");
            return Err(config.error("num_attention_heads", expected, Some(&heads.into())));
        }
    };
    let (scale, bias) = (config.number("attention_multiplier", 1.0)?, config.flag("attention_bias", false)?);
    Ok(AttentionConfig { hidden, heads, kv_heads, head_dim, scale, bias })
}

fn read_rotary(config: &Config, head_dim: usize) -> Result<Option<Rotary>> {
    if config.word("position_embedding_type", "nope", &["nope", "rope"])? == "nope" {
        return Ok(None);
    }
    // The scaling schemes change the angles; `rope_parameters` is the newer name of `rope_scaling`.
    for field in ["rope_parameters.rope_type", "rope_scaling.rope_type", "rope_scaling.type"] {
        config.word(field, "default", &["default"])?;
    }
    if !head_dim.is_multiple_of(2) {
        let expected = "an even number of channels per head, since position_embedding_type is rope";
        return Err(config.error("head_dim", expected, Some(&head_dim.into())));
    }
    let theta = config.positive_number("rope_theta", 10_000.0)?;
    Ok(Some(Rotary { theta: config.positive_number("rope_parameters.rope_theta", theta)?, head_dim }))
}

fn read_mamba(config: &Config, hidden: usize, norm_eps: f64) -> Result<Mamba2Config> {
    let channels = config.size("mamba_expand", 2, POSITIVE)? * hidden;
    let heads = config.size("mamba_n_heads", 128, POSITIVE)?;
    let head_dim = match config.get("mamba_d_head").and_then(Value::as_str) {
        Some("auto") => channels / heads,
        _ => config.size("mamba_d_head", channels / heads, POSITIVE)?,
    };
    if heads * head_dim != channels {
        let expected = format!("mamba_expand * hidden_size / mamba_d_head, which is {channels} / {head_dim}");
        return Err(config.error("mamba_n_heads", expected, Some(&heads.into())));
    }
    let groups = config.size("mamba_n_groups", 1, POSITIVE)?;
    if !heads.is_multiple_of(groups) {
        let expected = format!("a divisor of mamba_n_heads = {heads}");
        return Err(config.error("mamba_n_groups", expected, Some(&groups.into())));
    }
    let (low, high) = config.limits("time_step_limit", (0.0, f64::INFINITY))?;
    Ok(Mamba2Config {
        hidden,
        ssm: SsmDims { heads, head_dim, groups, d_state: config.size("mamba_d_state", 256, POSITIVE)? },
        d_conv: config.size("mamba_d_conv", 4, 1..=64)?,
        conv_bias: config.flag("mamba_conv_bias", true)?,
        proj_bias: config.flag("mamba_proj_bias", false)?,
        dt_limits: (low as f32, high as f32),
        norm_eps,
    })
}

fn read_moe(config: &Config, hidden: usize) -> Result<Option<MoeConfig>> {
    let experts = config.size("num_local_experts", 8, ANY)?;
    if experts == 0 {
        return Ok(None);
    }
    let per_token = config.size("num_experts_per_tok", 2, 1..=experts)?;
    Ok(Some(MoeConfig { hidden, width: config.size("intermediate_size", 11_008, POSITIVE)?, experts, per_token }))
}

/// The model.
#[derive(Debug)]
struct Granite {
    info: ModelInfo,
    embedding: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
    rotary: Option<Rotary>,
    embedding_multiplier: f64,
    residual_multiplier: f64,
    logits_scaling: f64,
}

#[derive(Debug)]
struct Layer {
    input_norm: RmsNorm,
    mixer: Mixer,
    mlp_norm: RmsNorm,
    experts: Option<MixtureOfExperts>,
    shared: GatedMlp,
}

#[derive(Debug)]
enum Mixer {
    Mamba2(Box<Mamba2>),
    Attention(Attention),
}

impl Granite {
    fn load(config: &GraniteConfig, checkpoint: &Checkpoint) -> Result<Self> {
        let embedding = Embedding::load(checkpoint, "model.embed_tokens", config.vocabulary, config.hidden)?;
        let layer = |(index, kind): (usize, &LayerKind)| Layer::load(config, checkpoint, index, *kind);
        let layers = config.layers.iter().enumerate().map(layer).collect::<Result<_>>()?;
        let count = |kind| config.layers.iter().filter(|layer| **layer == kind).count();
        Ok(Self {
            info: ModelInfo {
                architecture: FAMILY.architecture,
                vocabulary: config.vocabulary,
                hidden: config.hidden,
                mamba_layers: count(LayerKind::Mamba2),
                attention_layers: count(LayerKind::Attention),
                ssm: config.mamba.ssm,
                end_tokens: config.end_tokens.clone(),
            },
            head: embedding.head(checkpoint, "lm_head", config.tied)?,
            embedding,
            layers,
            norm: RmsNorm::load(checkpoint, "model.norm", config.hidden, config.norm_eps)?,
            rotary: config.rotary,
            embedding_multiplier: config.embedding_multiplier,
            residual_multiplier: config.residual_multiplier,
            logits_scaling: config.logits_scaling,
        })
    }
}

impl Layer {
    fn load(config: &GraniteConfig, checkpoint: &Checkpoint, index: usize, kind: LayerKind) -> Result<Self> {
        let name = |part: &str| format!("model.layers.{index}.{part}");
        let norm = |part: &str| RmsNorm::load(checkpoint, &name(part), config.hidden, config.norm_eps);
        let experts = |moe| MixtureOfExperts::load(checkpoint, &name("block_sparse_moe"), moe);
        Ok(Self {
            input_norm: norm("input_layernorm")?,
            mixer: match kind {
                LayerKind::Mamba2 => Mixer::Mamba2(Box::new(Mamba2::load(checkpoint, &name("mamba"), config.mamba)?)),
                LayerKind::Attention => {
                    Mixer::Attention(Attention::load(checkpoint, &name("self_attn"), config.attention)?)
                }
            },
            mlp_norm: norm("post_attention_layernorm")?,
            experts: config.moe.map(experts).transpose()?,
            shared: GatedMlp::load(checkpoint, &name("shared_mlp"), config.hidden, config.shared_width)?,
        })
    }
}

impl Model for Granite {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn place(&self) -> &Place {
        self.embedding.place()
    }

    fn new_cache(&self) -> Result<Cache> {
        let entry = |layer: &Layer| {
            Ok(match &layer.mixer {
                Mixer::Mamba2(mamba) => LayerCache::Mamba2(mamba.new_cache()?),
                Mixer::Attention(attention) => LayerCache::Attention(attention.new_cache()?),
            })
        };
        Ok(Cache::new(self.layers.iter().map(entry).collect::<Result<_>>()?))
    }

    fn forward(&self, tokens: &[u32], cache: &mut Cache, step: &Step) -> Result<Tensor> {
        let positions = match self.info.attention_layers {
            0 => None,
            _ => Some(Positions::new(cache.tokens, tokens.len(), self.rotary, self.embedding.place())?),
        };
        let mut hidden = (self.embedding.forward(tokens)? * self.embedding_multiplier)?;
        for (layer, cache) in self.layers.iter().zip(&mut cache.layers) {
            let normed = layer.input_norm.forward(&hidden)?;
            let mixed = match (&layer.mixer, &positions) {
                (Mixer::Mamba2(mamba), _) => mamba.forward(&normed, cache.mamba2()?, step)?,
                (Mixer::Attention(attention), Some(positions)) => {
                    attention.forward(&normed, positions, cache.attention()?)?
                }
                (Mixer::Attention(_), None) => unreachable!("positions are made where there are attention layers"),
            };
            hidden = (hidden + (mixed * self.residual_multiplier)?)?;
            let normed = layer.mlp_norm.forward(&hidden)?;
            let mut mixed = layer.shared.forward(&normed)?;
            if let Some(experts) = &layer.experts {
                mixed = (mixed + experts.forward(&normed)?)?;
            }
            hidden = (hidden + (mixed * self.residual_multiplier)?)?;
        }
        cache.tokens += tokens.len();
        self.norm.forward(&hidden)
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        // Scaled before the product: `hidden` channels are fewer than logits.
        self.head.forward(&(hidden / self.logits_scaling)?)
    }
}
