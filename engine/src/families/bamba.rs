//! Bamba: `BambaForCausalLM`.
//!
//! Mamba2 layers with attention at a few places, each followed by a gated feed-forward layer. The rotary embedding turns half of
//! a head's channels. Semantics and defaults are those of `transformers`' own implementation.

use super::fields;
use super::stack::{Block, Frame, Part, Stack};
use crate::checkpoint::Checkpoint;
use crate::config::{Config, POSITIVE};
use crate::error::Result;
use crate::layers::{Attention, AttentionConfig, GatedNorm, Mamba2, Mamba2Config, Mlp, RmsNorm, Rotary};
use crate::model::{Family, Model};

/// The row of the table.
pub const FAMILY: Family = Family { architecture: "BambaForCausalLM", load };

fn load(config: &Config, checkpoint: &Checkpoint) -> Result<Box<dyn Model>> {
    Ok(Box::new(BambaConfig::read(config)?.load(checkpoint)?))
}

/// The fields of config.json that decoding depends on.
#[derive(Debug)]
struct BambaConfig {
    vocabulary: usize,
    hidden: usize,
    layers: usize,
    /// Layers with attention in place of Mamba2.
    attention_layers: Vec<usize>,
    attention: AttentionConfig,
    rotary: Rotary,
    mamba: Mamba2Config,
    mlp_width: usize,
    mlp_bias: bool,
    norm_eps: f64,
    tied: bool,
    end_tokens: Vec<u32>,
}

impl BambaConfig {
    fn read(config: &Config) -> Result<Self> {
        let hidden = config.required_size("hidden_size", POSITIVE)?;
        config.word("hidden_act", "silu", &["silu"])?;
        let norm_eps = config.positive_number("rms_norm_eps", 1e-5)?;
        let layers = fields::layer_count(config)?;
        let bias = config.flag("attention_bias", false)?;
        let attention = AttentionConfig { bias, ..fields::attention(config, hidden, Some(8))? };
        Ok(Self {
            vocabulary: config.required_size("vocab_size", POSITIVE)?,
            hidden,
            layers,
            attention_layers: fields::layer_indices(config, "attn_layer_indices", layers)?,
            attention,
            rotary: read_rotary(config, attention.head_dim)?,
            mamba: read_mamba(config, hidden, norm_eps)?,
            mlp_width: config.size("intermediate_size", 14_336, POSITIVE)?,
            mlp_bias: config.flag("mlp_bias", false)?,
            norm_eps,
            tied: config.flag("tie_word_embeddings", false)?,
            end_tokens: config.token_ids("eos_token_id")?,
        })
    }
}

/// Half of each head's channels turn, unless the newer form of the field says otherwise.
fn read_rotary(config: &Config, head_dim: usize) -> Result<Rotary> {
    let field = "rope_parameters.partial_rotary_factor";
    let factor = config.positive_number(field, 0.5)?;
    let channels = (head_dim as f64 * factor) as usize;
    if factor > 1.0 || channels < 2 || !channels.is_multiple_of(2) {
        let expected = format!("a share up to 1 that is an even number of head_dim = {head_dim} channels");
        return Err(config.error(field, expected, Some(&factor.into())));
    }
    // An older form, which says the same in channels.
    config.size("attn_rotary_emb", channels, channels..=channels)?;
    Ok(Rotary { channels, ..fields::rotary(config, "head_dim", head_dim)? })
}

fn read_mamba(config: &Config, hidden: usize, norm_eps: f64) -> Result<Mamba2Config> {
    let channels = config.size("mamba_expand", 2, POSITIVE)? * hidden;
    let ssm = fields::ssm_dims(config, channels, "mamba_expand * hidden_size")?;
    // Over all channels, whatever the groups; published models have one.
    let norm = Some(GatedNorm { eps: norm_eps, groups: 1, before_gate: false });
    Ok(Mamba2Config { norm, ..fields::mamba2(config, hidden, ssm)? })
}

impl BambaConfig {
    fn load(self, checkpoint: &Checkpoint) -> Result<Stack> {
        let mut blocks = Vec::with_capacity(2 * self.layers);
        for index in 0..self.layers {
            blocks.extend(self.load_layer(checkpoint, &format!("model.layers.{index}"), index)?);
        }
        let norm = RmsNorm::load(checkpoint, "model.final_layernorm", self.hidden, self.norm_eps)?;
        let frame = Frame {
            architecture: FAMILY.architecture,
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

    fn load_layer(&self, checkpoint: &Checkpoint, name: &str, index: usize) -> Result<[Block; 2]> {
        let part = |part: &str| format!("{name}.{part}");
        let norm = |norm: &str| RmsNorm::load(checkpoint, &part(norm), self.hidden, self.norm_eps);
        let mixer = if self.attention_layers.contains(&index) {
            Part::Attention(Box::new(Attention::load(checkpoint, &part("self_attn"), self.attention)?))
        } else {
            Part::Mamba2(Box::new(Mamba2::load(checkpoint, &part("mamba"), self.mamba)?))
        };
        let feed_forward = part("feed_forward");
        let mlp = Mlp::load_gated(checkpoint, &feed_forward, self.hidden, self.mlp_width, self.mlp_bias, 1.0)?;
        Ok([
            Block::new(norm("input_layernorm")?, vec![(mixer, 1.0)]),
            Block::new(norm("pre_ff_layernorm")?, vec![(Part::Mlp(mlp), 1.0)]),
        ])
    }
}
