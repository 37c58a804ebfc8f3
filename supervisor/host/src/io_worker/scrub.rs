//! Reads everything again that was ever proven, to find silent storage corruption.
//!
//! Every recorded step is read in full, whatever the file system says of its files, and compared with its proof
//! record. Nothing is written, so the records stay as they were.

use super::proof_record::RecordedStep;
use super::scan::RootProver;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::io;
use supervise_checkpoint::FileReport;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth};
use supervise_trainers::{ExpectedLayout, TrainerAdapter};

/// One recorded step, read again.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrubResult {
    /// The current verdict; if bytes differ from what was proven, a finding `rot` or `not_what_was_proven`.
    pub summary: CheckpointSummary,
    pub files: BTreeMap<Utf8PathBuf, FileReport>,
    /// Number of files whose bytes could be compared with a record.
    pub compared: usize,
    pub missing: Vec<Utf8PathBuf>,
}

/// Result of a scrub.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scrub {
    /// Every recorded step that exists, newest first.
    pub steps: Vec<ScrubResult>,
    /// Steps without a record: nothing to compare with.
    pub unrecorded: Vec<CkptId>,
    pub unreadable: BTreeMap<Utf8PathBuf, String>,
    pub remarks: Vec<String>,
}

/// Reads every recorded step of a root again. `working` receives the bytes read and may cancel by returning false.
///
/// # Errors
/// The root cannot be listed.
pub fn scrub(
    root: &Utf8Path,
    run_dir: &Utf8Path,
    adapter: &dyn TrainerAdapter,
    expect: &ExpectedLayout,
    working: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Scrub> {
    let mut prover = RootProver::new(root, adapter, expect).with_records(run_dir);
    let mut out = Scrub::default();
    let refused = prover.refresh(super::tree::WalkMode::Thorough)?;
    prover.tracker()?;
    out.unreadable = refused.into_iter().map(|(path, e)| (path, e.to_string())).collect();
    for (id, _) in prover.steps() {
        if out.unreadable.contains_key(&id.0) {
            continue;
        }
        match prover.scrub(&id, working) {
            Some(step) => out.steps.push(step),
            None => out.unrecorded.push(id),
        }
    }
    out.remarks = prover.remarks;
    Ok(out)
}

impl RootProver {
    fn scrub(&mut self, id: &CkptId, working: &mut dyn FnMut(u64) -> bool) -> Option<ScrubResult> {
        self.load_record(id);
        let remembered = self.cache.step(&id.0).remembered.as_mut();
        remembered?.distrust();
        let remembered = self.cache.step(&id.0).remembered.as_ref().filter(|r| r.is_there())?;
        let mut recorded: Vec<Utf8PathBuf> = remembered.paths().map(|path| id.path_of(path)).collect();
        recorded.sort();
        let missing: Vec<Utf8PathBuf> = recorded
            .iter()
            .filter(|p| self.tree.fact(p).is_none())
            .cloned()
            .collect();
        let summary = self.prove(id, Depth::Full, working);
        let known = self.cache.step(&id.0);
        let files = known.reports().clone();
        let could = |r: &RecordedStep, p: &Utf8PathBuf| {
            let inside = p.strip_prefix(&id.0).unwrap_or(p);
            r.knows_bytes(inside) && files.get(p).is_some_and(|f| f.crc.is_some())
        };
        let compared = known
            .remembered
            .as_ref()
            .map_or(0, |r| recorded.iter().filter(|p| could(r, p)).count());
        Some(ScrubResult {
            summary,
            files,
            compared,
            missing,
        })
    }
}
