//! The text format of records: a header, lines shared by several files, a line per file, and a trailer with a CRC-32 of everything
//! before.
//!
//! Shards of one step differ little: most of a report is written once, as a *shared* line, and each file refers to it by number, next to
//! its pin and its own fields. The trailer is compared as bytes, so any change to a record is detected. A record that cannot be read in
//! full is an error, and the step is proven again.

use super::{FilePin, ProofRecord, ProvenFile};
use crate::judge::FileReport;
use crate::limits::InspectLimits;
use crate::step_counters::{EarlierStep, StepCounters};
use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io;
use supervise_core::checkpoint::CkptId;
use supervise_core::id::{Step, WallMs};

/// The format version. Fields may be added to reports without a new version: they have defaults.
const VERSION: u32 = 1;
/// Shortest line of a file, in bytes.
const LEAST: usize = 32;

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It was truncated or changed, or something follows it.
    #[error("the record does not fit its checksum or its end")]
    Broken,
    /// Another program wrote it, or a newer version.
    #[error("the record has version {0}, {VERSION} is known")]
    Version(u32),
    /// It is longer, or takes more memory, than allowed.
    #[error("the record is too large ({0} bytes at most)")]
    TooLarge(usize),
    /// An invalid line.
    #[error("line {line} is not a valid record: {why}")]
    Line {
        /// Line number, from 1.
        line: usize,
        why: String,
    },
}

#[derive(Serialize, Deserialize)]
struct ProofHeader {
    v: u32,
    ckpt: CkptId,
    step: Step,
    boot: String,
    wall: WallMs,
    #[serde(default)]
    marks: StepCounters,
}

#[derive(Deserialize)]
struct FormatVersion {
    v: u32,
}

/// A line after the header: shared fields, or a file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProofLine<S, F> {
    #[serde(rename = "s")]
    Shared(S),
    #[serde(rename = "f")]
    File(F),
}

/// Path, pin, CRC-32, number of the shared line, the file's own fields.
#[derive(Serialize, Deserialize)]
struct FileLine<P>(P, [u64; 3], [i64; 2], Option<u32>, u32, Own);

/// Fields that differ from shard to shard: size, unless the pin has it; whether the archive is named like the file; torch's own digest;
/// rank.
#[derive(Serialize, Deserialize, Default, PartialEq)]
#[serde(default)]
struct Own {
    #[serde(rename = "b", skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(rename = "a", skip_serializing_if = "std::ops::Not::not")]
    archive: bool,
    #[serde(rename = "i", skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    rank: Option<u64>,
}

impl Own {
    /// Moves a file's own fields out of a report.
    fn take(path: &Utf8Path, size: u64, report: &mut FileReport) -> Self {
        let mut own = Self {
            bytes: Some(report.bytes).filter(|b| *b != size),
            ..Self::default()
        };
        report.bytes = 0;
        report.crc = None;
        if let Some(torch) = &mut report.facts.torch {
            own.id = torch.serialization_id.take();
            own.rank = torch.rank.take();
            own.archive = torch.archive.is_some() && torch.archive.as_deref() == path.file_stem();
            if own.archive {
                torch.archive = None;
            }
        }
        own
    }

    /// Puts them back.
    fn give(self, path: &Utf8Path, size: u64, report: &mut FileReport) {
        report.bytes = self.bytes.unwrap_or(size);
        if let Some(torch) = &mut report.facts.torch {
            torch.serialization_id = self.id;
            torch.rank = self.rank;
            if self.archive {
                torch.archive = path.file_stem().map(str::to_owned);
            }
        }
    }
}

/// Writes a record.
///
/// # Errors
/// An error of the writer.
pub fn encode(record: &ProofRecord, out: &mut dyn io::Write) -> io::Result<()> {
    let mut summed = Summed {
        out,
        crc: crc32fast::Hasher::new(),
    };
    summed.line(&ProofHeader {
        v: VERSION,
        ckpt: record.ckpt.clone(),
        step: record.step,
        boot: record.boot.clone(),
        wall: record.wall,
        marks: record.marks.clone(),
    })?;
    let mut known: HashMap<String, u32> = HashMap::new();
    for (path, file) in &record.files {
        let mut report = file.report.clone();
        let (crc, pin) = (report.crc, file.pin);
        let own = Own::take(path, pin.size, &mut report);
        let text = serde_json::to_string(&ProofLine::<_, ()>::Shared(&report))?;
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let shared = match known.get(&text) {
            Some(n) => *n,
            None => {
                summed.bytes(text.as_bytes())?;
                summed.bytes(b"\n")?;
                known.insert(text, next);
                next
            }
        };
        let line = FileLine(
            path,
            [pin.dev, pin.ino, pin.size],
            [pin.mtime, pin.ctime],
            crc,
            shared,
            own,
        );
        summed.line(&ProofLine::<(), _>::File(line))?;
    }
    let Summed { out, crc } = summed;
    out.write_all(trailer(record.files.len(), crc.finalize()).as_bytes())
}

fn trailer(files: usize, crc: u32) -> String {
    format!("{{\"files\":{files},\"crc\":{crc}}}\n")
}

struct Summed<'w> {
    out: &'w mut dyn io::Write,
    crc: crc32fast::Hasher,
}

impl Summed<'_> {
    fn line<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        self.bytes(&text)
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.out.write_all(bytes)
    }
}

/// Reads only the step counters of a record.
///
/// # Errors
/// If it is not exactly what [`encode`] wrote, as far as its checksum shows, or too large.
pub fn decode_marks(bytes: &[u8], limits: &InspectLimits) -> Result<EarlierStep, RecordError> {
    let (body, _, _) = checked(bytes, limits)?;
    let first = body.split(|b| *b == b'\n').next().unwrap_or_default();
    let header: ProofHeader = parse(first, 1)?;
    Ok(EarlierStep {
        step: header.step,
        marks: header.marks,
    })
}

/// The lines before the trailer, the trailer, and the checksum of the lines, which the trailer contains.
fn checked<'a>(bytes: &'a [u8], limits: &InspectLimits) -> Result<(&'a [u8], &'a [u8], u32), RecordError> {
    if bytes.len() > limits.record_bytes {
        return Err(RecordError::TooLarge(limits.record_bytes));
    }
    let first = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let version: FormatVersion = parse(first, 1)?;
    if version.v != VERSION {
        return Err(RecordError::Version(version.v));
    }
    let before = bytes.strip_suffix(b"\n").ok_or(RecordError::Broken)?;
    let cut = memchr::memrchr(b'\n', before).ok_or(RecordError::Broken)? + 1;
    let (body, end) = bytes.split_at(cut);
    let crc = crc32fast::hash(body);
    // The checksum is compared before anything is built from the lines.
    if !end.ends_with(format!(",\"crc\":{crc}}}\n").as_bytes()) {
        return Err(RecordError::Broken);
    }
    Ok((body, end, crc))
}

/// Reads a record back.
///
/// # Errors
/// If it is not exactly what [`encode`] wrote, or too large.
pub fn decode(bytes: &[u8], limits: &InspectLimits) -> Result<ProofRecord, RecordError> {
    let (body, end, crc) = checked(bytes, limits)?;
    let cut = body.len();
    let mut lines = (1..).zip(body[..cut - 1].split(|b| *b == b'\n'));
    let header: ProofHeader = match lines.next() {
        Some((n, line)) => parse(line, n)?,
        None => return Err(RecordError::Broken),
    };
    // No line of a file is shorter, so the allocation stays in proportion to the text.
    let most = memchr::memchr_iter(b'\n', body).count().min(body.len() / LEAST);
    let files = files(lines, most, limits)?;
    if end != trailer(files.len(), crc).as_bytes() {
        return Err(RecordError::Broken);
    }
    Ok(ProofRecord {
        ckpt: header.ckpt,
        step: header.step,
        boot: header.boot,
        wall: header.wall,
        marks: header.marks,
        files,
    })
}

fn parse<'de, T: Deserialize<'de>>(bytes: &'de [u8], line: usize) -> Result<T, RecordError> {
    serde_json::from_slice(bytes).map_err(|e| RecordError::Line {
        line,
        why: e.to_string(),
    })
}

fn files<'a>(
    lines: impl Iterator<Item = (usize, &'a [u8])>,
    most: usize,
    limits: &InspectLimits,
) -> Result<BTreeMap<Utf8PathBuf, ProvenFile>, RecordError> {
    let mut shared: Vec<(FileReport, usize)> = Vec::new();
    let mut files: Vec<(Utf8PathBuf, ProvenFile)> = Vec::with_capacity(most);
    let mut spent = 0_usize;
    for (n, text) in lines {
        let wrong = |why: &str| RecordError::Line {
            line: n,
            why: why.to_owned(),
        };
        match parse::<ProofLine<FileReport, FileLine<Utf8PathBuf>>>(text, n)? {
            ProofLine::Shared(report) => shared.push((report, text.len())),
            ProofLine::File(FileLine(path, [dev, ino, size], [mtime, ctime], crc, number, own)) => {
                let (report, weight) = shared
                    .get(number as usize)
                    .ok_or_else(|| wrong("it names what is not there"))?;
                // A long shared line, used by many files, takes more memory than the text.
                spent = spent.saturating_add(*weight).saturating_add(text.len());
                if spent > limits.record_memory {
                    return Err(RecordError::TooLarge(limits.record_memory));
                }
                if !inside(&path) {
                    return Err(wrong("its path is no file of the step"));
                }
                let mut report = report.clone();
                report.crc = crc;
                own.give(&path, size, &mut report);
                let pin = FilePin {
                    dev,
                    ino,
                    size,
                    mtime,
                    ctime,
                };
                files.push((path, ProvenFile { pin, report }));
            }
        }
    }
    let count = files.len();
    let files: BTreeMap<_, _> = files.into_iter().collect();
    // A file that occurs twice invalidates the record, and a step that is a single file has no other.
    let is_alone = count == 1 || !files.contains_key(Utf8Path::new(""));
    if files.len() == count && is_alone {
        Ok(files)
    } else {
        Err(RecordError::Broken)
    }
}

/// Whether a path stays below the step's directory; it is empty if the step is a single file.
fn inside(path: &Utf8Path) -> bool {
    path.components().all(|c| matches!(c, Utf8Component::Normal(_)))
}
