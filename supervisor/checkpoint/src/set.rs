//! Checks that files that belong together are all present and fit each other.
//!
//! A single file shows whether its own bytes are intact; whether a save is whole shows only when `.metadata` is compared with the files
//! next to it, or an index with the parts it names. This module is pure: it uses names, sizes and the reports of each file. All names are
//! relative to the set's directory; names with a slash belong to other sets.

mod dcp;
pub(crate) mod recover;
mod weights;

pub use weights::read_with_weights;

use crate::judge::FileReport;
use crate::kind::FileKind;
use crate::required_file::RequiredFile;
use crate::torch::TorchTensor;
use std::collections::{BTreeMap, BTreeSet};
use supervise_core::checkpoint::{Depth, Finding, Verdict};

/// The table of a distributed checkpoint, and its name until it is complete.
const METADATA: &str = ".metadata";
const METADATA_TMP: &str = ".metadata.tmp";
/// Files that Megatron writes last, and first.
const BACKEND: &str = "metadata.json";
const COMMON: &str = "common.pt";
/// Digests of all files, if Megatron was told to write them.
const INTEGRITY: &str = "integrity.json";
/// The most findings of one kind about single files.
const SAID: usize = 8;

/// Kind of a set of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetKind {
    /// Written by `torch.distributed.checkpoint`.
    Dcp,
    /// The same written by Megatron, which adds `metadata.json` and `common.pt`.
    MegatronDist,
    /// Weights in one file, or in several with an index.
    Weights,
    /// AReaL's state of a run: steps, counters and the position in the data.
    RecoverInfo,
}

/// The result of judging a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetReport {
    pub kind: SetKind,
    /// The worst verdict of all files and of the set as a whole.
    pub verdict: Verdict,
    /// Findings, each with its file: those of the files' reports, and those from comparing files.
    pub findings: Vec<Finding>,
    /// How deep the proof went; `None` if a required file is missing or was not inspected.
    pub proven: Option<Depth>,
    pub tensors: u64,
    /// Bytes of the files that belong to the set.
    pub bytes: u64,
    /// The tensors, if the reports still have their descriptions.
    pub inventory: Vec<TorchTensor>,
}

/// Returns the kind of a directory with these files.
pub fn recognize<'a>(names: impl Iterator<Item = &'a str>) -> Option<SetKind> {
    let names: BTreeSet<&str> = names.filter(|n| !n.contains('/')).collect();
    let has = |name: &str| names.contains(name);
    let any = |suffix: &str| names.iter().any(|n| n.len() > suffix.len() && n.ends_with(suffix));
    let parts = has(METADATA) || has(METADATA_TMP) || any(".distcp");
    // A hung save of Megatron leaves only common.pt.
    let begun = has(COMMON) && (has(BACKEND) || names.len() == 1);
    if begun || (parts && (has(COMMON) || has(BACKEND))) {
        return Some(SetKind::MegatronDist);
    }
    if parts {
        return Some(SetKind::Dcp);
    }
    if names.iter().any(|n| weights::belongs(n)) {
        return Some(SetKind::Weights);
    }
    recover::is_one(&names).then_some(SetKind::RecoverInfo)
}

/// Returns the files that must be inspected; files that describe others come first.
#[must_use]
pub fn needs<'a>(kind: SetKind, names: impl Iterator<Item = &'a str>) -> Vec<RequiredFile> {
    let names: BTreeSet<&str> = names.filter(|n| !n.contains('/')).collect();
    match kind {
        SetKind::Weights => return weights::needs(&names),
        SetKind::RecoverInfo => return recover::needs(&names),
        SetKind::Dcp | SetKind::MegatronDist => {}
    }
    let mut out = Vec::new();
    let mut add = |name: &'static str, kind| {
        if names.contains(name) {
            out.push(RequiredFile::new(name, kind));
        }
    };
    if kind == SetKind::MegatronDist {
        add(INTEGRITY, FileKind::Integrity);
        add(BACKEND, FileKind::MegatronMetadata);
        add(COMMON, FileKind::TorchZip);
    }
    add(METADATA, FileKind::DcpMetadata);
    if names.contains(METADATA) {
        let parts = names.iter().filter(|n| FileKind::of(n) == FileKind::Distcp);
        out.extend(parts.map(|n| RequiredFile::new(*n, FileKind::Distcp).described_by(METADATA)));
    }
    out
}

/// Judges a set: `files` are all names with their sizes, `reports` those of the inspected files.
#[must_use]
pub fn judge(kind: SetKind, files: &BTreeMap<String, u64>, reports: &BTreeMap<String, FileReport>) -> SetReport {
    let mut seen = SetCheck {
        files,
        reports,
        findings: Vec::new(),
        belong: BTreeSet::new(),
        tensors: 0,
        inventory: Vec::new(),
    };
    match kind {
        SetKind::Weights => weights::judge(&mut seen),
        SetKind::RecoverInfo => recover::judge(&mut seen),
        SetKind::Dcp => dcp::judge(&mut seen),
        SetKind::MegatronDist => dcp::judge_megatron(&mut seen),
    }
    seen.finish(kind)
}

/// The finding for something other than a file where a load opens one: the load fails, waits, or continues without it.
#[must_use]
pub fn not_a_file() -> Finding {
    let detail = "a load opens a file here and would find a directory, a FIFO or a socket";
    Finding::error("not_a_file", Verdict::Damaged, detail)
}

struct SetCheck<'a> {
    files: &'a BTreeMap<String, u64>,
    reports: &'a BTreeMap<String, FileReport>,
    findings: Vec<Finding>,
    /// Files that the set needs, present or not.
    belong: BTreeSet<&'a str>,
    tensors: u64,
    inventory: Vec<TorchTensor>,
}

impl<'a> SetCheck<'a> {
    fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    fn report(&self, name: &str) -> Option<&'a FileReport> {
        self.reports.get(name)
    }

    fn belongs(&mut self, name: &'a str) {
        self.belong.insert(name);
    }

    fn say(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Adds the same finding for several files: the first few by name, the rest as a number.
    fn say_each(&mut self, mut about: Vec<Finding>) {
        let more = about.len().saturating_sub(SAID);
        about.truncate(SAID);
        if let Some(last) = about.last_mut().filter(|_| more > 0) {
            last.detail = format!("{} (and {more} more files)", last.detail);
        }
        self.findings.append(&mut about);
    }

    fn finish(mut self, kind: SetKind) -> SetReport {
        let mut findings: Vec<Finding> = Vec::new();
        for (name, report) in self.reports.iter().filter(|(n, _)| self.files.contains_key(*n)) {
            findings.extend(report.findings.iter().cloned().map(|f| f.in_file(name.as_str())));
        }
        let missing = self.findings.iter().any(|f| f.effect() == Verdict::Incomplete);
        findings.append(&mut self.findings);
        let proven = |name: &&str| {
            let there = self.files.contains_key(*name);
            self.reports.get(*name).filter(|_| there).map(|r| r.proven)
        };
        let depths: Option<Vec<Depth>> = self.belong.iter().map(proven).collect();
        let verdict = findings.iter().fold(Verdict::Whole, |v, f| v.worst(f.effect()));
        findings.sort_by_key(|f| std::cmp::Reverse((f.level, f.effect())));
        SetReport {
            kind,
            verdict,
            findings,
            proven: depths.filter(|_| !missing).and_then(|d| d.into_iter().min()),
            tensors: self.tensors,
            bytes: self.belong.iter().filter_map(|n| self.files.get(*n)).sum(),
            inventory: self.inventory,
        }
    }
}
