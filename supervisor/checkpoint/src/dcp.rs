//! Checkpoints of `torch.distributed.checkpoint`: `.metadata` says which value lies where, `.distcp` files hold them.
//!
//! `.metadata` is one pickle, written last. It names every tensor with the chunks it was cut into, and for every chunk
//! and every other value the file and the range that hold it; each such range (a *part*) is a complete file of
//! `torch.save`. [`read_metadata`] makes a [`Dcp`] of it and checks that the chunks of each tensor tile it exactly once and
//! that each has one place; [`inspect_parts`] looks into the parts of one `.distcp` file as the [`Dcp`] describes them.

mod findings;
mod metadata;
mod names;
mod parts;
mod steps;
mod storage_table;
mod tiling;
mod window;

pub(crate) use metadata::read_metadata;
pub(crate) use parts::inspect_parts;

use crate::dtype::Dtype;
use crate::raw::shown;
use crate::torch::{Placement, TorchTensor};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use supervise_core::checkpoint::{Finding, Verdict};

/// Content of `.metadata`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DcpMetadata {
    /// The tensors, by name.
    pub tensors: Vec<DcpTensor>,
    /// Values that are no tensors.
    pub objects: u64,
    /// Content of each file, by its path beside `.metadata`, in order of place.
    pub parts: BTreeMap<String, Vec<StorageRange>>,
    /// The directory it was written for, where torch says.
    pub written_for: Option<String>,
}

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DcpTensor {
    /// Its name.
    pub name: Arc<str>,
    /// The type of its elements, where it is one we know.
    pub dtype: Option<Dtype>,
    /// Its whole shape.
    pub shape: Vec<u64>,
    /// Chunks it was cut into.
    pub chunks: usize,
}

/// A range of a file that holds one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageRange {
    /// Place where it begins.
    pub off: u64,
    /// How long it is.
    pub len: u64,
    /// The name of the value.
    pub fqn: Arc<str>,
    /// Its kind.
    pub what: StoredValue,
    /// It was changed on its way into the file (compressed, encrypted): it cannot be looked into.
    pub encoded: bool,
}

/// Content of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredValue {
    /// A chunk of a tensor.
    Tensor {
        /// The type of its elements, where it is one we know.
        dtype: Option<Dtype>,
        /// Place in the whole tensor where the chunk begins, in each dimension.
        offsets: Box<[u64]>,
        /// The shape of the chunk.
        shape: Box<[u64]>,
    },
    /// Any other value.
    Bytes,
}

/// Place of a chunk's elements in the file that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkLocation {
    /// Place where its part begins: [`Part::off`].
    pub part: u64,
    /// Place of its first element, in bytes.
    pub at: u64,
    /// Distance of neighbours in each dimension, in elements.
    pub stride: Vec<u64>,
}

/// A chunk of a tensor: where it begins in each dimension, and how far it reaches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ChunkBounds {
    offsets: Box<[u64]>,
    sizes: Box<[u64]>,
}

/// A value of the checkpoint.
struct DcpItem {
    name: Arc<str>,
    what: DcpItemKind,
}

enum DcpItemKind {
    Tensor {
        dtype: Option<Dtype>,
        shape: Vec<u64>,
        chunks: Vec<ChunkBounds>,
    },
    Bytes,
}

impl DcpItemKind {
    /// Content of a part with this chunk.
    fn part(&self, chunk: Option<&ChunkBounds>) -> StoredValue {
        match (self, chunk) {
            (Self::Tensor { dtype, .. }, Some(chunk)) => StoredValue::Tensor {
                dtype: *dtype,
                offsets: chunk.offsets.clone(),
                shape: chunk.sizes.clone(),
            },
            _ => StoredValue::Bytes,
        }
    }
}

impl DcpMetadata {
    /// The tensors as an inventory.
    #[must_use]
    pub fn inventory(&self, most: usize) -> Vec<TorchTensor> {
        let tensor = |t: &DcpTensor| TorchTensor {
            name: t.name.to_string(),
            dtype: t.dtype,
            shape: t.shape.clone(),
            stride: Vec::new(),
            storage: None,
            offset: 0,
            placement: (t.chunks > 1).then(|| Placement {
                global: t.shape.clone(),
                words: vec![format!("{} chunks", t.chunks)],
                mesh: Vec::new(),
                rank: None,
            }),
        };
        self.tensors.iter().take(most).map(tensor).collect()
    }

    /// The part of it that a report keeps.
    #[must_use]
    pub fn facts(&self) -> DcpFacts {
        let elements = |t: &DcpTensor| t.shape.iter().fold(1, |n: u64, d| n.saturating_mul(*d));
        let of_file = |(name, parts): (&String, &Vec<StorageRange>)| {
            let end = parts.last().map_or(0, |p| p.off.saturating_add(p.len));
            let is_tensor = |p: &&StorageRange| matches!(p.what, StoredValue::Tensor { .. });
            let file = DcpFile {
                end,
                parts: parts.len() as u64,
                tensors: parts.iter().filter(is_tensor).count() as u64,
            };
            (name.clone(), file)
        };
        DcpFacts {
            tensors: self.tensors.len() as u64,
            elements: self.tensors.iter().map(elements).fold(0, u64::saturating_add),
            objects: self.objects,
            files: self.parts.iter().take(FILES).map(of_file).collect(),
            more_files: self.parts.len().saturating_sub(FILES) as u64,
            heads: self.heads(),
            written_for: self.written_for.clone(),
        }
    }

    /// The first words of the names of all values, the first few; AReaL puts one before all of them that says nothing.
    fn heads(&self) -> BTreeSet<String> {
        let tensors = self.tensors.iter().map(|t| &t.name);
        let parts = self.parts.values().flatten().map(|p| &p.fqn);
        let mut out = BTreeSet::new();
        for name in tensors.chain(parts) {
            let name = name.strip_prefix("dcp.").unwrap_or(name);
            let head = name.split(['.', '/']).next().unwrap_or_default();
            if out.len() < HEADS && !out.contains(head) {
                out.insert(shown(head));
            }
        }
        out
    }
}

/// The name of the object that Megatron from 0.19 on keeps in place of `common.pt`.
pub(crate) const COMMON_STATE: &str = "common_state";
/// Files kept in a report; a save of 16,384 ranks with two writers each has 32,768.
const FILES: usize = 65_536;
/// First words of names kept in a report; Megatron's have a handful.
const HEADS: usize = 64;

/// The part of `.metadata` that a report keeps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DcpFacts {
    /// Tensors.
    pub tensors: u64,
    /// Elements of all tensors.
    pub elements: u64,
    /// Values that are no tensors.
    pub objects: u64,
    /// The files that hold them, by their path beside `.metadata`.
    pub files: BTreeMap<String, DcpFile>,
    /// Files beyond those that are kept.
    pub more_files: u64,
    /// The directory it was written for, where torch says: that of the writer, which may have moved since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_for: Option<String>,
    /// The first words of the names of all values (`decoder`, `optimizer`, `rng_state`): what kinds of state are there.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub heads: BTreeSet<String>,
}

/// Bytes that one `.distcp` file has to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DcpFile {
    /// The end of its last part: the length it should have.
    pub end: u64,
    /// Parts.
    pub parts: u64,
    /// Parts that are chunks of tensors.
    pub tensors: u64,
}

fn damaged(code: &'static str, detail: String) -> Box<Finding> {
    Box::new(Finding::error(code, Verdict::Damaged, detail))
}
