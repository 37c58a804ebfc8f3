//! Converts a Hugging Face model to Megatron's names, with the tables in reverse.
//!
//! Source: megatron-core 0.16 `transformer/transformer_block.py` (which layers are stacked), `transformer/utils.py` (`_extra_state`),
//! `models/gpt/gpt_layer_specs.py`: a norm has one name in Transformer Engine's layers and another in Megatron's own, so it is written
//! under both. The padding rows of the vocabulary are not written: loaders add them.

use super::sizes::{ModelDim, ModelSizes};
use super::tables::{PREDICTION, RowSplit, TOP, TensorRule};
use super::{KEPT, MOST};
use crate::cast;
use crate::hf::{HEAD, ModelConfig};
use crate::layout::{OutTensor, TensorRange};
use crate::model::{ModelWeights, elements};
use crate::problem::ModelError;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::Dtype;
use supervise_core::checkpoint::Verdict;

const EMBEDDINGS: &str = "model.embed_tokens.weight";
/// Older models save this although it is computed from their configuration.
const COMPUTED: &str = "rotary_emb.inv_freq";

/// How Megatron names the tensors of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStyle {
    /// All layers in one tensor.
    Stacked,
    /// One per layer.
    Layers,
    /// One per layer, expert and half (`singleton_local_shards`).
    Single,
}

/// How to write the model.
#[derive(Debug, Clone, Copy)]
pub struct MegatronForm {
    /// Element type; `None`: unchanged.
    pub dtype: Option<Dtype>,
    /// Naming style; `None`: Megatron's default for such a model.
    pub keys: Option<KeyStyle>,
    /// The most bytes of a tensor in one piece; a row is never split.
    pub chunk: u64,
}

/// One of Megatron's tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalTensor {
    pub dtype: Dtype,
    /// Shape of the whole tensor.
    pub shape: Vec<u64>,
    /// Boxes that tile it.
    pub parts: Vec<GlobalSlice>,
}

/// A box of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalSlice {
    /// Start in each dimension.
    pub offsets: Vec<u64>,
    pub tensor: OutTensor,
}

/// A model in Megatron's form.
#[derive(Debug)]
pub struct MegatronModel {
    pub tensors: BTreeMap<String, GlobalTensor>,
    /// Keys of empty layer states.
    pub states: BTreeSet<String>,
    pub keys: KeyStyle,
    /// Pairs of tensors that must be equal; one of each is written.
    pub same: Vec<[OutTensor; 2]>,
    pub notes: Vec<String>,
}

/// Decides which tensors are written under which keys.
///
/// # Errors
/// A model type without a table, or a tensor that is missing, has another shape than the configuration says, or is in no table.
pub fn backward(weights: &ModelWeights, config: &ModelConfig, form: MegatronForm) -> Result<MegatronModel, ModelError> {
    let sizes = ModelSizes { config };
    let (tables, layers) = super::known(config, &sizes, false)?;
    super::bounded(&sizes, layers)?;
    if config.is_quantised() {
        let text = "config.json: its numbers are quantised (quantization_config), and Megatron keeps none such";
        return Err(ModelError::unknown(text));
    }
    let sparse = (0..layers).filter(|n| sizes.is_sparse(*n)).count() as u64;
    // If there is a list of layers with experts, Megatron numbers the layers, whatever is in the list.
    let alike = (sparse == 0 || sparse == layers) && sizes.kind() != "deepseek_v3";
    let keys = match form.keys {
        Some(KeyStyle::Stacked) if sparse != 0 && sparse != layers => {
            let text = format!("{sparse} of its {layers} layers have experts: layers of two kinds cannot be stacked");
            return Err(ModelError::unknown(text));
        }
        Some(keys) => keys,
        None if alike => KeyStyle::Stacked,
        None => KeyStyle::Layers,
    };
    let mut making = MegatronBuilder {
        weights,
        sizes,
        layers,
        form,
        keys,
        used: vec![false; weights.tensors.len()],
        parts: 0,
        out: MegatronModel {
            tensors: BTreeMap::new(),
            states: BTreeSet::new(),
            keys,
            same: Vec::new(),
            notes: Vec::new(),
        },
    };
    for row in TOP.iter().filter(|r| r.when.holds(&sizes, 0)) {
        making.row(row, &LayerScope::Top)?;
    }
    for n in 0..layers {
        making.layer(tables, n, &LayerScope::Layer(n), &[])?;
    }
    for n in 0..making.predicting() {
        making.layer(tables, layers + n, &LayerScope::Predicting(n), &PREDICTION)?;
        making.again(layers + n)?;
    }
    making.tied()?;
    making.left()?;
    Ok(making.out)
}

enum LayerScope {
    Top,
    Layer(u64),
    /// A layer after the model's own, by its number among those.
    Predicting(u64),
}

struct MegatronBuilder<'a> {
    weights: &'a ModelWeights,
    sizes: ModelSizes<'a>,
    layers: u64,
    form: MegatronForm,
    keys: KeyStyle,
    used: Vec<bool>,
    /// Pieces so far.
    parts: u64,
    out: MegatronModel,
}

/// A key, and the position in its tensor.
struct Goal {
    key: String,
    offsets: Vec<u64>,
    lead: Vec<u64>,
}

impl MegatronBuilder<'_> {
    fn layer(
        &mut self,
        tables: &[&[TensorRule]],
        n: u64,
        place: &LayerScope,
        extra: &[TensorRule],
    ) -> Result<(), ModelError> {
        let (rows, sizes) = (tables.iter().copied().flatten(), self.sizes);
        for row in rows.chain(extra).filter(|r| r.when.holds(&sizes, n)) {
            self.row(row, place)?;
        }
        let core = self.goal("self_attention.core_attention", "._extra_state", place, None);
        self.state(&core);
        Ok(())
    }

    fn row(&mut self, row: &TensorRule, place: &LayerScope) -> Result<(), ModelError> {
        let experts = if row.experts {
            self.sizes.of(ModelDim::Experts)?
        } else {
            1
        };
        let columns: Vec<u64> = row
            .columns
            .iter()
            .map(|s| self.sizes.of(*s))
            .collect::<Result<_, _>>()?;
        let heights = self.heights(row)?;
        for expert in 0..experts {
            let layer = match place {
                LayerScope::Top => String::new(),
                LayerScope::Layer(n) => format!("model.layers.{n}."),
                LayerScope::Predicting(n) => format!("model.layers.{}.", self.layers + n),
            };
            let mut sources = Vec::with_capacity(row.to.len());
            for (to, height) in row.to.iter().zip(&heights) {
                let name = format!("{layer}{}", to.replace("{e}", &expert.to_string()));
                let shape: Vec<u64> = [*height].into_iter().chain(columns.iter().copied()).collect();
                sources.push(self.source(&name, &shape)?);
            }
            let one = row.experts.then_some((expert, experts));
            let pair = matches!(row.rows, RowSplit::Pair(_)) && self.keys == KeyStyle::Single;
            let wide = elements(&columns);
            match pair {
                true => {
                    for (half, (source, height)) in ["_w", "_v"].into_iter().zip(sources.iter().zip(&heights)) {
                        let goal = self.goal(row.key, half, place, one);
                        self.make(goal, *height, &columns, vec![whole(*source, *height, wide)])?;
                    }
                }
                false => {
                    let pieces = match row.rows {
                        RowSplit::Qkv => self.interleaved(&sources, wide)?,
                        _ => sources.iter().zip(&heights).map(|(n, h)| whole(*n, *h, wide)).collect(),
                    };
                    let goal = self.goal(row.key, "", place, one);
                    self.make(goal, heights.iter().sum(), &columns, pieces)?;
                }
            }
            let module = row.key.strip_suffix(".weight").filter(|m| !STATELESS.contains(m));
            if let Some(module) = module {
                let goal = self.goal(module, "._extra_state", place, one);
                self.state(&goal);
            }
        }
        Ok(())
    }

    /// Rows of each source tensor of one of Megatron's.
    fn heights(&self, row: &TensorRule) -> Result<Vec<u64>, ModelError> {
        Ok(match row.rows {
            RowSplit::One(size) => vec![self.sizes.of(size)?],
            RowSplit::Pair(size) => vec![self.sizes.of(size)?; 2],
            RowSplit::Vocabulary => vec![self.sizes.of(ModelDim::Vocabulary)?],
            RowSplit::Qkv => {
                let (groups, head) = (self.sizes.groups()?, self.sizes.head()?);
                let keys = groups.saturating_mul(head);
                vec![self.sizes.of(ModelDim::Queries)?, keys, keys]
            }
        })
    }

    fn source(&mut self, name: &str, shape: &[u64]) -> Result<usize, ModelError> {
        let Some(n) = self.weights.find(name) else {
            let text = format!("{name} is missing: config.json describes a model that has it");
            return Err(ModelError::new(Verdict::Incomplete, text));
        };
        let tensor = &self.weights.tensors[n];
        if tensor.shape != shape {
            let text = format!(
                "{name} has the shape {:?}, config.json asks for {shape:?}",
                tensor.shape
            );
            return Err(ModelError::damaged(text));
        }
        if elements(shape) == 0 {
            return Err(ModelError::damaged(format!("{name}: it holds no number")));
        }
        if !cast::is_float(tensor.dtype) {
            let text = format!(
                "{name}: its numbers are {}, and Megatron keeps none such",
                tensor.dtype.word()
            );
            return Err(ModelError::unknown(text));
        }
        self.used[n] = true;
        Ok(n)
    }

    /// The queries, key and value of each group of heads. The shapes were checked, so all ranges are inside the source.
    fn interleaved(&self, sources: &[usize], wide: u64) -> Result<Vec<TensorRange>, ModelError> {
        let (heads, groups, head) = (self.sizes.heads()?, self.sizes.groups()?, self.sizes.head()?);
        let each = [heads / groups * head * wide, head * wide, head * wide];
        let of_group = |g: u64| {
            sources.iter().zip(each).map(move |(tensor, n)| TensorRange {
                tensor: *tensor,
                from: g * n,
                to: (g + 1) * n,
            })
        };
        Ok((0..groups).flat_map(of_group).collect())
    }

    /// A tensor's key and the position in it. `one`: the expert, and the number of experts.
    fn goal(&self, inner: &str, end: &str, place: &LayerScope, one: Option<(u64, u64)>) -> Goal {
        let (mut offsets, mut lead) = (Vec::new(), Vec::new());
        let before = match place {
            LayerScope::Top => String::new(),
            LayerScope::Layer(n) if self.keys == KeyStyle::Stacked => {
                offsets.push(*n);
                lead.push(self.layers);
                "decoder.layers.".to_owned()
            }
            LayerScope::Layer(n) => format!("decoder.layers.{n}."),
            // Around the model's own kind of layer.
            LayerScope::Predicting(n) if PREDICTION.iter().any(|r| r.key.starts_with(inner)) => {
                format!("mtp.layers.{n}.")
            }
            LayerScope::Predicting(n) => format!("mtp.layers.{n}.transformer_layer."),
        };
        let inner = match one {
            Some((e, _)) if self.keys == KeyStyle::Single => {
                inner.replace("experts.experts.", &format!("experts.experts.{e}."))
            }
            Some((e, of)) => {
                offsets.push(e);
                lead.push(of);
                inner.to_owned()
            }
            None => inner.to_owned(),
        };
        Goal {
            key: format!("{before}{inner}{end}"),
            offsets,
            lead,
        }
    }

    fn make(&mut self, goal: Goal, rows: u64, columns: &[u64], pieces: Vec<TensorRange>) -> Result<(), ModelError> {
        let Some(first) = pieces.first() else { return Ok(()) };
        let first = &self.weights.tensors[first.tensor];
        let dtype = self
            .form
            .dtype
            .filter(|_| !first.name.ends_with(KEPT))
            .unwrap_or(first.dtype);
        let other = pieces
            .iter()
            .map(|p| &self.weights.tensors[p.tensor])
            .find(|t| t.dtype != first.dtype);
        if let (Some(other), None) = (other, self.form.dtype) {
            return Err(mixed(&goal.key, &first.name, &other.name));
        }
        let shape: Vec<u64> = goal
            .lead
            .iter()
            .copied()
            .chain([rows])
            .chain(columns.iter().copied())
            .collect();
        let global = self
            .out
            .tensors
            .entry(goal.key.clone())
            .or_insert_with(|| GlobalTensor {
                dtype,
                shape,
                parts: Vec::new(),
            });
        if global.dtype != dtype {
            return Err(mixed(&goal.key, &first.name, "another layer's"));
        }
        let wide = elements(columns);
        let most = (self.form.chunk / (wide.max(1) * dtype.size())).max(1);
        self.parts = self.parts.saturating_add(rows.div_ceil(most));
        if self.parts > MOST {
            let text = format!("it would be cut into more than {MOST} pieces: larger ones are needed");
            return Err(ModelError::unknown(text));
        }
        let mut from = 0;
        while from < rows {
            let to = rows.min(from + most);
            let mut offsets = goal.offsets.clone();
            offsets.push(from);
            offsets.resize(global.shape.len(), 0);
            let ones = goal.lead.iter().map(|_| 1);
            global.parts.push(GlobalSlice {
                offsets,
                tensor: OutTensor {
                    name: goal.key.clone(),
                    dtype,
                    shape: ones.chain([to - from]).chain(columns.iter().copied()).collect(),
                    pieces: cut(&pieces, from * wide, to * wide),
                },
            });
            from = to;
        }
        Ok(())
    }

    /// Adds a layer's state under the name that loaders expect: its position among all of its kind.
    fn state(&mut self, goal: &Goal) {
        let words = |all: &[u64], none: &str| match all.is_empty() {
            true => none.to_owned(),
            false => all.iter().map(u64::to_string).collect::<Vec<_>>().join("."),
        };
        let (at, of) = (words(&goal.offsets, "0"), words(&goal.lead, "1"));
        self.out.states.insert(format!("{}/shard_{at}_{of}", goal.key));
    }

    /// Layers that predict further tokens and are present.
    fn predicting(&mut self) -> u64 {
        let said = self.sizes.maybe("num_nextn_predict_layers").unwrap_or(0).min(MOST);
        let first = format!("model.layers.{}.enorm.weight", self.layers);
        if said > 0 && self.weights.find(&first).is_none() {
            let note = "config.json speaks of layers that predict further tokens (num_nextn_predict_layers), the model has none";
            self.out.notes.push(note.to_owned());
            return 0;
        }
        said
    }

    /// Checks that a layer that predicts further tokens has copies of the model's embeddings and output.
    fn again(&mut self, layer: u64) -> Result<(), ModelError> {
        let head = match self.sizes.config.is_tied() {
            true => EMBEDDINGS,
            false => HEAD,
        };
        self.equal(&format!("model.layers.{layer}.embed_tokens.weight"), EMBEDDINGS)?;
        self.equal(&format!("model.layers.{layer}.shared_head.head.weight"), head)
    }

    fn tied(&mut self) -> Result<(), ModelError> {
        match self.sizes.config.is_tied() {
            true => self.equal(HEAD, EMBEDDINGS),
            false => Ok(()),
        }
    }

    /// Records a tensor that is not written because it must equal another.
    fn equal(&mut self, name: &str, other: &str) -> Result<(), ModelError> {
        let (Some(n), Some(m)) = (self.weights.find(name), self.weights.find(other)) else {
            return Ok(());
        };
        let shape = self.weights.tensors[m].shape.clone();
        self.source(name, &shape)?;
        let side = |n: usize| {
            let tensor = &self.weights.tensors[n];
            OutTensor {
                name: name.to_owned(),
                dtype: tensor.dtype,
                shape: tensor.shape.clone(),
                pieces: vec![whole(n, tensor.elements(), 1)],
            }
        };
        self.out.same.push([side(n), side(m)]);
        Ok(())
    }

    /// Checks that every tensor was used.
    fn left(&self) -> Result<(), ModelError> {
        let all = self.weights.tensors.iter().zip(&self.used);
        let mut left = all.filter(|(t, used)| !**used && !t.name.ends_with(COMPUTED));
        match left.next() {
            None => Ok(()),
            Some((tensor, _)) => Err(ModelError::unknown(format!(
                "{}: no table says what it is called in a model of the type {} under Megatron",
                tensor.name,
                self.sizes.kind()
            ))),
        }
    }
}

/// Modules without a state of their own.
const STATELESS: [&str; 2] = ["embedding.word_embeddings", "mlp.router"];

fn mixed(key: &str, first: &str, other: &str) -> ModelError {
    ModelError::unknown(format!(
        "{key}: {first} and {other} have numbers of different types (--dtype says one for all)"
    ))
}

fn whole(tensor: usize, rows: u64, wide: u64) -> TensorRange {
    TensorRange {
        tensor,
        from: 0,
        to: rows * wide,
    }
}

/// The elements `from..to` of concatenated pieces.
fn cut(pieces: &[TensorRange], from: u64, to: u64) -> Vec<TensorRange> {
    let (mut out, mut begin) = (Vec::new(), 0);
    for piece in pieces {
        let end = begin + (piece.to - piece.from);
        let (lo, hi) = (begin.max(from), end.min(to));
        if lo < hi {
            out.push(TensorRange {
                from: piece.from + (lo - begin),
                to: piece.from + (hi - begin),
                ..*piece
            });
        }
        begin = end;
    }
    out
}
