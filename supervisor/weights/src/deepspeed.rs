//! DeepSpeed checkpoints: float32 parameters in flat pieces of all ranks, assembled as DeepSpeed's `zero_to_fp32` does.
//!
//! Source: DeepSpeed 0.19 `utils/zero_to_fp32.py`. Stages 1 and 2: the parameters of an optimizer group are concatenated in one vector,
//! and each rank has a part of it. Stage 3: each parameter is divided into as many equal parts as there are ranks, and each rank
//! concatenates its own parts. Frozen parameters and buffers are in the model states.

mod boxes;
mod state;

use crate::fsdp::{FsdpShard, source_file};
use crate::model::{ModelTensor, ModelWeights, TensorChunk, elements, row_major};
use crate::problem::ModelError;
use crate::read::SharedSource;
use boxes::boxes;
use state::{StoredTensor, TorchState};
use std::collections::BTreeMap;
use supervise_checkpoint::pickle::PickleValue;
use supervise_checkpoint::{Dtype, InspectLimits};
use supervise_core::checkpoint::Verdict;

/// The inspected, open files of a checkpoint, each kind in rank order.
#[derive(Clone, Copy)]
pub struct ZeroSource<'a> {
    /// All files: first the model states (`…_model_states.pt`), then the optimizer states.
    pub shards: &'a [FsdpShard],
    /// The same files, open.
    pub sources: &'a [Box<SharedSource>],
    /// How many of them are model states.
    pub models: usize,
    pub limits: &'a InspectLimits,
}

/// Assembles the files of all ranks.
///
/// # Errors
/// Files that contradict each other, or are in an unsupported form.
pub fn gather(source: ZeroSource<'_>) -> Result<ModelWeights, ModelError> {
    let states = source.shards.iter().zip(source.sources).enumerate();
    let states: Vec<TorchState<'_>> = states
        .map(|(n, (shard, bytes))| TorchState::read(n, shard, bytes.as_ref(), source.limits))
        .collect::<Result<_, _>>()?;
    let (models, optimizers) = states.split_at(source.models.min(states.len()));
    let Some(first) = models.first() else {
        return Err(ModelError::new(Verdict::Incomplete, "no file of model states is there"));
    };
    same_save(models)?;
    let mut making = ZeroBuilder {
        tensors: BTreeMap::new(),
    };
    match optimizers.first() {
        Some(optimizer) => {
            let stage = stage(optimizer)?;
            let world = world(optimizer, optimizers.len())?;
            if models.len() as u64 != if stage == 3 { world } else { 1 } {
                let text = format!(
                    "{} files of model states are there: stage {stage} of {world} ranks has others",
                    models.len()
                );
                return Err(ModelError::new(Verdict::Incomplete, text));
            }
            for other in &optimizers[1..] {
                if (self::stage(other)?, self::world(other, optimizers.len())?) != (stage, world) {
                    return Err(ModelError::damaged(format!(
                        "{}: it is of another run than {}",
                        other.path, optimizer.path
                    )));
                }
            }
            match stage {
                3 => making.third(models, optimizers)?,
                _ => making.second(first, optimizers)?,
            }
            making.frozen(models, stage == 3)?;
            making.buffers(first)?;
        }
        // Stage 0 partitions nothing.
        None if first.get(first.root, "param_shapes").is_none() => {
            for (name, value) in first.pairs(first.want(first.root, "module")?, "module")? {
                let tensor = first.tensor(value, &name)?;
                making.whole(&name, &tensor)?;
            }
        }
        None => {
            let text = "no file of optimizer states is there: they hold the parameters";
            return Err(ModelError::new(Verdict::Incomplete, text));
        }
    }
    making.shared(first)?;
    making.complete(first)?;
    Ok(ModelWeights {
        files: source.shards.iter().map(source_file).collect(),
        tensors: making.tensors.into_values().collect(),
    })
}

/// Files of another save contain other numbers. Optimizer states do not say which save they are from.
fn same_save(models: &[TorchState<'_>]) -> Result<(), ModelError> {
    let step = |state: &TorchState<'_>| state.get(state.root, "global_steps").and_then(|v| state.number(v));
    let [first, others @ ..] = models else { return Ok(()) };
    match others.iter().find(|other| step(other) != step(first)) {
        None => Ok(()),
        Some(other) => Err(ModelError::damaged(format!(
            "{}: it is of another step than {} (global_steps)",
            other.path, first.path
        ))),
    }
}

fn optimizer_state(state: &TorchState<'_>) -> Result<PickleValue, ModelError> {
    state.want(state.root, "optimizer_state_dict")
}

fn stage(state: &TorchState<'_>) -> Result<u64, ModelError> {
    let stage = state.want(optimizer_state(state)?, "zero_stage")?;
    match state.number(stage) {
        Some(n @ 1..=3) => Ok(n),
        _ => Err(state.strange("zero_stage")),
    }
}

/// The number of ranks that saved: each must have a file.
fn world(state: &TorchState<'_>, files: usize) -> Result<u64, ModelError> {
    let count = state.want(optimizer_state(state)?, "partition_count")?;
    let world = match state.number(count) {
        Some(n) => n,
        None => {
            let all = state.items(count, "partition_count")?;
            let all: Option<Vec<u64>> = all.iter().map(|v| state.number(*v)).collect();
            match all.as_deref() {
                Some([first, rest @ ..]) if rest.iter().all(|n| n == first) => *first,
                Some([_, ..]) => {
                    let text = format!(
                        "{}: its groups are cut for different numbers of ranks (experts of their own), which is not put together here",
                        state.path
                    );
                    return Err(ModelError::unknown(text));
                }
                _ => return Err(state.strange("partition_count")),
            }
        }
    };
    match world == files as u64 && world > 0 {
        true => Ok(world),
        false => Err(ModelError::new(
            Verdict::Incomplete,
            format!(
                "{}: {world} ranks saved, and {files} files of optimizer states are there",
                state.path
            ),
        )),
    }
}

/// Parameters of an optimizer group, with their shapes.
type ParamGroup = Vec<(String, Vec<u64>)>;

/// Names and shapes of the parameters in each optimizer group, in order.
fn shapes(model: &TorchState<'_>) -> Result<Vec<ParamGroup>, ModelError> {
    let groups = model.want(model.root, "param_shapes")?;
    let groups = model.items(groups, "param_shapes")?;
    let group = |group: &PickleValue| {
        let pairs = model.pairs(*group, "param_shapes")?;
        pairs
            .into_iter()
            .map(|(name, size)| {
                let shape = model.size(size, &name)?;
                Ok((name, shape))
            })
            .collect()
    };
    groups.iter().map(group).collect()
}

fn vectors(optimizer: &TorchState<'_>, key: &str) -> Result<Vec<StoredTensor>, ModelError> {
    let groups = optimizer.want(optimizer_state(optimizer)?, key)?;
    let mut out = Vec::new();
    for group in optimizer.items(groups, key)? {
        let vector = optimizer.tensor(*group, key)?;
        if vector.dtype != Dtype::F32 || vector.shape.len() != 1 {
            return Err(optimizer.strange(key));
        }
        out.push(vector);
    }
    Ok(out)
}

/// Consecutive numbers in a file, which are the elements `begin..` of something larger.
#[derive(Debug, Clone, Copy)]
struct ElementRun {
    begin: u64,
    len: u64,
    file: usize,
    at: u64,
}

fn joined<'a>(vectors: impl Iterator<Item = &'a StoredTensor>) -> Vec<ElementRun> {
    let mut begin = 0;
    vectors
        .map(|v| {
            let run = ElementRun {
                begin,
                len: elements(&v.shape),
                file: v.file,
                at: v.at,
            };
            begin += run.len;
            run
        })
        .collect()
}

fn length(runs: &[ElementRun]) -> u64 {
    runs.last().map_or(0, |r| r.begin + r.len)
}

struct ZeroBuilder {
    tensors: BTreeMap<String, ModelTensor>,
}

impl ZeroBuilder {
    fn put(&mut self, name: &str, dtype: Dtype, shape: Vec<u64>, chunks: Vec<TensorChunk>) -> Result<(), ModelError> {
        let there: u64 = chunks.iter().map(|c| elements(&c.sizes)).sum();
        if there != elements(&shape) {
            let text = format!("{name}: the ranks hold {there} of its {} elements", elements(&shape));
            return Err(ModelError::new(Verdict::Incomplete, text));
        }
        let tensor = ModelTensor {
            name: name.to_owned(),
            dtype,
            shape,
            chunks,
            copies: Vec::new(),
            fold: None,
        };
        match self.tensors.insert(name.to_owned(), tensor) {
            None => Ok(()),
            Some(_) => Err(ModelError::damaged(format!("{name}: it is there twice"))),
        }
    }

    fn whole(&mut self, name: &str, stored: &StoredTensor) -> Result<(), ModelError> {
        let run = ElementRun {
            begin: 0,
            len: elements(&stored.shape),
            file: stored.file,
            at: stored.at,
        };
        let mut chunks = Vec::new();
        cut(&stored.shape, 0, &[run], 0, stored.dtype, &mut chunks);
        self.put(name, stored.dtype, stored.shape.clone(), chunks)
    }

    /// Stages 1 and 2: one vector per group, divided over the ranks.
    fn second(&mut self, model: &TorchState<'_>, optimizers: &[TorchState<'_>]) -> Result<(), ModelError> {
        const KEY: &str = "single_partition_of_fp32_groups";
        let ranks: Vec<Vec<StoredTensor>> = optimizers.iter().map(|o| vectors(o, KEY)).collect::<Result<_, _>>()?;
        let groups = shapes(model)?;
        if let Some(odd) = ranks.iter().position(|r| r.len() != groups.len()) {
            return Err(optimizers[odd].strange(KEY));
        }
        let first = &optimizers[0];
        let fillings = first.get(optimizer_state(first)?, "param_alignment_paddings");
        let world = optimizers.len() as u64;
        for (n, group) in groups.iter().enumerate() {
            let runs = joined(ranks.iter().map(|r| &r[n]));
            let fillings = match fillings {
                Some(all) => first.items(all, "param_alignment_paddings")?.get(n).copied(),
                None => None,
            };
            let fillings = match fillings {
                Some(own) => first.items(own, "param_alignment_paddings")?,
                None => &[],
            };
            if !fillings.is_empty() && fillings.len() != group.len() {
                return Err(first.strange("param_alignment_paddings"));
            }
            let mut at = 0_u64;
            for (k, (name, shape)) in group.iter().enumerate() {
                let mut chunks = Vec::new();
                let end = within(name, at, elements(shape), length(&runs))?;
                cut(shape, at, &runs, 0, Dtype::F32, &mut chunks);
                self.put(name, Dtype::F32, shape.clone(), chunks)?;
                let filling = fillings.get(k).and_then(|v| first.number(*v)).unwrap_or(0);
                at = end.saturating_add(filling);
            }
            // The whole is padded to a multiple of twice the number of ranks.
            let align = 2 * world;
            if at.div_ceil(align) != length(&runs).div_ceil(align) {
                let text = format!(
                    "{}: group {n} holds {} numbers, its parameters are {at}",
                    first.path,
                    length(&runs)
                );
                return Err(ModelError::damaged(text));
            }
        }
        Ok(())
    }

    /// Stage 3: each parameter is divided equally over the ranks; the last parts are padded.
    fn third(&mut self, models: &[TorchState<'_>], optimizers: &[TorchState<'_>]) -> Result<(), ModelError> {
        const KEY: &str = "fp32_flat_groups";
        let ranks: Vec<Vec<ElementRun>> = optimizers
            .iter()
            .map(|o| Ok::<_, ModelError>(joined(vectors(o, KEY)?.iter())))
            .collect::<Result<_, _>>()?;
        let held = ranks.first().map_or(0, |r| length(r));
        if let Some(odd) = ranks.iter().position(|r| length(r) != held) {
            let text = format!(
                "{}: it holds {} numbers, other ranks hold {held}",
                optimizers[odd].path,
                length(&ranks[odd])
            );
            return Err(ModelError::damaged(text));
        }
        let mut at = 0;
        for (name, shape) in shapes(&models[0])?.into_iter().flatten() {
            let each = elements(&shape).div_ceil(ranks.len() as u64);
            let end = within(&name, at, each, held)?;
            let mut chunks = Vec::new();
            for (rank, runs) in ranks.iter().enumerate() {
                cut_part(&shape, at, runs, rank as u64 * each, each, Dtype::F32, &mut chunks);
            }
            self.put(&name, Dtype::F32, shape, chunks)?;
            at = end;
        }
        match at == held {
            true => Ok(()),
            false => Err(ModelError::damaged(format!(
                "{}: each rank holds {held} numbers, of its parameters are {at}",
                optimizers[0].path
            ))),
        }
    }

    fn frozen(&mut self, models: &[TorchState<'_>], is_cut: bool) -> Result<(), ModelError> {
        const SHAPES: &str = "frozen_param_shapes";
        const PIECES: &str = "frozen_param_fragments";
        let first = &models[0];
        let Some(shapes) = first.get(first.root, SHAPES) else {
            return Ok(());
        };
        let mut pieces: Vec<BTreeMap<String, PickleValue>> = Vec::with_capacity(models.len());
        for model in models {
            pieces.push(match model.get(model.root, PIECES) {
                Some(dict) => model.pairs(dict, PIECES)?.into_iter().collect(),
                None => BTreeMap::new(),
            });
        }
        for (name, size) in first.pairs(shapes, SHAPES)? {
            let shape = first.size(size, &name)?;
            let each = elements(&shape).div_ceil(models.len() as u64);
            let (mut chunks, mut dtype) = (Vec::new(), None);
            for (rank, (model, own)) in models.iter().zip(&pieces).enumerate() {
                let Some(value) = own.get(&name) else {
                    let text = format!("{}: it lacks {name}", model.path);
                    return Err(ModelError::new(Verdict::Incomplete, text));
                };
                let stored = model.tensor(*value, &name)?;
                let is_whole = if is_cut {
                    elements(&stored.shape) == each
                } else {
                    stored.shape == shape
                };
                if !is_whole || dtype.replace(stored.dtype).is_some_and(|d| d != stored.dtype) {
                    return Err(model.strange(&name));
                }
                let runs = joined(std::iter::once(&stored));
                cut_part(&shape, 0, &runs, rank as u64 * each, each, stored.dtype, &mut chunks);
            }
            self.put(&name, dtype.unwrap_or(Dtype::F32), shape, chunks)?;
        }
        Ok(())
    }

    fn buffers(&mut self, model: &TorchState<'_>) -> Result<(), ModelError> {
        let Some(names) = model.get(model.root, "buffer_names") else {
            return Ok(());
        };
        let names = model.items(names, "buffer_names")?;
        let names: std::collections::BTreeSet<String> = names.iter().filter_map(|v| model.text(*v)).collect();
        for (name, value) in model.pairs(model.want(model.root, "module")?, "module")? {
            if names.contains(&name) {
                let stored = model.tensor(value, &name)?;
                self.whole(&name, &stored)?;
            }
        }
        Ok(())
    }

    /// Adds parameters that are others under a second name.
    fn shared(&mut self, model: &TorchState<'_>) -> Result<(), ModelError> {
        let Some(pairs) = model.get(model.root, "shared_params") else {
            return Ok(());
        };
        for (name, other) in model.pairs(pairs, "shared_params")? {
            let other = model.text(other).and_then(|other| self.tensors.get(&other)).cloned();
            if let (Some(other), false) = (other, self.tensors.contains_key(&name)) {
                self.put(&name, other.dtype, other.shape, other.chunks)?;
            }
        }
        Ok(())
    }

    fn complete(&self, model: &TorchState<'_>) -> Result<(), ModelError> {
        let Some(module) = model.get(model.root, "module") else {
            return Ok(());
        };
        let pairs = model.pairs(module, "module")?;
        match pairs.iter().find(|(name, _)| !self.tensors.contains_key(name)) {
            None => Ok(()),
            Some((name, _)) => Err(ModelError::unknown(format!(
                "{}: {name} is in no group of the optimizer and not frozen: how it is kept is not known here",
                model.path
            ))),
        }
    }
}

/// Returns the end of `n` elements from `at`, if that many exist.
fn within(name: &str, at: u64, n: u64, there: u64) -> Result<u64, ModelError> {
    at.checked_add(n).filter(|end| *end <= there).ok_or_else(|| {
        ModelError::damaged(format!(
            "{name}: it reaches beyond what the ranks hold ({there} numbers)"
        ))
    })
}

/// Adds the chunks of a tensor whose elements start at `at` of the runs.
fn cut(shape: &[u64], at: u64, runs: &[ElementRun], first: u64, dtype: Dtype, out: &mut Vec<TensorChunk>) {
    cut_part(shape, at, runs, first, elements(shape), dtype, out);
}

/// The same for the elements `first..first + n` of a tensor, limited to its size.
fn cut_part(shape: &[u64], at: u64, runs: &[ElementRun], first: u64, n: u64, dtype: Dtype, out: &mut Vec<TensorChunk>) {
    let n = n.min(elements(shape).saturating_sub(first));
    for run in runs {
        let (lo, hi) = (run.begin.max(at), (run.begin + run.len).min(at + n));
        if lo >= hi {
            continue;
        }
        for one in boxes(shape, first + (lo - at), first + (hi - at)) {
            // Its offset among the run's numbers.
            let skip = lo + (one.first - (first + (lo - at))) - run.begin;
            out.push(TensorChunk {
                stride: row_major(&one.sizes),
                offsets: one.offsets,
                sizes: one.sizes,
                file: run.file,
                at: run.at + skip * dtype.size(),
            });
        }
    }
}
