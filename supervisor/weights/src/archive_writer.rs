//! Writes files of archives in one pass over the source.
//!
//! Several threads write the tensors' bytes to their offsets. The checksums are known only at the end, so headers and directories are
//! written last.

use crate::archive::{ArchiveEntry, ArchiveLayout};
use crate::checksums::ChecksumLedger;
use crate::layout::{OutFile, OutTensor};
use crate::model::SourceFile;
use crate::read::ModelReader;
use crate::write::{OutputSink, WriteError, write};
use crc32fast::Hasher;
use std::io;
use std::ops::ControlFlow;
use supervise_checkpoint::ByteExtent;

#[derive(Debug)]
struct ArchiveFile {
    /// Offset in the file, in bytes.
    at: u64,
    layout: ArchiveLayout,
    entries: Vec<ArchiveEntry>,
}

#[derive(Debug, Default)]
pub(crate) struct Archives {
    tensors: Vec<OutTensor>,
    files: Vec<OutFile>,
    items: Vec<Vec<ArchiveFile>>,
}

impl Archives {
    pub(crate) fn begin(&mut self, name: String) {
        self.files.push(OutFile {
            name,
            header: Vec::new(),
            tensors: Vec::new(),
            bytes: 0,
        });
        self.items.push(Vec::new());
    }

    /// Appends an archive to the last file; `storages` are its tensor entries. Returns its offset and its length.
    pub(crate) fn add(
        &mut self,
        layout: ArchiveLayout,
        entries: Vec<ArchiveEntry>,
        storages: impl IntoIterator<Item = (usize, OutTensor)>,
    ) -> (u64, u64) {
        let (Some(file), Some(items)) = (self.files.last_mut(), self.items.last_mut()) else {
            return (0, 0);
        };
        let (at, len) = (file.bytes, layout.bytes);
        for (entry, tensor) in storages {
            file.tensors.push((self.tensors.len(), at + layout.data(entry)));
            self.tensors.push(tensor);
        }
        file.bytes += len;
        items.push(ArchiveFile { at, layout, entries });
        (at, len)
    }

    pub(crate) fn last_bytes(&self) -> u64 {
        self.files.last().map_or(0, |f| f.bytes)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.files.iter().map(|f| (f.name.as_str(), f.bytes))
    }

    /// Writes all files. Returns the number of source bytes whose checksums were compared.
    ///
    /// # Errors
    /// A source that is damaged or cannot be read, an output that cannot be written.
    pub(crate) fn write(
        &self,
        reading: ModelReader<'_>,
        target: &dyn OutputSink,
        threads: usize,
        progress: &mut (dyn FnMut(u64) -> ControlFlow<()> + Send),
    ) -> Result<u64, WriteError> {
        let described = self.described();
        let hashing = Hashing {
            target,
            ledger: ChecksumLedger::new(&described),
        };
        let compared = write(reading, &self.tensors, &self.files, &hashing, threads, progress)?;
        let sums = hashing.ledger.sums()?;
        for (n, (items, sums)) in self.items.iter().zip(sums).enumerate() {
            let failed = |error: io::Error| WriteError::Target {
                file: self.files[n].name.clone(),
                error,
            };
            let mut own = sums.into_iter();
            for item in items {
                let mut crcs = Vec::with_capacity(item.entries.len());
                for (place, entry) in item.entries.iter().enumerate() {
                    crcs.push(match &entry.bytes {
                        Some(bytes) => {
                            let at = item.at + item.layout.data(place);
                            target.write_at(n, at, bytes).map_err(failed)?;
                            crc32fast::hash(bytes)
                        }
                        None => {
                            let at = item.at + item.layout.data(place) + entry.len - entry.zeros;
                            let zeros = vec![0; entry.zeros as usize];
                            if !zeros.is_empty() {
                                target.write_at(n, at, &zeros).map_err(failed)?;
                            }
                            let mut all =
                                Hasher::new_with_initial_len(own.next().unwrap_or_default(), entry.len - entry.zeros);
                            all.update(&zeros);
                            all.finalize()
                        }
                    });
                }
                for (at, bytes) in item.layout.frame(&crcs) {
                    target.write_at(n, item.at + at, &bytes).map_err(failed)?;
                }
            }
        }
        Ok(compared)
    }

    /// The storages of the output as extents whose checksums are needed.
    fn described(&self) -> Vec<SourceFile> {
        let open = |item: &ArchiveFile| {
            let all = item.entries.iter().enumerate().filter(|(_, e)| e.bytes.is_none());
            all.map(|(n, e)| ByteExtent {
                off: item.at + item.layout.data(n),
                len: e.len - e.zeros,
                crc: None,
                dtype: None,
                what: e.name.clone(),
            })
            .collect::<Vec<_>>()
        };
        let file = |(out, items): (&OutFile, &Vec<ArchiveFile>)| SourceFile {
            path: out.name.as_str().into(),
            bytes: out.bytes,
            checked: items.iter().flat_map(open).collect(),
        };
        self.files.iter().zip(&self.items).map(file).collect()
    }
}

/// A sink that also checksums the bytes.
struct Hashing<'a> {
    target: &'a dyn OutputSink,
    ledger: ChecksumLedger<'a>,
}

impl OutputSink for Hashing<'_> {
    fn write_at(&self, file: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.target.write_at(file, at, bytes)?;
        self.ledger.note(file, at, bytes);
        Ok(())
    }
}
