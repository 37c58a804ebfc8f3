//! The values of the first rank's file, and what changes for every rank.

use super::pickle_rewrite::{self, NewValue, PickleRewrite};
use super::{ReshardSource, filled, pieces};
use crate::archive::ArchiveEntry;
use crate::fsdp;
use crate::layout::OutTensor;
use crate::model::ModelWeights;
use crate::problem::ModelError;
use std::collections::BTreeMap;
use supervise_checkpoint::pickle::{self, ParsedPickle, PickleCall, PickleHeap, PickleObject, PickleValue};
use supervise_checkpoint::source::FileReader;
use supervise_checkpoint::zip;

/// Mesh keys that do not change.
const MESH: [&str; 9] = [
    "_device_type",
    "device_type",
    "_mesh_dim_names",
    "mesh_dim_names",
    "_root_mesh",
    "_thread_id",
    "_flatten_mapping",
    "_dim_group_names",
    "_layout",
];

pub(super) const PICKLE: &str = "data.pkl";

pub(super) struct Template<'a> {
    weights: &'a ModelWeights,
    heap: PickleHeap,
    root: PickleValue,
    /// Entries that are not storages, before and after those.
    small: [Vec<ArchiveEntry>; 2],
    /// Tensors by storage position, with their distribution.
    tensors: BTreeMap<TensorKey, (usize, How)>,
    samples_of: Option<u64>,
}

#[derive(Clone, Copy)]
enum How {
    /// Divided along a dimension; `None`: every rank has all of it.
    Cut(Option<usize>),
    /// A flat parameter, zero-padded so that all pieces are as long as the first.
    Flat,
}

/// Storage key, offset, shape and strides of a tensor: names that agree in all of these are one tensor.
type TensorKey = (String, u64, Vec<u64>, Vec<u64>);

pub(super) struct RankFile {
    pub(super) entries: Vec<ArchiveEntry>,
    /// The storages that come from the source: the entry's index and content.
    pub(super) storages: Vec<(usize, OutTensor)>,
}

impl<'a> Template<'a> {
    pub(super) fn read(source: ReshardSource<'_>, weights: &'a ModelWeights) -> Result<Self, ModelError> {
        let (Some(shard), Some(bytes)) = (source.shards.first(), source.sources.first()) else {
            return Err(ModelError::unknown("there are no shards"));
        };
        let path = &shard.path;
        let file =
            FileReader::open(bytes.as_ref(), zip::TAIL).map_err(|e| ModelError::found(path.as_str(), &e.finding()))?;
        let archive =
            zip::read(&file, source.limits, &mut Vec::new()).map_err(|f| ModelError::found(path.as_str(), &f))?;
        let mut small = [Vec::new(), Vec::new()];
        let mut pickled = None;
        let mut behind = 0;
        for entry in &archive.entries {
            let (_, name) = entry.name.split_once('/').unwrap_or_default();
            if name.starts_with("data/") {
                behind = 1;
                continue;
            }
            let bytes = usize::try_from(entry.size)
                .ok()
                .filter(|_| entry.size <= source.limits.pickle_bytes)
                .ok_or_else(|| ModelError::unknown(format!("{path}: {} is too large", entry.name)))?;
            let bytes = file
                .bytes(entry.data, bytes)
                .map_err(|e| ModelError::found(path.as_str(), &e.finding()))?;
            if name == PICKLE {
                pickled = Some(bytes);
                small[behind].push(ArchiveEntry {
                    name: name.to_owned(),
                    len: 0,
                    bytes: None,
                    zeros: 0,
                });
            } else {
                small[behind].push(ArchiveEntry {
                    name: name.to_owned(),
                    len: entry.size,
                    bytes: Some(bytes),
                    zeros: 0,
                });
            }
        }
        let ParsedPickle { heap, root, error, .. } = pickle::read(pickled.unwrap_or_default(), source.limits);
        let (Some(root), None) = (root, error) else {
            return Err(ModelError::damaged(format!("{path}: its data.pkl cannot be read")));
        };
        let mut tensors = BTreeMap::new();
        for part in &shard.found.inventory {
            if let (Some(key), Some(n)) = (&part.storage, weights.find(&part.name)) {
                let place = (key.clone(), part.offset, part.shape.clone(), part.stride.clone());
                let how = match source.flat.and_then(|f| f.elements(&part.name, &part.shape)).is_some() {
                    true => How::Flat,
                    false => How::Cut(fsdp::cut(part)?),
                };
                tensors.insert(place, (n, how));
            }
        }
        Ok(Self {
            weights,
            heap,
            root,
            small,
            tensors,
            samples_of: source.samples_of,
        })
    }

    pub(super) fn for_rank(&self, rank: u64, world: u64) -> Result<RankFile, ModelError> {
        let mut ranked = RankRewrite {
            template: self,
            rank,
            world,
            storages: Vec::new(),
            known: BTreeMap::new(),
        };
        let pickled = pickle_rewrite::pickle(&self.heap, self.root, &mut ranked)?;
        let mut entries = self.small[0].clone();
        let mut storages = Vec::new();
        for (key, storage) in ranked.storages.into_iter().enumerate() {
            let name = format!("data/{key}");
            match storage {
                StorageSource::Known(bytes) => entries.push(ArchiveEntry {
                    name,
                    len: bytes.len() as u64,
                    bytes: Some(bytes),
                    zeros: 0,
                }),
                StorageSource::Source(tensor) => {
                    let (len, own) = (tensor.bytes(), tensor.pieces.iter().map(|p| p.to - p.from).sum::<u64>());
                    let zeros = len - own * tensor.dtype.size();
                    storages.push((entries.len(), tensor));
                    entries.push(ArchiveEntry {
                        name,
                        len,
                        bytes: None,
                        zeros,
                    });
                }
            }
        }
        entries.extend(self.small[1].iter().cloned());
        if let Some(entry) = entries.iter_mut().find(|e| e.name == PICKLE) {
            entry.len = pickled.len() as u64;
            entry.bytes = Some(pickled);
        }
        Ok(RankFile { entries, storages })
    }
}

enum StorageSource {
    Known(Vec<u8>),
    Source(OutTensor),
}

struct RankRewrite<'a> {
    template: &'a Template<'a>,
    rank: u64,
    world: u64,
    /// Storages in the order of their keys.
    storages: Vec<StorageSource>,
    /// Keys of tensors seen before: two names of one tensor stay one.
    known: BTreeMap<TensorKey, String>,
}

impl PickleRewrite for RankRewrite<'_> {
    fn change(
        &mut self,
        heap: &PickleHeap,
        object: PickleValue,
        call: &PickleCall,
    ) -> Result<Option<NewValue>, ModelError> {
        let Some(callee) = heap.global(call.callee) else {
            return Ok(None);
        };
        match (callee.module.as_str(), callee.name.as_str()) {
            ("torch._utils", "_rebuild_tensor_v2") => self.tensor(heap, call).map(Some),
            ("torch.distributed.device_mesh" | "torch.distributed._tensor.device_mesh", "DeviceMesh") => {
                self.mesh(heap, object).map(Some)
            }
            // A spec keeps the hash of its old content; torch computes a new one.
            (_, "DTensorSpec") if heap.attribute(object, "_hash").is_some() => {
                Ok(Some(NewValue::Keys(vec![("_hash", NewValue::None)])))
            }
            (_, name)
                if name.starts_with("_rebuild") && !matches!(name, "_rebuild_from_type_v2" | "_rebuild_parameter") =>
            {
                Err(ModelError::unknown(format!(
                    "it holds what {name} rebuilds: its form for other ranks is not known here"
                )))
            }
            _ => Ok(None),
        }
    }

    /// Recounts the samples that a rank's sampler has drawn of its own part. For torchdata's `StatefulDataLoader` and torch's
    /// `DistributedSampler`, the same samples are used up after the same number of batches, whatever the number of ranks.
    fn entry(&mut self, _heap: &PickleHeap, key: &[u8], value: PickleValue) -> Result<Option<NewValue>, ModelError> {
        match (self.template.samples_of, value) {
            (Some(before), PickleValue::Int(n)) if key == b"samples_yielded" => {
                let all = u64::try_from(n).ok().and_then(|n| n.checked_mul(before));
                let own = all
                    .filter(|all| all.is_multiple_of(self.world))
                    .map(|all| all / self.world);
                match own.and_then(|n| i64::try_from(n).ok()) {
                    Some(own) => Ok(Some(NewValue::Int(own))),
                    None => Err(ModelError::unknown(format!(
                        "{before} ranks have drawn {n} samples each: that is no whole number for {}",
                        self.world
                    ))),
                }
            }
            _ => Ok(None),
        }
    }
}

impl RankRewrite<'_> {
    fn tensor(&mut self, heap: &PickleHeap, call: &PickleCall) -> Result<NewValue, ModelError> {
        let (key, _, offset) =
            storage(heap, call).ok_or_else(|| ModelError::unknown("a tensor is rebuilt in a way that is not known"))?;
        let [_, _, size, stride, ..] = *heap.items(call.args).unwrap_or_default() else {
            return Err(ModelError::unknown("a tensor is rebuilt in a way that is not known"));
        };
        let place = (key, offset, numbers(heap, size), numbers(heap, stride));
        let Some((n, how)) = self.template.tensors.get(&place).copied() else {
            return Err(ModelError::unknown(
                "it holds a tensor at a place that is not known here",
            ));
        };
        let tensor = &self.template.weights.tensors[n];
        let (shape, pieces) = match how {
            How::Cut(dim) => pieces(n, &tensor.shape, dim, self.rank, self.world),
            How::Flat => filled(n, tensor.elements(), self.rank, self.world),
        };
        let storage = match self.known.get(&place) {
            Some(key) => key.clone(),
            None => {
                let storage = StorageSource::Source(OutTensor {
                    name: tensor.name.clone(),
                    dtype: tensor.dtype,
                    shape: shape.clone(),
                    pieces,
                });
                let key = self.next(storage);
                self.known.insert(place, key.clone());
                key
            }
        };
        Ok(NewValue::Tensor { storage, shape })
    }

    fn next(&mut self, storage: StorageSource) -> String {
        self.storages.push(storage);
        (self.storages.len() - 1).to_string()
    }

    fn mesh(&mut self, heap: &PickleHeap, mesh: PickleValue) -> Result<NewValue, ModelError> {
        let state = heap.call(mesh).and_then(|c| c.state);
        let pairs = state
            .and_then(|s| heap.pairs(s))
            .ok_or_else(|| ModelError::unknown("a mesh keeps no state"))?;
        let (rank, world) = (self.rank as i64, self.world as i64);
        let ranks = || (0..world).collect::<Vec<_>>();
        let mut keys = Vec::new();
        for (key, value) in pairs {
            let name = heap.str(*key).unwrap_or_default();
            let one = |items: Option<&[PickleValue]>| items.is_some_and(|all| all.len() == 1);
            match name.as_ref() {
                "_layout" => {
                    let shape = heap.attribute(*value, "shape");
                    let shape = shape.ok_or_else(|| ModelError::unknown("a mesh has no shape"))?;
                    let other = match shape {
                        PickleValue::Int(_) => NewValue::Int(world),
                        shape if one(heap.items(shape)) => NewValue::Tuple(vec![world]),
                        _ => return Err(several()),
                    };
                    keys.push(("_layout", NewValue::Keys(vec![("shape", other)])));
                }
                "_rank_map" => keys.push(("_rank_map", self.ranks(heap, *value)?)),
                "mesh" => keys.push(("mesh", self.ranks(heap, *value)?)),
                "_flatten_rank_map" => keys.push(("_flatten_rank_map", NewValue::Tuple(ranks()))),
                "_rank" => keys.push(("_rank", NewValue::Int(rank))),
                "_coordinate_on_dim" => match heap.object(*value) {
                    Some(PickleObject::Tuple(items)) if items.len() == 1 => {
                        keys.push(("_coordinate_on_dim", NewValue::Tuple(vec![rank])));
                    }
                    Some(PickleObject::List(items)) if items.len() == 1 => {
                        keys.push(("_coordinate_on_dim", NewValue::List(vec![rank])));
                    }
                    _ => return Err(several()),
                },
                "_hash" => keys.push(("_hash", NewValue::None)),
                known if MESH.contains(&known) => {}
                other => {
                    return Err(ModelError::unknown(format!(
                        "a mesh keeps {other}, which is not known here"
                    )));
                }
            }
        }
        Ok(NewValue::Keys(keys))
    }

    /// The tensor that lists the ranks of a mesh.
    fn ranks(&mut self, heap: &PickleHeap, value: PickleValue) -> Result<NewValue, ModelError> {
        let call = heap.call(value).and_then(|call| Some((call, storage(heap, call)?)));
        let (_, (_, class, _)) = call.ok_or_else(|| ModelError::unknown("the ranks of a mesh are no tensor"))?;
        let bytes = match class.as_str() {
            "IntStorage" => (0..self.world).flat_map(|n| (n as i32).to_le_bytes()).collect(),
            "LongStorage" => (0..self.world).flat_map(|n| (n as i64).to_le_bytes()).collect(),
            other => return Err(ModelError::unknown(format!("the ranks of a mesh are kept in {other}"))),
        };
        let storage = self.next(StorageSource::Known(bytes));
        Ok(NewValue::Tensor {
            storage,
            shape: vec![self.world],
        })
    }
}

fn several() -> ModelError {
    ModelError::unknown("its mesh has more than one dimension: only whole worlds of one dimension are cut anew")
}

/// A tuple of numbers, or a `torch.Size` built from one.
fn numbers(heap: &PickleHeap, value: PickleValue) -> Vec<u64> {
    let inner = heap
        .call(value)
        .and_then(|call| heap.items(call.args)?.first().copied());
    let items = heap.items(inner.unwrap_or(value)).unwrap_or_default();
    items.iter().filter_map(|v| heap.uint(*v)).collect()
}

/// Key and class of a tensor's storage, and the offset in it.
fn storage(heap: &PickleHeap, call: &PickleCall) -> Option<(String, String, u64)> {
    let [storage, offset, ..] = *heap.items(call.args)? else {
        return None;
    };
    let PickleObject::Persistent(id) = heap.object(storage)? else {
        return None;
    };
    let [_, class, key, ..] = *heap.items(*id)? else {
        return None;
    };
    Some((
        heap.str(key)?.into_owned(),
        heap.global(class)?.name.clone(),
        heap.uint(offset)?,
    ))
}
