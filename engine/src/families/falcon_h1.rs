//! Falcon-H1: `FalconH1ForCausalLM`.
//!
//! In every layer attention and Mamba2 stand side by side on the same input, followed by a gated feed-forward layer.
//! Multipliers from training (muP) stand at every projection. Semantics and defaults are those of `transformers`' own
//! implementation.

use super::fields;
use super::stack::{Block, Frame, Part, Stack};
use crate::checkpoint::{Checkpoint, Format};
use crate::config::{Config, POSITIVE};
use crate::error::{Error, Result};
use crate::layers::{Attention, AttentionConfig, GatedNorm, Mamba2, Mamba2Config, Mlp, RmsNorm, Rotary, Selection};
use crate::model::{Family, Model};

/// The row of the table.
pub const FAMILY: Family = Family { architecture: "FalconH1ForCausalLM", load };

fn load(config: &Config, checkpoint: &Checkpoint) -> Result<Box<dyn Model>> {
    if checkpoint.format() == Format::Mlx {
        let problem = "mlx-lm folds multipliers of this family into the weights, which is not served; take the checkpoint of transformers";
        return Err(Error::malformed(config.path(), problem));
    }
    Ok(Box::new(FalconConfig::read(config)?.load(checkpoint)?))
}

/// The fields of config.json that decoding depends on.
#[derive(Debug)]
struct FalconConfig {
    vocabulary: usize,
    hidden: usize,
    layers: usize,
    attention: AttentionConfig,
    attention_multiplier: f64,
    rotary: Rotary,
    mamba: Mamba2Config,
    mamba_multiplier: f64,
    mlp: MlpConfig,
    norm_eps: f64,
    embedding_multiplier: f64,
    logits_multiplier: f64,
    tied: bool,
    end_tokens: Vec<u32>,
}

/// Sizes and multipliers of the feed-forward layers.
#[derive(Clone, Copy, Debug)]
struct MlpConfig {
    width: usize,
    bias: bool,
    gate_multiplier: f64,
    down_multiplier: f64,
}

impl FalconConfig {
    fn read(config: &Config) -> Result<Self> {
        let hidden = config.required_size("hidden_size", POSITIVE)?;
        config.word("hidden_act", "silu", &["silu"])?;
        let norm_eps = config.positive_number("rms_norm_eps", 1e-5)?;
        let attention = AttentionConfig {
            bias: config.flag("attention_bias", false)?,
            input_multiplier: config.number("attention_in_multiplier", 1.0)?,
            key_multiplier: config.number("key_multiplier", 1.0)?,
            ..fields::attention(config, hidden, Some(8))?
        };
        Ok(Self {
            vocabulary: config.required_size("vocab_size", POSITIVE)?,
            hidden,
            layers: fields::layer_count(config)?,
            attention,
            attention_multiplier: config.number("attention_out_multiplier", 1.0)?,
            rotary: fields::rotary(config, "head_dim", attention.head_dim)?,
            mamba: read_mamba(config, hidden, norm_eps)?,
            mamba_multiplier: config.number("ssm_out_multiplier", 1.0)?,
            mlp: read_mlp(config)?,
            norm_eps,
            embedding_multiplier: config.number("embedding_multiplier", 1.0)?,
            logits_multiplier: config.number("lm_head_multiplier", 1.0)?,
            tied: config.flag("tie_word_embeddings", false)?,
            end_tokens: config.token_ids("eos_token_id")?,
        })
    }
}

fn read_mamba(config: &Config, hidden: usize, norm_eps: f64) -> Result<Mamba2Config> {
    // An explicit null means that the channels follow from `mamba_expand`; a field that is absent has a default.
    let (channels, source) = match config.size_if_set("mamba_d_ssm", POSITIVE)? {
        Some(channels) => (channels, "mamba_d_ssm"),
        None if config.is_null("mamba_d_ssm") => {
            (config.size("mamba_expand", 2, POSITIVE)? * hidden, "mamba_expand * hidden_size")
        }
        None => (1024, "mamba_d_ssm"),
    };
    let ssm = fields::ssm_dims(config, channels, source)?;
    let norm =
        GatedNorm { eps: norm_eps, groups: ssm.groups, before_gate: config.flag("mamba_norm_before_gate", true)? };
    Ok(Mamba2Config {
        selection: Selection::WithX {
            input_multiplier: config.number("ssm_in_multiplier", 1.0)?,
            multipliers: config.numbers("ssm_multipliers", [1.0; 5])?,
        },
        out_bias: config.flag("projectors_bias", false)?,
        norm: config.flag("mamba_rms_norm", false)?.then_some(norm),
        ..fields::mamba2(config, hidden, ssm)?
    })
}

fn read_mlp(config: &Config) -> Result<MlpConfig> {
    let [gate_multiplier, down_multiplier] = config.numbers("mlp_multipliers", [1.0; 2])?;
    let (width, bias) = (config.size("intermediate_size", 14_336, POSITIVE)?, config.flag("mlp_bias", false)?);
    Ok(MlpConfig { width, bias, gate_multiplier, down_multiplier })
}

impl FalconConfig {
    fn load(self, checkpoint: &Checkpoint) -> Result<Stack> {
        let mut blocks = Vec::with_capacity(2 * self.layers);
        for index in 0..self.layers {
            blocks.extend(self.load_layer(checkpoint, &format!("model.layers.{index}"))?);
        }
        let norm = RmsNorm::load(checkpoint, "model.final_layernorm", self.hidden, self.norm_eps)?;
        let frame = Frame {
            architecture: FAMILY.architecture,
            vocabulary: self.vocabulary,
            hidden: self.hidden,
            ssm: self.mamba.ssm,
            rotary: Some(self.rotary),
            embedding_multiplier: self.embedding_multiplier,
            logits_multiplier: self.logits_multiplier,
            end_tokens: self.end_tokens,
        };
        Stack::load(checkpoint, frame, "model.embed_tokens", blocks, norm, self.tied)
    }

    fn load_layer(&self, checkpoint: &Checkpoint, name: &str) -> Result<[Block; 2]> {
        let part = |part: &str| format!("{name}.{part}");
        let norm = |norm: &str| RmsNorm::load(checkpoint, &part(norm), self.hidden, self.norm_eps);
        let mamba = Part::Mamba2(Box::new(Mamba2::load(checkpoint, &part("mamba"), self.mamba)?));
        let attention = Part::Attention(Box::new(Attention::load(checkpoint, &part("self_attn"), self.attention)?));
        let MlpConfig { width, bias, gate_multiplier, down_multiplier } = self.mlp;
        let mlp = Mlp::load_gated(checkpoint, &part("feed_forward"), self.hidden, width, bias, gate_multiplier)?;
        Ok([
            Block::new(
                norm("input_layernorm")?,
                vec![(mamba, self.mamba_multiplier), (attention, self.attention_multiplier)],
            ),
            Block::new(norm("pre_ff_layernorm")?, vec![(Part::Mlp(mlp), down_multiplier)]),
        ])
    }
}
