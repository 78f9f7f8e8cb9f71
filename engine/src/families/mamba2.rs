//! Mamba2 without anything else, as in Codestral-Mamba: `Mamba2ForCausalLM`.
//!
//! Semantics and defaults are those of `transformers`' own implementation, but for the mean of the gated norm where there are
//! groups: it is taken over each group, as in the code that the models were trained with and in `transformers`' fused path.

use super::fields;
use super::stack::{Block, Frame, Part, Stack};
use crate::checkpoint::Checkpoint;
use crate::config::{Config, POSITIVE};
use crate::error::Result;
use crate::layers::{Mamba2, Mamba2Config, RmsNorm};
use crate::model::{Family, Model};
use crate::ssm::SsmDims;

/// The row of the table.
pub const FAMILY: Family = Family { architecture: "Mamba2ForCausalLM", load };

fn load(config: &Config, checkpoint: &Checkpoint) -> Result<Box<dyn Model>> {
    Ok(Box::new(PureConfig::read(config)?.load(checkpoint)?))
}

/// The fields of config.json that decoding depends on.
#[derive(Debug)]
struct PureConfig {
    vocabulary: usize,
    hidden: usize,
    layers: usize,
    mamba: Mamba2Config,
    norm_eps: f64,
    tied: bool,
    end_tokens: Vec<u32>,
}

impl PureConfig {
    fn read(config: &Config) -> Result<Self> {
        let hidden = config.required_size("hidden_size", POSITIVE)?;
        let norm_eps = config.positive_number("layer_norm_epsilon", 1e-5)?;
        Ok(Self {
            vocabulary: config.required_size("vocab_size", POSITIVE)?,
            hidden,
            layers: fields::layer_count(config)?,
            mamba: read_mamba(config, hidden, norm_eps)?,
            norm_eps,
            tied: config.flag("tie_word_embeddings", false)?,
            end_tokens: config.token_ids("eos_token_id")?,
        })
    }
}

fn read_mamba(config: &Config, hidden: usize, norm_eps: f64) -> Result<Mamba2Config> {
    config.word("hidden_act", "silu", &["silu"])?;
    let ssm = SsmDims {
        heads: config.size("num_heads", 128, POSITIVE)?,
        head_dim: config.size("head_dim", 64, POSITIVE)?,
        groups: config.size("n_groups", 8, POSITIVE)?,
        d_state: config.size("state_size", 128, POSITIVE)?,
    };
    fields::divides(config, "n_groups", ssm.groups, "num_heads", ssm.heads)?;
    let channels = config.size("expand", 2, POSITIVE)? * hidden;
    if ssm.channels() != channels {
        let expected = format!("expand * hidden_size / head_dim, which is {channels} / {}", ssm.head_dim);
        return Err(config.error("num_heads", expected, Some(&ssm.heads.into())));
    }
    fields::mamba2_normed(config, hidden, ssm, norm_eps)
}

impl PureConfig {
    fn load(self, checkpoint: &Checkpoint) -> Result<Stack> {
        let norm = |name: &str| RmsNorm::load(checkpoint, name, self.hidden, self.norm_eps);
        let block = |index: usize| {
            let name = format!("backbone.layers.{index}");
            let mamba = Mamba2::load(checkpoint, &format!("{name}.mixer"), self.mamba)?;
            Ok(Block::new(norm(&format!("{name}.norm"))?, vec![(Part::Mamba2(Box::new(mamba)), 1.0)]))
        };
        let blocks = (0..self.layers).map(block).collect::<Result<_>>()?;
        let norm = norm("backbone.norm_f")?;
        let frame = Frame {
            architecture: FAMILY.architecture,
            vocabulary: self.vocabulary,
            hidden: self.hidden,
            ssm: self.mamba.ssm,
            rotary: None,
            embedding_multiplier: 1.0,
            logits_multiplier: 1.0,
            end_tokens: self.end_tokens,
        };
        Stack::load(checkpoint, frame, "backbone.embeddings", blocks, norm, self.tied)
    }
}
