//! verl's FSDP checkpoints: one `torch.save` file per rank, each with its part of every tensor.
//!
//! Source: verl 0.9 `verl/utils/checkpoint/fsdp_checkpoint_manager.py` (what is written), torch 2.11
//! `torch/distributed/tensor/placement_types.py` (how a tensor is divided: into `ceil(n / ranks)`, the last parts short or empty, no
//! padding). A hybrid mesh has each part several times: the first replica is read.

mod flat;

pub use flat::{FlatParams, filled_with_zeros, flat};

use crate::model::{ModelTensor, ModelWeights, SourceFile, TensorChunk, row_major};
use crate::problem::ModelError;
use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use std::ops::Range;
use supervise_checkpoint::torch::{Placement, TorchTensor as Part};
use supervise_checkpoint::{Dtype, InspectedFile};
use supervise_core::checkpoint::Verdict;

/// Bytes of a name that are read; real names are shorter.
const NAME: usize = 200;

/// An inspected file of one rank.
#[derive(Debug)]
pub struct FsdpShard {
    /// Relative to the source's directory.
    pub path: Utf8PathBuf,
    pub found: InspectedFile,
}

/// Assembles the shards of all ranks, given in rank order.
///
/// # Errors
/// Shards that contradict each other, or are divided in an unsupported way.
pub fn gather(shards: &[FsdpShard]) -> Result<ModelWeights, ModelError> {
    gather_as(shards, false, &FlatParams::default())
}

/// Like [`gather`], for FSDP1's optimizer: assembles pieces of its flat parameters, without the padding.
///
/// # Errors
/// As [`gather`].
pub fn gather_flat(shards: &[FsdpShard], flat: &FlatParams) -> Result<ModelWeights, ModelError> {
    gather_as(shards, false, flat)
}

/// Like [`gather`], and marks the copies in hybrid meshes and replicated tensors for comparison.
///
/// # Errors
/// As [`gather`].
pub fn gather_replicas(shards: &[FsdpShard]) -> Result<ModelWeights, ModelError> {
    gather_as(shards, true, &FlatParams::default())
}

fn gather_as(shards: &[FsdpShard], replicas: bool, flat: &FlatParams) -> Result<ModelWeights, ModelError> {
    for shard in shards {
        sound(shard)?;
    }
    let mut names: BTreeMap<&str, Vec<Option<&Part>>> = BTreeMap::new();
    for (rank, shard) in shards.iter().enumerate() {
        for part in &shard.found.inventory {
            // The reader truncates longer keys: two with the same beginning would become one.
            if part.name.len() >= NAME {
                let text = format!("{}: it holds a tensor whose name has {NAME} bytes or more", shard.path);
                return Err(ModelError::unknown(text));
            }
            let of = names.entry(&part.name).or_insert_with(|| vec![None; shards.len()]);
            if of[rank].replace(part).is_some() {
                return Err(ModelError::damaged(format!(
                    "{}: {} is there twice",
                    shard.path, part.name
                )));
            }
        }
    }
    let files: Vec<SourceFile> = shards.iter().map(source_file).collect();
    let places: Vec<BTreeMap<&str, u64>> = shards.iter().map(storages).collect();
    let mut tensors = Vec::with_capacity(names.len());
    for (name, parts) in names {
        let all: Option<Vec<&Part>> = parts.iter().copied().collect();
        let Some(all) = all else {
            let lacks = parts.iter().position(Option::is_none).unwrap_or_default();
            return Err(ModelError::damaged(format!(
                "{}: it lacks {name}, which other ranks hold",
                shards[lacks].path
            )));
        };
        let one = ShardedTensor {
            name,
            parts: &all,
            shards,
            places: &places,
            replicas,
            flat: flat.elements(name, &all[0].shape),
        };
        tensors.push(one.tensor()?);
    }
    Ok(ModelWeights { files, tensors })
}

/// Rejects a file that is not whole, or whose tensors may not all be listed.
fn sound(shard: &FsdpShard) -> Result<(), ModelError> {
    let found = &shard.found;
    if let Some(worst) = found.findings.iter().find(|f| f.effect() != Verdict::Whole) {
        return Err(ModelError::found(shard.path.as_str(), worst));
    }
    let torch = found.facts.torch.as_ref();
    if torch.is_none_or(|t| t.tensors != found.inventory.len() as u64) {
        let text = format!("{}: it holds more tensors than are listed (limit)", shard.path);
        return Err(ModelError::unknown(text));
    }
    if torch.is_some_and(|t| t.byteorder.as_deref() == Some("big")) {
        return Err(ModelError::unknown(format!(
            "{}: its numbers are in big-endian order",
            shard.path
        )));
    }
    Ok(())
}

/// The file with its checksummed extents.
pub(crate) fn source_file(shard: &FsdpShard) -> SourceFile {
    let checked = shard.found.plan.extents.iter().filter(|e| e.crc.is_some() && e.len > 0);
    SourceFile {
        path: shard.path.clone(),
        bytes: shard.found.bytes,
        checked: checked.cloned().collect(),
    }
}

fn storages(shard: &FsdpShard) -> BTreeMap<&str, u64> {
    shard
        .found
        .plan
        .extents
        .iter()
        .filter_map(|e| Some((e.what.split_once("/data/")?.1, e.off)))
        .collect()
}

/// The dimension of `Shard(dim)`, counted from the first.
fn shard_dim(word: &str, dims: usize) -> Option<usize> {
    let dim: i64 = word.strip_prefix("Shard(")?.strip_suffix(')')?.parse().ok()?;
    let dim = if dim < 0 { dim + dims as i64 } else { dim };
    usize::try_from(dim).ok().filter(|d| *d < dims)
}

/// Returns the dimension along which a tensor is divided; `None` if every rank has all of it.
///
/// # Errors
/// A mesh with several dimensions, or another placement.
pub(crate) fn cut(part: &Part) -> Result<Option<usize>, ModelError> {
    let Some(placement) = &part.placement else {
        return Ok(None);
    };
    match placement.words.as_slice() {
        [word] if word == "Replicate" => Ok(None),
        [word] => match shard_dim(word, placement.global.len()) {
            Some(dim) => Ok(Some(dim)),
            None => Err(ModelError::unknown(format!(
                "{}: it is spread as {word}, which is not cut anew here",
                part.name
            ))),
        },
        words => Err(ModelError::unknown(format!(
            "{}: it is spread over a mesh of {} dimensions",
            part.name,
            words.len()
        ))),
    }
}

struct ShardedTensor<'a> {
    name: &'a str,
    parts: &'a [&'a Part],
    shards: &'a [FsdpShard],
    places: &'a [BTreeMap<&'a str, u64>],
    /// Whether copies on other ranks are compared.
    replicas: bool,
    /// Elements of the flat parameter, if the parts are pieces of one.
    flat: Option<u64>,
}

enum TensorPlacement {
    /// Every rank has all of it, outside of any mesh.
    Everywhere,
    /// The first `ranks` ranks divide it along dimension `dim`.
    Cut { ranks: usize, dim: usize },
    /// The mesh says that every rank has all of it.
    Replicated,
}

impl ShardedTensor<'_> {
    fn tensor(&self) -> Result<ModelTensor, ModelError> {
        let first = self.parts[0];
        let dtype = first
            .dtype
            .ok_or_else(|| self.unknown("the type of its elements is not known"))?;
        if let Some(rank) = self.parts.iter().position(|p| p.dtype != first.dtype) {
            return Err(self.differ(rank, "has another type"));
        }
        if let Some(n) = self.flat {
            return self.unfilled(dtype, n);
        }
        // No file says which parameters are in the pieces, or where.
        if self.name.ends_with("_flat_param") && first.placement.is_none() && self.parts.len() > 1 {
            return Err(self.unknown("it is a flat parameter of FSDP1, whose pieces cannot be put together"));
        }
        match self.spread()? {
            TensorPlacement::Cut { ranks, dim } => self.joined(dtype, ranks, dim),
            whole => {
                if let Some(rank) = self.parts.iter().position(|p| p.shape != first.shape) {
                    return Err(self.differ(rank, "has another shape, though every rank should hold all of it"));
                }
                let copies = match whole {
                    TensorPlacement::Everywhere => 1..self.parts.len(),
                    _ if self.replicas => 1..self.parts.len(),
                    _ => 0..0,
                };
                Ok(ModelTensor {
                    name: self.name.to_owned(),
                    dtype,
                    shape: first.shape.clone(),
                    chunks: vec![self.chunk(0, dtype, vec![0; first.shape.len()])?],
                    copies: copies
                        .map(|rank| Ok(vec![self.chunk(rank, dtype, vec![0; first.shape.len()])?]))
                        .collect::<Result<_, _>>()?,
                    fold: None,
                })
            }
        }
    }

    fn spread(&self) -> Result<TensorPlacement, ModelError> {
        let first = self.parts[0].placement.as_ref();
        let form = |p: &Placement| (p.global.clone(), p.words.clone(), p.mesh.clone());
        let alike = |p: &&Part| p.placement.as_ref().map(form) == first.map(form);
        if let Some(rank) = self.parts.iter().position(|p| !alike(p)) {
            return Err(self.differ(rank, "is spread in another way"));
        }
        let Some(placement) = first else {
            return Ok(TensorPlacement::Everywhere);
        };
        for (rank, part) in self.parts.iter().enumerate() {
            let said = part.placement.as_ref().and_then(|p| p.rank);
            if said.is_some_and(|said| said != rank as u64) {
                let text = format!("says that rank {} wrote it", said.unwrap_or_default());
                return Err(self.differ(rank, &text));
            }
        }
        let world = self.parts.len();
        let mesh: u64 = placement.mesh.iter().product();
        if !placement.mesh.is_empty() && mesh != world as u64 {
            return Err(self.unknown(&format!(
                "its mesh {:?} has not the {world} ranks that saved it",
                placement.mesh
            )));
        }
        let (last, outer) = match placement.words.split_last() {
            Some(split) => split,
            None => return Err(self.unknown("its mesh says nothing of how it is spread")),
        };
        if let Some(odd) = outer.iter().find(|w| *w != "Replicate") {
            return Err(self.unknown(&format!(
                "it is cut in more than one dimension of the mesh ({odd}, {last})"
            )));
        }
        if last == "Replicate" {
            return Ok(TensorPlacement::Replicated);
        }
        let Some(dim) = shard_dim(last, placement.global.len()) else {
            return Err(self.unknown(&format!("it is spread as {last}, which is not put together here")));
        };
        let ranks = placement.mesh.last().map_or(world as u64, |n| *n) as usize;
        Ok(TensorPlacement::Cut { ranks, dim })
    }

    /// Assembles pieces of a flat parameter, all of one length, without the padding of the last ones.
    fn unfilled(&self, dtype: Dtype, n: u64) -> Result<ModelTensor, ModelError> {
        let own = n.div_ceil(self.parts.len() as u64);
        let mut chunks = Vec::with_capacity(self.parts.len());
        for (rank, part) in self.parts.iter().enumerate() {
            if part.placement.is_some() || part.shape != [own] {
                return Err(self.differ(rank, &format!("has the shape {:?}, and not [{own}]", part.shape)));
            }
            let from = (rank as u64 * own).min(n);
            let chunk = self.chunk(rank, dtype, vec![from])?;
            let sizes = vec![own.min(n - from)];
            chunks.extend((from < n).then_some(TensorChunk { sizes, ..chunk }));
        }
        Ok(ModelTensor {
            name: self.name.to_owned(),
            dtype,
            shape: vec![n],
            chunks,
            copies: Vec::new(),
            fold: None,
        })
    }

    fn joined(&self, dtype: Dtype, ranks: usize, dim: usize) -> Result<ModelTensor, ModelError> {
        let shape = self.parts[0]
            .placement
            .as_ref()
            .map(|p| p.global.clone())
            .unwrap_or_default();
        let others = match self.replicas {
            true => self.parts.len() / ranks.max(1),
            false => 1,
        };
        let replica = |n: usize| self.replica(dtype, n * ranks..(n + 1) * ranks, &shape, dim);
        Ok(ModelTensor {
            name: self.name.to_owned(),
            dtype,
            chunks: replica(0)?,
            copies: (1..others).map(replica).collect::<Result<_, _>>()?,
            fold: None,
            shape,
        })
    }

    /// The parts of one replica, which make up the whole tensor.
    fn replica(
        &self,
        dtype: Dtype,
        ranks: Range<usize>,
        shape: &[u64],
        dim: usize,
    ) -> Result<Vec<TensorChunk>, ModelError> {
        let mut chunks = Vec::with_capacity(ranks.len());
        let mut at = 0_u64;
        for (rank, part) in self.parts.iter().enumerate().take(ranks.end).skip(ranks.start) {
            let fits =
                part.shape.len() == shape.len() && (0..shape.len()).all(|d| d == dim || part.shape[d] == shape[d]);
            // An empty part may have any shape without elements.
            let empty = part.elements() == 0;
            if !fits && !empty {
                let text = format!(
                    "has the shape {:?}, which is no part of {shape:?} along {dim}",
                    part.shape
                );
                return Err(self.differ(rank, &text));
            }
            if empty {
                continue;
            }
            let mut offsets = vec![0; shape.len()];
            offsets[dim] = at;
            chunks.push(self.chunk(rank, dtype, offsets)?);
            at = at.saturating_add(part.shape[dim]);
        }
        if at != shape[dim] && shape.iter().all(|n| *n > 0) {
            let text = format!(
                "the parts of {} ranks have {at} of {} along dimension {dim}",
                ranks.len(),
                shape[dim]
            );
            return Err(ModelError::damaged(format!("{}: {text}", self.name)));
        }
        Ok(chunks)
    }

    fn chunk(&self, rank: usize, dtype: Dtype, offsets: Vec<u64>) -> Result<TensorChunk, ModelError> {
        let part = self.parts[rank];
        let storage = part.storage.as_deref().and_then(|key| self.places[rank].get(key));
        let at = storage.and_then(|at| part.offset.checked_mul(dtype.size())?.checked_add(*at));
        let Some(at) = at else {
            return Err(self.differ(rank, "has no storage in the file"));
        };
        // A view with a stride of zero may have any number of elements: reading it might never end.
        if part.elements().saturating_mul(dtype.size()) > self.shards[rank].found.bytes {
            return Err(self.unknown("it has more numbers than its file has room for: it is a view that repeats some"));
        }
        let stride = match part.stride.len() == part.shape.len() {
            true => part.stride.clone(),
            false => row_major(&part.shape),
        };
        Ok(TensorChunk {
            offsets,
            sizes: part.shape.clone(),
            file: rank,
            at,
            stride,
        })
    }

    fn differ(&self, rank: usize, what: &str) -> ModelError {
        ModelError::damaged(format!("{}: {} {what}", self.shards[rank].path, self.name))
    }

    fn unknown(&self, what: &str) -> ModelError {
        ModelError::unknown(format!("{}: {what}", self.name))
    }
}
