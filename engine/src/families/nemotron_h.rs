//! Nemotron-H, Nemotron-Nano-v2 and Nemotron-3: `NemotronHForCausalLM`.
//!
//! A pattern says what each layer is: Mamba2, attention without a rotary embedding, a feed-forward layer with squared ReLU, or
//! a mixture of such with a shared one. Semantics and defaults are those of `transformers`' own implementation, less its
//! lower limit of dt: it takes `time_step_min`, which bounds the initial values of a training, and the models' own code
//! `time_step_limit`.

use super::fields::{self, Heads};
use super::stack::{Block, Frame, Part, Stack};
use crate::checkpoint::Checkpoint;
use crate::config::{Config, POSITIVE};
use crate::error::Result;
use crate::layers::{
    Activation, Attention, AttentionConfig, Linear, Mamba2, Mamba2Config, MixtureOfExperts, Mlp, RmsNorm, Router,
    Scoring, SigmoidScoring,
};
use crate::model::{Family, Model};
use crate::ssm::SsmDims;

/// The row of the table.
pub const FAMILY: Family = Family { architecture: "NemotronHForCausalLM", load };

fn load(config: &Config, checkpoint: &Checkpoint) -> Result<Box<dyn Model>> {
    Ok(Box::new(NemotronConfig::read(config)?.load(checkpoint)?))
}

/// What a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerKind {
    Mamba2,
    Attention,
    Mlp,
    Experts,
}

/// The fields of config.json that decoding depends on.
#[derive(Debug)]
struct NemotronConfig {
    vocabulary: usize,
    hidden: usize,
    layers: Vec<LayerKind>,
    attention: AttentionConfig,
    mamba: Mamba2Config,
    mlp_width: usize,
    mlp_bias: bool,
    /// Where a layer is a mixture of experts.
    moe: Option<MoeConfig>,
    norm_eps: f64,
    end_tokens: Vec<u32>,
}

/// Sizes and switches of a mixture of experts.
#[derive(Clone, Copy, Debug)]
struct MoeConfig {
    experts: usize,
    per_token: usize,
    width: usize,
    shared_width: usize,
    /// Channels that the experts work on, where they are others than the model's.
    latent: Option<usize>,
    groups: usize,
    groups_kept: usize,
    normalise: bool,
    factor: f32,
}

impl NemotronConfig {
    fn read(config: &Config) -> Result<Self> {
        let hidden = config.required_size("hidden_size", POSITIVE)?;
        let layers = read_layers(config)?;
        config.word("mlp_hidden_act", "relu2", &["relu2"])?;
        fields::only(config, "tie_word_embeddings", false)?;
        let norm_eps = config.positive_number("layer_norm_epsilon", 1e-5)?;
        let has_experts = layers.contains(&LayerKind::Experts);
        Ok(Self {
            vocabulary: config.required_size("vocab_size", POSITIVE)?,
            hidden,
            layers,
            attention: read_attention(config, hidden)?,
            mamba: read_mamba(config, hidden, norm_eps)?,
            mlp_width: config.size("intermediate_size", 21_504, POSITIVE)?,
            mlp_bias: config.flag("mlp_bias", false)?,
            moe: has_experts.then(|| read_moe(config)).transpose()?,
            norm_eps,
            end_tokens: config.token_ids("eos_token_id")?,
        })
    }
}

fn read_layers(config: &Config) -> Result<Vec<LayerKind>> {
    let count = config.size_if_set("num_hidden_layers", POSITIVE)?;
    // The newer list, under its two names, goes before the pattern, as in transformers.
    for field in ["layers_block_type", "layer_types"] {
        let Some(value) = config.get(field) else { continue };
        let words = "\"mamba\", \"attention\", \"mlp\" or \"moe\"";
        return fields::layer_kinds(config, field, value, count, words, |word| match word {
            "mamba" | "linear_attention" => Some(LayerKind::Mamba2),
            "attention" | "full_attention" => Some(LayerKind::Attention),
            "mlp" => Some(LayerKind::Mlp),
            "moe" => Some(LayerKind::Experts),
            _ => None,
        });
    }
    let value = config.get("hybrid_override_pattern");
    let kind = |letter| match letter {
        'M' => Some(LayerKind::Mamba2),
        '*' => Some(LayerKind::Attention),
        '-' => Some(LayerKind::Mlp),
        'E' => Some(LayerKind::Experts),
        _ => None,
    };
    let layers: Option<Vec<_>> = value.and_then(|value| value.as_str()?.chars().map(kind).collect());
    let fits = |layers: &Vec<_>| !layers.is_empty() && count.is_none_or(|count| layers.len() == count);
    layers.filter(fits).ok_or_else(|| {
        let count = count.map(|count| format!("num_hidden_layers = {count} of ")).unwrap_or_default();
        config.error("hybrid_override_pattern", format!("{count}the letters M, *, - and E"), value)
    })
}

fn read_attention(config: &Config, hidden: usize) -> Result<AttentionConfig> {
    fields::only(config, "attention_bias", false)?;
    fields::absent(config, "sliding_window")?;
    let Heads { heads, kv_heads } = fields::heads(config, Some(8))?;
    // `attention_head_dim` is an older name of the field.
    let head_dim = config.size("attention_head_dim", 128, POSITIVE)?;
    let head_dim = config.size("head_dim", head_dim, POSITIVE)?;
    Ok(AttentionConfig::new(hidden, heads, kv_heads, head_dim))
}

fn read_mamba(config: &Config, hidden: usize, norm_eps: f64) -> Result<Mamba2Config> {
    config.word("mamba_hidden_act", "silu", &["silu"])?;
    let ssm = SsmDims {
        heads: config.size("mamba_num_heads", 128, POSITIVE)?,
        head_dim: config.size("mamba_head_dim", 64, POSITIVE)?,
        groups: config.size("n_groups", 8, POSITIVE)?,
        d_state: config.size("ssm_state_size", 128, POSITIVE)?,
    };
    fields::divides(config, "n_groups", ssm.groups, "mamba_num_heads", ssm.heads)?;
    fields::mamba2_normed(config, hidden, ssm, norm_eps)
}

fn read_moe(config: &Config) -> Result<MoeConfig> {
    // More shared experts than one would be one of another width in every implementation.
    config.size("n_shared_experts", 1, 1..=1)?;
    let experts = config.size("n_routed_experts", 8, POSITIVE)?;
    let groups = config.size("n_group", 1, POSITIVE)?;
    // A group is judged by its two best experts.
    if groups > 1 && !(experts.is_multiple_of(groups) && experts / groups >= 2) {
        let expected = format!("a divisor of n_routed_experts = {experts} that leaves two experts to a group");
        return Err(config.error("n_group", expected, Some(&groups.into())));
    }
    let groups_kept = config.size("topk_group", 1, 1..=groups)?;
    Ok(MoeConfig {
        experts,
        per_token: config.size("num_experts_per_tok", 2, 1..=experts / groups * groups_kept)?,
        width: config.size("moe_intermediate_size", 7688, POSITIVE)?,
        shared_width: config.size("moe_shared_expert_intermediate_size", 7688, POSITIVE)?,
        latent: config.size_if_set("moe_latent_size", POSITIVE)?,
        groups,
        groups_kept,
        normalise: config.flag("norm_topk_prob", true)?,
        factor: config.number("routed_scaling_factor", 1.0)? as f32,
    })
}

impl NemotronConfig {
    fn load(self, checkpoint: &Checkpoint) -> Result<Stack> {
        let mut blocks = Vec::with_capacity(self.layers.len());
        for (index, kind) in self.layers.iter().enumerate() {
            let name = format!("backbone.layers.{index}");
            let norm = RmsNorm::load(checkpoint, &format!("{name}.norm"), self.hidden, self.norm_eps)?;
            blocks.push(Block::new(norm, self.load_mixer(checkpoint, &format!("{name}.mixer"), *kind)?));
        }
        let norm = RmsNorm::load(checkpoint, "backbone.norm_f", self.hidden, self.norm_eps)?;
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
        Stack::load(checkpoint, frame, "backbone.embeddings", blocks, norm, false)
    }

    fn load_mixer(&self, checkpoint: &Checkpoint, name: &str, kind: LayerKind) -> Result<Vec<(Part, f64)>> {
        let part = match (kind, self.moe) {
            (LayerKind::Mamba2, _) => Part::Mamba2(Box::new(Mamba2::load(checkpoint, name, self.mamba)?)),
            (LayerKind::Attention, _) => Part::Attention(Box::new(Attention::load(checkpoint, name, self.attention)?)),
            (LayerKind::Experts, Some(moe)) => {
                let shared = format!("{name}.shared_experts");
                let shared = load_mlp(checkpoint, &shared, self.hidden, moe.shared_width, self.mlp_bias)?;
                let experts = Part::Experts(self.load_experts(checkpoint, name, moe)?);
                return Ok(vec![(experts, 1.0), (Part::Mlp(shared), 1.0)]);
            }
            (LayerKind::Mlp | LayerKind::Experts, _) => {
                Part::Mlp(load_mlp(checkpoint, name, self.hidden, self.mlp_width, self.mlp_bias)?)
            }
        };
        Ok(vec![(part, 1.0)])
    }

    fn load_experts(&self, checkpoint: &Checkpoint, name: &str, moe: MoeConfig) -> Result<MixtureOfExperts> {
        let correction = checkpoint.tensor_f32(&format!("{name}.gate.e_score_correction_bias"), &[moe.experts])?;
        let scoring = Scoring::Sigmoid(SigmoidScoring {
            correction,
            groups: moe.groups,
            groups_kept: moe.groups_kept,
            normalise: moe.normalise,
            factor: moe.factor,
        });
        let logits = Linear::load_f32(checkpoint, &format!("{name}.gate"), moe.experts, self.hidden)?;
        let channels = moe.latent.unwrap_or(self.hidden);
        let expert = |e| load_mlp(checkpoint, &format!("{name}.experts.{e}"), channels, moe.width, false);
        let experts = (0..moe.experts).map(expert).collect::<Result<_>>()?;
        let mixture = MixtureOfExperts::new(Router::new(logits, moe.per_token, scoring), experts)?;
        let Some(latent) = moe.latent else { return Ok(mixture) };
        let projection =
            |part: &str, out, inputs| Linear::load(checkpoint, &format!("{name}.{part}"), out, inputs, self.mlp_bias);
        let into = projection("fc1_latent_proj", latent, self.hidden)?;
        Ok(mixture.with_latent(into, projection("fc2_latent_proj", self.hidden, latent)?))
    }
}

/// `{name}.up_proj` and `{name}.down_proj` with squared ReLU between them.
fn load_mlp(checkpoint: &Checkpoint, name: &str, hidden: usize, width: usize, bias: bool) -> Result<Mlp> {
    let up = Linear::load(checkpoint, &format!("{name}.up_proj"), width, hidden, bias)?;
    let down = Linear::load(checkpoint, &format!("{name}.down_proj"), hidden, width, bias)?;
    Ok(Mlp::new(up, Activation::SquaredRelu, down))
}
