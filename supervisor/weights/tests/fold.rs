//! An adapter is added to its tensor, whatever part of it is read; what is no plain adapter is refused by name.

use proptest::prelude::*;
use supervise_checkpoint::Dtype;
use supervise_core::checkpoint::Verdict;
use supervise_weights::hf::{ModelConfig, Options, Scaling, fold, plan};
use supervise_weights::{
    ModelError, ModelReader, ModelTensor, ModelWeights, OutTensor, SharedSource, SourceFile, TensorChunk, TensorRange,
};

const MODULE: &str = "model.layers.0.mlp.up_proj";

/// A model of whole numbers in float32, each tensor in a file of its own.
fn model(tensors: &[(&str, Vec<u64>, Vec<f32>)]) -> (ModelWeights, Vec<Box<SharedSource>>) {
    let (mut out, mut sources): (ModelWeights, Vec<Box<SharedSource>>) = Default::default();
    for (name, shape, numbers) in tensors {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut stride = vec![1; shape.len()];
        for d in (1..shape.len()).rev() {
            stride[d - 1] = stride[d] * shape[d];
        }
        out.tensors.push(ModelTensor {
            name: (*name).to_owned(),
            dtype: Dtype::F32,
            shape: shape.clone(),
            chunks: vec![TensorChunk {
                offsets: vec![0; shape.len()],
                sizes: shape.clone(),
                file: sources.len(),
                at: 0,
                stride,
            }],
            copies: Vec::new(),
            fold: None,
        });
        out.files.push(SourceFile {
            path: (*name).into(),
            bytes: bytes.len() as u64,
            checked: Vec::new(),
        });
        sources.push(Box::new(bytes));
    }
    out.tensors.sort_by(|a, b| a.name.cmp(&b.name));
    (out, sources)
}

fn names() -> [String; 3] {
    [
        format!("base_model.model.{MODULE}.lora_A.default.weight"),
        format!("base_model.model.{MODULE}.lora_B.default.weight"),
        format!("base_model.model.{MODULE}.base_layer.weight"),
    ]
}

fn numbers(n: u64) -> impl Strategy<Value = Vec<f32>> {
    proptest::collection::vec((-8_i8..9).prop_map(f32::from), n as usize)
}

type Case = (u64, u64, u64, Vec<f32>, Vec<f32>, Vec<f32>);

fn cases() -> impl Strategy<Value = Case> {
    (1_u64..9, 1_u64..9, 1_u64..5).prop_flat_map(|(rows, columns, rank)| {
        let parts = (numbers(rank * columns), numbers(rows * rank), numbers(rows * columns));
        parts.prop_map(move |(a, b, w)| (rows, columns, rank, a, b, w))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_part_of_it_has_the_product_in_it((rows, columns, rank, a, b, w) in cases(), from: u64, n: u64) {
        let [right, left, base] = names();
        let (mut weights, sources) = model(&[
            (&right, vec![rank, columns], a.clone()),
            (&left, vec![rows, rank], b.clone()),
            (&base, vec![rows, columns], w.clone()),
        ]);
        // Twice the rank: the factor is two.
        prop_assert_eq!(fold(&mut weights, &Scaling::plain(2.0 * rank as f64)).unwrap(), 1);
        let all = rows * columns;
        let from = from % all;
        let n = 1 + n % (all - from);
        let whole = OutTensor {
            name: String::new(),
            dtype: Dtype::F32,
            shape: vec![rows, columns],
            pieces: vec![TensorRange { tensor: weights.find(&base).unwrap(), from: 0, to: all }],
        };
        let reading = ModelReader::new(&weights, &sources);
        let mut buf = Vec::new();
        reading.fill_pieces(&whole, from, n, &mut buf, &mut Vec::new()).unwrap();
        let got: Vec<f32> = buf.chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
        let want: Vec<f32> = (from..from + n).map(|at| {
            let (i, j) = (at / columns, at % columns);
            let product: f32 = (0..rank).map(|k| b[(i * rank + k) as usize] * a[(k * columns + j) as usize]).sum();
            w[at as usize] + 2.0 * product
        }).collect();
        prop_assert_eq!(got, want);
        reading.settle().unwrap();
    }

    /// Whatever stands in the settings of an adapter, there is an answer.
    #[test]
    fn any_settings_are_answered(text in "\\PC*", alpha: f64, key in "[a-z_.|]{0,8}") {
        let _ = Scaling::parse(text.as_bytes(), None);
        let _ = Scaling::parse(format!("{{\"peft_type\": \"LORA\", \"lora_alpha\": {alpha:?}, \"alpha_pattern\": {{\"{key}\": 1}}}}").as_bytes(), None);
    }
}

/// Rows that are longer than what is held at once.
#[test]
fn long_rows_are_taken_in_parts() {
    let columns = 300_000;
    let [right, left, base] = names();
    let (mut weights, sources) = model(&[
        (&right, vec![1, columns], (0..columns).map(|n| (n % 7) as f32).collect()),
        (&left, vec![3, 1], vec![1.0, 10.0, 100.0]),
        (&base, vec![3, columns], vec![0.5; 3 * columns as usize]),
    ]);
    fold(&mut weights, &Scaling::plain(1.0)).unwrap();
    let all = 3 * columns;
    let whole = OutTensor {
        name: String::new(),
        dtype: Dtype::F32,
        shape: vec![3, columns],
        pieces: vec![TensorRange {
            tensor: weights.find(&base).unwrap(),
            from: 0,
            to: all,
        }],
    };
    let reading = ModelReader::new(&weights, &sources);
    let mut buf = Vec::new();
    reading.fill_pieces(&whole, 0, all, &mut buf, &mut Vec::new()).unwrap();
    for (at, bytes) in buf.chunks(4).enumerate() {
        let (row, column) = (at as u64 / columns, at as u64 % columns);
        let want = 0.5 + (column % 7) as f32 * [1.0, 10.0, 100.0][row as usize];
        assert_eq!(f32::from_le_bytes(bytes.try_into().unwrap()), want, "{row} {column}");
    }
}

fn folded(tensors: &[(&str, Vec<u64>)], scaling: &Scaling) -> Result<ModelWeights, ModelError> {
    let filled: Vec<_> = tensors
        .iter()
        .map(|(name, shape)| (*name, shape.clone(), vec![1.0; shape.iter().product::<u64>() as usize]))
        .collect();
    let (mut weights, _) = model(&filled);
    fold(&mut weights, scaling)?;
    Ok(weights)
}

#[test]
fn what_is_no_plain_adapter_of_a_tensor_is_named() {
    let [right, left, base] = names();
    let plain = Scaling::plain(4.0);
    let (a, b, w) = (
        (right.as_str(), vec![2, 5]),
        (left.as_str(), vec![3, 2]),
        (base.as_str(), vec![3, 5]),
    );
    let magnitude = right.replace("lora_A", "lora_magnitude_vector");
    let second = right.replace("default", "second");
    let saved = "base_model.model.lm_head.modules_to_save.default.weight";
    for (tensors, verdict, words) in [
        (
            vec![a.clone(), w.clone()],
            Verdict::Damaged,
            "lora_A or lora_B is missing",
        ),
        (
            vec![a.clone(), b.clone()],
            Verdict::Damaged,
            "the model has no such tensor",
        ),
        (
            vec![a.clone(), b.clone(), (&base, vec![5, 3])],
            Verdict::Damaged,
            "do not fit [5, 3]",
        ),
        (
            vec![a.clone(), b.clone(), w.clone(), (&magnitude, vec![3])],
            Verdict::Unknown,
            "lora_magnitude_vector",
        ),
        (
            vec![(&second, vec![2, 5]), b.clone(), w.clone()],
            Verdict::Unknown,
            "second",
        ),
        (
            vec![a.clone(), b.clone(), w.clone(), (saved, vec![1])],
            Verdict::Unknown,
            "modules_to_save",
        ),
        (
            vec![(&right, vec![2, 5, 1]), b.clone(), w.clone()],
            Verdict::Unknown,
            "none of a linear layer",
        ),
    ] {
        let problem = folded(&tensors, &plain).unwrap_err();
        assert!(
            problem.verdict == verdict && problem.text.contains(words),
            "{words}: {problem}"
        );
    }
    let settings = |more: &str| {
        Scaling::parse(
            format!("{{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4{more}}}").as_bytes(),
            None,
        )
    };
    let factor = |more: &str| {
        let weights = folded(&[a.clone(), b.clone(), w.clone()], &settings(more).unwrap()).unwrap();
        weights.tensors.iter().find_map(|t| t.fold).unwrap().scaling
    };
    assert_eq!(factor(""), 2.0);
    assert_eq!(factor(", \"use_rslora\": true"), 4.0 / 2.0_f64.sqrt());
    assert_eq!(factor(", \"alpha_pattern\": {\"up_proj\": 1, \"p_proj\": 7}"), 0.5);
    assert_eq!(
        factor(", \"alpha_pattern\": {\"layers.0.mlp.up_proj\": 3, \"layers.1.mlp.up_proj\": 9}"),
        1.5
    );
    let two = settings(", \"alpha_pattern\": {\"up_proj\": 1, \"mlp.up_proj\": 2}").unwrap();
    let problem = folded(&[a.clone(), b.clone(), w.clone()], &two).unwrap_err();
    assert!(
        problem.text.contains("more than one name of alpha_pattern"),
        "{problem}"
    );
    for (more, words) in [
        (", \"use_rslora\": \"true\"", "use_rslora"),
        (", \"alpha_pattern\": [1]", "alpha_pattern"),
        (", \"rank_pattern\": \"x\"", "rank_pattern"),
        (", \"alpha_pattern\": {\"up_proj\": -1}", "alpha_pattern"),
        (", \"r\": \"2\"", "r is"),
        (", \"lora_alpha\": 0", "--lora-alpha"),
    ] {
        let problem = settings(more).unwrap_err();
        assert!(problem.text.contains(words), "{more}: {problem}");
    }
    // An alpha that is said replaces lora_alpha alone.
    let said = |text: &str| Scaling::parse(text.as_bytes(), Some(8.0));
    let rooted = said(r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 0, "use_rslora": true}"#).unwrap();
    let weights = folded(&[a.clone(), b.clone(), w.clone()], &rooted).unwrap();
    let scaling = weights.tensors.iter().find_map(|t| t.fold).unwrap().scaling;
    assert_eq!(scaling, 8.0 / 2.0_f64.sqrt());
    assert!(said(r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_dora": true}"#).is_err());
    let other = Scaling::plain(8.0).with_rank(Some(4));
    let problem = folded(&[a.clone(), b.clone(), w.clone()], &other).unwrap_err();
    assert!(problem.text.contains("rank 4"), "{problem}");
    let all = settings(", \"target_modules\": [\"up_proj\"]").unwrap();
    assert!(folded(&[a.clone(), b.clone(), w.clone()], &all).is_ok());
    let lacking = (
        "base_model.model.model.layers.1.mlp.up_proj.base_layer.weight",
        w.1.clone(),
    );
    let tensors = [a.clone(), b.clone(), w.clone(), lacking];
    let problem = folded(&tensors, &all).unwrap_err();
    assert!(
        problem.verdict == Verdict::Incomplete && problem.text.contains("layers.1.mlp.up_proj"),
        "{problem}"
    );
    let some = settings(", \"target_modules\": [\"up_proj\"], \"layers_to_transform\": [0]").unwrap();
    assert!(folded(&tensors, &some).is_ok());
    for key in ["use_dora", "lora_bias", "fan_in_fan_out", "use_qalora"] {
        let problem = settings(&format!(", \"{key}\": true")).unwrap_err();
        assert!(
            problem.verdict == Verdict::Unknown && problem.text.contains(key),
            "{problem}"
        );
    }
}

/// An adapter that was folded in is not written beside the model.
#[test]
fn the_adapter_is_gone_from_the_plan() {
    let [right, left, base] = names();
    let shapes = [
        (right.as_str(), vec![2, 5]),
        (left.as_str(), vec![3, 2]),
        (base.as_str(), vec![3, 5]),
        ("base_model.model.model.embed_tokens.weight", vec![7, 5]),
        ("base_model.model.model.norm.weight", vec![5]),
    ];
    let config =
        "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"vocab_size\": 7, \"tie_word_embeddings\": true}";
    let weights = folded(&shapes, &Scaling::plain(1.0)).unwrap();
    let plan = plan(
        &weights,
        &ModelConfig::parse(config.as_bytes()).unwrap(),
        Options::default(),
    )
    .unwrap();
    let written: Vec<&str> = plan.model.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(
        written,
        [
            "model.embed_tokens.weight",
            "model.layers.0.mlp.up_proj.weight",
            "model.norm.weight"
        ]
    );
    assert_eq!(plan.adapter, None);
}
