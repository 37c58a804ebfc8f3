//! Keeps a root's proof records up to date: written when no request waits, deleted when their step is gone.

use super::scan::RootProver;
use camino::Utf8Path;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::{EarlierStep, FilePin, FileReport, ProofRecord, ProvenFile, RequiredFile};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, Verdict};
use supervise_core::id::WallMs;

/// A finding of the first proof after a rewrite, not repeated later.
const ONCE: &str = "rewritten";

impl RootProver {
    /// Writes records of whole steps that are not recorded yet. Returns how many were written.
    pub fn record(&mut self, seen: &[CheckpointSummary]) -> usize {
        let whole = seen
            .iter()
            .filter(|c| c.verdict == Verdict::Whole && c.proven.is_some());
        let steps: Vec<(CkptId, Depth)> = whole.filter_map(|c| Some((c.id.clone(), c.proven?))).collect();
        let mut written = 0;
        for (id, depth) in steps {
            if self.is_due(&id) && self.record_one(&id, depth) {
                written += 1;
            }
        }
        if written > 0 {
            self.cache.remember(self.earlier.values().cloned().collect());
        }
        written
    }

    fn is_due(&mut self, id: &CkptId) -> bool {
        let writes = self
            .verified
            .as_ref()
            .is_some_and(super::proof_record::ProofRecords::writes);
        let known = self.cache.step(&id.0);
        writes && known.recorded != Some(known.generation())
    }

    fn record_one(&mut self, id: &CkptId, depth: Depth) -> bool {
        self.settle(id, depth);
        // What was read again may have a different report now.
        let summary = self.cache.judge(id, depth, true);
        let Some(record) = self.draft(id, &summary) else {
            return false;
        };
        let generation = self.cache.step(&id.0).generation();
        let (step, marks) = (record.step, record.marks.clone());
        self.earlier.insert(id.clone(), EarlierStep { step, marks });
        let saved = self.verified.as_mut().is_some_and(|v| v.save(&record));
        let known = self.cache.step(&id.0);
        // Even if it could not be written: the next proof tries again.
        known.recorded = Some(generation);
        // It is loaded again when a file changes, instead of keeping two copies of every report.
        known.remembered = None;
        saved
    }

    /// Reads files again that were read in the same clock tick as a write, now that a later write would show.
    fn settle(&mut self, id: &CkptId, depth: Depth) {
        if !self.cache.step(&id.0).has_racy() {
            return;
        }
        let needs = self.cache.needs(id, depth);
        let known = self.cache.step(&id.0);
        let racy = |n: &&RequiredFile| {
            let read = known.reports().get(&n.path).map(|r| r.proven);
            known.is_racy(&n.path) && read == Some(Depth::Structure)
        };
        let again: Vec<&RequiredFile> = needs.iter().filter(racy).collect();
        let files = self.files.clone().in_background();
        self.read(id, &files, &again, Depth::Structure, &mut |_| true);
    }

    fn draft(&mut self, id: &CkptId, summary: &CheckpointSummary) -> Option<ProofRecord> {
        if summary.verdict != Verdict::Whole || summary.proven.is_none() {
            return None;
        }
        let known = self.cache.step(&id.0);
        let paths: Vec<(String, FileReport)> = known
            .inside(id)
            .filter(|(path, _, r)| r.verdict == Verdict::Whole && !known.is_racy(path))
            .map(|(_, inside, r)| (inside.to_string(), without_news(r)))
            .collect();
        let mut files = BTreeMap::new();
        for (inside, report) in paths {
            let fact = self.tree.fact(&id.path_of(&inside))?;
            let pin = FilePin::of(fact);
            files.insert(inside.into(), ProvenFile { pin, report });
        }
        if files.is_empty() {
            return None;
        }
        let marks = self.cache.marks(id);
        Some(ProofRecord {
            ckpt: id.clone(),
            step: summary.step,
            boot: self.verified.as_ref()?.boot().to_owned(),
            wall: WallMs(self.clock.now() / 1_000_000),
            marks,
            files,
        })
    }

    /// Deletes records of deleted steps. An empty root may not be mounted.
    pub(super) fn tidy(&mut self) {
        let Some(verified) = self.verified.as_ref().filter(|v| v.writes()) else {
            return;
        };
        if self.tree.is_empty() {
            return;
        }
        let here: BTreeSet<CkptId> = self.cache.steps.steps().into_iter().map(|(id, _)| id).collect();
        self.earlier.retain(|id, _| here.contains(id));
        for id in verified.steps() {
            if !here.contains(&id) && self.tree.fact(Utf8Path::new(id.0.as_str())).is_none() {
                verified.forget(&id);
            }
        }
    }
}

fn without_news(report: &FileReport) -> FileReport {
    let mut out = report.clone();
    out.findings.retain(|f| f.code != ONCE);
    out
}
