//! The tables read backwards: the keys are those that Megatron writes, and each element comes back to where it was.

use super::{Golden, MODELS, Shapes, any_case, golden, weights};
use proptest::prelude::*;
use std::collections::BTreeMap;
use supervise_checkpoint::Dtype;
use supervise_core::checkpoint::Verdict;
use supervise_weights::hf::{ModelConfig, Options};
use supervise_weights::megatron::{self, KeyStyle, MegatronForm, MegatronModel};
use supervise_weights::{ModelError, ModelWeights, torch_dist};

fn keys_of(case: &str) -> KeyStyle {
    match case {
        case if case.ends_with("layers") => KeyStyle::Layers,
        case if case.ends_with("single") => KeyStyle::Single,
        _ => KeyStyle::Stacked,
    }
}

fn form(keys: Option<KeyStyle>, chunk: u64) -> MegatronForm {
    MegatronForm {
        dtype: None,
        keys,
        chunk,
    }
}

fn config(golden: &Golden) -> Result<ModelConfig, ModelError> {
    ModelConfig::parse(golden.config.to_string().as_bytes())
}

fn backward(shapes: &Shapes, golden: &Golden, form: MegatronForm) -> Result<MegatronModel, ModelError> {
    megatron::backward(&weights(shapes), &config(golden)?, form)
}

#[test]
fn the_keys_and_shapes_are_those_that_megatron_writes() {
    for (kind, text) in MODELS {
        let golden = golden(text);
        for (case, shapes) in &golden.cases {
            let made = backward(&golden.model, &golden, form(Some(keys_of(case)), 64 << 20)).unwrap();
            for (key, shape) in shapes {
                let mut shape = shape.clone();
                if key.ends_with("word_embeddings.weight") || key.starts_with("output_layer") {
                    // Megatron's own has rows beyond the vocabulary.
                    shape[0] = 99;
                }
                assert_eq!(
                    made.tensors.get(key).map(|t| &t.shape),
                    Some(&shape),
                    "{kind} {case} {key}"
                );
            }
            let more = made.tensors.keys().filter(|key| !shapes.contains_key(*key));
            for key in more {
                assert!(
                    key.contains("layernorm.weight") || key.contains("layer_norm_weight"),
                    "{kind} {case} {key}"
                );
            }
        }
    }
}

#[test]
fn states_are_named_by_their_place() {
    let made = |n: usize, keys| {
        let golden = golden(MODELS[n].1);
        backward(&golden.model, &golden, form(Some(keys), 1 << 20))
            .unwrap()
            .states
    };
    // As megatron-core writes them: a layer of two, an expert of four.
    let (stacked, layers, single) = (
        made(5, KeyStyle::Stacked),
        made(8, KeyStyle::Layers),
        made(8, KeyStyle::Single),
    );
    for key in [
        "decoder.layers.self_attention.linear_qkv._extra_state/shard_1_2",
        "decoder.layers.self_attention.core_attention._extra_state/shard_0_2",
        "decoder.layers.mlp.experts.experts.linear_fc1._extra_state/shard_1.3_2.4",
        "decoder.layers.mlp.shared_experts.linear_fc2._extra_state/shard_0_2",
        "decoder.final_layernorm._extra_state/shard_0_1",
    ] {
        assert!(stacked.contains(key), "{key}: {stacked:#?}");
    }
    for key in [
        "decoder.layers.0.self_attention.linear_q_up_proj._extra_state/shard_0_1",
        "decoder.layers.1.mlp.experts.experts.linear_fc2._extra_state/shard_3_4",
        "mtp.layers.0.eh_proj._extra_state/shard_0_1",
        "mtp.layers.0.transformer_layer.mlp.experts.experts.linear_fc1._extra_state/shard_0_4",
    ] {
        assert!(layers.contains(key), "{key}: {layers:#?}");
    }
    assert!(
        single.contains("decoder.layers.1.mlp.experts.experts.3.linear_fc1._extra_state/shard_0_1"),
        "{single:#?}"
    );
    assert!(
        !stacked
            .iter()
            .any(|key| key.contains("router") || key.contains("embedding")),
        "{stacked:#?}"
    );
}

/// The names that Megatron asks for by itself.
#[test]
fn layers_of_one_kind_are_stacked() {
    for (kind, text) in MODELS {
        let golden = golden(text);
        let made = backward(&golden.model, &golden, form(None, 1 << 20)).unwrap();
        let two_kinds = ["qwen3_moe", "deepseek_v3", "deepseek_v3_mtp"].contains(&kind);
        assert_eq!(
            made.keys,
            if two_kinds { KeyStyle::Layers } else { KeyStyle::Stacked },
            "{kind}"
        );
        let forced = backward(&golden.model, &golden, form(Some(KeyStyle::Stacked), 1 << 20));
        assert_eq!(forced.is_err(), two_kinds, "{kind}");
    }
}

/// Each element of each of Megatron's tensors, as an element of the model; every one is there once.
fn elements(made: &MegatronModel) -> BTreeMap<&str, Vec<Option<(usize, u64)>>> {
    let mut out = BTreeMap::new();
    for (key, global) in &made.tensors {
        let mut all = vec![None; global.shape.iter().product::<u64>() as usize];
        for part in &global.parts {
            let mut own = part
                .tensor
                .pieces
                .iter()
                .flat_map(|p| (p.from..p.to).map(|at| (p.tensor, at)));
            let count: u64 = part.tensor.shape.iter().product();
            for n in 0..count {
                let (mut rest, mut at, mut stride) = (n, 0, 1);
                for d in (0..global.shape.len()).rev() {
                    at += (part.offsets[d] + rest % part.tensor.shape[d]) * stride;
                    rest /= part.tensor.shape[d];
                    stride *= global.shape[d];
                }
                let before = std::mem::replace(&mut all[at as usize], own.next());
                assert!(before.is_none(), "{key}: an element twice");
            }
            assert!(own.next().is_none(), "{key}: more numbers than its shape has");
        }
        assert!(all.iter().all(Option::is_some), "{key}: an element is missing");
        out.insert(key.as_str(), all);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn there_and_back_each_element_is_where_it_was((golden, case) in any_case(), chunk in prop_oneof![1..600_u64, Just(1 << 20)]) {
        let source = weights(&golden.model);
        let made = backward(&golden.model, &golden, form(Some(keys_of(&case)), chunk)).unwrap();
        let elements = elements(&made);
        let shapes: Shapes = made.tensors.iter().map(|(k, t)| (k.clone(), t.shape.clone())).collect();
        let between = weights(&shapes);
        let plan = megatron::plan(&between, &config(&golden).unwrap(), Options::default()).unwrap();
        prop_assert_eq!(plan.model.len(), golden.model.len());
        for tensor in plan.model.iter().chain(plan.same.iter().flatten()) {
            let n = source.find(&tensor.name).unwrap();
            let all = tensor.pieces.iter().flat_map(|p| (p.from..p.to).map(|at| elements[between.tensors[p.tensor].name.as_str()][at as usize]));
            for (at, from) in all.enumerate() {
                let (of, place) = from.unwrap();
                // A layer that predicts has the model's own embeddings and output.
                let again = tensor.name.contains("embed_tokens") || tensor.name.contains("head");
                prop_assert!((of == n || again) && place == at as u64, "{}: {} is {} of {}", &tensor.name, at, place, &source.tensors[of].name);
            }
        }
        for part in made.tensors.values().flat_map(|t| &t.parts) {
            let rows: u64 = part.tensor.shape.iter().product::<u64>() / part.tensor.shape.last().copied().unwrap_or(1);
            prop_assert!(part.tensor.bytes() <= chunk.max(4) || rows == 1, "{}: {:?}", &part.tensor.name, &part.tensor.shape);
        }
        torch_dist::plan(made).unwrap();
    }

    #[test]
    fn a_tensor_that_is_missing_strange_or_of_another_size_is_named((golden, case) in any_case(), pick: usize, dim: usize, more: bool) {
        let form = form(Some(keys_of(&case)), 1 << 20);
        let key = golden.model.keys().nth(pick % golden.model.len()).unwrap().clone();
        // Written once more only, or the sign that a whole layer is there.
        let optional = key.ends_with("2.embed_tokens.weight") || key.ends_with("shared_head.head.weight") || key.ends_with("enorm.weight");
        let mut changed = golden.model.clone();
        let shape = changed.remove(&key).unwrap();
        if !optional {
            let problem = backward(&changed, &golden, form).unwrap_err();
            prop_assert!(problem.verdict == Verdict::Incomplete && problem.text.contains(&key), "without {}: {}", &key, problem);
        }
        let mut strange = golden.model.clone();
        strange.insert(format!("{key}_new"), shape.clone());
        let problem = backward(&strange, &golden, form).unwrap_err();
        prop_assert!(problem.text.contains("_new: no table says"), "{}", problem);
        let mut other = shape.clone();
        let dim = dim % shape.len();
        other[dim] = if more { other[dim] + 1 } else { other[dim] - 1 };
        changed.insert(key.clone(), other);
        let problem = backward(&changed, &golden, form).unwrap_err();
        prop_assert!(problem.verdict == Verdict::Damaged && problem.text.contains(&key), "{}: {}", key, problem);
    }

    /// Whatever a configuration says, there is an answer.
    #[test]
    fn any_number_is_answered((mut golden, case) in any_case(), pick: usize, number in prop_oneof![0..5_u64, Just(u64::MAX), Just(1 << 40)]) {
        let map = golden.config.as_object_mut().unwrap();
        let keys: Vec<String> = map.iter().filter(|(_, v)| v.is_u64()).map(|(k, _)| k.clone()).collect();
        map.insert(keys[pick % keys.len()].clone(), number.into());
        let _ = backward(&golden.model, &golden, form(Some(keys_of(&case)), 1 << 20));
    }
}

#[test]
fn numbers_of_two_types_are_refused_unless_one_is_asked_for() {
    let golden = golden(MODELS[1].1);
    let mut source: ModelWeights = weights(&golden.model);
    let up = source.find("model.layers.1.mlp.up_proj.weight").unwrap();
    source.tensors[up].dtype = Dtype::Bf16;
    let one = form(None, 1 << 20);
    let problem = megatron::backward(&source, &config(&golden).unwrap(), one).unwrap_err();
    assert!(
        problem.text.contains("up_proj") && problem.text.contains("--dtype"),
        "{problem}"
    );
    let cast = MegatronForm {
        dtype: Some(Dtype::F16),
        ..one
    };
    let made = megatron::backward(&source, &config(&golden).unwrap(), cast).unwrap();
    assert!(made.tensors.values().all(|t| t.dtype == Dtype::F16));
    source.tensors[up].dtype = Dtype::F8E4M3fn;
    assert_eq!(
        megatron::backward(&source, &config(&golden).unwrap(), cast)
            .unwrap_err()
            .verdict,
        Verdict::Unknown
    );
}
