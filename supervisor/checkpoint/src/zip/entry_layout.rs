//! Checks the bytes between entries: the data descriptor of one and the local header of the next.
//!
//! One read checks both; small neighbours share a read. Beyond the allowed number of reads, an entry's data offset is derived from its
//! neighbour's header instead. Entries must not overlap each other or the directory, and nothing but their descriptors may be between
//! them.

use super::tail::EndRecord;
use super::{ZipEntry, damaged, le16, le32};
use crate::limits::InspectLimits;
use crate::source::{FileReader, ReadFault};
use supervise_core::checkpoint::Finding;

const HEADER: u32 = 0x0403_4b50;
const HEADER_LEN: usize = 30;
const DESCRIPTOR: u32 = 0x0807_4b50;
/// Neighbours closer than this share a read.
const NEAR: u64 = 4096;

/// Checks all gaps and fills in each entry's data offset.
pub(super) fn check(
    file: &FileReader<'_>,
    end: &EndRecord,
    entries: &mut [ZipEntry],
    limits: &InspectLimits,
    findings: &mut Vec<Finding>,
) -> Result<(), Box<Finding>> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|&i| entries[i].header);
    let mut window = ReadWindow {
        file,
        at: 0,
        bytes: Vec::new(),
        reads: 0,
    };
    let folder = entries.first().and_then(|e| e.name.split_once('/'));
    let pickle = format!("{}/data.pkl", folder.map_or("", |(folder, _)| folder));
    let mut before = 0;
    let mut derived = 0_u64;
    for (n, &i) in order.iter().enumerate() {
        let next = order.get(n + 1).map_or(end.directory.start, |&j| entries[j].header);
        let entry = &entries[i];
        if n == 0 && entry.header != 0 {
            let detail = "there are bytes before the archive: torch.load would take the file for a pickle";
            return Err(damaged("not_a_zip", 0, detail));
        }
        let room = next.checked_sub(entry.header).filter(|_| entry.header >= before);
        let least = HEADER_LEN as u64 + entry.name.len() as u64;
        if room.is_none_or(|r| least.saturating_add(entry.size) > r) {
            let detail = format!("entry {} does not fit between its neighbours", entry.shown());
            return Err(damaged("zip_overlap", entry.header, detail));
        }
        // The header of anything that a loader runs is always read, whatever it costs.
        let looked_at = window.reads < limits.header_reads || entry.name.eq_ignore_ascii_case(&pickle);
        let data = if looked_at || window.holds(entry.header, HEADER_LEN) {
            header(&mut window, entry)?
        } else {
            derived += 1;
            derive(entry, next)?
        };
        let stop = data.checked_add(entry.size).filter(|s| *s <= next);
        let Some(stop) = stop else {
            let detail = format!("entry {} does not fit between its neighbours", entry.shown());
            return Err(damaged("zip_overlap", entry.header, detail));
        };
        if window.reads < limits.header_reads {
            descriptor(&mut window, entry, stop, next)?;
        }
        before = stop;
        entries[i].data = data;
    }
    if derived > 0 {
        let detail = format!("the headers of {derived} entries were not looked at (limit of reads)");
        findings.push(Finding::note("headers_not_read", detail));
    }
    Ok(())
}

/// Reads a local header and returns the offset of the bytes after it.
fn header(window: &mut ReadWindow<'_, '_>, e: &ZipEntry) -> Result<u64, Box<Finding>> {
    let bad = |what: &str| {
        damaged(
            "zip_local_header",
            e.header,
            format!("the local header of {} {what}", e.shown()),
        )
    };
    let need = HEADER_LEN + e.name.len();
    let h = window.get(e.header, need, e.size < NEAR)?;
    if le32(h, 0) != HEADER {
        return Err(bad("is not one"));
    }
    if usize::from(le16(h, 26)) != e.name.len() || &h[HEADER_LEN..need] != e.name.as_bytes() {
        return Err(bad("has another name"));
    }
    let f = &e.fields;
    if [le16(h, 4), le16(h, 6), le16(h, 8), le16(h, 10), le16(h, 12)] != [f.needed, f.flags, 0, f.time, f.date] {
        return Err(bad("disagrees with the directory"));
    }
    let size = u32::try_from(e.size).unwrap_or(u32::MAX);
    let told = [le32(h, 14), le32(h, 18), le32(h, 22)];
    // If a descriptor follows, the header may leave all three empty.
    let open = e.has_descriptor() && told == [0; 3];
    let wide = told[1] == u32::MAX && told[2] == u32::MAX;
    if !open && (told[0] != e.crc || !(wide || told[1..] == [size; 2])) {
        return Err(bad("has another size or checksum than the directory"));
    }
    Ok(e.header + need as u64 + u64::from(le16(h, 28)))
}

/// Checks that exactly the announced descriptor fills the gap before the next header.
fn descriptor(window: &mut ReadWindow<'_, '_>, e: &ZipEntry, stop: u64, next: u64) -> Result<(), Box<Finding>> {
    let bad = |what: &str| {
        damaged(
            "zip_descriptor",
            stop,
            format!("after the bytes of {} {what}", e.shown()),
        )
    };
    let gap = next - stop;
    if !e.has_descriptor() {
        return if gap == 0 {
            Ok(())
        } else {
            Err(bad("something unnamed follows"))
        };
    }
    let n = usize::try_from(gap).ok().filter(|n| [12, 16, 20, 24].contains(n));
    let Some(n) = n else {
        return Err(bad("no data descriptor fits"));
    };
    let want = wanted(e, n);
    // Read the next header too: it follows immediately.
    let got = window.get_more(stop, n, HEADER_LEN + 96)?;
    if got == want {
        Ok(())
    } else {
        Err(bad("the data descriptor disagrees with the directory"))
    }
}

fn wanted(e: &ZipEntry, n: usize) -> Vec<u8> {
    let mut d = Vec::with_capacity(24);
    if n == 16 || n == 24 {
        d.extend(DESCRIPTOR.to_le_bytes());
    }
    d.extend(e.crc.to_le_bytes());
    for _ in 0..2 {
        if n >= 20 {
            d.extend(e.size.to_le_bytes());
        } else {
            d.extend((e.size as u32).to_le_bytes());
        }
    }
    d
}

/// The data offset, assuming that only torch's descriptor precedes the next header.
fn derive(e: &ZipEntry, next: u64) -> Result<u64, Box<Finding>> {
    let gap = match (e.has_descriptor(), u32::try_from(e.size)) {
        (false, _) => 0,
        (true, Ok(_)) => 16,
        (true, Err(_)) => 24,
    };
    let least = e.header + (HEADER_LEN + e.name.len()) as u64;
    next.checked_sub(gap)
        .and_then(|stop| stop.checked_sub(e.size))
        .filter(|data| (least..=least + u64::from(u16::MAX)).contains(data))
        .ok_or_else(|| {
            damaged(
                "zip_overlap",
                e.header,
                format!("entry {} does not fit between its neighbours", e.shown()),
            )
        })
}

/// A small piece of the file, read ahead.
struct ReadWindow<'r, 'a> {
    file: &'r FileReader<'a>,
    at: u64,
    bytes: Vec<u8>,
    reads: u32,
}

impl ReadWindow<'_, '_> {
    fn holds(&self, off: u64, n: usize) -> bool {
        off >= self.at && off.saturating_add(n as u64) <= self.at + self.bytes.len() as u64
    }

    fn get(&mut self, off: u64, n: usize, ahead: bool) -> Result<&[u8], ReadFault> {
        self.get_more(off, n, if ahead { NEAR as usize } else { 0 })
    }

    /// `n` bytes at `off`; if they must be fetched, up to `more` bytes after them are fetched too.
    fn get_more(&mut self, off: u64, n: usize, more: usize) -> Result<&[u8], ReadFault> {
        if !self.holds(off, n) {
            let rest = self.file.len().saturating_sub(off);
            let want = (n + more).min(usize::try_from(rest).unwrap_or(usize::MAX)).max(n);
            self.bytes = self.file.bytes(off, want)?;
            self.at = off;
            if off < self.file.tail_at() {
                self.reads += 1;
            }
        }
        let from = usize::try_from(off - self.at).unwrap_or(0);
        Ok(self.bytes.get(from..from + n).unwrap_or_default())
    }
}
