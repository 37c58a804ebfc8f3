//! The names and shapes that Hugging Face's libraries expect in a model directory.
//!
//! Source: transformers 5.9 `conversion_mapping.py` (experts: one tensor in memory, one per expert on disk), verl 0.9
//! `verl/model_merger/base_model_merger.py` (adapters, tied embeddings), peft 0.21 `LoraConfig`.

mod experts;
mod fold;
mod lora;

pub use fold::{Scaling, fold};
pub use lora::{AdapterFacts, LoraAdapter, is_part};

use crate::cast;
use crate::layout::{OutTensor, TensorRange};
use crate::model::ModelWeights;
use crate::problem::ModelError;
use serde_json::{Value, json};
use supervise_checkpoint::Dtype;

/// Model types whose tensors have the same names in memory and on disk, except for experts.
const KNOWN: [&str; 26] = [
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen2_moe",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi",
    "phi3",
    "olmo",
    "olmo2",
    "olmo3",
    "olmoe",
    "deepseek_v2",
    "deepseek_v3",
    "glm4",
    "glm4_moe",
    "gpt_neox",
    "gpt2",
    "smollm3",
    "granite",
    "cohere2",
    "starcoder2",
];

/// The language model head.
pub const HEAD: &str = "lm_head.weight";
/// The value head, as in transformers' token classification models.
pub const SCORE: &str = "score.weight";
/// Words that torch adds to names if a module is compiled or wrapped.
const WRAPPERS: [&str; 3] = ["_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module."];
/// Keeps its precision, as in transformers: it decides which experts are chosen.
const KEPT: &str = "e_score_correction_bias";

/// A model's `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    pub value: Value,
}

impl ModelConfig {
    /// Parses the text.
    ///
    /// # Errors
    /// It is not a JSON object, or names no model type.
    pub fn parse(text: &[u8]) -> Result<Self, ModelError> {
        let value: Value =
            serde_json::from_slice(text).map_err(|e| ModelError::damaged(format!("config.json: {e}")))?;
        if value.get("model_type").and_then(Value::as_str).is_none() {
            return Err(ModelError::unknown("config.json: it has no model_type"));
        }
        Ok(Self { value })
    }

    /// Returns the model type, such as `qwen3`.
    #[must_use]
    pub fn model_type(&self) -> &str {
        self.value.get("model_type").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the class that it is loaded as, such as `Qwen3ForCausalLM`.
    #[must_use]
    pub fn architecture(&self) -> Option<&str> {
        self.value.get("architectures")?.get(0)?.as_str()
    }

    fn number(&self, key: &str) -> Option<u64> {
        let text = self.value.get("text_config").and_then(|c| c.get(key));
        self.value.get(key).or(text)?.as_u64()
    }

    /// Whether it is a causal language model.
    fn generates(&self) -> bool {
        let first = self
            .value
            .get("architectures")
            .and_then(|a| a.get(0))
            .and_then(Value::as_str);
        first.is_some_and(|name| name.ends_with("ForCausalLM"))
    }

    /// Whether its numbers are quantized.
    #[must_use]
    pub fn is_quantised(&self) -> bool {
        self.value.get("quantization_config").is_some_and(|q| !q.is_null())
    }

    /// Whether embeddings and head are one tensor.
    #[must_use]
    pub fn is_tied(&self) -> bool {
        self.value.get("tie_word_embeddings").and_then(Value::as_bool) == Some(true)
    }

    /// Returns the configuration of a critic initialized from this model, as transformers writes it.
    #[must_use]
    pub fn of_critic(&self) -> Self {
        let mut value = self.value.clone();
        if let (Some(class), Some(map)) = (self.architecture(), value.as_object_mut()) {
            let class = class.replace("ForCausalLM", "ForTokenClassification");
            map.insert("architectures".to_owned(), json!([class]));
            map.insert("id2label".to_owned(), json!({"0": "LABEL_0"}));
            map.insert("label2id".to_owned(), json!({"LABEL_0": 0}));
        }
        Self { value }
    }

    /// Returns the configuration with another element type, as transformers writes it.
    #[must_use]
    pub fn with_dtype(&self, dtype: Option<Dtype>) -> String {
        let mut value = self.value.clone();
        if let (Some(dtype), Some(map)) = (dtype, value.as_object_mut()) {
            // transformers 4 uses the older key.
            let key = match map.contains_key("torch_dtype") && !map.contains_key("dtype") {
                true => "torch_dtype",
                false => "dtype",
            };
            map.insert(key.to_owned(), dtype.word().into());
        }
        serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
    }
}

/// How to write the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Element type of the output; `None`: unchanged.
    pub dtype: Option<Dtype>,
    pub keep_names: bool,
}

/// The output's tensors.
#[derive(Debug, Default)]
pub struct HfPlan {
    /// The model's tensors, in the order in which they are assigned to files.
    pub model: Vec<OutTensor>,
    pub adapter: Option<LoraAdapter>,
    /// A head that is not written because `config.json` ties it to the embeddings, and the embeddings under the head's name.
    pub tied: Option<[OutTensor; 2]>,
    /// Tensors that the checkpoint has under two names: each pair must be equal, and one of it is written.
    pub same: Vec<[OutTensor; 2]>,
    /// Whether it is a critic although the configuration names the class it was initialized from: its head gives each token a value.
    pub critic: bool,
    pub notes: Vec<String>,
}

impl HfPlan {
    /// Returns the type of its floating-point numbers, if they have the same one.
    #[must_use]
    pub fn dtype(&self) -> Option<Dtype> {
        let mut all = self.model.iter().map(|t| t.dtype).filter(|d| cast::is_float(*d));
        let first = all.next()?;
        all.all(|d| d == first).then_some(first)
    }
}

/// Plans all tensors under their names in the checkpoint.
///
/// # Errors
/// A type that safetensors has no name for.
pub fn plan_as_is(weights: &ModelWeights, dtype: Option<Dtype>) -> Result<HfPlan, ModelError> {
    let config = ModelConfig { value: Value::Null };
    let options = Options {
        dtype,
        keep_names: true,
    };
    plan(weights, &config, options)
}

/// Decides which tensors are written under which names.
///
/// # Errors
/// A model type whose names are not known, or tensors that contradict the configuration.
pub fn plan(weights: &ModelWeights, config: &ModelConfig, options: Options) -> Result<HfPlan, ModelError> {
    let kind = config.model_type();
    if !options.keep_names && !KNOWN.contains(&kind) && !experts::is_known(kind) {
        return Err(ModelError::unknown(format!(
            "the model type {kind} of config.json is none whose names on disk are known here"
        )));
    }
    let mut out = HfPlan::default();
    let mut lora = Vec::new();
    let has_lora = !options.keep_names && weights.tensors.iter().any(|t| lora::is_part(&t.name));
    let folded = weights.tensors.iter().any(|t| t.fold.is_some());
    for (n, tensor) in weights.tensors.iter().enumerate() {
        let is_cast = cast::is_float(tensor.dtype) && (options.keep_names || !tensor.name.ends_with(KEPT));
        let dtype = options.dtype.filter(|_| is_cast).unwrap_or(tensor.dtype);
        if !options.keep_names && lora::is_trained_whole(&tensor.name) {
            let text = format!(
                "{}: modules that are trained whole beside an adapter (modules_to_save) are not put together here",
                tensor.name
            );
            return Err(ModelError::unknown(text));
        }
        let all = OutTensor {
            name: tensor.name.clone(),
            dtype,
            shape: tensor.shape.clone(),
            pieces: vec![TensorRange {
                tensor: n,
                from: 0,
                to: tensor.elements(),
            }],
        };
        if crate::layout::word(dtype).is_none() {
            let text = format!("{}: safetensors has no name for {}", tensor.name, dtype.word());
            return Err(ModelError::unknown(text));
        }
        match () {
            () if options.keep_names => out.model.push(all),
            () if has_lora && lora::is_part(&tensor.name) && folded => {}
            () if has_lora && lora::is_part(&tensor.name) => lora.push(all),
            () => {
                let name = match has_lora {
                    true => lora::base_name(&tensor.name),
                    false => tensor.name.clone(),
                };
                let name = WRAPPERS.iter().fold(name, |name, word| name.replace(word, ""));
                experts::split(OutTensor { name, ..all }, kind, &mut out.model)?;
            }
        }
    }
    out.model.sort_by_cached_key(|t| natural(&t.name));
    if let Some(twice) = out.model.windows(2).find(|w| w[0].name == w[1].name) {
        return Err(ModelError::damaged(format!(
            "two tensors would be written as {}",
            twice[0].name
        )));
    }
    if !options.keep_names {
        if out.model.is_empty() && !lora.is_empty() {
            out.notes
                .push("the checkpoint holds an adapter alone: the model it belongs to is not in it".to_owned());
        } else {
            out.critic = config.generates() && is_critic(&out.model);
            match out.critic {
                true => {
                    let class = config.architecture().unwrap_or_default();
                    let note =
                        format!("it is a critic that began as {class}: config.json is written for its value head");
                    out.notes.push(note);
                    fits(&config.of_critic(), &out.model)?;
                }
                false => {
                    untie(config, &mut out);
                    fits(config, &out.model)?;
                }
            }
        }
    }
    if !lora.is_empty() {
        out.adapter = Some(lora::adapter(lora)?);
    }
    Ok(out)
}

/// Whether the head gives each token one number. The configuration of verl's critics keeps the class they were initialized from.
fn is_critic(model: &[OutTensor]) -> bool {
    let score = model.iter().any(|t| t.name == SCORE && t.shape.first() == Some(&1));
    score && !model.iter().any(|t| t.name == HEAD)
}

/// Drops a tensor that the model ties to another: a loader that finds both does not tie them again.
fn untie(config: &ModelConfig, out: &mut HfPlan) {
    if !config.is_tied() || !out.model.iter().any(|t| t.name.ends_with("embed_tokens.weight")) {
        return;
    }
    let Some(at) = out.model.iter().position(|t| t.name == HEAD) else {
        return;
    };
    let head = out.model.remove(at);
    if let Some(embeddings) = out.model.iter().find(|t| t.name.ends_with("embed_tokens.weight")) {
        let embeddings = OutTensor {
            name: HEAD.to_owned(),
            ..embeddings.clone()
        };
        out.tied = Some([head, embeddings]);
        let note = format!("{HEAD} is not written: config.json ties it to the embeddings");
        out.notes.push(note);
    }
}

/// Checks that the tensors can be those of the configured model.
fn fits(config: &ModelConfig, model: &[OutTensor]) -> Result<(), ModelError> {
    let layer = |t: &OutTensor| {
        let rest = t
            .name
            .strip_prefix("model.layers.")
            .or(t.name.strip_prefix("model.language_model.layers."))?;
        rest.split('.').next()?.parse::<u64>().ok()
    };
    let layers: std::collections::BTreeSet<u64> = model.iter().filter_map(layer).collect();
    // Two model types have other names for these; any other model without them has the names of another library.
    let usual = !["gpt2", "gpt_neox"].contains(&config.model_type());
    if usual && !model.iter().any(|t| t.name.ends_with("embed_tokens.weight")) {
        let text = format!(
            "no tensor is the embeddings of a model of the type {} (embed_tokens.weight); the first is {}",
            config.model_type(),
            model.first().map(|t| t.name.as_str()).unwrap_or_default()
        );
        return Err(ModelError::unknown(text));
    }
    let want = config
        .number("num_hidden_layers")
        .filter(|_| usual || !layers.is_empty());
    let gone = want.and_then(|want| (0..want).find(|n| !layers.contains(n)));
    if let (Some(want), Some(gone)) = (want, gone) {
        let text = format!("config.json speaks of {want} layers and no tensor is of layer {gone}");
        return Err(ModelError::damaged(text));
    }
    let embeddings = model.iter().find(|t| t.name.ends_with("embed_tokens.weight"));
    if let (Some(tensor), Some(want)) = (embeddings, config.number("vocab_size"))
        && tensor.shape.first().is_some_and(|rows| *rows < want)
    {
        let text = format!(
            "{} has the shape {:?}, config.json speaks of {want} tokens",
            tensor.name, tensor.shape
        );
        return Err(ModelError::damaged(text));
    }
    if let Some(what) = lacks_norm(config, model) {
        return Err(ModelError::damaged(what));
    }
    let head = model.iter().find(|t| t.name == HEAD);
    let has_head = usual && config.value.get("tie_word_embeddings") == Some(&Value::Bool(false)) && config.generates();
    match (head, embeddings) {
        (None, _) if has_head => {
            return Err(ModelError::damaged(format!(
                "{HEAD} is missing, and config.json does not tie it to the embeddings"
            )));
        }
        (Some(head), Some(tensor)) if usual && head.shape != tensor.shape => {
            let text = format!(
                "{HEAD} has the shape {:?}, the embeddings have {:?}",
                head.shape, tensor.shape
            );
            return Err(ModelError::damaged(text));
        }
        _ => {}
    }
    match KNOWN.contains(&config.model_type()) && !experts::is_known(config.model_type()) {
        true => alike(model),
        false => Ok(()),
    }
}

/// Reports a missing norm after the last layer. In some model types it has no weights, or another name.
fn lacks_norm(config: &ModelConfig, model: &[OutTensor]) -> Option<String> {
    let kind = config.model_type();
    let named = KNOWN.contains(&kind) && !["olmo", "gpt2", "gpt_neox"].contains(&kind);
    let is_last = |t: &OutTensor| {
        let ends = [".norm.weight", ".final_layernorm.weight"];
        !t.name.contains(".layers.") && ends.iter().any(|end| t.name.ends_with(end))
    };
    (named && !model.iter().any(is_last))
        .then(|| format!("the norm behind the last layer of a model of the type {kind} is missing (model.norm.weight)"))
}

/// Checks that layers of one kind have the same tensors.
fn alike(model: &[OutTensor]) -> Result<(), ModelError> {
    let mut layers: std::collections::BTreeMap<&str, Vec<(&str, &[u64])>> = std::collections::BTreeMap::new();
    for tensor in model {
        let rest = tensor.name.strip_prefix("model.layers.");
        if let Some((layer, name)) = rest.and_then(|rest| rest.split_once('.')) {
            layers.entry(layer).or_default().push((name, &tensor.shape));
        }
    }
    let Some((first, of_first)) = layers.first_key_value() else {
        return Ok(());
    };
    for (layer, tensors) in &layers {
        let odd = of_first.iter().find(|t| !tensors.contains(t)).map(|t| (*layer, t));
        let odd = odd.or_else(|| tensors.iter().find(|t| !of_first.contains(t)).map(|t| (*first, t)));
        if let Some((lacks, (name, shape))) = odd {
            let text = format!("layer {lacks} has no {name} with the shape {shape:?}, as layers beside it have");
            return Err(ModelError::damaged(text));
        }
    }
    Ok(())
}

/// Sort key for natural order: `layers.2` before `layers.10`.
pub(crate) fn natural(name: &str) -> Vec<(u64, String)> {
    name.split('.')
        .map(|word| match word.parse() {
            Ok(n) => (n, String::new()),
            Err(_) => (u64::MAX, word.to_owned()),
        })
        .collect()
}
