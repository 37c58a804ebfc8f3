//! The checkpoints of a simulated run.

use camino::Utf8PathBuf;
use std::borrow::Cow;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, Finding, PinsHash, Resumability, Verdict};
use supervise_core::event::{ScanReport, TrackerState};
use supervise_core::id::{AttemptNo, Step, WallMs};
use supervise_core::journal::record::DiskEdit;

#[derive(Debug, Clone)]
struct SimulatedStep {
    step: u64,
    id: CkptId,
    saved: u64,
    at: WallMs,
    by: AttemptNo,
    is_whole: bool,
}

/// Newest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimulatedDisk {
    steps: Vec<SimulatedStep>,
    saves: u64,
    tracker: Option<u64>,
}

impl SimulatedDisk {
    pub(crate) fn put(&mut self, step: u64, at: WallMs, by: AttemptNo) {
        self.saves += 1;
        let id = CkptId(Utf8PathBuf::from(format!("global_step_{step}")));
        self.steps.retain(|s| s.step < step);
        let saved = SimulatedStep {
            step,
            id,
            saved: self.saves,
            at,
            by,
            is_whole: true,
        };
        self.steps.insert(0, saved);
        self.tracker = Some(step);
    }

    /// Damages the newest step, unless it is the only one.
    pub(crate) fn damage_newest(&mut self) {
        if let [newest, _, ..] = self.steps.as_mut_slice() {
            newest.is_whole = false;
        }
    }

    pub(crate) fn delete(&mut self, gone: &[CkptId]) {
        self.steps.retain(|s| !gone.contains(&s.id));
    }

    pub(crate) fn edit(&mut self, edit: &DiskEdit) {
        match edit {
            DiskEdit::MoveAside { from, .. } => self.steps.retain(|s| s.id != *from),
            DiskEdit::WriteTracker { step } => self.tracker = Some(step.0),
            DiskEdit::RemoveTracker => self.tracker = None,
            DiskEdit::PartAside { .. }
            | DiskEdit::SetFrequencies
            | DiskEdit::PutBack { .. }
            | DiskEdit::Reshard(_)
            | DiskEdit::EndReshard(_) => {}
        }
    }

    /// What a scan of this depth finds.
    pub(crate) fn report(&self, depth: Depth) -> ScanReport {
        ScanReport {
            steps: self.steps.iter().map(|s| s.summary(depth)).collect(),
            tracker: self
                .tracker
                .map_or(TrackerState::Missing, |step| TrackerState::Step(Step(step))),
            empty: self.steps.is_empty(),
            ..ScanReport::default()
        }
    }
}

impl SimulatedStep {
    fn summary(&self, depth: Depth) -> CheckpointSummary {
        let damage = || Finding::error("simulated", Verdict::Damaged, "damaged by the failure");
        CheckpointSummary {
            id: self.id.clone(),
            step: Step(self.step),
            layout: Cow::Borrowed("simulated"),
            verdict: if self.is_whole {
                Verdict::Whole
            } else {
                Verdict::Damaged
            },
            proven: self.is_whole.then_some(depth),
            roles: Vec::new(),
            world: None,
            contents: Vec::new(),
            holds: Default::default(),
            resume: Resumability::Exact,
            reshard: None,
            part: None,
            pins: PinsHash(self.saved),
            bytes: 1,
            files: 1,
            newest: self.at,
            saved_by: Some(self.by),
            save: None,
            husk: false,
            unfamiliar: Vec::new(),
            other_owner: None,
            trainer_note: None,
            own_modules: Vec::new(),
            findings: if self.is_whole { Vec::new() } else { vec![damage()] },
        }
    }
}
