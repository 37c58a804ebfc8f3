//! The storage table: each chunk is stored once, each entry belongs to a chunk, and no two overlap.

use super::findings::FindingCollector;
use super::{DcpItem, DcpItemKind, StorageRange, StoredValue};
use crate::raw::shown;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use supervise_core::checkpoint::{Finding, Verdict};

/// Approximate memory of one entry, in bytes.
pub(super) const WEIGHT: usize = 200;

/// `storage_data`: where the chunks of each name are stored.
#[derive(Default)]
pub(super) struct StorageTable {
    by_name: HashMap<String, Vec<StoredChunk>>,
    files: Vec<String>,
    file_of: HashMap<String, usize>,
}

struct StoredChunk {
    /// Start of the chunk in its tensor; `None` for a value that is not a tensor.
    offsets: Option<Box<[u64]>>,
    file: usize,
    off: u64,
    len: u64,
    encoded: bool,
}

impl StorageTable {
    /// Adds an entry: `(offset, length, encoded)` in the file.
    pub(super) fn add(&mut self, fqn: &str, offsets: Option<Box<[u64]>>, path: &str, range: (u64, u64, bool)) {
        let file = match self.file_of.get(path) {
            Some(at) => *at,
            None => {
                self.file_of.insert(path.to_owned(), self.files.len());
                self.files.push(path.to_owned());
                self.files.len() - 1
            }
        };
        let (off, len, encoded) = range;
        let place = StoredChunk {
            offsets,
            file,
            off,
            len,
            encoded,
        };
        match self.by_name.get_mut(fqn) {
            Some(list) => list.push(place),
            None => drop(self.by_name.insert(fqn.to_owned(), vec![place])),
        }
    }
}

/// Matches values with storage entries. Returns the parts of each file, in order.
pub(super) fn join(
    items: Vec<DcpItem>,
    mut places: StorageTable,
    said: &mut FindingCollector,
) -> BTreeMap<String, Vec<StorageRange>> {
    let mut by_file: Vec<Vec<StorageRange>> = places.files.iter().map(|_| Vec::new()).collect();
    for item in items {
        let found = places.by_name.remove(&*item.name).unwrap_or_default();
        let mut put = |place: &StoredChunk, what: StoredValue| {
            if let Some(parts) = by_file.get_mut(place.file) {
                parts.push(StorageRange {
                    off: place.off,
                    len: place.len,
                    fqn: Arc::clone(&item.name),
                    what,
                    encoded: place.encoded,
                });
            }
        };
        match &item.what {
            DcpItemKind::Bytes => match found.as_slice() {
                [one] => put(one, StoredValue::Bytes),
                other => said.add(wrong(&item.name, 1, other.len())),
            },
            DcpItemKind::Tensor { .. } => of_tensor(&item, found, said, &mut put),
        }
    }
    if let Some(name) = places.by_name.keys().min() {
        let detail = format!(
            "{} names have places but are not described, the first is {}",
            places.by_name.len(),
            shown(name)
        );
        said.add(Finding::error("dcp_places", Verdict::Damaged, detail));
    }
    let named = places.files.into_iter().zip(by_file);
    let out: BTreeMap<String, Vec<StorageRange>> = named
        .map(|(name, mut parts)| {
            parts.sort_by_key(|p| (p.off, p.len));
            (name, parts)
        })
        .collect();
    for (name, parts) in &out {
        ranges(name, parts, said);
    }
    out
}

/// Matches chunks and storage entries of one tensor by where the chunk begins.
fn of_tensor(
    item: &DcpItem,
    mut found: Vec<StoredChunk>,
    said: &mut FindingCollector,
    put: &mut impl FnMut(&StoredChunk, StoredValue),
) {
    let DcpItemKind::Tensor { chunks, .. } = &item.what else {
        return;
    };
    let mut sorted: Vec<_> = chunks.iter().collect();
    sorted.sort_unstable();
    // Several ranks may report the same empty chunk.
    sorted.dedup_by(|a, b| a == b && a.sizes.contains(&0));
    found.sort_by(|a, b| a.offsets.cmp(&b.offsets));
    let whole = sorted.len() == 1 && found.len() == 1 && found[0].offsets.is_none();
    let paired = sorted.len() == found.len()
        && (whole
            || sorted
                .iter()
                .zip(&found)
                .all(|(c, p)| p.offsets.as_ref() == Some(&c.offsets)));
    if !paired {
        return said.add(wrong(&item.name, sorted.len(), found.len()));
    }
    for (chunk, place) in sorted.iter().zip(&found) {
        put(place, item.what.part(Some(chunk)));
    }
}

fn wrong(name: &str, chunks: usize, places: usize) -> Finding {
    let detail = if chunks == places {
        format!("the {chunks} places of {} are not those of its chunks", shown(name))
    } else {
        format!("{} has {chunks} chunks and {places} places", shown(name))
    };
    Finding::error("dcp_places", Verdict::Damaged, detail)
}

/// Checks that the parts of a file do not overlap and are large enough for their contents.
fn ranges(file: &str, parts: &[StorageRange], said: &mut FindingCollector) {
    let mut before = 0;
    for part in parts {
        // A file's size must fit a signed offset.
        let end = part.off.checked_add(part.len).filter(|e| i64::try_from(*e).is_ok());
        let least = match &part.what {
            StoredValue::Tensor { dtype, shape, .. } if !part.encoded => payload(*dtype, shape).unwrap_or(u64::MAX),
            _ => 1,
        };
        let what = match end {
            None => "reaches beyond what a file can be",
            Some(_) if part.off < before => "overlaps the one before it",
            Some(_) if part.len < least => "is shorter than the bytes it holds",
            Some(end) => {
                before = end;
                continue;
            }
        };
        let detail = format!("the range of {} in {} {what}", shown(&part.fqn), shown(file));
        said.add(Finding::error("dcp_ranges", Verdict::Damaged, detail));
        before = before.max(end.unwrap_or(u64::MAX));
    }
}

/// Bytes of a chunk's elements; elements of an unknown type count as one byte.
pub(super) fn payload(dtype: Option<crate::dtype::Dtype>, shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let elements = shape.iter().try_fold(1_u64, |n, d| n.checked_mul(*d))?;
    elements.checked_mul(dtype.map_or(1, crate::dtype::Dtype::size))
}
