//! Matches adapters with their tensors and factors.
//!
//! Source: peft 0.21 `tuners/lora/{config,layer,model}.py`, `utils/other.py` (`get_pattern_key`).

use super::lora;
use super::{WRAPPERS, natural};
use crate::model::{Fold, ModelWeights};
use crate::problem::ModelError;
use serde_json::Value;
use std::collections::BTreeMap;
use supervise_checkpoint::Dtype;
use supervise_core::checkpoint::Verdict;

/// Settings of adapters that do more than add the product of two tensors.
const OTHER_KINDS: [&str; 16] = [
    "alora_invocation_tokens",
    "arrow_config",
    "fan_in_fan_out",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "lora_ga_config",
    "modules_to_save",
    "monteclora_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "velora_config",
    "loftq_config",
];
/// Initializations that leave the model unchanged.
const PLAIN_BEGINNINGS: [&str; 3] = ["gaussian", "orthogonal", "eva"];

/// The factor of each module of an adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaling {
    alpha: f64,
    /// Whether alpha is divided by the square root of the rank.
    by_root: bool,
    /// Other alphas, by the end of a module's name.
    patterns: Vec<(String, f64)>,
    /// The rank, if all modules have the same.
    rank: Option<u64>,
    /// The ends of the names of all modules with an adapter, if they are listed.
    targets: Vec<String>,
}

impl Scaling {
    /// The same factor for all modules: alpha divided by the rank.
    #[must_use]
    pub fn plain(alpha: f64) -> Self {
        Self {
            alpha,
            by_root: false,
            patterns: Vec::new(),
            rank: None,
            targets: Vec::new(),
        }
    }

    /// Sets the recorded rank: no module may have another.
    #[must_use]
    pub fn with_rank(self, rank: Option<u64>) -> Self {
        Self { rank, ..self }
    }

    /// Parses `adapter_config.json`; `said` replaces its `lora_alpha`.
    ///
    /// # Errors
    /// An adapter that does more than add the product of two tensors, or an invalid setting.
    pub fn parse(text: &[u8], said: Option<f64>) -> Result<Self, ModelError> {
        let value: Value =
            serde_json::from_slice(text).map_err(|e| ModelError::damaged(format!("adapter_config.json: {e}")))?;
        let refused =
            |what: String| ModelError::unknown(format!("adapter_config.json: {what} cannot be folded in here"));
        if value.get("peft_type").and_then(Value::as_str) != Some("LORA") {
            return Err(refused(format!("an adapter of the kind {}", value["peft_type"])));
        }
        let set = |key: &&str| match value.get(*key) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(map)) => !map.is_empty(),
            Some(_) => true,
        };
        if let Some(key) = OTHER_KINDS.iter().find(|k| set(k)) {
            return Err(refused(format!("an adapter with {key}")));
        }
        if let Some(bias) = value.get("bias").and_then(Value::as_str).filter(|b| *b != "none") {
            return Err(refused(format!("an adapter with bias: {bias}")));
        }
        if let Some(Value::String(word)) = value.get("init_lora_weights")
            && !PLAIN_BEGINNINGS.contains(&word.as_str())
        {
            // These change the model's own numbers before the training.
            return Err(refused(format!("an adapter with init_lora_weights: {word}")));
        }
        let number = |v: &Value| v.as_f64().filter(|n| n.is_finite() && *n > 0.0);
        let told = value.get("lora_alpha").and_then(number);
        // With verl's 0, the adapter would do nothing.
        let alpha = said.or(told).ok_or_else(|| {
            ModelError::unknown("adapter_config.json: its lora_alpha is no number above 0; --lora-alpha NUMBER says it")
        })?;
        let odd = |key: &str| ModelError::damaged(format!("adapter_config.json: {key} is {}", value[key]));
        let by_root = match value.get("use_rslora") {
            None | Some(Value::Null) => false,
            Some(set) => set.as_bool().ok_or_else(|| odd("use_rslora"))?,
        };
        let rank = match value.get("r") {
            None | Some(Value::Null) => None,
            Some(rank) => Some(rank.as_u64().ok_or_else(|| odd("r"))?),
        };
        for key in ["alpha_pattern", "rank_pattern"] {
            if !matches!(value.get(key), None | Some(Value::Null | Value::Object(_))) {
                return Err(odd(key));
            }
        }
        let map = |key: &str| value.get(key).and_then(Value::as_object);
        let mut patterns = Vec::new();
        for (key, alpha) in map("alpha_pattern").into_iter().flatten() {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            let alpha = number(alpha).filter(|_| !key.is_empty() && key.chars().all(plain));
            let alpha = alpha.ok_or_else(|| refused(format!("an alpha_pattern that is no plain name ({key})")))?;
            patterns.push((key.clone(), alpha));
        }
        let targets = value.get("target_modules").and_then(Value::as_array);
        let some_only = ["layers_to_transform", "layers_pattern", "exclude_modules"]
            .iter()
            .any(set);
        let targets = targets.filter(|_| !some_only).into_iter().flatten();
        let ranked = map("rank_pattern").is_some_and(|m| !m.is_empty());
        Ok(Self {
            alpha,
            by_root,
            patterns,
            rank: rank.filter(|_| !ranked),
            targets: targets.filter_map(Value::as_str).map(str::to_owned).collect(),
        })
    }

    /// Finds a module that should have an adapter, among tensors without one.
    fn lacking<'a>(&self, mut plain: impl Iterator<Item = &'a str>) -> Option<&'a str> {
        plain.find_map(|name| {
            let module = name.strip_suffix(".weight")?;
            let is_target = |t: &String| module.strip_suffix(t.as_str()).is_some_and(|rest| rest.ends_with('.'));
            self.targets.iter().any(is_target).then_some(module)
        })
    }

    fn of(&self, module: &str, rank: u64) -> Result<f64, ModelError> {
        if let Some(said) = self.rank.filter(|said| *said != rank) {
            let text = format!("{module}: its configuration speaks of rank {said}, the tensors have {rank}");
            return Err(ModelError::damaged(text));
        }
        let fits = |key: &str| module == key || module.strip_suffix(key).is_some_and(|rest| rest.ends_with('.'));
        let mut own = self
            .patterns
            .iter()
            .filter(|(key, _)| fits(key))
            .map(|(_, alpha)| *alpha);
        let alpha = own.next();
        if own.any(|other| Some(other) != alpha) {
            let text = format!("{module}: more than one name of alpha_pattern fits it, with different numbers");
            return Err(ModelError::unknown(text));
        }
        let alpha = alpha.unwrap_or(self.alpha);
        Ok(match self.by_root {
            true => alpha / (rank as f64).sqrt(),
            false => alpha / rank as f64,
        })
    }
}

#[derive(Default)]
struct Pair {
    left: Option<usize>,
    right: Option<usize>,
}

/// Attaches each adapter's two tensors to the tensor they belong to. Returns how many tensors change.
///
/// # Errors
/// An adapter that does more than that, is incomplete, or belongs to no tensor.
pub fn fold(weights: &mut ModelWeights, scaling: &Scaling) -> Result<u64, ModelError> {
    let mut pairs: BTreeMap<Vec<(u64, String)>, (String, Pair)> = BTreeMap::new();
    for (n, tensor) in weights.tensors.iter().enumerate() {
        let name = inner(&tensor.name);
        if lora::is_trained_whole(&tensor.name) {
            let text = format!(
                "{}: modules that are trained whole beside an adapter (modules_to_save) are not put together here",
                tensor.name
            );
            return Err(ModelError::unknown(text));
        }
        if !lora::is_part(&name) {
            continue;
        }
        let plain = name.replace(".default.weight", ".weight");
        let part = plain
            .strip_suffix(".lora_A.weight")
            .map(|module| (module, false))
            .or(plain.strip_suffix(".lora_B.weight").map(|module| (module, true)));
        let Some((module, is_left)) = part else {
            let text = format!(
                "{}: only plain adapters of linear layers, of the name `default`, are folded in (no DoRA, no bias, no embeddings, not several)",
                tensor.name
            );
            return Err(ModelError::unknown(text));
        };
        let (_, pair) = pairs
            .entry(natural(module))
            .or_insert_with(|| (module.to_owned(), Pair::default()));
        let side = if is_left { &mut pair.left } else { &mut pair.right };
        if side.replace(n).is_some() {
            return Err(ModelError::damaged(format!("{}: it is there twice", tensor.name)));
        }
    }
    let names: BTreeMap<String, usize> = weights
        .tensors
        .iter()
        .enumerate()
        .map(|(n, t)| (inner(&t.name), n))
        .collect();
    let count = pairs.len() as u64;
    for (module, pair) in pairs.into_values() {
        let (Some(left), Some(right)) = (pair.left, pair.right) else {
            return Err(ModelError::damaged(format!("{module}: lora_A or lora_B is missing")));
        };
        let Some(base) = names.get(&format!("{module}.weight")).copied() else {
            let text = format!("{module}: the adapter changes it, and the model has no such tensor");
            return Err(ModelError::damaged(text));
        };
        let [b, a, w] = [left, right, base].map(|n| &weights.tensors[n]);
        let ([rows, of_b], [rank, columns]) = (b.shape.as_slice(), a.shape.as_slice()) else {
            let text = format!(
                "{module}: its adapter is none of a linear layer ({:?}, {:?})",
                b.shape, a.shape
            );
            return Err(ModelError::unknown(text));
        };
        if of_b != rank || w.shape != [*rows, *columns] || *rank == 0 {
            let text = format!(
                "{module}: adapters with the shapes {:?} and {:?} do not fit {:?}",
                b.shape, a.shape, w.shape
            );
            return Err(ModelError::damaged(text));
        }
        let known = |dtype| matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16);
        if !known(w.dtype) || !known(b.dtype) || a.dtype != b.dtype {
            let text = format!(
                "{module}: an adapter in {} and {} is not folded into {}",
                a.dtype.word(),
                b.dtype.word(),
                w.dtype.word()
            );
            return Err(ModelError::unknown(text));
        }
        let scaling = scaling.of(&module, *rank)?;
        weights.tensors[base].fold = Some(Fold { left, right, scaling });
    }
    let without = |n: &usize| weights.tensors[*n].fold.is_none() && weights.tensors[*n].shape.len() == 2;
    let plain = names.iter().filter(|(_, n)| without(n)).map(|(name, _)| name.as_str());
    match scaling.lacking(plain) {
        None => Ok(count),
        Some(module) => Err(ModelError::new(
            Verdict::Incomplete,
            format!("{module}: target_modules of adapter_config.json names it, and the adapter has nothing for it"),
        )),
    }
}

/// Removes the words that adapters and torch add to a name.
fn inner(name: &str) -> String {
    let name = lora::base_name(name);
    WRAPPERS.iter().fold(name, |name, word| name.replace(word, ""))
}
