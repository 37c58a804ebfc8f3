//! The last call of a proof: structure and what reading gave become one report.
//!
//! A checksum that does not fit is damage, with its entry and place. Where *no* checksum fits, the writer computed none,
//! and that is said instead; then only the structure is proven.

use crate::inspect::{FileKind, Inspected};
use crate::plan::{Extent, ExtentResult};
use crate::source::ReadFault;
use crate::torch::{TorchFacts, crc_mismatch};
use serde::{Deserialize, Serialize};
use std::io;
use supervise_core::checkpoint::{Depth, Finding, Verdict};

/// What a file tells beside its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FileDetail {
    /// World size in `fsdp_config.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// FSDP version in `fsdp_config.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsdp_version: Option<u32>,
    /// Files named by a safetensors index, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<String>,
    /// Tensors of a safetensors file or index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<u64>,
    /// Elements of a safetensors file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements: Option<u64>,
    /// What a file of `torch.save` tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<TorchFacts>,
}

/// What is known about one file after a proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReport {
    /// How it was read.
    pub kind: FileKind,
    /// What is known about it.
    pub verdict: Verdict,
    /// What was found, worst first; without the file's name.
    pub findings: Vec<Finding>,
    /// Its length.
    pub bytes: u64,
    /// How deep the proof went.
    pub proven: Depth,
    /// What else it tells.
    pub facts: FileDetail,
}

impl FileReport {
    /// Adds a finding and lets it count.
    pub fn add(&mut self, finding: Finding) {
        self.verdict = self.verdict.worst(finding.effect());
        let at = self.findings.partition_point(|f| rank(f) >= rank(&finding));
        self.findings.insert(at, finding);
    }

    /// The finding that decided the verdict, if the file is not whole.
    #[must_use]
    pub fn why(&self) -> Option<&Finding> {
        self.findings
            .iter()
            .find(|f| f.effect() == self.verdict && self.verdict != Verdict::Whole)
    }
}

fn rank(f: &Finding) -> (supervise_core::checkpoint::Level, Verdict) {
    (f.level, f.effect())
}

/// The report of a file that could not even be opened.
#[must_use]
pub fn unreadable_file(kind: FileKind, error: io::Error) -> FileReport {
    let finding = ReadFault::Io { at: 0, error }.finding();
    FileReport {
        kind,
        verdict: finding.effect(),
        findings: vec![finding],
        bytes: 0,
        proven: Depth::Structure,
        facts: FileDetail::default(),
    }
}

/// Joins structure and reading. Without results the proof has the depth of the structure.
#[must_use]
pub fn judge_file(inspected: &Inspected, results: &[ExtentResult]) -> FileReport {
    let extents = &inspected.plan.extents;
    let mut findings = inspected.findings.clone();
    let mut full = inspected.read_all;
    if results.len() == extents.len() && !extents.is_empty() {
        full = checksums(extents, results, &mut findings);
        numbers(extents, results, &mut findings);
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
        facts: inspected.facts.clone(),
    }
}

/// Compares checksums; gives whether every byte counts as proven.
fn checksums(extents: &[Extent], results: &[ExtentResult], findings: &mut Vec<Finding>) -> bool {
    let all = || extents.iter().zip(results).filter(|(e, _)| e.len > 0);
    let wrong: Vec<_> = all().filter(|(e, r)| e.crc.is_some_and(|crc| crc != r.crc)).collect();
    let told = all().filter(|(e, _)| e.crc.is_some()).count();
    let said = |f: &Finding| f.code == "crc_mismatch";
    if wrong.len() > 1 && wrong.len() == told {
        if !findings.iter().any(said) {
            let detail = "no checksum in the file fits: it was written without (set_crc32_options)";
            findings.push(Finding::warning("crc_not_written", detail));
        }
        return false;
    }
    for (e, r) in &wrong {
        findings.retain(|f| !(said(f) && f.offset == Some(e.off)));
        findings.push(crc_mismatch(&e.what, e.off, &torn(e, r)));
    }
    told > 0 || findings.iter().all(|f| f.code != "crc_not_written")
}

/// Blocks of zeros where the checksum does not fit are blocks that never reached the disk.
fn torn(e: &Extent, r: &ExtentResult) -> String {
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

fn numbers(extents: &[Extent], results: &[ExtentResult], findings: &mut Vec<Finding>) {
    let mut bad = extents.iter().zip(results).filter(|(_, r)| r.non_finite > 0);
    if let Some((e, r)) = bad.next() {
        let (mut count, mut tensors) = (r.non_finite, 1_u64);
        for (_, r) in bad {
            count = count.saturating_add(r.non_finite);
            tensors += 1;
        }
        let detail = format!(
            "{count} numbers in {tensors} storages are infinite or not a number, the first in {}",
            crate::pickle::shown(&e.what)
        );
        findings.push(Finding::warning("non_finite", detail).at(e.off));
    }
    let mut zero = extents
        .iter()
        .zip(results)
        .filter(|(e, r)| e.crc.is_none() && r.all_zero && e.len >= 4096);
    if let Some((e, _)) = zero.next() {
        let detail = format!(
            "{} extents hold only zeros, the first is {}",
            1 + zero.count(),
            crate::pickle::shown(&e.what)
        );
        findings.push(Finding::warning("all_zero", detail).at(e.off));
    }
}
