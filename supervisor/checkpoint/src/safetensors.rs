//! safetensors files and their index.
//!
//! The header (length, then JSON) says where each tensor is. The tensors must tile the rest of the file exactly, so a file that was
//! truncated or extended is detected without reading a tensor. The format has no checksums: a full proof shows that every byte can be
//! read and that no block is missing, not that the bytes are those that were written.

use crate::dtype::Dtype;
use crate::json;
use crate::limits::InspectLimits;
use crate::megatron::stays_below;
use crate::plan::{ByteExtent, ReadPlan};
use crate::raw::shown;
use crate::source::FileReader;
use crate::torch::TorchTensor;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{Finding, Verdict};

mod header;

use header::{TensorEntry, entries};

/// The used content of a header.
#[derive(Debug, Default)]
pub struct SafetensorsHeader {
    /// Tensors in order of offset.
    pub plan: ReadPlan,
    pub elements: u64,
    /// The same as an inventory, up to the limit.
    pub tensors: Vec<TorchTensor>,
    /// Whether the tensors are pieces of others, as torch's distributed writer leaves them before joining.
    pub pieces: bool,
}

pub(crate) fn inspect(file: &FileReader<'_>, limits: &InspectLimits) -> Result<SafetensorsHeader, Box<Finding>> {
    let len = file.len();
    if len < 8 {
        return Err(Box::new(cut(len, 8)));
    }
    let size = crate::raw::le(&file.bytes(0, 8)?, 0, 8);
    if size == 0 && file.bytes(0, len.min(4096) as usize)?.iter().all(|b| *b == 0) {
        let detail = "the file holds zeros where it should begin: its blocks were never written";
        return Err(Box::new(Finding::error("zero_filled", Verdict::Damaged, detail).at(0)));
    }
    if size > limits.header_bytes || size < 2 {
        let detail = format!("the header should have {size} bytes: this is no safetensors file");
        return Err(Box::new(
            Finding::error("safetensors_header", Verdict::Damaged, detail).at(0),
        ));
    }
    let base = 8 + size;
    if base > len {
        return Err(Box::new(cut(len, base)));
    }
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if json::room(size, limits) == 0 {
        return Err(Box::new(json::too_big(size, limits)));
    }
    let text = file.bytes(8, size)?;
    if !text.starts_with(b"{") {
        return Err(Box::new(
            Finding::error("safetensors_header", Verdict::Damaged, "the header is no JSON object").at(8),
        ));
    }
    let entries = entries(&text, limits)?;
    drop(text);
    let mut header = tile(entries.tensors, base, len, limits.tensors)?;
    header.pieces = entries.pieces;
    Ok(header)
}

fn cut(len: u64, want: u64) -> Finding {
    let detail = format!("the file has {len} bytes and should have at least {want}");
    Finding::error("safetensors_truncated", Verdict::Incomplete, detail).at(len)
}

fn bad(name: &str, what: &str) -> Box<Finding> {
    Box::new(
        Finding::error(
            "safetensors_header",
            Verdict::Damaged,
            format!("tensor {} {what}", shown(name)),
        )
        .at(8),
    )
}

/// Checks that tensors follow each other without gap or overlap and end at the end of the file.
fn tile(mut entries: Vec<TensorEntry>, base: u64, len: u64, most: usize) -> Result<SafetensorsHeader, Box<Finding>> {
    // Sorting takes less memory than a set of all names.
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if let Some(twice) = entries.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(bad(&twice[0].name, "is named twice"));
    }
    entries.sort_by_key(|entry| entry.data_offsets);
    let mut out = SafetensorsHeader::default();
    out.plan.extents.reserve_exact(entries.len());
    out.tensors.reserve_exact(entries.len().min(most));
    let mut at = 0;
    for entry in entries {
        let name = String::from(entry.name);
        let [from, to] = entry.data_offsets;
        let Some(bytes) = to.checked_sub(from) else {
            return Err(bad(&name, "ends before it begins"));
        };
        let (dtype, bits) = match entry.dtype {
            Ok(known) => known,
            Err(word) => {
                let detail = format!("tensor {} has the unknown type {}", shown(&name), shown(&word));
                return Err(Box::new(
                    Finding::error("safetensors_dtype", Verdict::Unknown, detail).at(8),
                ));
            }
        };
        let elements = entry.shape.iter().try_fold(1_u64, |n, d| n.checked_mul(*d));
        let want = elements
            .and_then(|n| n.checked_mul(bits))
            .filter(|b| b.is_multiple_of(8))
            .map(|b| b / 8);
        if want != Some(bytes) {
            return Err(bad(&name, "has another size than its shape and type ask for"));
        }
        if from != at {
            return Err(bad(&name, "does not begin where the one before it ends"));
        }
        at = to;
        out.elements = out.elements.saturating_add(elements.unwrap_or(0));
        let Some(off) = base.checked_add(from) else {
            return Err(bad(&name, "lies beyond the file"));
        };
        if out.tensors.len() < most {
            out.tensors.push(tensor(&name, dtype, entry.shape.into_vec()));
        }
        out.plan.extents.push(ByteExtent {
            off,
            len: bytes,
            crc: None,
            dtype: Some(dtype),
            what: name,
        });
    }
    match base.checked_add(at) {
        Some(end) if end == len => Ok(out),
        Some(end) if end < len => {
            let detail = format!("{} bytes follow the last tensor", len - end);
            Err(Box::new(
                Finding::error("safetensors_trailing", Verdict::Damaged, detail).at(end),
            ))
        }
        end => Err(Box::new(cut(len, end.unwrap_or(u64::MAX)))),
    }
}

fn tensor(name: &str, dtype: Dtype, shape: Vec<u64>) -> TorchTensor {
    TorchTensor {
        name: name.to_owned(),
        dtype: Some(dtype),
        shape,
        stride: Vec::new(),
        storage: None,
        offset: 0,
        placement: None,
    }
}

/// An index: the file of each tensor.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// The tensor names of each file.
    pub files: BTreeMap<String, Vec<String>>,
    pub tensors: u64,
}

impl Index {
    /// Returns the files, sorted.
    #[must_use]
    pub fn shards(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }
}

/// Parses an index such as `model.safetensors.index.json`.
pub(crate) fn index(file: &FileReader<'_>, limits: &InspectLimits) -> Result<Index, Box<Finding>> {
    let parsed: IndexFile = json::parse(&json::bytes(file, limits)?, limits)?;
    let map = parsed.weight_map;
    let broken = |what: String| Box::new(Finding::error("safetensors_index", Verdict::Damaged, what));
    if map.is_empty() {
        return Err(broken("the index names no tensor".to_owned()));
    }
    let mut out = Index {
        files: BTreeMap::new(),
        tensors: map.len() as u64,
    };
    for (tensor, file) in map {
        if !stays_below(&file) {
            let what = format!("the index names a file outside its folder: {}", shown(&file));
            return Err(broken(what));
        }
        out.files.entry(file).or_default().push(tensor);
    }
    Ok(out)
}

/// As in Python, the last of repeated names counts.
#[derive(serde::Deserialize)]
struct IndexFile {
    weight_map: BTreeMap<String, String>,
}
