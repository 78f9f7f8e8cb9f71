//! Every family refuses what it does not serve, by the field's name, what was expected and what came. Nothing is ignored.

mod common;

use candle_core::Device;
use common::golden_with;
use serde_json::{Value, json};
use ssm_engine::model;

/// Loads a golden checkpoint with one field changed and expects an error that names the field and the value.
fn assert_refused(golden: &str, field: &str, value: &Value) {
    let folder = golden_with(golden, &json!({ field: value }));
    let error = model::load(folder.path(), &Device::Cpu, None, |_, _| ()).map(|_| ()).expect_err(field).to_string();
    // A scheme of scaling is named by the field inside of its object.
    let (named, got) = match value.as_object().and_then(|object| object.iter().next()) {
        Some((inner, value)) => (format!("`{field}.{inner}`"), value),
        None => (format!("`{field}`"), value),
    };
    let got = if got.is_null() { "nothing".to_owned() } else { got.to_string() };
    for part in ["config.json", &named, "expected", &got] {
        assert!(error.contains(part), "{golden}, {field} = {value}: {error:?} does not say {part}");
    }
}

fn assert_all_refused(golden: &str, fields: &[(&str, Vec<Value>)]) {
    model::load(golden_with(golden, &json!({})).path(), &Device::Cpu, None, |_, _| ())
        .expect("the checkpoint is sound");
    for (field, values) in fields {
        for value in values {
            assert_refused(golden, field, value);
        }
    }
}

#[test]
fn falcon_h1() {
    assert_all_refused(
        "falcon-h1-gated",
        &[
            ("hidden_size", vec![json!(null), json!(0), json!("48")]),
            ("vocab_size", vec![json!(null), json!(0)]),
            ("num_hidden_layers", vec![json!(null), json!(0), json!(1_000_000)]),
            ("hidden_act", vec![json!("gelu"), json!("relu2")]),
            ("rms_norm_eps", vec![json!(0.0), json!("small")]),
            ("num_attention_heads", vec![json!(0), json!(10)]),
            ("num_key_value_heads", vec![json!(0), json!(3)]),
            ("head_dim", vec![json!(0), json!(9)]),
            ("attention_bias", vec![json!(1)]),
            ("rope_theta", vec![json!(0.0), json!("big")]),
            ("rope_scaling", vec![json!({ "rope_type": "yarn" }), json!({ "type": "linear" })]),
            ("rope_parameters", vec![json!({ "rope_type": "llama3" }), json!({ "rope_theta": -1.0 })]),
            ("mamba_d_ssm", vec![json!(0), json!("auto")]),
            ("mamba_n_heads", vec![json!(0), json!(3), json!(16)]),
            ("mamba_d_head", vec![json!(0), json!("half")]),
            ("mamba_n_groups", vec![json!(0), json!(3)]),
            ("mamba_d_state", vec![json!(0)]),
            ("mamba_d_conv", vec![json!(0), json!(1000)]),
            ("mamba_rms_norm", vec![json!("yes")]),
            ("mamba_norm_before_gate", vec![json!(0)]),
            ("time_step_limit", vec![json!([1.0, 0.5]), json!([0.1])]),
            ("ssm_multipliers", vec![json!([1.0, 1.0]), json!(2.0), json!([1.0, 1.0, 1.0, 1.0, "x"])]),
            ("mlp_multipliers", vec![json!([1.0]), json!([1.0, null])]),
            ("ssm_in_multiplier", vec![json!("x")]),
            ("ssm_out_multiplier", vec![json!([])]),
            ("attention_in_multiplier", vec![json!("x")]),
            ("attention_out_multiplier", vec![json!("x")]),
            ("key_multiplier", vec![json!("x")]),
            ("embedding_multiplier", vec![json!("x")]),
            ("lm_head_multiplier", vec![json!("x")]),
            ("intermediate_size", vec![json!(0)]),
            ("mlp_bias", vec![json!("no")]),
            ("projectors_bias", vec![json!(2)]),
            ("mamba_proj_bias", vec![json!("no")]),
            ("mamba_conv_bias", vec![json!("no")]),
            ("tie_word_embeddings", vec![json!(1)]),
            ("eos_token_id", vec![json!(-1)]),
        ],
    );
}

#[test]
fn nemotron_h() {
    assert_all_refused(
        "nemotron-h-pattern",
        &[
            ("hidden_size", vec![json!(null), json!(0)]),
            ("vocab_size", vec![json!(null), json!(0)]),
            ("num_hidden_layers", vec![json!(0), json!("five")]),
            ("hybrid_override_pattern", vec![json!(null), json!(""), json!("ME*M"), json!("ME*MX"), json!(["mamba"])]),
            (
                "layers_block_type",
                vec![json!(["mamba"]), json!(["mamba", "moe", "mlp", "attention", "rwkv"]), json!("M")],
            ),
            ("layer_types", vec![json!(["mamba"]), json!([1, 2, 3, 4, 5])]),
            ("mlp_hidden_act", vec![json!("silu"), json!("gelu")]),
            ("mamba_hidden_act", vec![json!("gelu")]),
            ("layer_norm_epsilon", vec![json!(0.0)]),
            ("tie_word_embeddings", vec![json!(true), json!("no")]),
            ("attention_bias", vec![json!(true)]),
            ("sliding_window", vec![json!(4096)]),
            ("num_attention_heads", vec![json!(0)]),
            ("num_key_value_heads", vec![json!(0), json!(3)]),
            ("head_dim", vec![json!(0)]),
            ("attention_head_dim", vec![json!(0)]),
            ("mamba_num_heads", vec![json!(0)]),
            ("mamba_head_dim", vec![json!(0), json!("auto")]),
            ("n_groups", vec![json!(0), json!(3)]),
            ("ssm_state_size", vec![json!(0)]),
            ("conv_kernel", vec![json!(0), json!(65)]),
            ("use_bias", vec![json!(1)]),
            ("use_conv_bias", vec![json!(1)]),
            ("time_step_limit", vec![json!([1.0, 0.5])]),
            ("intermediate_size", vec![json!(0), json!([56, 56])]),
            ("mlp_bias", vec![json!("no")]),
            ("n_routed_experts", vec![json!(0)]),
            ("n_shared_experts", vec![json!(0), json!(2)]),
            ("n_group", vec![json!(0), json!(4), json!(6)]),
            ("topk_group", vec![json!(0), json!(2)]),
            ("num_experts_per_tok", vec![json!(0), json!(7)]),
            ("norm_topk_prob", vec![json!(1)]),
            ("routed_scaling_factor", vec![json!("x")]),
            ("moe_intermediate_size", vec![json!(0)]),
            ("moe_shared_expert_intermediate_size", vec![json!(0)]),
            ("moe_latent_size", vec![json!(0)]),
            ("eos_token_id", vec![json!("end")]),
        ],
    );
    // Experts that a token can go to are those of its groups.
    assert_all_refused(
        "nemotron-h-grouped",
        &[("num_experts_per_tok", vec![json!(7)]), ("topk_group", vec![json!(5)])],
    );
}

#[test]
fn plamo2() {
    assert_all_refused(
        "plamo2-windowed",
        &[
            ("hidden_size", vec![json!(null), json!(0)]),
            ("vocab_size", vec![json!(null), json!(0)]),
            ("num_hidden_layers", vec![json!(null), json!(0)]),
            ("linear_type", vec![json!("fp8"), json!("fp8-retain")]),
            ("rms_norm_eps", vec![json!(0.0)]),
            ("hidden_size_per_head", vec![json!(0), json!(15)]),
            ("num_attention_heads", vec![json!(0)]),
            ("num_key_value_heads", vec![json!(0), json!(3)]),
            ("attention_window_size", vec![json!(0), json!("all")]),
            ("full_attention_idx", vec![json!([4]), json!([-1]), json!(3)]),
            ("rope_theta", vec![json!(0.0)]),
            ("rope_scaling", vec![json!({ "type": "linear" })]),
            ("mamba_enabled", vec![json!("yes")]),
            ("mamba_step", vec![json!(0), json!(1)]),
            ("mamba_num_heads", vec![json!(0)]),
            ("mamba_d_state", vec![json!(0)]),
            ("mamba_d_conv", vec![json!(0), json!(65)]),
            ("intermediate_size", vec![json!(0)]),
            ("tie_word_embeddings", vec![json!(1)]),
            ("eos_token_id", vec![json!(1.5)]),
        ],
    );
    // The class name of the first PLaMo, which is another model.
    assert_all_refused("plamo2-last", &[("model_type", vec![json!("plamo"), json!(null)])]);
}

#[test]
fn mamba2() {
    assert_all_refused(
        "mamba2-grouped",
        &[
            ("hidden_size", vec![json!(null), json!(0)]),
            ("vocab_size", vec![json!(null), json!(0)]),
            ("num_hidden_layers", vec![json!(null), json!(0)]),
            ("hidden_act", vec![json!("gelu")]),
            ("layer_norm_epsilon", vec![json!(0.0)]),
            ("num_heads", vec![json!(0), json!(4)]),
            ("head_dim", vec![json!(0)]),
            ("n_groups", vec![json!(0), json!(4)]),
            ("state_size", vec![json!(0)]),
            ("expand", vec![json!(0), json!(1.5)]),
            ("conv_kernel", vec![json!(0), json!(65)]),
            ("use_bias", vec![json!(1)]),
            ("use_conv_bias", vec![json!(1)]),
            ("time_step_limit", vec![json!([1.0, 0.5])]),
            ("tie_word_embeddings", vec![json!(1)]),
            ("eos_token_id", vec![json!("end")]),
        ],
    );
}

#[test]
fn bamba() {
    assert_all_refused(
        "bamba-biased",
        &[
            ("hidden_size", vec![json!(null), json!(0)]),
            ("vocab_size", vec![json!(null), json!(0)]),
            ("num_hidden_layers", vec![json!(null), json!(0)]),
            ("hidden_act", vec![json!("gelu")]),
            ("rms_norm_eps", vec![json!(0.0)]),
            ("attn_layer_indices", vec![json!([3]), json!(1)]),
            ("attention_bias", vec![json!("no")]),
            ("num_attention_heads", vec![json!(0)]),
            ("num_key_value_heads", vec![json!(0), json!(3)]),
            ("head_dim", vec![json!(0)]),
            ("attn_rotary_emb", vec![json!(12)]),
            ("rope_theta", vec![json!(0.0)]),
            (
                "rope_parameters",
                vec![
                    json!({ "rope_type": "yarn" }),
                    json!({ "partial_rotary_factor": 0.25 }),
                    json!({ "partial_rotary_factor": 2.0 }),
                ],
            ),
            ("rope_scaling", vec![json!({ "type": "linear" })]),
            ("mamba_expand", vec![json!(0)]),
            ("mamba_n_heads", vec![json!(0), json!(7)]),
            ("mamba_n_groups", vec![json!(0), json!(3)]),
            ("mamba_d_conv", vec![json!(0)]),
            ("mamba_proj_bias", vec![json!("no")]),
            ("mlp_bias", vec![json!("no")]),
            ("intermediate_size", vec![json!(0)]),
            ("time_step_limit", vec![json!([1.0, 0.5])]),
            ("tie_word_embeddings", vec![json!(1)]),
        ],
    );
}
