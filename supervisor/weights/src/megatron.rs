//! Converts Megatron checkpoints (`torch_dist`) to the names of Hugging Face.
//!
//! Megatron saves whole tensors, divided into chunks by the ranks that had them, so nothing here depends on their number. Tensors that
//! Megatron joins are split again: queries, keys and values of each group of heads, gate and up, experts, layers. All three naming styles
//! are supported: all layers in one tensor (`decoder.layers.mlp…`), one tensor per layer (`decoder.layers.3.mlp…`), and with
//! `singleton_local_shards` one per expert and half (`…experts.7.linear_fc1.weight_w`). For the sources, see `tables.rs`. A tensor in no
//! table is an error, and so is a missing one that the configuration requires.

mod from_hf;
mod key;
mod sizes;
mod tables;

pub use from_hf::{GlobalSlice, GlobalTensor, KeyStyle, MegatronForm, MegatronModel, backward};

use crate::cast;
use crate::hf::{HfPlan, ModelConfig, Options, SCORE, natural};
use crate::layout::{OutTensor, TensorRange};
use crate::model::{ModelTensor, ModelWeights};
use crate::problem::ModelError;
use key::{Spot, TensorScope};
use sizes::{ModelDim, ModelSizes};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use supervise_core::checkpoint::Verdict;
use tables::{PREDICTION, RowSplit, TOP, TensorRule};

/// The most layers times experts of a model.
const MOST: u64 = 1 << 22;
/// Keeps its training precision: its values are compared with each other down to their last bits.
const KEPT: &str = "e_score_correction_bias";
/// The last layer; a critic's has one row, the value.
const OUTPUT: &str = "output_layer.weight";

/// Decides which tensors are written under which names.
///
/// # Errors
/// A model type without a table, a tensor that the table or the configuration does not know, or a missing one.
pub fn plan(weights: &ModelWeights, config: &ModelConfig, options: Options) -> Result<HfPlan, ModelError> {
    let sizes = ModelSizes { config };
    let critic = weights
        .find(OUTPUT)
        .is_some_and(|n| weights.tensors[n].shape.first() == Some(&1));
    let (tables, layers) = known(config, &sizes, critic)?;
    let mut making = HfBuilder {
        weights,
        tables,
        layers,
        predicting: sizes.maybe("num_nextn_predict_layers").unwrap_or(0),
        sizes,
        options,
        critic,
        made: BTreeMap::new(),
        notes: Vec::new(),
        same: Vec::new(),
    };
    bounded(&sizes, making.layers.saturating_add(making.predicting))?;
    for (n, tensor) in weights.tensors.iter().enumerate() {
        let spot = making.spot(&tensor.name)?;
        making.place(n, tensor, &spot)?;
    }
    making.predictions()?;
    making.complete()?;
    let mut model: Vec<OutTensor> = making.made.into_values().map(|(_, tensor)| tensor).collect();
    model.sort_by_cached_key(|t| natural(&t.name));
    Ok(HfPlan {
        tied: None,
        same: making.same,
        model,
        adapter: None,
        critic,
        notes: making.notes,
    })
}

/// The tables of a model type, and the number of layers.
fn known(
    config: &ModelConfig,
    sizes: &ModelSizes<'_>,
    critic: bool,
) -> Result<(&'static [&'static [TensorRule]], u64), ModelError> {
    let kind = config.model_type();
    let Some(tables) = tables::layers(kind) else {
        return Err(ModelError::unknown(format!(
            "there is no table of Megatron's names for the model type {kind} of config.json; there are tables for {}",
            tables::KINDS.join(", ")
        )));
    };
    let of_tokens = |a: &str| a.ends_with("ForCausalLM") || critic && a.ends_with("ForTokenClassification");
    if config.architecture().is_some_and(|a| !of_tokens(a)) {
        return Err(ModelError::unknown(format!(
            "config.json describes a {}: of Megatron's models only those that predict tokens, and critics, are known here",
            config.architecture().unwrap_or_default()
        )));
    }
    Ok((tables, sizes.layers()?))
}

fn bounded(sizes: &ModelSizes<'_>, layers: u64) -> Result<(), ModelError> {
    let experts = sizes.of(ModelDim::Experts).unwrap_or(1).max(1);
    match layers.saturating_mul(experts) <= MOST {
        true => Ok(()),
        false => Err(ModelError::unknown(
            "config.json: it speaks of more layers and experts than any model has",
        )),
    }
}

struct HfBuilder<'a> {
    weights: &'a ModelWeights,
    tables: &'static [&'static [TensorRule]],
    sizes: ModelSizes<'a>,
    layers: u64,
    /// Layers after the model's own that predict further tokens.
    predicting: u64,
    options: Options,
    /// Whether it has a value head instead of the one that predicts tokens.
    critic: bool,
    /// Output tensors, each with the index of its source tensor.
    made: BTreeMap<String, (usize, OutTensor)>,
    notes: Vec<String>,
    /// Tensors that exist under two keys.
    same: Vec<[OutTensor; 2]>,
}

impl HfBuilder<'_> {
    fn place(&mut self, n: usize, tensor: &ModelTensor, spot: &Spot) -> Result<(), ModelError> {
        let row = spot.row;
        if self.critic && row.key == OUTPUT {
            return self.value_head(n, tensor);
        }
        if row.when == tables::RuleCondition::Untied && self.sizes.config.is_tied() {
            let note = format!("{} is not written: config.json ties it to the embeddings", row.to[0]);
            self.notes.push(note);
            return Ok(());
        }
        let experts = match (row.experts, spot.expert) {
            (true, None) => 0..self.sizes.of(ModelDim::Experts)?,
            (true, Some(e)) if e >= self.sizes.of(ModelDim::Experts)? => {
                let text = format!(
                    "{}: config.json speaks of {} experts",
                    tensor.name,
                    self.sizes.of(ModelDim::Experts)?
                );
                return Err(ModelError::damaged(text));
            }
            (_, one) => one.unwrap_or(0)..one.unwrap_or(0) + 1,
        };
        let layers = match spot.of {
            TensorScope::Layers => 0..self.layers,
            TensorScope::Layer(n) => n..n + 1,
            TensorScope::Top => 0..1,
        };
        let mut lead = Vec::new();
        if spot.of == TensorScope::Layers {
            lead.push(self.layers);
        }
        if row.experts && spot.expert.is_none() {
            lead.push(experts.end);
        }
        let columns: Vec<u64> = row
            .columns
            .iter()
            .map(|s| self.sizes.of(*s))
            .collect::<Result<_, _>>()?;
        let (rows, parts) = self.parts(tensor, spot, lead.len())?;
        let want: Vec<u64> = lead.into_iter().chain([rows]).chain(columns.iter().copied()).collect();
        if tensor.shape != want {
            let text = format!(
                "{} has the shape {:?}, config.json asks for {want:?}",
                tensor.name, tensor.shape
            );
            return Err(ModelError::damaged(text));
        }
        let wide: u64 = columns.iter().product();
        let mut base = 0;
        for layer in layers {
            if !row.when.holds(&self.sizes, layer) {
                let text = format!(
                    "{}: config.json describes a model whose layer {layer} has no such tensor",
                    tensor.name
                );
                return Err(ModelError::damaged(text));
            }
            for expert in experts.clone() {
                for (to, ranges) in &parts {
                    let name = name(spot.of, to, layer, expert);
                    let height = ranges.iter().map(|r| r.end - r.start).sum();
                    let pieces = ranges.iter().map(|r| TensorRange {
                        tensor: n,
                        from: base + r.start * wide,
                        to: base + r.end * wide,
                    });
                    let shape = [height].into_iter().chain(columns.iter().copied()).collect();
                    self.make(n, name, shape, pieces.collect())?;
                }
                base += rows * wide;
            }
        }
        Ok(())
    }

    /// verl's critics have a linear layer without a bias here, whatever the embeddings are tied to.
    fn value_head(&mut self, n: usize, tensor: &ModelTensor) -> Result<(), ModelError> {
        let wide = self.sizes.of(ModelDim::Hidden)?;
        if tensor.shape != [1, wide] {
            let text = format!(
                "{OUTPUT} has the shape {:?}, config.json asks for {:?}",
                tensor.shape,
                [1, wide]
            );
            return Err(ModelError::damaged(text));
        }
        let note =
            format!("it is a critic: its value head is written as {SCORE}, without a bias, which Megatron's has not");
        self.notes.push(note);
        let piece = TensorRange {
            tensor: n,
            from: 0,
            to: wide,
        };
        self.make(n, SCORE.to_owned(), tensor.shape.clone(), vec![piece])
    }

    /// Returns the rows of a tensor of one layer and expert, and which of them make up which output tensor.
    fn parts(&mut self, tensor: &ModelTensor, spot: &Spot, lead: usize) -> Result<(u64, NamedRanges), ModelError> {
        let row = spot.row;
        Ok(match (row.rows, spot.half) {
            (RowSplit::One(size), _) => {
                let rows = self.sizes.of(size)?;
                (rows, vec![(row.to[0], one(0..rows))])
            }
            (RowSplit::Pair(size), None) => {
                let each = self.sizes.of(size)?;
                let both = each.saturating_mul(2);
                (both, vec![(row.to[0], one(0..each)), (row.to[1], one(each..both))])
            }
            (RowSplit::Pair(size), Some(half)) => {
                let each = self.sizes.of(size)?;
                (each, vec![(row.to[half], one(0..each))])
            }
            (RowSplit::Qkv, _) => {
                let (heads, groups, head) = (self.sizes.heads()?, self.sizes.groups()?, self.sizes.head()?);
                let queries = (heads / groups).saturating_mul(head);
                let group = queries.saturating_add(head.saturating_mul(2));
                let rows = groups.saturating_mul(group);
                // A bound for what follows: the tensor has these rows, or is rejected.
                if tensor.shape.get(lead) != Some(&rows) {
                    return Ok((rows, Vec::new()));
                }
                let cut = |from: u64, to: u64| (0..groups).map(|g| g * group + from..g * group + to).collect();
                let parts = vec![
                    (row.to[0], cut(0, queries)),
                    (row.to[1], cut(queries, queries + head)),
                    (row.to[2], cut(queries + head, group)),
                ];
                (rows, parts)
            }
            (RowSplit::Vocabulary, _) => {
                let want = self.sizes.of(ModelDim::Vocabulary)?;
                let rows = tensor.shape.first().copied().unwrap_or_default();
                if rows < want {
                    let text = format!("{} has {rows} rows, config.json speaks of {want} tokens", tensor.name);
                    return Err(ModelError::damaged(text));
                }
                if rows > want {
                    let note = format!(
                        "{}: the last {} of {rows} rows are no tokens of config.json and are not written",
                        tensor.name,
                        rows - want
                    );
                    self.notes.push(note);
                }
                (rows, vec![(row.to[0], one(0..want))])
            }
        })
    }

    fn make(&mut self, n: usize, name: String, shape: Vec<u64>, pieces: Vec<TensorRange>) -> Result<(), ModelError> {
        let source = &self.weights.tensors[n];
        let dtype = self
            .options
            .dtype
            .filter(|_| cast::is_float(source.dtype) && !name.ends_with(KEPT))
            .unwrap_or(source.dtype);
        if crate::layout::word(dtype).is_none() {
            let text = format!("{}: safetensors has no name for {}", source.name, dtype.word());
            return Err(ModelError::unknown(text));
        }
        let tensor = OutTensor {
            name: name.clone(),
            dtype,
            shape,
            pieces,
        };
        match self.made.entry(name) {
            Entry::Vacant(place) => drop(place.insert((n, tensor))),
            // Norms have one name in Transformer Engine's layers and another in Megatron's own.
            Entry::Occupied(place) if place.get().1.shape == tensor.shape && place.get().0 != n => {
                self.same.push([place.get().1.clone(), tensor]);
            }
            Entry::Occupied(place) => {
                return Err(ModelError::damaged(format!(
                    "{} and {} would both be written as {}",
                    self.weights.tensors[place.get().0].name,
                    source.name,
                    tensor.name
                )));
            }
        }
        Ok(())
    }

    /// Adds the model's embeddings and output to layers that predict further tokens: loaders expect copies there.
    fn predictions(&mut self) -> Result<(), ModelError> {
        if self.predicting == 0 {
            return Ok(());
        }
        let first = format!("model.layers.{}.", self.layers);
        if !self
            .made
            .range(first.clone()..)
            .next()
            .is_some_and(|(name, _)| name.starts_with(&first))
        {
            self.predicting = 0;
            let note = "config.json speaks of layers that predict further tokens (num_nextn_predict_layers), the checkpoint has none";
            self.notes.push(note.to_owned());
            return Ok(());
        }
        let output = match self.made.contains_key("lm_head.weight") {
            true => "lm_head.weight",
            false => "model.embed_tokens.weight",
        };
        for layer in self.layers..self.layers + self.predicting {
            for (from, to) in [
                ("model.embed_tokens.weight", "embed_tokens.weight"),
                (output, "shared_head.head.weight"),
            ] {
                if let Some((n, tensor)) = self.made.get(from).cloned() {
                    self.make(n, format!("model.layers.{layer}.{to}"), tensor.shape, tensor.pieces)?;
                }
            }
        }
        Ok(())
    }

    fn complete(&self) -> Result<(), ModelError> {
        let (mut lacking, mut first) = (0_u64, None);
        let mut look = |of: TensorScope, row: &TensorRule, layer: u64| -> Result<(), ModelError> {
            let experts = if row.experts {
                self.sizes.of(ModelDim::Experts)?
            } else {
                1
            };
            for expert in 0..experts {
                for to in row.to {
                    let name = name(of, to, layer, expert);
                    if !self.made.contains_key(&name) {
                        lacking += 1;
                        first.get_or_insert((name, row.key));
                    }
                }
            }
            Ok(())
        };
        let has = |r: &&TensorRule| r.when.holds(&self.sizes, 0) && !(self.critic && r.key == OUTPUT);
        for row in TOP.iter().filter(has) {
            look(TensorScope::Top, row, 0)?;
        }
        for layer in 0..self.layers + self.predicting {
            let extra = if layer < self.layers { &[][..] } else { &PREDICTION[..] };
            let rows = self.tables.iter().copied().flatten().chain(extra);
            for row in rows.filter(|r| r.when.holds(&self.sizes, layer)) {
                look(TensorScope::Layer(layer), row, layer)?;
            }
        }
        match first {
            None => Ok(()),
            Some((name, key)) => Err(ModelError::new(
                Verdict::Incomplete,
                format!(
                    "{lacking} tensors of the model are not in the checkpoint, the first is {name} (Megatron's {key})"
                ),
            )),
        }
    }
}

/// Output names, each with its ranges of rows.
type NamedRanges = Vec<(&'static str, Vec<Range<u64>>)>;

fn name(of: TensorScope, to: &str, layer: u64, expert: u64) -> String {
    let inner = to.replace("{e}", &expert.to_string());
    match of {
        TensorScope::Top => inner,
        _ => format!("model.layers.{layer}.{inner}"),
    }
}

fn one(rows: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(rows).collect()
}
