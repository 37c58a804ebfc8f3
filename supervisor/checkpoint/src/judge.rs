//! The last call of a proof: combines the structure and the results of reading into one report.
//!
//! A wrong checksum is damage, reported with its entry and offset. If *no* checksum matches, the writer computed none, and the report
//! says that instead: every byte was read and nothing contradicts it, but nothing protects it either until it has a proof record
//! ([`crate::proof_record`]).

mod contents;

use crate::detail::{FileDescription, FileDetail};
use crate::inspect::InspectedFile;
use crate::kind::FileKind;
use crate::plan::{ByteExtent, ExtentResult};
use crate::source::ReadFault;
use crate::sweep::{combine, has_finite};
use crate::torch::{crc_mismatch, crc_not_written};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use supervise_core::checkpoint::{Depth, Finding, Verdict};

/// The result of proving one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReport {
    pub kind: FileKind,
    pub verdict: Verdict,
    /// Worst first; without the file's name.
    pub findings: Vec<Finding>,
    pub bytes: u64,
    pub proven: Depth,
    /// The CRC-32 of all its bytes, if every byte was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crc: Option<u32>,
    /// What the file says besides its verdict.
    pub facts: FileDetail,
    /// What it says about other files; not kept with the report.
    #[serde(skip)]
    pub description: Option<Arc<FileDescription>>,
    /// Its floating-point tensors, if they were counted; not kept with the report.
    #[serde(skip)]
    pub floats: FloatTally,
}

/// Floating-point tensors in a file, without those of an optimizer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FloatTally {
    /// Number of such tensors.
    pub of: u64,
    /// Name hashes of the tensors with non-finite values.
    pub odd: Vec<u32>,
}

impl FloatTally {
    fn new(extents: &[ByteExtent], results: &[ExtentResult]) -> Self {
        // Some trainers write the optimizer's state into the same files.
        let is_moment = |e: &ByteExtent| e.what.starts_with("optim") || e.what.contains(".optim");
        let is_float = |e: &&ByteExtent| e.len > 0 && e.dtype.is_some_and(has_finite) && !is_moment(e);
        let odd = extents
            .iter()
            .zip(results)
            .filter(|(e, r)| is_float(e) && r.non_finite > 0);
        Self {
            of: extents.iter().filter(is_float).count() as u64,
            odd: odd.map(|(e, _)| crc32fast::hash(e.what.as_bytes())).collect(),
        }
    }
}

impl FileReport {
    /// Adds a finding and updates the verdict.
    pub fn add(&mut self, finding: Finding) {
        self.verdict = self.verdict.worst(finding.effect());
        let at = self.findings.partition_point(|f| rank(f) >= rank(&finding));
        self.findings.insert(at, finding);
    }

    /// Returns the finding that decided the verdict, if the file is not whole.
    #[must_use]
    pub fn why(&self) -> Option<&Finding> {
        self.findings
            .iter()
            .find(|f| f.effect() == self.verdict && self.verdict != Verdict::Whole)
    }
}

fn rank(f: &Finding) -> (supervise_core::checkpoint::FindingLevel, Verdict) {
    (f.level, f.effect())
}

/// Builds the report of a file that could not be opened.
#[must_use]
pub fn unreadable_file(kind: FileKind, error: io::Error) -> FileReport {
    let finding = ReadFault::Io { at: 0, error }.finding();
    FileReport {
        kind,
        verdict: finding.effect(),
        findings: vec![finding],
        bytes: 0,
        proven: Depth::Structure,
        crc: None,
        facts: FileDetail::default(),
        description: None,
        floats: FloatTally::default(),
    }
}

/// Combines structure and reading. Without results, the proof has structure depth only.
#[must_use]
pub fn judge_file(inspected: &InspectedFile, results: &[ExtentResult]) -> FileReport {
    let extents = &inspected.plan.extents;
    let mut findings = inspected.findings.clone();
    let mut full = inspected.read_all;
    let mut crc = inspected.crc;
    let mut floats = FloatTally::default();
    if results.len() == extents.len() && !extents.is_empty() {
        full = true;
        crc = whole(inspected, results);
        // The warning about the end of the file is replaced by the results for all of it.
        findings.retain(|f| f.code != "zero_blocks");
        let protected = checksums(extents, results, &mut findings);
        contents::look(extents, results, protected, &mut findings);
        floats = FloatTally::new(extents, results);
    } else if !results.is_empty() {
        findings.push(Finding::note(
            "reading_unfinished",
            "reading ended early; its results are not used",
        ));
    }
    let verdict = findings.iter().fold(Verdict::Whole, |v, f| v.worst(f.effect()));
    findings.sort_by_key(|f| std::cmp::Reverse(rank(f)));
    if findings.len() > inspected.max_findings {
        let more = findings.len() - inspected.max_findings;
        findings.truncate(inspected.max_findings);
        findings.push(Finding::note(
            "more_findings",
            format!("{more} further findings are not shown"),
        ));
    }
    FileReport {
        kind: inspected.kind,
        verdict,
        findings,
        bytes: inspected.bytes,
        proven: if full { Depth::Full } else { Depth::Structure },
        crc,
        facts: inspected.facts.clone(),
        description: inspected.description.clone(),
        floats,
    }
}

/// The CRC-32 of the whole file, from those of its extents.
fn whole(inspected: &InspectedFile, results: &[ExtentResult]) -> Option<u32> {
    let plan = &inspected.plan;
    plan.covers(inspected.bytes).then(|| {
        let parts = plan.extents.iter().zip(results);
        parts.fold(0, |sum, (e, r)| combine(sum, r.crc, e.len))
    })
}

/// Compares checksums; returns whether there are any.
fn checksums(extents: &[ByteExtent], results: &[ExtentResult], findings: &mut Vec<Finding>) -> bool {
    let all = || extents.iter().zip(results).filter(|(e, _)| e.len > 0);
    let wrong: Vec<_> = all().filter(|(e, r)| e.crc.is_some_and(|crc| crc != r.crc)).collect();
    let told = all().filter(|(e, _)| e.crc.is_some()).count();
    let said = |f: &Finding| f.code == "crc_mismatch";
    if wrong.len() > 1 && wrong.len() == told {
        if !findings.iter().any(said) {
            findings.push(crc_not_written());
        }
        return false;
    }
    for (e, r) in &wrong {
        findings.retain(|f| !(said(f) && f.offset == Some(e.off)));
        findings.push(crc_mismatch(&e.what, e.off, &torn(e, r)));
    }
    told > 0
}

/// Explains a wrong checksum: blocks of zeros never reached the disk.
fn torn(e: &ByteExtent, r: &ExtentResult) -> String {
    if r.all_zero {
        return format!(": a torn write, all {} bytes are zeros", e.len);
    }
    match r.first_zero {
        Some(at) => format!(
            ": likely a torn write, {} blocks of 4096 bytes are zeros, the first at byte {at}",
            r.zero_blocks
        ),
        None => String::new(),
    }
}
