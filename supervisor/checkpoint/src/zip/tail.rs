//! The end of an archive: end record, zip64 locator and record.
//!
//! Without an end record at the very end, the tail and the head show what happened: nothing written, truncated, zero-filled after a power
//! failure, something appended, or not an archive.

use super::{damaged, le16, le32};
use crate::raw::le;
use crate::source::FileReader;
use std::ops::Range;
use supervise_core::checkpoint::{Finding, Verdict};

const END: u32 = 0x0605_4b50;
const END_LEN: usize = 22;
const LOCATOR: u32 = 0x0706_4b50;
const LOCATOR_LEN: usize = 20;
const RECORD: u32 = 0x0606_4b50;
const RECORD_LEN: u64 = 56;

pub(super) struct EndRecord {
    pub(super) directory: Range<u64>,
    pub(super) entries: u64,
    pub(super) zip64: bool,
}

pub(super) fn find(file: &FileReader<'_>) -> Result<EndRecord, Box<Finding>> {
    let len = file.len();
    let tail = file.tail();
    let at = tail.len().checked_sub(END_LEN).filter(|&at| le32(tail, at) == END);
    let Some(at) = at else {
        return Err(why_no_end(file)?);
    };
    let end = &tail[at..];
    let end_at = len - END_LEN as u64;
    if le16(end, 20) != 0 {
        return Err(damaged(
            "zip_end_record",
            end_at,
            "the end record names a comment that is not there",
        ));
    }
    if le16(end, 4) != 0 || le16(end, 6) != 0 || le16(end, 8) != le16(end, 10) {
        return Err(damaged(
            "zip_end_record",
            end_at,
            "the end record contradicts itself (disks or entry counts)",
        ));
    }
    let small = DirectorySize {
        entries: le(end, 10, 2),
        size: le(end, 12, 4),
        at: le(end, 16, 4),
    };
    let locator = at.checked_sub(LOCATOR_LEN).filter(|&l| le32(tail, l) == LOCATOR);
    let (sizes, records_at) = match locator {
        Some(l) => {
            let (big, record_at) = record(file, &tail[l..at], end_at - LOCATOR_LEN as u64)?;
            small.agrees(&big, end_at)?;
            (big, record_at)
        }
        None => (small, end_at),
    };
    let directory_end = sizes.at.checked_add(sizes.size);
    if directory_end != Some(records_at) {
        let detail = format!(
            "the directory should be {} bytes at byte {} and end at byte {records_at}",
            sizes.size, sizes.at
        );
        return Err(damaged("zip_end_record", end_at, detail));
    }
    Ok(EndRecord {
        directory: sizes.at..records_at,
        entries: sizes.entries,
        zip64: locator.is_some(),
    })
}

struct DirectorySize {
    entries: u64,
    size: u64,
    at: u64,
}

impl DirectorySize {
    /// Checks that each field of the small record equals the large one's, or is all ones, which refers to it.
    fn agrees(&self, big: &Self, at: u64) -> Result<(), Box<Finding>> {
        let same = |small: u64, big: u64, ones: u64| small == ones || small == big;
        let all = same(self.entries, big.entries, 0xffff)
            && same(self.size, big.size, 0xffff_ffff)
            && same(self.at, big.at, 0xffff_ffff);
        if all {
            Ok(())
        } else {
            Err(damaged(
                "zip_end_record",
                at,
                "the end record and its zip64 form disagree",
            ))
        }
    }
}

fn record(file: &FileReader<'_>, locator: &[u8], locator_at: u64) -> Result<(DirectorySize, u64), Box<Finding>> {
    let at = le(locator, 8, 8);
    if le32(locator, 4) != 0 || le32(locator, 16) != 1 {
        return Err(damaged(
            "zip_end_record",
            locator_at,
            "the zip64 locator names more than one disk",
        ));
    }
    if at.checked_add(RECORD_LEN) != Some(locator_at) {
        return Err(damaged(
            "zip_end_record",
            locator_at,
            format!("the zip64 locator points to byte {at}, which is not before it"),
        ));
    }
    let r = file.bytes(at, RECORD_LEN as usize)?;
    let sound = le32(&r, 0) == RECORD
        && le(&r, 4, 8) == RECORD_LEN - 12
        && le32(&r, 16) == 0
        && le32(&r, 20) == 0
        && le(&r, 24, 8) == le(&r, 32, 8);
    if !sound {
        return Err(damaged("zip_end_record", at, "the zip64 end record is not one"));
    }
    Ok((
        DirectorySize {
            entries: le(&r, 32, 8),
            size: le(&r, 40, 8),
            at: le(&r, 48, 8),
        },
        at,
    ))
}

fn why_no_end(file: &FileReader<'_>) -> Result<Box<Finding>, Box<Finding>> {
    let len = file.len();
    if len == 0 {
        return Ok(Box::new(Finding::error(
            "empty_file",
            Verdict::Incomplete,
            "the file is empty",
        )));
    }
    let head = file.bytes(0, usize::try_from(len.min(4096)).unwrap_or(4096))?;
    let tail = file.tail();
    if head.iter().all(|b| *b == 0) {
        return Ok(damaged(
            "zero_filled",
            0,
            "the file holds zeros where it should begin: its blocks were never written",
        ));
    }
    if !head.starts_with(b"PK\x03\x04") {
        return Ok(Box::new(no_archive(&head, len)));
    }
    let zeros = tail.iter().rev().take_while(|b| **b == 0).count();
    if zeros >= 512 {
        let from = len - zeros as u64;
        return Ok(damaged(
            "torn_write",
            from,
            format!("the last {zeros} bytes or more are zeros: they were never written"),
        ));
    }
    if let Some(at) = memchr::memmem::rfind(tail, &END.to_le_bytes()) {
        let end = file.tail_at() + (at + END_LEN) as u64;
        if end <= len {
            return Ok(damaged(
                "zip_trailing_bytes",
                end,
                format!("{} bytes follow the end of the archive", len - end),
            ));
        }
    }
    let detail = format!("the file ends after {len} bytes without a directory: the save was cut off");
    Ok(Box::new(
        Finding::error("zip_truncated", Verdict::Incomplete, detail).at(len),
    ))
}

fn no_archive(head: &[u8], len: u64) -> Finding {
    if b"PK\x03\x04".starts_with(head) {
        return Finding::error(
            "zip_truncated",
            Verdict::Incomplete,
            format!("the file ends after {len} bytes"),
        )
        .at(len);
    }
    // Files from before torch 1.6 begin with a pickled magic number.
    if begins_with_magic(head) {
        return Finding::error(
            "legacy_torch_file",
            Verdict::Unknown,
            "the file has torch's format from before 1.6",
        )
        .at(0);
    }
    Finding::error(
        "not_a_zip",
        Verdict::Damaged,
        "the file does not begin like a zip archive",
    )
    .at(0)
}

/// Whether the bytes begin with a pickle of the magic number; protocols from 4 on put it into a frame.
fn begins_with_magic(head: &[u8]) -> bool {
    const MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    match head {
        [0x80, 2..=5, rest @ ..] if rest.starts_with(MAGIC) => true,
        [0x80, 4..=5, 0x95, _, _, _, _, _, _, _, _, rest @ ..] => rest.starts_with(MAGIC),
        _ => false,
    }
}
