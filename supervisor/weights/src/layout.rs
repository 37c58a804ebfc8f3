//! The output files, and the offset of each tensor.
//!
//! Source: huggingface_hub `serialization/_base.py` (how tensors are assigned to files), safetensors 0.8 `tensor.rs` (file layout: the
//! header's length, the header as JSON padded to eight bytes, then tensors from the widest type to the narrowest and by name).

use crate::model::elements;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use supervise_checkpoint::Dtype;

/// An output tensor: ranges of source tensors, concatenated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutTensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    /// Its ranges, in row-major order.
    pub pieces: Vec<TensorRange>,
}

/// A row-major range of elements of a source tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorRange {
    pub tensor: usize,
    pub from: u64,
    /// End of the range, exclusive.
    pub to: u64,
}

impl OutTensor {
    /// Returns its bytes in the output.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        elements(&self.shape).saturating_mul(self.dtype.size())
    }
}

/// An output file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutFile {
    pub name: String,
    /// Bytes before the first tensor.
    pub header: Vec<u8>,
    /// Tensor indices, each with its offset in the file in bytes.
    pub tensors: Vec<(usize, u64)>,
    /// Length in bytes.
    pub bytes: u64,
}

/// Assigns tensors to files of at most `most` bytes each, in order; a larger tensor gets a file of its own.
#[must_use]
pub fn files(tensors: &[OutTensor], stem: &str, most: u64) -> Vec<OutFile> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let (mut open, mut size) = (None, 0_u64);
    for (n, tensor) in tensors.iter().enumerate() {
        let bytes = tensor.bytes();
        if bytes > most {
            groups.push(vec![n]);
            continue;
        }
        if open.is_none() || size.saturating_add(bytes) > most {
            (open, size) = (Some(groups.len()), 0);
            groups.push(Vec::new());
        }
        size += bytes;
        if let Some(group) = open.and_then(|g| groups.get_mut(g)) {
            group.push(n);
        }
    }
    let of = groups.len();
    let name = |n: usize| match of {
        1 => format!("{stem}.safetensors"),
        _ => format!("{stem}-{:05}-of-{of:05}.safetensors", n + 1),
    };
    let named = groups.into_iter().enumerate();
    named.map(|(n, group)| file(name(n), group, tensors)).collect()
}

fn file(name: String, mut group: Vec<usize>, tensors: &[OutTensor]) -> OutFile {
    #[derive(Serialize)]
    struct Info<'a> {
        dtype: &'a str,
        shape: &'a [u64],
        data_offsets: [u64; 2],
    }
    group.sort_by_key(|n| (Reverse(rank(tensors[*n].dtype)), tensors[*n].name.as_str()));
    let mut table = Map::new();
    table.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut at = 0_u64;
    let mut places = Vec::with_capacity(group.len());
    for n in group {
        let tensor = &tensors[n];
        let end = at + tensor.bytes();
        let info = Info {
            dtype: word(tensor.dtype).unwrap_or_default(),
            shape: &tensor.shape,
            data_offsets: [at, end],
        };
        table.insert(tensor.name.clone(), serde_json::to_value(info).unwrap_or(Value::Null));
        places.push((n, at));
        at = end;
    }
    let mut text = Value::Object(table).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    let base = header.len() as u64;
    OutFile {
        name,
        tensors: places.into_iter().map(|(n, at)| (n, base + at)).collect(),
        bytes: base + at,
        header,
    }
}

/// Returns the index of several files, as transformers writes it; `None` if there is only one.
#[must_use]
pub fn index(files: &[OutFile], tensors: &[OutTensor]) -> Option<String> {
    if files.len() < 2 {
        return None;
    }
    let mut map: Vec<(&str, &str)> = files
        .iter()
        .flat_map(|f| {
            f.tensors
                .iter()
                .map(|(n, _)| (tensors[*n].name.as_str(), f.name.as_str()))
        })
        .collect();
    map.sort_unstable();
    let map: Map<String, Value> = map.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
    let parameters: u64 = tensors.iter().map(|t| elements(&t.shape)).sum();
    let size: u64 = tensors.iter().map(OutTensor::bytes).sum();
    let all = json!({"metadata": {"total_parameters": parameters, "total_size": size}, "weight_map": map});
    let text = serde_json::to_string_pretty(&all).unwrap_or_default();
    Some(text + "\n")
}

/// Returns the type's name in a safetensors header, if it has one.
#[must_use]
pub fn word(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::F64 => "F64",
        Dtype::F32 => "F32",
        Dtype::F16 => "F16",
        Dtype::Bf16 => "BF16",
        Dtype::F8E4M3fn => "F8_E4M3",
        Dtype::F8E5M2 => "F8_E5M2",
        Dtype::F8E4M3fnuz => "F8_E4M3FNUZ",
        Dtype::F8E5M2fnuz => "F8_E5M2FNUZ",
        Dtype::F8E8M0fnu => "F8_E8M0",
        Dtype::C64 => "C64",
        Dtype::I64 => "I64",
        Dtype::I32 => "I32",
        Dtype::I16 => "I16",
        Dtype::I8 => "I8",
        Dtype::U64 => "U64",
        Dtype::U32 => "U32",
        Dtype::U16 => "U16",
        Dtype::U8 => "U8",
        Dtype::Bool => "BOOL",
        _ => return None,
    })
}

/// Position of a type in safetensors 0.8's order, from the narrowest to the widest.
fn rank(dtype: Dtype) -> usize {
    const ORDER: [Dtype; 19] = [
        Dtype::Bool,
        Dtype::U8,
        Dtype::I8,
        Dtype::F8E5M2,
        Dtype::F8E4M3fn,
        Dtype::F8E8M0fnu,
        Dtype::F8E4M3fnuz,
        Dtype::F8E5M2fnuz,
        Dtype::I16,
        Dtype::U16,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::I32,
        Dtype::U32,
        Dtype::F32,
        Dtype::C64,
        Dtype::F64,
        Dtype::I64,
        Dtype::U64,
    ];
    ORDER.iter().position(|d| *d == dtype).unwrap_or_default()
}
