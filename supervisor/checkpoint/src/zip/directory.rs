//! The central directory: one record per entry.

use super::tail::EndRecord;
use super::{ZipEntry, ZipFields, damaged, le16, le32};
use crate::limits::InspectLimits;
use crate::raw::{le, shown};
use crate::source::FileReader;
use std::collections::HashSet;
use supervise_core::checkpoint::{Finding, Verdict};

const RECORD: u32 = 0x0201_4b50;
const RECORD_LEN: usize = 46;

/// Reads all records; data offsets are filled in later, from the local headers.
pub(super) fn read(
    file: &FileReader<'_>,
    end: &EndRecord,
    limits: &InspectLimits,
) -> Result<Vec<ZipEntry>, Box<Finding>> {
    let size = end.directory.end - end.directory.start;
    if size > limits.directory_bytes || end.entries > limits.entries {
        let detail = format!(
            "the archive has {} entries and a directory of {size} bytes: too large to look at",
            end.entries
        );
        return Err(Box::new(Finding::error("limit_reached", Verdict::Unknown, detail)));
    }
    let bytes = file.bytes(end.directory.start, usize::try_from(size).unwrap_or(0))?;
    let fits = bytes.len() / RECORD_LEN;
    let mut entries = Vec::with_capacity(fits.min(usize::try_from(end.entries).unwrap_or(0)));
    let mut at = 0;
    while at < bytes.len() {
        let (entry, used) = record(&bytes[at..], end.directory.start + at as u64)?;
        entries.push(entry);
        at += used;
    }
    if entries.len() as u64 != end.entries {
        let detail = format!(
            "the directory has {} entries, its end record says {}",
            entries.len(),
            end.entries
        );
        return Err(damaged("zip_directory", end.directory.start, detail));
    }
    alike(&entries, end.directory.start)?;
    unique(&entries, end.directory.start)?;
    Ok(entries)
}

fn record(bytes: &[u8], at: u64) -> Result<(ZipEntry, usize), Box<Finding>> {
    let bad = |detail: &str| damaged("zip_directory", at, detail.to_owned());
    if bytes.len() < RECORD_LEN || le32(bytes, 0) != RECORD {
        return Err(bad("a record of the directory does not begin like one"));
    }
    let (name_len, extra_len, comment_len) = (le16(bytes, 28), le16(bytes, 30), le16(bytes, 32));
    let name_end = RECORD_LEN + usize::from(name_len);
    let used = name_end + usize::from(extra_len);
    if comment_len != 0 || le16(bytes, 34) != 0 || used > bytes.len() {
        return Err(bad(
            "a record of the directory has a comment, another disk, or reaches beyond the directory",
        ));
    }
    let fields = ZipFields {
        made_by: le16(bytes, 4),
        needed: le16(bytes, 6),
        flags: le16(bytes, 8),
        time: le16(bytes, 12),
        date: le16(bytes, 14),
        internal: le16(bytes, 36),
        external: le32(bytes, 38),
    };
    let name = std::str::from_utf8(&bytes[RECORD_LEN..name_end]).map_err(|_| bad("an entry's name is not text"))?;
    if name.is_empty() || name.contains('\0') {
        return Err(bad("an entry has no usable name"));
    }
    let [size, packed, header] =
        sizes(bytes, &bytes[name_end..used]).ok_or_else(|| bad("an entry's zip64 sizes are missing"))?;
    if le16(bytes, 10) != 0 || fields.flags & 0x2041 != 0 {
        let detail = format!(
            "entry {} is compressed or encrypted, which torch does not write",
            shown(name)
        );
        return Err(Box::new(
            Finding::error("zip_not_stored", Verdict::Unknown, detail).at(at),
        ));
    }
    if size != packed {
        return Err(bad("a stored entry has two different sizes"));
    }
    let entry = ZipEntry {
        name: name.to_owned(),
        header,
        data: header,
        size,
        crc: le32(bytes, 16),
        fields,
    };
    Ok((entry, used))
}

/// Size, packed size and header offset, from the zip64 extra field if the record says so.
fn sizes(record: &[u8], extra: &[u8]) -> Option<[u64; 3]> {
    const ONES: u64 = 0xffff_ffff;
    let mut out = [le(record, 24, 4), le(record, 20, 4), le(record, 42, 4)];
    if out.iter().all(|v| *v != ONES) {
        return Some(out);
    }
    let mut wide = zip64_extra(extra)?;
    for v in out.iter_mut().filter(|v| **v == ONES) {
        let (field, rest) = wide.split_at_checked(8)?;
        *v = le(field, 0, 8);
        wide = rest;
    }
    Some(out)
}

fn zip64_extra(mut extra: &[u8]) -> Option<&[u8]> {
    loop {
        let (head, rest) = extra.split_at_checked(4)?;
        let (body, next) = rest.split_at_checked(usize::from(le16(head, 2)))?;
        if le16(head, 0) == 1 {
            return Some(body);
        }
        extra = next;
    }
}

/// One writer writes all records alike; a single one that differs was changed later.
fn alike(entries: &[ZipEntry], at: u64) -> Result<(), Box<Finding>> {
    if entries.len() < 4 {
        return Ok(());
    }
    let key = |e: &ZipEntry| (e.fields.made_by, e.fields.internal, e.fields.external);
    let common = if key(&entries[0]) == key(&entries[1]) {
        key(&entries[0])
    } else {
        key(&entries[2])
    };
    let mut odd = entries.iter().filter(|e| key(e) != common);
    match (odd.next(), odd.next()) {
        (Some(e), None) => {
            let detail = format!(
                "the directory record of {} differs from all others where they agree",
                e.shown()
            );
            Err(damaged("zip_directory", at, detail))
        }
        _ => Ok(()),
    }
}

/// torch finds entries without regard to case, so names that differ only in case are ambiguous.
fn unique(entries: &[ZipEntry], at: u64) -> Result<(), Box<Finding>> {
    let mut seen = HashSet::with_capacity(entries.len());
    for e in entries {
        if !seen.insert(e.name.to_ascii_lowercase()) {
            return Err(damaged(
                "zip_directory",
                at,
                format!("the directory names {} twice", e.shown()),
            ));
        }
    }
    Ok(())
}
