//! `torch.distributed.checkpoint`: `.metadata` says where each value is stored, `.distcp` files contain the values.
//!
//! `.metadata` is one pickle, written last. It lists every tensor with its chunks. For every chunk and every other value, it gives the
//! file and the byte range; each such range (a *part*) is a complete file of `torch.save`. [`read_metadata`] builds a [`DcpMetadata`] and
//! checks that the chunks of each tensor cover it exactly once and that each is stored once; [`inspect_parts`] checks the parts of one
//! `.distcp` file against the [`DcpMetadata`].

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
    pub tensors: Vec<DcpTensor>,
    /// Number of values that are not tensors.
    pub objects: u64,
    /// The parts of each file, in order of offset, by its path next to `.metadata`.
    pub parts: BTreeMap<String, Vec<StorageRange>>,
    /// The directory it was written for, if torch recorded it.
    pub written_for: Option<String>,
}

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DcpTensor {
    pub name: Arc<str>,
    /// `None` if the element type is not known here.
    pub dtype: Option<Dtype>,
    /// Shape of the whole tensor.
    pub shape: Vec<u64>,
    pub chunks: usize,
}

/// A range of a file that holds one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageRange {
    /// First byte in the file.
    pub off: u64,
    /// Length in bytes.
    pub len: u64,
    pub fqn: Arc<str>,
    pub what: StoredValue,
    /// Whether it was compressed or encrypted when written, so that it cannot be inspected.
    pub encoded: bool,
}

/// What a range contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredValue {
    Tensor {
        /// `None` if the element type is not known here.
        dtype: Option<Dtype>,
        /// Start of the chunk in the whole tensor, per dimension.
        offsets: Box<[u64]>,
        shape: Box<[u64]>,
    },
    Bytes,
}

/// Where a chunk's elements are in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkLocation {
    /// Start of its part: [`StorageRange::off`].
    pub part: u64,
    /// Offset of its first element in the file, in bytes.
    pub at: u64,
    /// Strides in elements, per dimension.
    pub stride: Vec<u64>,
}

/// A chunk of a tensor: its start and size in each dimension.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ChunkBounds {
    offsets: Box<[u64]>,
    sizes: Box<[u64]>,
}

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
    /// Lists the tensors, `most` at most.
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

    /// The facts that a report keeps.
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

    /// The first few top-level names of all values. AReaL puts a meaningless `dcp.` before each name.
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

/// The object that Megatron from 0.19 on stores instead of `common.pt`.
pub(crate) const COMMON_STATE: &str = "common_state";
/// Files kept in a report; a save of 16,384 ranks with two writers each has 32,768.
const FILES: usize = 65_536;
/// Top-level names kept in a report; Megatron has a handful.
const HEADS: usize = 64;

/// The facts of `.metadata` that a report keeps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DcpFacts {
    pub tensors: u64,
    pub elements: u64,
    /// Number of values that are not tensors.
    pub objects: u64,
    /// The files of the values, by their path next to `.metadata`.
    pub files: BTreeMap<String, DcpFile>,
    /// Number of files beyond the limit.
    pub more_files: u64,
    /// The directory it was written for, if torch recorded it. It may have been moved since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_for: Option<String>,
    /// The top-level names of all values (`decoder`, `optimizer`, `rng_state`), which show the kinds of state.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub heads: BTreeSet<String>,
}

/// What one `.distcp` file has to contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DcpFile {
    /// The end of its last part, which should be the file's length.
    pub end: u64,
    pub parts: u64,
    /// Number of parts that are chunks of tensors.
    pub tensors: u64,
}

fn damaged(code: &'static str, detail: String) -> Box<Finding> {
    Box::new(Finding::error(code, Verdict::Damaged, detail))
}
