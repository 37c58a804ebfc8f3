//! Zip archives as torch writes them, read from their directory.
//!
//! Only what torch uses is accepted: stored entries, one disk, no comment, an end record exactly at the end of the file. The directory is
//! written last, so a killed writer leaves no end record (`Incomplete`); a directory that contradicts itself, the file's size or the
//! local headers is `Damaged`. Every byte of the directory that a loader uses is compared with a second source: the zip64 record, the
//! local header, the data descriptor, the neighbours. Only the tail, the directory, and the bytes between entries are read (each
//! descriptor together with the next header).

mod directory;
mod entry_layout;
mod tail;

use crate::limits::InspectLimits;
use crate::raw::{le, shown};
use crate::source::FileReader;
use std::ops::Range;
use supervise_core::checkpoint::{Finding, Verdict};

/// Bytes at the end of a file that contain the end records and usually the whole directory.
pub const TAIL: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZipEntry {
    pub name: String,
    /// Offset of its local header.
    pub header: u64,
    /// Offset of its first byte.
    pub data: u64,
    /// Stored bytes.
    pub size: u64,
    /// CRC-32 according to the directory.
    pub crc: u32,
    fields: ZipFields,
}

impl ZipEntry {
    /// Returns the offset after its last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.data.saturating_add(self.size)
    }

    fn shown(&self) -> String {
        shown(&self.name)
    }

    fn has_descriptor(&self) -> bool {
        self.fields.flags & 0x8 != 0
    }
}

/// Directory fields besides sizes; compared with the local header and the neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ZipFields {
    made_by: u16,
    needed: u16,
    flags: u16,
    time: u16,
    date: u16,
    internal: u16,
    external: u32,
}

/// An archive with a valid structure.
#[derive(Debug, Clone)]
pub struct Archive {
    /// In the order of the directory.
    pub entries: Vec<ZipEntry>,
    /// Byte range of the directory.
    pub directory: Range<u64>,
    /// Whether there is a zip64 end record, which torch always writes.
    pub zip64: bool,
}

impl Archive {
    /// Bytes of memory for the list of entries and what is built from it: an index by name, and read extents.
    pub(crate) fn weight(&self) -> usize {
        const APART: usize = 256;
        let names: usize = self.entries.iter().map(|e| 2 * e.name.len()).sum();
        names + self.entries.len() * (size_of::<ZipEntry>() + APART)
    }
}

/// Reads the structure of an archive. Warnings go to `findings`; an error is returned.
///
/// # Errors
/// The finding that makes the archive unusable.
pub fn read(
    file: &FileReader<'_>,
    limits: &InspectLimits,
    findings: &mut Vec<Finding>,
) -> Result<Archive, Box<Finding>> {
    let end = tail::find(file)?;
    let mut entries = directory::read(file, &end, limits)?;
    entry_layout::check(file, &end, &mut entries, limits, findings)?;
    Ok(Archive {
        entries,
        directory: end.directory,
        zip64: end.zip64,
    })
}

fn damaged(code: &'static str, at: u64, detail: impl Into<String>) -> Box<Finding> {
    Box::new(Finding::error(code, Verdict::Damaged, detail).at(at))
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    le(bytes, at, 2) as u16
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    le(bytes, at, 4) as u32
}
