//! Megatron's names become those of Hugging Face, each element once; what does not fit is refused by name.
//!
//! `megatron/*.txt` hold what megatron-core and transformers call the tensors of one model, with their shapes: written by
//! `tests/real/merge_formats.py` from what they save.

#[path = "megatron/backward.rs"]
mod backward;

use proptest::prelude::*;
use std::collections::BTreeMap;
use supervise_checkpoint::Dtype;
use supervise_core::checkpoint::Verdict;
use supervise_weights::hf::{HfPlan, ModelConfig, Options};
use supervise_weights::{ModelError, ModelTensor, ModelWeights, megatron};

const MODELS: [(&str, &str); 9] = [
    ("deepseek_v3", include_str!("megatron/deepseek_v3.txt")),
    ("llama", include_str!("megatron/llama.txt")),
    ("mistral", include_str!("megatron/mistral.txt")),
    ("mixtral", include_str!("megatron/mixtral.txt")),
    ("qwen2", include_str!("megatron/qwen2.txt")),
    ("qwen2_moe", include_str!("megatron/qwen2_moe.txt")),
    ("qwen3", include_str!("megatron/qwen3.txt")),
    ("qwen3_moe", include_str!("megatron/qwen3_moe.txt")),
    ("deepseek_v3_mtp", include_str!("megatron/deepseek_v3_mtp.txt")),
];

type Shapes = BTreeMap<String, Vec<u64>>;

/// A model as it is saved in several ways.
struct Golden {
    config: serde_json::Value,
    cases: BTreeMap<String, Shapes>,
    model: Shapes,
}

fn golden(text: &str) -> Golden {
    let mut out = Golden {
        config: serde_json::Value::Null,
        cases: BTreeMap::new(),
        model: Shapes::new(),
    };
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or_default();
        let mut words = rest.split(' ');
        let name = words.next().unwrap_or_default().to_owned();
        let shape = words.filter_map(|w| w.parse().ok()).collect();
        match kind {
            "config" => out.config = serde_json::from_str(rest).unwrap_or_default(),
            "model" => drop(out.model.insert(name, shape)),
            case => drop(out.cases.entry(case.to_owned()).or_default().insert(name, shape)),
        }
    }
    assert!(out.config.is_object() && !out.model.is_empty() && !out.cases.is_empty());
    out
}

fn weights(shapes: &Shapes) -> ModelWeights {
    let tensor = |(name, shape): (&String, &Vec<u64>)| ModelTensor {
        name: name.clone(),
        dtype: Dtype::F32,
        shape: shape.clone(),
        chunks: Vec::new(),
        copies: Vec::new(),
        fold: None,
    };
    ModelWeights {
        files: Vec::new(),
        tensors: shapes.iter().map(tensor).collect(),
    }
}

fn plan(shapes: &Shapes, config: &serde_json::Value) -> Result<(ModelWeights, HfPlan), ModelError> {
    let weights = weights(shapes);
    let config = ModelConfig::parse(config.to_string().as_bytes())?;
    let options = Options {
        dtype: Some(Dtype::Bf16),
        ..Options::default()
    };
    let plan = megatron::plan(&weights, &config, options)?;
    Ok((weights, plan))
}

fn names(plan: &HfPlan) -> Shapes {
    plan.model.iter().map(|t| (t.name.clone(), t.shape.clone())).collect()
}

#[test]
fn the_names_and_shapes_are_those_that_transformers_writes() {
    for (kind, text) in MODELS {
        let golden = golden(text);
        assert!(!golden.cases.is_empty());
        for (case, shapes) in &golden.cases {
            let (_, plan) = plan(shapes, &golden.config).unwrap_or_else(|e| panic!("{kind} {case}: {e}"));
            assert_eq!(names(&plan), golden.model, "{kind} {case}");
            for tensor in &plan.model {
                let precise = tensor.name.ends_with("e_score_correction_bias");
                assert_eq!(
                    tensor.dtype,
                    if precise { Dtype::F32 } else { Dtype::Bf16 },
                    "{}",
                    tensor.name
                );
            }
        }
    }
}

/// Rows of the vocabulary beyond the configuration's are told; all else is written once.
#[test]
fn each_element_is_written_once_or_named() {
    for (kind, text) in MODELS {
        let golden = golden(text);
        for (case, shapes) in &golden.cases {
            let (weights, plan) = plan(shapes, &golden.config).unwrap();
            let mut used = vec![Vec::new(); weights.tensors.len()];
            for tensor in &plan.model {
                let pieces: u64 = tensor.pieces.iter().map(|p| p.to - p.from).sum();
                assert_eq!(
                    pieces,
                    tensor.shape.iter().product::<u64>(),
                    "{kind} {case} {}",
                    tensor.name
                );
                // The second ones of a layer that predicts.
                let again = ["layers.2.embed_tokens.weight", "layers.2.shared_head.head.weight"];
                if !again.iter().any(|end| tensor.name.ends_with(end)) {
                    used_by(tensor, &mut used);
                }
            }
            for (tensor, mut ranges) in weights.tensors.iter().zip(used) {
                ranges.sort_unstable();
                let overlap = ranges.windows(2).any(|w| w[0].1 > w[1].0);
                let there: u64 = ranges.iter().map(|(from, to)| to - from).sum();
                let padded = plan
                    .notes
                    .iter()
                    .find(|n| n.starts_with(&format!("{}: the last 13 of 112", tensor.name)));
                let spare = if padded.is_some() { 13 * 32 } else { 0 };
                assert!(
                    !overlap && there + spare == tensor.elements(),
                    "{kind} {case} {}: {ranges:?}",
                    tensor.name
                );
            }
        }
    }
}

fn used_by(tensor: &supervise_weights::OutTensor, used: &mut [Vec<(u64, u64)>]) {
    for piece in &tensor.pieces {
        used[piece.tensor].push((piece.from, piece.to));
    }
}

/// The order inside of a joined tensor, by the numbers of its rows.
#[test]
fn heads_halves_experts_and_layers_are_where_megatron_puts_them() {
    let golden = golden(MODELS[5].1);
    let (weights, plan) = plan(&golden.cases["ep2-stacked"], &golden.config).unwrap();
    let rows = |name: &str| -> Vec<(u64, u64)> {
        let tensor = plan.model.iter().find(|t| t.name == name).unwrap();
        let wide = tensor.shape[1..].iter().product::<u64>();
        let each = tensor.pieces.iter();
        each.map(|p| (p.from / wide, p.to / wide)).collect()
    };
    // Layer 1 of two: behind 64 rows of layer 0. Two groups of two heads of 8 rows, with a key and a value.
    assert_eq!(
        weights.tensors[weights.find("decoder.layers.self_attention.linear_qkv.weight").unwrap()].shape,
        [2, 64, 32]
    );
    assert_eq!(rows("model.layers.1.self_attn.q_proj.weight"), [(64, 80), (96, 112)]);
    assert_eq!(rows("model.layers.1.self_attn.k_proj.weight"), [(80, 88), (112, 120)]);
    assert_eq!(rows("model.layers.1.self_attn.v_proj.weight"), [(88, 96), (120, 128)]);
    // Expert 2 of layer 1: behind four and two experts of 24 rows.
    assert_eq!(rows("model.layers.1.mlp.experts.2.gate_proj.weight"), [(144, 156)]);
    assert_eq!(rows("model.layers.1.mlp.experts.2.up_proj.weight"), [(156, 168)]);
    assert_eq!(
        rows("model.layers.1.mlp.experts.2.down_proj.weight"),
        [(6 * 32, 7 * 32)]
    );
    assert_eq!(rows("model.layers.0.mlp.shared_expert.up_proj.weight"), [(20, 40)]);
}

#[test]
fn an_output_that_is_tied_is_told_and_left_out() {
    let mut golden = golden(MODELS[4].1);
    let shapes = golden.cases.get_mut("tp2-stacked").unwrap();
    shapes.insert("output_layer.weight".to_owned(), vec![112, 32]);
    let (_, plan) = plan(shapes, &golden.config).unwrap();
    assert_eq!(names(&plan), golden.model);
    assert!(
        plan.notes.iter().any(|n| n.contains("lm_head.weight is not written")),
        "{:?}",
        plan.notes
    );
}

/// They are written behind the model's own, with the embeddings and the output once more; training may have left them out.
#[test]
fn layers_that_predict_further_tokens_may_be_missing_as_a_whole() {
    let mut golden = golden(MODELS[0].1);
    golden.config["num_nextn_predict_layers"] = 1.into();
    let shapes = &golden.cases["tp2-layers"];
    let (_, plan) = plan(shapes, &golden.config).unwrap();
    assert_eq!(names(&plan), golden.model);
    let note = plan.notes.iter().find(|n| n.contains("num_nextn_predict_layers"));
    assert!(note.is_some(), "{:?}", plan.notes);
}

#[test]
fn the_layer_that_predicts_is_known_by_its_later_name() {
    let golden = golden(MODELS[8].1);
    let renamed =
        |(key, shape): (&String, &Vec<u64>)| (key.replace(".transformer_layer.", ".mtp_model_layer."), shape.clone());
    let shapes: Shapes = golden.cases["tp2-layers"].iter().map(renamed).collect();
    assert_ne!(shapes, golden.cases["tp2-layers"]);
    assert_eq!(names(&plan(&shapes, &golden.config).unwrap().1), golden.model);
}

/// Transformer Engine has the norm before a linear layer in that layer, and names it so.
#[test]
fn norms_are_known_by_either_name() {
    let golden = golden(MODELS[0].1);
    let renamed: Shapes = golden.cases["tp2-layers"]
        .iter()
        .map(|(key, shape)| {
            let key = key
                .replace(
                    "self_attention.q_layernorm.weight",
                    "self_attention.linear_q_up_proj.layer_norm_weight",
                )
                .replace(
                    "self_attention.kv_layernorm.weight",
                    "self_attention.linear_kv_up_proj.layer_norm_weight",
                )
                .replace(
                    "decoder.layers.0.pre_mlp_layernorm.weight",
                    "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
                );
            (key, shape.clone())
        })
        .collect();
    assert_ne!(renamed, golden.cases["tp2-layers"]);
    let (_, plan) = plan(&renamed, &golden.config).unwrap();
    assert_eq!(names(&plan), golden.model);
    // Both at once have to be equal: one is written.
    let mut both = renamed;
    both.insert("decoder.layers.0.pre_mlp_layernorm.weight".to_owned(), vec![32]);
    let (_, plan) = self::plan(&both, &golden.config).unwrap();
    assert_eq!(names(&plan), golden.model);
    let [[one, other]] = plan.same.as_slice() else {
        panic!("{:?}", plan.same)
    };
    assert_eq!((&one.name, &other.name), (&other.name, &one.name));
    assert_eq!(one.name, "model.layers.0.post_attention_layernorm.weight");
    assert_ne!(one.pieces, other.pieces);
}

fn any_case() -> impl Strategy<Value = (Golden, String)> {
    (0..MODELS.len()).prop_flat_map(|n| {
        let cases: Vec<String> = golden(MODELS[n].1).cases.into_keys().collect();
        proptest::sample::select(cases).prop_map(move |case| (golden(MODELS[n].1), case))
    })
}

impl std::fmt::Debug for Golden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.config["model_type"])
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn what_is_missing_strange_or_of_another_size_is_refused((golden, case) in any_case(), pick: usize, dim: usize, more: bool) {
        let shapes = &golden.cases[&case];
        let key = shapes.keys().nth(pick % shapes.len()).unwrap().clone();

        let mut changed = shapes.clone();
        changed.remove(&key);
        let problem = plan(&changed, &golden.config).unwrap_err();
        prop_assert_eq!(problem.verdict, Verdict::Incomplete, "without {}: {}", &key, problem);

        let mut changed = shapes.clone();
        let shape = changed.remove(&key).unwrap();
        changed.insert(format!("{key}_new"), shape.clone());
        let problem = plan(&changed, &golden.config).unwrap_err();
        prop_assert!(problem.text.contains("_new: no table says"), "{}", problem);

        let mut changed = shapes.clone();
        let dim = dim % shape.len();
        let mut other = shape;
        // Rows of the vocabulary may be more than the tokens.
        let rows = dim == 0 && (key.starts_with("embedding.") || key.starts_with("output_layer."));
        other[dim] = if more && !rows { other[dim] + 1 } else if rows { 98 } else { other[dim] - 1 };
        changed.insert(key.clone(), other);
        let problem = plan(&changed, &golden.config).unwrap_err();
        prop_assert!(problem.text.contains(&key), "{}: {}", key, problem);
    }

    /// Whatever a configuration says, there is an answer.
    #[test]
    fn any_number_in_a_configuration_is_answered((mut golden, case) in any_case(), pick: usize, number in prop_oneof![0..5_u64, Just(u64::MAX), Just(1 << 40)]) {
        let map = golden.config.as_object_mut().unwrap();
        let keys: Vec<String> = map.iter().filter(|(_, v)| v.is_u64()).map(|(k, _)| k.clone()).collect();
        map.insert(keys[pick % keys.len()].clone(), number.into());
        let _ = plan(&golden.cases[&case], &golden.config);
    }
}

#[test]
fn a_model_without_a_table_and_an_adapter_are_refused() {
    let mut golden = golden(MODELS[1].1);
    let shapes = golden.cases["tp2-stacked"].clone();
    let mut adapted = shapes.clone();
    adapted.insert(
        "decoder.layers.mlp.linear_fc1.adapter.linear_in.weight".to_owned(),
        vec![2, 8, 32],
    );
    let problem = plan(&adapted, &golden.config).unwrap_err();
    assert!(problem.text.contains("an adapter's (LoRA)"), "{problem}");
    golden.config["architectures"] = serde_json::json!(["LlamaForTokenClassification"]);
    assert_eq!(plan(&shapes, &golden.config).unwrap_err().verdict, Verdict::Unknown);
    golden.config["model_type"] = "gemma2".into();
    let problem = plan(&shapes, &golden.config).unwrap_err();
    assert!(
        problem.text.contains("model type gemma2") && problem.text.contains("qwen3_moe"),
        "{problem}"
    );
}

#[test]
fn a_critic_has_a_value_head_in_place_of_the_other() {
    let mut golden = golden(MODELS[1].1);
    let mut critic = golden.cases["tp2-stacked"].clone();
    critic.insert("output_layer.weight".to_owned(), vec![1, 32]);
    // Tied or not: it is no head of tokens.
    for tied in [false, true] {
        golden.config["tie_word_embeddings"] = tied.into();
        for class in ["LlamaForCausalLM", "LlamaForTokenClassification"] {
            golden.config["architectures"] = serde_json::json!([class]);
            let (_, made) = plan(&critic, &golden.config).unwrap();
            let names: Vec<&str> = made.model.iter().map(|t| t.name.as_str()).collect();
            assert!(
                made.critic && names.contains(&"score.weight") && !names.contains(&"lm_head.weight"),
                "{names:?}"
            );
        }
    }
    let config = ModelConfig {
        value: golden.config.clone(),
    }
    .of_critic();
    assert_eq!(config.architecture(), Some("LlamaForTokenClassification"));
    critic.insert("output_layer.weight".to_owned(), vec![1, 31]);
    let problem = plan(&critic, &golden.config).unwrap_err();
    assert!(
        problem.verdict == Verdict::Damaged && problem.text.contains("output_layer.weight"),
        "{problem}"
    );
}
