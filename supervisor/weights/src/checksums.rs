//! Checksums of everything read, in any order.
//!
//! A merge reads each storage in pieces, from several threads. The checksum of an extent is combined from those of its pieces, so that no
//! byte is read twice; bytes that the merge does not need (padding) are read at the end.

use crate::model::SourceFile;
use crate::problem::ModelError;
use crate::read::SharedSource;
use crc32fast::Hasher;
use std::sync::{Mutex, PoisonError};
use supervise_checkpoint::source::fill;
use supervise_core::checkpoint::Verdict;

/// Bytes per read when the rest of an extent is read only for its checksum.
const REST: usize = 1 << 20;

struct Segment {
    from: u64,
    to: u64,
    hasher: Hasher,
}

/// Everything read so far, by file and extent.
pub(crate) struct ChecksumLedger<'a> {
    files: &'a [SourceFile],
    read: Vec<Vec<Mutex<Vec<Segment>>>>,
}

impl<'a> ChecksumLedger<'a> {
    pub(crate) fn new(files: &'a [SourceFile]) -> Self {
        let of = |f: &SourceFile| f.checked.iter().map(|_| Mutex::default()).collect();
        Self {
            files,
            read: files.iter().map(of).collect(),
        }
    }

    /// Adds bytes read from a file at an offset.
    pub(crate) fn note(&self, file: usize, mut at: u64, mut bytes: &[u8]) {
        let extents = &self.files[file].checked;
        let mut n = extents.partition_point(|e| e.off + e.len <= at);
        while let Some(extent) = extents.get(n).filter(|_| !bytes.is_empty()) {
            if extent.off > at {
                let skip = (extent.off - at).min(bytes.len() as u64);
                (at, bytes) = (at + skip, &bytes[skip as usize..]);
                continue;
            }
            let here = (extent.off + extent.len - at).min(bytes.len() as u64);
            self.add(file, n, at, &bytes[..here as usize]);
            (at, bytes, n) = (at + here, &bytes[here as usize..], n + 1);
        }
    }

    fn add(&self, file: usize, extent: usize, at: u64, bytes: &[u8]) {
        let slot = &self.read[file][extent];
        let to = at + bytes.len() as u64;
        let mut segments = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = segments
            .iter()
            .position(|s| s.to == at)
            .map(|n| segments.swap_remove(n));
        // Let other threads continue while this is computed.
        drop(segments);
        let mut segment = taken.unwrap_or_else(|| Segment {
            from: at,
            to: at,
            hasher: Hasher::new(),
        });
        segment.hasher.update(bytes);
        segment.to = to;
        slot.lock().unwrap_or_else(PoisonError::into_inner).push(segment);
    }

    /// Compares the checksum of every extent that was at least partly read; reads the rest of it. Returns the number of bytes compared.
    ///
    /// # Errors
    /// A wrong checksum, or bytes that cannot be read.
    pub(crate) fn settle(self, sources: &[Box<SharedSource>]) -> Result<u64, ModelError> {
        let mut compared = 0;
        for (n, (file, extents)) in self.files.iter().zip(self.read).enumerate() {
            for (extent, segments) in file.checked.iter().zip(extents) {
                let segments = segments.into_inner().unwrap_or_else(PoisonError::into_inner);
                if segments.is_empty() {
                    continue;
                }
                let crc = whole(segments, extent.off, extent.off + extent.len, |at, buf| {
                    fill(sources[n].as_ref(), file.bytes, at, buf)
                        .map_err(|e| ModelError::new(Verdict::Unreadable, format!("{}: {e}", file.path)))
                })?;
                if extent.crc.is_some_and(|want| want != crc) {
                    let text = format!(
                        "{}: the bytes of {} (at {}) do not fit their checksum",
                        file.path, extent.what, extent.off
                    );
                    return Err(ModelError::damaged(text));
                }
                compared += extent.len;
            }
        }
        Ok(compared)
    }
}

impl ChecksumLedger<'_> {
    /// Returns the checksums of all extents, which must be complete.
    ///
    /// # Errors
    /// An incomplete extent.
    pub(crate) fn sums(self) -> Result<Vec<Vec<u32>>, ModelError> {
        let of = |(file, extents): (&SourceFile, Vec<Mutex<Vec<Segment>>>)| {
            let each = file.checked.iter().zip(extents);
            each.map(|(extent, segments)| {
                let segments = segments.into_inner().unwrap_or_else(PoisonError::into_inner);
                whole(segments, extent.off, extent.off + extent.len, |at, _| {
                    Err(ModelError::damaged(format!(
                        "{}: nothing was written at {at}",
                        file.path
                    )))
                })
            })
            .collect()
        };
        self.files.iter().zip(self.read).map(of).collect()
    }
}

/// The checksum of an extent from those of its pieces; gaps between them are read.
fn whole(
    mut segments: Vec<Segment>,
    off: u64,
    end: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), ModelError>,
) -> Result<u32, ModelError> {
    segments.sort_by_key(|s| (s.from, s.to));
    let mut all = Hasher::new();
    let mut at = off;
    let mut buf = Vec::new();
    let mut rest = |all: &mut Hasher, from: u64, to: u64| {
        let mut from = from;
        while from < to {
            buf.resize((to - from).min(REST as u64) as usize, 0);
            read(from, &mut buf)?;
            all.update(&buf);
            from += buf.len() as u64;
        }
        Ok::<(), ModelError>(())
    };
    for segment in segments {
        // A segment that begins inside another was read twice: its remainder is read once more.
        if segment.from < at {
            continue;
        }
        rest(&mut all, at, segment.from)?;
        all.combine(&segment.hasher);
        at = segment.to;
    }
    rest(&mut all, at, end)?;
    Ok(all.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use camino::Utf8PathBuf;
    use proptest::prelude::*;
    use supervise_checkpoint::ByteExtent;

    fn file(bytes: &[u8], off: u64, len: u64) -> SourceFile {
        let crc = crc32fast::hash(&bytes[off as usize..(off + len) as usize]);
        SourceFile {
            path: Utf8PathBuf::from("f"),
            bytes: bytes.len() as u64,
            checked: vec![ByteExtent {
                off,
                len,
                crc: Some(crc),
                dtype: None,
                what: "data/0".to_owned(),
            }],
        }
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_give_the_checksum_of_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 60..400),
            pieces in proptest::collection::vec((0_usize..400, 1_usize..90), 1..12),
            flip in proptest::option::of(20_usize..60),
        ) {
            let files = [file(&bytes, 20, bytes.len() as u64 - 20)];
            let ledger = ChecksumLedger::new(&files);
            let mut now = bytes.clone();
            if let Some(at) = flip {
                now[at] ^= 1;
            }
            let mut touched = false;
            for (from, n) in pieces {
                let from = from.min(now.len());
                let to = (from + n).min(now.len());
                touched |= to > 20 && to > from;
                ledger.note(0, from as u64, &now[from..to]);
            }
            let settled = ledger.settle(&[Box::new(now) as Box<SharedSource>]);
            prop_assert_eq!(settled.is_err(), touched && flip.is_some());
        }
    }
}
