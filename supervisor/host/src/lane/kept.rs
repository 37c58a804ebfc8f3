//! A live set and its generations, looked at as the steps of one run.
//!
//! The live set is looked at as a step of the directory above the trainer's own, and thoroughly each time: it is written in
//! place, which no directory's times tell. Generations are looked at as any steps are.

use super::copy::{drop_generations, generation_aside, live_aside, put_back, set_frequencies};
use super::edit::disk_error;
use super::scan::Prover;
use super::stand::{Stand, Where};
use super::tree::Look;
use super::verified::forget;
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use supervise_checkpoint::Earlier;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, PinsHash, Verdict};
use supervise_core::event::{ActError, ScanReport};
use supervise_core::live::{LIVE, is_live};
use supervise_core::record::DiskEdit;
use supervise_trainers::adapter;

/// Generations of a run, and where its live set stands.
pub(super) struct Kept {
    pub(super) stand: Stand,
    prover: Prover,
    known: Vec<Earlier>,
}

impl Kept {
    /// `None`: this trainer keeps each step in a directory of its own.
    pub(super) fn of(place: &Where) -> Option<Self> {
        let stand = Stand::of(place)?;
        let prover = Prover::new(&stand.protected(), adapter(stand.trainer), &stand.expect());
        Some(Self {
            stand,
            prover,
            known: Vec::new(),
        })
    }

    /// Uses what earlier proofs left, and keeps it up to date.
    pub(super) fn keeping_records(mut self, run_dir: &Utf8Path) -> Self {
        self.prover = self.prover.keeping_records(run_dir);
        self
    }

    /// A prover of the live set.
    pub(super) fn live_prover(&self) -> Option<Prover> {
        let (above, _) = self.stand.above()?;
        Some(Prover::new(
            above,
            adapter(self.stand.trainer),
            &self.stand.expect_live(),
        ))
    }

    /// Looks at the generations and then at the live set, which is compared with them. Answers what the prover of the live set
    /// says, and both under the names that the run knows them by.
    pub(super) fn look(
        &mut self,
        live: &mut Prover,
        depth: Depth,
        whole: u32,
        how: Look,
        working: &mut dyn FnMut(u64) -> bool,
    ) -> (ScanReport, ScanReport) {
        let kept = self.prover.look(depth, whole, how, working);
        let good: Vec<CheckpointSummary> = kept
            .steps
            .iter()
            .filter(|c| c.verdict == Verdict::Whole && c.proven.is_some())
            .cloned()
            .collect();
        self.prover.record(&good);
        self.tell(live, &good);
        let seen = live.look(depth, whole, Look::Thorough, working);
        let report = merged(&seen, kept);
        (seen, report)
    }

    /// What the live set is compared with.
    fn tell(&mut self, live: &mut Prover, good: &[CheckpointSummary]) {
        let known: Vec<Earlier> = good
            .iter()
            .map(|c| Earlier {
                step: c.step,
                marks: self.prover.fold.marks(&c.id),
            })
            .collect();
        if known != self.known {
            self.known.clone_from(&known);
            live.fold.remember(known);
        }
    }

    /// The pins of the live set or of a generation, as they are on disk now.
    pub(super) fn pins(&mut self, live: &mut Prover, id: &CkptId) -> io::Result<Option<PinsHash>> {
        match (is_live(id), self.stand.above()) {
            (true, Some((_, name))) => live.pins_now(&CkptId(name.into())),
            _ => self.prover.pins_now(id),
        }
    }

    /// Performs edits in order; the first failure ends it.
    pub(super) fn perform(
        &self,
        edits: &[DiskEdit],
        by: &str,
        records: Option<&Utf8PathBuf>,
        working: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), ActError> {
        for edit in edits {
            match edit {
                DiskEdit::MoveAside { from, foreign, why, .. } if is_live(from) => {
                    live_aside(&self.stand, from, *foreign, why, by).map_err(|e| aside_failed(from, &e))?;
                }
                DiskEdit::MoveAside { from, foreign, why, .. } => {
                    generation_aside(&self.stand, from.0.as_str(), *foreign, why, by)
                        .map_err(|e| aside_failed(from, &e))?;
                    if let Some(records) = records {
                        forget(records, from);
                    }
                }
                DiskEdit::SetFrequencies => set_frequencies(&self.stand)?,
                DiskEdit::PutBack { from } => put_back(&self.stand, from, working)?,
                DiskEdit::PartAside { .. } | DiskEdit::WriteTracker { .. } | DiskEdit::RemoveTracker => {}
            }
        }
        Ok(())
    }

    /// Deletes generations.
    pub(super) fn prune(&self, ids: &[CkptId], records: Option<&Utf8PathBuf>) -> Result<(), ActError> {
        drop_generations(&self.stand, ids)?;
        if let Some(records) = records {
            ids.iter().for_each(|id| forget(records, id));
        }
        Ok(())
    }
}

/// Looks at all that a run could be resumed from, thoroughly and without leaving a trace.
pub fn look_at_run(place: &Where, depth: Depth, working: &mut dyn FnMut(u64) -> bool) -> ScanReport {
    match Kept::of(place) {
        Some(mut kept) => match kept.live_prover() {
            Some(mut live) => kept.look(&mut live, depth, u32::MAX, Look::Thorough, working).1,
            None => ScanReport::default(),
        },
        None => Prover::new(&place.root, adapter(place.trainer), &place.expect).scan(depth, u32::MAX, working),
    }
}

fn aside_failed(id: &CkptId, e: &io::Error) -> ActError {
    disk_error(&format!("moving {id} aside"), e)
}

/// One report of both, newest first, the live set before a copy of it.
fn merged(live: &ScanReport, kept: ScanReport) -> ScanReport {
    let mut steps = Vec::with_capacity(kept.steps.len() + 1);
    // Directories are made by whoever asks for a path: without a file in them nothing was saved.
    let is_there = |c: &&CheckpointSummary| {
        c.files > 0
            || c.findings
                .iter()
                .any(|f| matches!(&*f.code, "symlink" | "linked" | "newer_layout"))
    };
    for c in live.steps.iter().filter(is_there) {
        let mut c = c.clone();
        c.id = CkptId(
            c.save
                .as_ref()
                .map_or_else(|| LIVE.into(), |save| format!("{LIVE}.{save}").into()),
        );
        steps.push(c);
    }
    steps.extend(kept.steps);
    // What does not say which step it holds comes first: nothing newer is passed over for it in silence.
    let unknown = |c: &CheckpointSummary| is_live(&c.id) && c.step.0 == 0;
    steps.sort_by_key(|c| (std::cmp::Reverse((unknown(c), c.step)), !is_live(&c.id)));
    let mut remarks = live.remarks.clone();
    remarks.extend(kept.remarks);
    ScanReport {
        empty: live.empty && kept.empty,
        tracker: live.tracker.clone(),
        unreadable: live.unreadable.clone().or(kept.unreadable),
        steps,
        remarks,
    }
}
