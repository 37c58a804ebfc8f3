//! Proofs that outlive a restart: one record per step in the run directory's `verified/`.
//!
//! A record saves reading, never judging: it shows which files are untouched since, and what the changed ones
//! contained. It never overrides a file that was read. If it cannot be written or read, the next start takes longer,
//! and nothing else.

use super::files::open_file;
use super::write::{PRIVATE, make_dir, remove_file, write_whole};
use crate::ownership::{OwnIds, OwnedPath, PathTrust};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read};
use supervise_checkpoint::proof_record::{compare, decode, decode_marks, encode, trust};
use supervise_checkpoint::{EarlierStep, FilePin, FileReport, InspectLimits, ProofRecord, ProofValidity, ProvenFile};
use supervise_core::checkpoint::{CkptId, Depth, Finding, Verdict};

/// The directory of the records in a run directory.
pub const VERIFIED: &str = "verified";
/// The end of the name of a record beside a step that was moved aside.
pub const RECORD_SUFFIX: &str = ".verified.jsonl";
const REMEMBERED: usize = 16;

#[derive(Debug)]
pub(super) struct ProofRecords {
    dir: Utf8PathBuf,
    boot: String,
    writes: bool,
    warned: bool,
}

#[derive(Debug, Default)]
pub(super) struct RecordedStep {
    files: HashMap<String, ProvenFile>,
    there: bool,
    same_boot: bool,
    /// Only bytes count, whatever the pins say.
    distrusted: bool,
}

impl ProofRecords {
    /// The records in a run directory. `writes`: keep them up to date.
    pub(super) fn new(run_dir: &Utf8Path, writes: bool) -> Self {
        Self {
            dir: run_dir.join(VERIFIED),
            // An unknown boot never matches.
            boot: crate::process::boot_id().unwrap_or_default(),
            writes,
            warned: false,
        }
    }

    fn path(&self, id: &CkptId) -> Utf8PathBuf {
        file(&self.dir, id)
    }

    pub(super) fn writes(&self) -> bool {
        self.writes
    }

    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    /// Loads the record of a step; the error says why it cannot be used. `own`: this process, as the file system of
    /// the records knows it.
    pub(super) fn load(&self, id: &CkptId, own: OwnIds) -> Result<RecordedStep, String> {
        let path = self.path(id);
        let trust = OwnedPath::of(&path).map(|path| path.trust(own));
        match trust {
            Ok(PathTrust::Refused(why)) => return Err(format!("the record {path} is not used: {why}")),
            Ok(PathTrust::GroupWritable(_)) => {
                return Err(format!("the record {path} is not used: others may write it"));
            }
            Ok(PathTrust::Trusted) | Err(_) => {}
        }
        let record = read(&path)?;
        match record {
            Some(other) if other.ckpt != *id => Err(format!("the record {} speaks of {}", self.path(id), other.ckpt)),
            Some(record) => Ok(RecordedStep {
                there: true,
                same_boot: !record.boot.is_empty() && record.boot == self.boot,
                files: record
                    .files
                    .into_iter()
                    .map(|(path, file)| (path.into_string(), file))
                    .collect(),
                distrusted: false,
            }),
            None => Ok(RecordedStep::default()),
        }
    }

    pub(super) fn steps(&self) -> Vec<CkptId> {
        let Ok(entries) = self.dir.read_dir_utf8() else {
            return Vec::new();
        };
        entries
            .filter_map(|e| Some(CkptId(e.ok()?.file_name().strip_suffix(".jsonl")?.into())))
            .collect()
    }

    pub(super) fn earlier(&self, steps: &[CkptId]) -> BTreeMap<CkptId, EarlierStep> {
        let read = |id: &CkptId| decode_marks(&bytes(&self.path(id)).ok()??, &InspectLimits::default()).ok();
        steps
            .iter()
            .take(REMEMBERED)
            .filter_map(|id| Some((id.clone(), read(id)?)))
            .collect()
    }

    /// Writes a record atomically. A failure is logged once.
    pub(super) fn save(&mut self, record: &ProofRecord) -> bool {
        let written = make_dir(&self.dir).and_then(|()| {
            let mut bytes = Vec::new();
            encode(record, &mut bytes)?;
            write_whole(&self.path(&record.ckpt), &bytes, PRIVATE)
        });
        match written {
            Ok(()) => self.warned = false,
            Err(e) if !std::mem::replace(&mut self.warned, true) => {
                tracing::warn!(
                    "what was proven cannot be kept in {}, it is proven again at the next start: {e}",
                    self.dir
                );
            }
            Err(_) => {}
        }
        !self.warned
    }

    pub(super) fn forget(&self, id: &CkptId) {
        if self.writes {
            forget(&self.dir, id);
        }
    }
}

/// Files of a step as a run has proven them, by their paths in the step; empty without a record.
///
/// # Errors
/// Why the record cannot be used, for the operator.
pub fn proven(run_dir: &Utf8Path, id: &CkptId) -> Result<BTreeMap<Utf8PathBuf, ProvenFile>, String> {
    let record = read(&file(&run_dir.join(VERIFIED), id))?;
    Ok(record.filter(|r| r.ckpt == *id).map(|r| r.files).unwrap_or_default())
}

fn file(dir: &Utf8Path, id: &CkptId) -> Utf8PathBuf {
    dir.join(format!("{}.jsonl", id.0.as_str().replace('/', "_")))
}

/// Deletes a record. If that fails it is deleted later: its step is gone.
pub(super) fn forget(dir: &Utf8Path, id: &CkptId) {
    if let Err(e) = remove_file(&file(dir, id)) {
        tracing::warn!("the record of {id} cannot be deleted: {e}");
    }
}

/// Moves a record beside its step that was moved aside. The two may be on different file systems.
pub(super) fn follow(dir: &Utf8Path, id: &CkptId, step: &Utf8Path) {
    let (from, to) = (file(dir, id), Utf8PathBuf::from(format!("{step}{RECORD_SUFFIX}")));
    let moved = match fs::rename(&from, &to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) if e.raw_os_error() == Some(libc::EXDEV) => bytes(&from)
            .and_then(|b| write_whole(&to, &b.unwrap_or_default(), PRIVATE))
            .and_then(|()| remove_file(&from)),
        other => other,
    };
    if let Err(e) = moved {
        // If it stayed, it would condemn the next step saved under this name.
        tracing::warn!("the record of {id} does not go aside with it: {e}");
        forget(dir, id);
    }
}

fn bytes(path: &Utf8Path) -> io::Result<Option<Vec<u8>>> {
    let limit = InspectLimits::default().record_bytes as u64;
    let mut out = Vec::new();
    match open_file(path) {
        Ok(file) => file
            .take(limit.saturating_add(1))
            .read_to_end(&mut out)
            .map(|_| Some(out)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn read(path: &Utf8Path) -> Result<Option<ProofRecord>, String> {
    let because = |e: &dyn std::fmt::Display| format!("the record {path} is not used, its step is read again: {e}");
    match bytes(path) {
        Ok(Some(bytes)) => decode(&bytes, &InspectLimits::default())
            .map(Some)
            .map_err(|e| because(&e)),
        Ok(None) => Ok(None),
        Err(e) => Err(because(&e)),
    }
}

impl RecordedStep {
    /// From now on no report is taken from the record; bytes are compared.
    pub(super) fn distrust(&mut self) {
        self.distrusted = true;
    }

    pub(super) fn is_there(&self) -> bool {
        self.there
    }

    /// Returns true if it was written since the machine booted.
    pub(super) fn is_of_this_boot(&self) -> bool {
        self.there && self.same_boot
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    pub(super) fn untouched(&self, now: impl Fn(&str) -> Option<FilePin>) -> Option<&str> {
        let mut files = self.files.iter();
        files
            .find(|(path, known)| now(path) == Some(known.pin))
            .map(|(path, _)| path.as_str())
    }

    /// Returns true if a checksum of the file's bytes was recorded.
    pub(super) fn knows_bytes(&self, inside: &Utf8Path) -> bool {
        self.file(inside).is_some_and(|f| f.report.crc.is_some())
    }

    fn file(&self, inside: &Utf8Path) -> Option<&ProvenFile> {
        self.files.get(inside.as_str())
    }

    /// The report of a file that is untouched since it was proven to this depth. A proof from an earlier boot counts
    /// only for the structure, but keeps its checksum.
    pub(super) fn holds(&self, inside: &Utf8Path, now: &FilePin, depth: Depth) -> Option<FileReport> {
        let known = self.file(inside).filter(|_| !self.distrusted)?;
        if trust(known, now, depth, self.same_boot) == ProofValidity::Reread {
            return None;
        }
        let mut report = known.report.clone();
        if !self.same_boot {
            report.proven = Depth::Structure;
        }
        Some(report)
    }

    /// How deep a file must be read: if another file may have replaced it, its bytes must be compared.
    pub(super) fn depth(&self, inside: &Utf8Path, now: &FilePin, depth: Depth) -> Depth {
        match self.file(inside) {
            Some(known) if known.report.crc.is_some() && known.pin != *now && now.mtime <= known.pin.mtime => {
                Depth::Full
            }
            _ => depth,
        }
    }

    /// Adds to a file's report how it differs from what was proven.
    pub(super) fn compare(&self, inside: &Utf8Path, now: &FilePin, report: &mut FileReport) {
        let Some(known) = self.file(inside) else { return };
        let found = match (report.crc, known.report.crc) {
            (Some(crc), Some(_)) => compare(known, now, crc),
            _ => compare_structure(known, now, report),
        };
        if let Some(finding) = found {
            report.add(finding);
        }
    }
}

/// Without bytes read then and now: a file with an older time and another size, or with another serialization ID of
/// torch, is not the one that was proven.
fn compare_structure(known: &ProvenFile, now: &FilePin, report: &FileReport) -> Option<Finding> {
    let comparable = known.report.verdict == Verdict::Whole && report.verdict == Verdict::Whole;
    if !comparable || now.mtime > known.pin.mtime || *now == known.pin {
        return None;
    }
    let id = |r: &FileReport| r.facts.torch.as_ref().and_then(|t| t.serialization_id.clone());
    let other = matches!((id(&known.report), id(report)), (Some(was), Some(is)) if was != is);
    (other || known.pin.size != now.size).then(|| {
        let detail = "another or older file is in its place: its size, or the digest torch put into it, is not the one that was proven";
        Finding::error("not_what_was_proven", Verdict::Damaged, detail)
    })
}
