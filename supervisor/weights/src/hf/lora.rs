//! LoRA adapters that were trained with a model.

use crate::layout::OutTensor;
use crate::problem::ModelError;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use supervise_core::checkpoint::Verdict;

/// An adapter's tensors, under the names that peft reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoraAdapter {
    /// Sorted by name.
    pub tensors: Vec<OutTensor>,
    /// The rank, from the shapes.
    pub rank: u64,
    /// The modules that it changes, by the last word of their names.
    pub modules: BTreeSet<String>,
}

/// What verl records about an adapter, in `lora_train_meta.json`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AdapterFacts {
    pub rank: Option<u64>,
    /// The factor before division by the rank.
    pub alpha: Option<f64>,
    /// The task type, as peft names it.
    pub task: Option<String>,
}

impl AdapterFacts {
    /// Parses the text.
    ///
    /// # Errors
    /// It is not a JSON object.
    pub fn parse(text: &[u8]) -> Result<Self, ModelError> {
        let value: Value = serde_json::from_slice(text)
            .map_err(|e| ModelError::new(Verdict::Damaged, format!("lora_train_meta.json: {e}")))?;
        Ok(Self {
            rank: value.get("r").and_then(Value::as_u64).filter(|r| *r > 0),
            alpha: value.get("lora_alpha").and_then(Value::as_f64).filter(|a| *a > 0.0),
            task: value.get("task_type").and_then(Value::as_str).map(str::to_owned),
        })
    }
}

impl LoraAdapter {
    /// Builds `adapter_config.json` with what peft needs to load it; everything else has peft's defaults.
    ///
    /// # Errors
    /// The recorded rank differs from that of the tensors.
    pub fn config(&self, facts: &AdapterFacts, alpha: f64, base: Option<&str>) -> Result<String, ModelError> {
        if let Some(said) = facts.rank.filter(|said| *said != self.rank) {
            let text = format!(
                "lora_train_meta.json speaks of rank {said}, the tensors have {}",
                self.rank
            );
            return Err(ModelError::damaged(text));
        }
        // peft reads a number without a point as an integer, which users expect.
        let alpha = match alpha.fract() == 0.0 && alpha < 1e15 {
            true => json!(alpha as i64),
            false => json!(alpha),
        };
        let value = json!({
            "peft_type": "LORA",
            "task_type": facts.task,
            "base_model_name_or_path": base,
            "r": self.rank,
            "lora_alpha": alpha,
            "lora_dropout": 0.0,
            "target_modules": self.modules,
            "bias": "none",
            "fan_in_fan_out": false,
            "inference_mode": false,
            "init_lora_weights": true,
            "modules_to_save": null,
        });
        Ok(serde_json::to_string_pretty(&value).unwrap_or_default() + "\n")
    }
}

/// Whether the name is that of an adapter's tensor.
#[must_use]
pub fn is_part(name: &str) -> bool {
    name.contains("lora_")
}

/// Removes the words that an adapter adds to the name of a model's tensor.
pub(super) fn base_name(name: &str) -> String {
    name.replace("base_model.model.", "")
        .replace(".base_layer.weight", ".weight")
        .replace(".base_layer.bias", ".bias")
}

pub(super) fn adapter(parts: Vec<OutTensor>) -> Result<LoraAdapter, ModelError> {
    let mut tensors = parts;
    for tensor in &mut tensors {
        tensor.name = tensor.name.replace(".default.weight", ".weight");
        if !is_plain(&tensor.name) {
            let text = format!(
                "{}: only plain adapters of the name `default` are written (no DoRA, no bias, not several)",
                tensor.name
            );
            return Err(ModelError::unknown(text));
        }
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let modules = tensors
        .iter()
        .filter_map(|t| t.name.split('.').rev().nth(2))
        .map(str::to_owned)
        .collect();
    let ranks: BTreeSet<u64> = tensors.iter().filter_map(rank).collect();
    match ranks.iter().copied().collect::<Vec<_>>()[..] {
        [rank] => Ok(LoraAdapter { tensors, rank, modules }),
        _ => Err(ModelError::unknown(format!(
            "the adapter's tensors have more than one rank, or none: {ranks:?}"
        ))),
    }
}

fn is_plain(name: &str) -> bool {
    let mut words = name.rsplit('.');
    matches!(
        (words.next(), words.next()),
        (Some("weight"), Some("lora_A" | "lora_B"))
            | (Some("default"), Some("lora_embedding_A" | "lora_embedding_B"))
            | (Some("lora_embedding_A" | "lora_embedding_B"), _)
    )
}

/// Whether a module was trained in full next to an adapter. The checkpoint then has it twice, under names that no loader knows.
pub(super) fn is_trained_whole(name: &str) -> bool {
    name.contains(".modules_to_save.") || name.contains(".original_module.")
}

/// The rank: rows of `lora_A`, columns of `lora_B`.
fn rank(tensor: &OutTensor) -> Option<u64> {
    let shape = &tensor.shape;
    match tensor.name.rsplit('.').nth(1) {
        Some("lora_A" | "lora_embedding_A") => shape.first().copied(),
        Some("lora_B" | "lora_embedding_B") => shape.get(1).copied(),
        _ => None,
    }
}
