//! `torch.distributed.checkpoint`: which tensors belong to the model, and where their elements are.
//!
//! A save is a flattened dict of dicts: a name is the path through them, joined by dots. The writer chooses where the model is. AReaL
//! saves `{"dcp": {"model": …, "optim": …}}`, torch's own examples `{"model": …, "optim": …}` or `{"app": …}`, Megatron its own names
//! next to `optimizer.…`. The optimizer decides ambiguous names, because its values contain the parameters' names; if nothing decides,
//! the checkpoint is rejected.

use crate::fsdp::{FsdpShard, source_file};
use crate::model::{ModelTensor, ModelWeights, TensorChunk, row_major};
use crate::problem::ModelError;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::dcp::StoredValue;
use supervise_checkpoint::{DcpMetadata, FileDescription, InspectedFile};
use supervise_core::checkpoint::Verdict;

/// Meaningless dicts around everything else.
const AROUND: [&str; 2] = ["dcp.", "app."];
/// Keys that may contain a model.
const HOLDERS: [&str; 4] = ["model", "module", "model_state_dict", "state_dict"];
/// Top-level names in a Hugging Face model with a head.
const ROOTS: [&str; 6] = ["model", "lm_head", "score", "classifier", "v_head", "transformer"];
/// Prefixes of top-level names outside the model.
const OTHERS: [&str; 12] = [
    "optim",
    "opt_",
    "chained_",
    "lr_scheduler",
    "scheduler",
    "rng",
    "random",
    "dataloader",
    "train_state",
    "extra",
    "rerun_state",
    "step",
];
/// The most names in a message.
const NAMED: usize = 8;

/// The tensors of a checkpoint that belong to the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelSelection {
    /// Each name in the checkpoint, with the name in the model.
    pub names: BTreeMap<String, String>,
    /// Number of tensors left out, by top-level name.
    pub left_out: BTreeMap<String, u64>,
}

/// Returns the table of an inspected `.metadata`.
///
/// # Errors
/// It is not whole.
pub fn table(metadata: &InspectedFile) -> Result<&DcpMetadata, ModelError> {
    if let Some(worst) = metadata.findings.iter().find(|f| f.effect() != Verdict::Whole) {
        return Err(ModelError::found(".metadata", worst));
    }
    match metadata.description.as_deref() {
        Some(FileDescription::Dcp(dcp)) => Ok(dcp),
        _ => Err(ModelError::damaged(".metadata: it describes nothing")),
    }
}

/// Whether the names are Megatron's.
#[must_use]
pub fn is_megatron(dcp: &DcpMetadata) -> bool {
    let first = [
        "decoder.layers.",
        "embedding.word_embeddings.",
        "decoder.final_layernorm.",
    ];
    dcp.tensors.iter().any(|t| first.iter().any(|f| t.name.starts_with(f)))
}

/// Selects Megatron's model tensors: all but the optimizer's.
#[must_use]
pub fn choose_megatron(dcp: &DcpMetadata) -> ModelSelection {
    let mut out = ModelSelection::default();
    for tensor in &dcp.tensors {
        let name = tensor.name.to_string();
        let state = name.split(['.', '/']).any(|word| word == "_extra_state");
        match is_other(head(&name)) || state {
            true => out.leave_out(&name),
            false => drop(out.names.insert(name.clone(), name)),
        }
    }
    out
}

/// Selects the tensors whose names begin with `prefix`; without one, detects it.
///
/// # Errors
/// No tensor has such a name, or it is not clear which ones belong to the model.
pub fn choose(dcp: &DcpMetadata, prefix: Option<&str>) -> Result<ModelSelection, ModelError> {
    let names: Vec<&str> = dcp.tensors.iter().map(|t| &*t.name).collect();
    let prefix = match prefix {
        Some(given) if given.is_empty() || given.ends_with('.') => given.to_owned(),
        Some(given) => format!("{given}."),
        None => find(&names)?,
    };
    let mut out = ModelSelection::default();
    for name in &names {
        match name.strip_prefix(prefix.as_str()).filter(|n| !n.is_empty()) {
            // A model without a prefix may have other values next to it.
            Some(inner) if !(prefix.is_empty() && is_other(head(inner))) => {
                out.names.insert((*name).to_owned(), inner.to_owned());
            }
            _ => out.leave_out(name),
        }
    }
    if out.names.is_empty() {
        let text = format!(
            "no tensor has a name that begins with {prefix}; there are {}",
            few(names.iter().map(|n| head(n)))
        );
        return Err(ModelError::unknown(text));
    }
    Ok(out)
}

fn find(names: &[&str]) -> Result<String, ModelError> {
    let around = AROUND
        .iter()
        .find(|a| !names.is_empty() && names.iter().all(|n| n.starts_with(**a)));
    let around = around.copied().unwrap_or_default();
    let inner: Vec<&str> = names.iter().filter_map(|n| n.strip_prefix(around)).collect();
    let mine: Vec<&str> = inner.iter().copied().filter(|n| !is_other(head(n))).collect();
    let heads: BTreeSet<&str> = mine.iter().map(|n| head(n)).collect();
    let flat = heads.len() > 1 && heads.iter().all(|h| ROOTS.contains(h));
    let only = heads.iter().next().copied().unwrap_or_default();
    if flat {
        return Ok(around.to_owned());
    }
    if heads.len() != 1 || !HOLDERS.contains(&only) {
        let text = format!(
            "it is not clear which tensors are the model: their names begin with {}",
            few(heads.iter().copied())
        );
        return Err(ModelError::unknown(text));
    }
    let below: Vec<&str> = mine
        .iter()
        .filter_map(|n| n.strip_prefix(only)?.strip_prefix('.'))
        .collect();
    let holder = format!("{around}{only}.");
    let optimized = |name: &str| {
        inner
            .iter()
            .any(|n| is_other(head(n)) && n.contains(&format!("state.{name}.")))
    };
    let held = below.first().is_some_and(|n| optimized(n));
    let whole = mine.first().is_some_and(|n| optimized(n));
    let has_root = below.iter().any(|n| ROOTS.contains(&head(n)));
    match (has_root || held, whole && !has_root) {
        (true, false) => Ok(holder),
        (false, true) => Ok(around.to_owned()),
        _ if only != "model" => Ok(holder),
        _ => Err(ModelError::unknown(format!(
            "it is not clear what {} is called in the model: {} or {}",
            mine.first().copied().unwrap_or_default(),
            below.first().copied().unwrap_or_default(),
            mine.first().copied().unwrap_or_default(),
        ))),
    }
}

fn head(name: &str) -> &str {
    name.split(['.', '/']).next().unwrap_or_default()
}

fn is_other(head: &str) -> bool {
    OTHERS.iter().any(|o| head.starts_with(o)) || head == "opt"
}

fn few<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let all: BTreeSet<&str> = words.collect();
    let mut text = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if all.len() > NAMED {
        text += ", …";
    }
    text
}

impl ModelSelection {
    fn leave_out(&mut self, name: &str) {
        let inner = AROUND.iter().find_map(|a| name.strip_prefix(a)).unwrap_or(name);
        *self.left_out.entry(head(inner).to_owned()).or_default() += 1;
    }

    /// Returns the files that contain selected tensors.
    #[must_use]
    pub fn files<'d>(&self, dcp: &'d DcpMetadata) -> Vec<&'d str> {
        let holds = |p: &supervise_checkpoint::dcp::StorageRange| self.names.contains_key(&*p.fqn);
        let with_any = dcp.parts.iter().filter(|(_, parts)| parts.iter().any(holds));
        with_any.map(|(name, _)| name.as_str()).collect()
    }
}

/// Assembles the tensors from the files that contain them. Each file was inspected against the table, with all its parts.
///
/// # Errors
/// A file that is missing or not whole, or a chunk in an unsupported form.
pub fn gather(dcp: &DcpMetadata, choice: &ModelSelection, shards: &[FsdpShard]) -> Result<ModelWeights, ModelError> {
    let mut chunks: BTreeMap<&str, Vec<TensorChunk>> = BTreeMap::new();
    for (file, shard) in shards.iter().enumerate() {
        sound(shard)?;
        for part in dcp
            .parts
            .get(shard.path.as_str())
            .map(Vec::as_slice)
            .unwrap_or_default()
        {
            let StoredValue::Tensor { offsets, shape, .. } = &part.what else {
                continue;
            };
            if !choice.names.contains_key(&*part.fqn) || shape.contains(&0) {
                continue;
            }
            let held = &shard.found.held;
            let Ok(n) = held.binary_search_by_key(&part.off, |h| h.part) else {
                let text = format!("{}: {} is kept in a form that is not read here", shard.path, part.fqn);
                return Err(ModelError::unknown(text));
            };
            let stride = match held[n].stride.len() == shape.len() {
                true => held[n].stride.clone(),
                false => row_major(shape),
            };
            chunks.entry(&part.fqn).or_default().push(TensorChunk {
                offsets: offsets.to_vec(),
                sizes: shape.to_vec(),
                file,
                at: held[n].at,
                stride,
            });
        }
    }
    let mut tensors = Vec::with_capacity(choice.names.len());
    for described in &dcp.tensors {
        let Some(name) = choice.names.get(&*described.name) else {
            continue;
        };
        let Some(dtype) = described.dtype else {
            let text = format!("{}: the type of its elements is not known", described.name);
            return Err(ModelError::unknown(text));
        };
        let mut own = chunks.remove(&*described.name).unwrap_or_default();
        own.sort_by(|a, b| a.offsets.cmp(&b.offsets));
        // The table's chunks tile the tensor: all of them must be present.
        let there: u64 = own.iter().map(|c| crate::model::elements(&c.sizes)).sum();
        let tensor = ModelTensor {
            name: name.clone(),
            dtype,
            shape: described.shape.clone(),
            chunks: own,
            copies: Vec::new(),
            fold: None,
        };
        if there != tensor.elements() {
            let text = format!(
                "{}: the files hold {there} of its {} elements",
                described.name,
                tensor.elements()
            );
            return Err(ModelError::new(Verdict::Incomplete, text));
        }
        tensors.push(tensor);
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(ModelWeights {
        files: shards.iter().map(source_file).collect(),
        tensors,
    })
}

fn sound(shard: &FsdpShard) -> Result<(), ModelError> {
    let found = &shard.found;
    match found.findings.iter().find(|f| f.effect() != Verdict::Whole) {
        Some(worst) => Err(ModelError::found(shard.path.as_str(), worst)),
        None => Ok(()),
    }
}
