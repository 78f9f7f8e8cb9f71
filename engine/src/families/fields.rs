//! Fields of config.json that several families share.

use std::ops::RangeInclusive;

use serde_json::Value;

use crate::config::{Config, POSITIVE};
use crate::error::Result;
use crate::layers::{AttentionConfig, GatedNorm, Mamba2Config, Rotary, Selection};
use crate::ssm::SsmDims;

/// Most layers that a configuration may state.
const LAYERS_MAX: usize = 4096;

/// Taps of a convolution.
pub(super) const D_CONV: RangeInclusive<usize> = 1..=64;

/// `num_hidden_layers`.
pub(super) fn layer_count(config: &Config) -> Result<usize> {
    config.required_size("num_hidden_layers", 1..=LAYERS_MAX)
}

/// A list of layers' kinds, of which `kind` knows the words.
///
/// # Errors
///
/// The field is no list of known words, or of another length than `count`, where that is given.
pub(super) fn layer_kinds<T>(
    config: &Config,
    field: &str,
    value: &Value,
    count: Option<usize>,
    words: &str,
    kind: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>> {
    let kind = |value: &Value| value.as_str().and_then(&kind);
    let kinds: Option<Vec<T>> = value.as_array().and_then(|list| list.iter().map(kind).collect());
    let fits = |kinds: &Vec<T>| count.map_or((1..=LAYERS_MAX).contains(&kinds.len()), |count| kinds.len() == count);
    let expected = || match count {
        Some(count) => format!("num_hidden_layers = {count} times {words}"),
        None => format!("1 to {LAYERS_MAX} times {words}"),
    };
    kinds.filter(fits).ok_or_else(|| config.error(field, expected(), Some(value)))
}

/// A list of layers by number, each below `count`; empty where the field is absent.
pub(super) fn layer_indices(config: &Config, field: &str, count: usize) -> Result<Vec<usize>> {
    let Some(value) = config.get(field) else { return Ok(Vec::new()) };
    let index = |value: &Value| value.as_u64().and_then(|i| usize::try_from(i).ok()).filter(|i| *i < count);
    let indices: Option<Vec<usize>> = value.as_array().and_then(|list| list.iter().map(index).collect());
    let expected = || format!("a list of layers below num_hidden_layers = {count}");
    indices.ok_or_else(|| config.error(field, expected(), Some(value)))
}

/// Query heads and key heads.
pub(super) struct Heads {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
}

/// `num_attention_heads` and `num_key_value_heads`. Where the latter is absent there are `kv_heads` of them, and where it is
/// null as many as query heads.
pub(super) fn heads(config: &Config, kv_heads: Option<usize>) -> Result<Heads> {
    let heads = config.size("num_attention_heads", 32, POSITIVE)?;
    let kv_heads = kv_heads.filter(|_| !config.is_null("num_key_value_heads")).unwrap_or(heads);
    let kv_heads = config.size("num_key_value_heads", kv_heads, POSITIVE)?;
    divides(config, "num_key_value_heads", kv_heads, "num_attention_heads", heads)?;
    Ok(Heads { heads, kv_heads })
}

/// The usual form of attention, with [`heads`] and `head_dim`, which may be absent.
pub(super) fn attention(config: &Config, hidden: usize, kv_heads: Option<usize>) -> Result<AttentionConfig> {
    let Heads { heads, kv_heads } = self::heads(config, kv_heads)?;
    let head_dim = match config.size_if_set("head_dim", POSITIVE)? {
        Some(head_dim) => head_dim,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let expected = format!("a divisor of hidden_size = {hidden}, since head_dim is not set");
            return Err(config.error("num_attention_heads", expected, Some(&heads.into())));
        }
    };
    Ok(AttentionConfig::new(hidden, heads, kv_heads, head_dim))
}

/// The rotary embedding of all channels of heads; `field` says how many.
pub(super) fn rotary(config: &Config, field: &str, head_dim: usize) -> Result<Rotary> {
    // The scaling schemes change the angles; `rope_parameters` is the newer name of `rope_scaling`.
    for field in ["rope_parameters.rope_type", "rope_scaling.rope_type", "rope_scaling.type"] {
        config.word(field, "default", &["default"])?;
    }
    if !head_dim.is_multiple_of(2) {
        let expected = "an even number of channels per head, since there is a rotary embedding";
        return Err(config.error(field, expected, Some(&head_dim.into())));
    }
    let theta = config.positive_number("rope_theta", 10_000.0)?;
    Ok(Rotary { theta: config.positive_number("rope_parameters.rope_theta", theta)?, channels: head_dim })
}

/// Sizes of the recurrence where the channels of all heads together are given: `mamba_n_heads`, `mamba_d_head`,
/// `mamba_n_groups` and `mamba_d_state`. `source` says where the channels come from.
pub(super) fn ssm_dims(config: &Config, channels: usize, source: &str) -> Result<SsmDims> {
    let heads = config.size("mamba_n_heads", 128, POSITIVE)?;
    let head_dim = match config.get("mamba_d_head").and_then(Value::as_str) {
        Some("auto") => channels / heads,
        _ => config.size("mamba_d_head", channels / heads, POSITIVE)?,
    };
    if heads * head_dim != channels {
        let expected = format!("{source} / mamba_d_head, which is {channels} / {head_dim}");
        return Err(config.error("mamba_n_heads", expected, Some(&heads.into())));
    }
    let groups = config.size("mamba_n_groups", 1, POSITIVE)?;
    divides(config, "mamba_n_groups", groups, "mamba_n_heads", heads)?;
    Ok(SsmDims { heads, head_dim, groups, d_state: config.size("mamba_d_state", 256, POSITIVE)? })
}

/// The fields of a Mamba2 layer whose names begin with `mamba_`: one flag for the biases of both projections, no multipliers, no
/// norm.
pub(super) fn mamba2(config: &Config, hidden: usize, ssm: SsmDims) -> Result<Mamba2Config> {
    let proj_bias = config.flag("mamba_proj_bias", false)?;
    Ok(Mamba2Config {
        hidden,
        ssm,
        selection: Selection::WITH_X,
        d_conv: config.size("mamba_d_conv", 4, D_CONV)?,
        conv_bias: config.flag("mamba_conv_bias", true)?,
        in_bias: proj_bias,
        out_bias: proj_bias,
        dt_limits: dt_limits(config)?,
        norm: None,
    })
}

/// The fields of a Mamba2 layer whose names have no such beginning: one flag for the biases of both projections, no multipliers, and
/// after the gate a norm for each group.
pub(super) fn mamba2_normed(config: &Config, hidden: usize, ssm: SsmDims, eps: f64) -> Result<Mamba2Config> {
    let bias = config.flag("use_bias", false)?;
    Ok(Mamba2Config {
        hidden,
        ssm,
        selection: Selection::WITH_X,
        d_conv: config.size("conv_kernel", 4, D_CONV)?,
        conv_bias: config.flag("use_conv_bias", true)?,
        in_bias: bias,
        out_bias: bias,
        dt_limits: dt_limits(config)?,
        norm: Some(GatedNorm { eps, groups: ssm.groups, before_gate: false }),
    })
}

/// `time_step_limit`, by default none. `time_step_min` and `time_step_max` bound the initial values of a training.
pub(super) fn dt_limits(config: &Config) -> Result<(f32, f32)> {
    let (low, high) = config.limits("time_step_limit", (0.0, f64::INFINITY))?;
    Ok((low as f32, high as f32))
}

/// Refuses a size that does not divide another one.
pub(super) fn divides(config: &Config, field: &str, size: usize, of: &str, whole: usize) -> Result<()> {
    if whole.is_multiple_of(size) {
        return Ok(());
    }
    Err(config.error(field, format!("a divisor of {of} = {whole}"), Some(&size.into())))
}

/// Refuses a flag of another value than the one that is served, which is also its default.
pub(super) fn only(config: &Config, field: &str, served: bool) -> Result<()> {
    if config.flag(field, served)? == served {
        return Ok(());
    }
    Err(config.error(field, format!("{served}"), config.get(field)))
}

/// Refuses a field that is set.
pub(super) fn absent(config: &Config, field: &str) -> Result<()> {
    match config.get(field) {
        None => Ok(()),
        value => Err(config.error(field, "nothing", value)),
    }
}
