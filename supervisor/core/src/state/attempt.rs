//! How an attempt starts, and what its facts mean.

use super::{
    Attempt, AttemptEnd, AttemptLaunch, AttemptOutput, AttemptProgress, AttemptSaves, AttemptTraining, EndCause,
};
use crate::event::TrainerPhase;
use crate::id::{Ms, Step, Term, Tick, WorkerId};
use crate::journal::record::{LaunchOrder, NoticeKind, StartPoint};
use crate::observe::creep::Creep;
use crate::observe::numbers::{StepNumbers, keep};
use crate::spec::gang::AttemptNodes;
use crate::spec::script::ScriptNews;
use std::collections::BTreeMap;

impl Attempt {
    /// Returns true if it trained a step beyond its resume point.
    #[must_use]
    pub fn trained(&self) -> bool {
        let from = match &self.order.from {
            StartPoint::Step { step, .. } => Some(*step),
            StartPoint::Fresh | StartPoint::AsIs => None,
        };
        self.training.step > from
    }

    /// Returns true if all workers succeeded.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        !self.launch.workers.is_empty()
            && self.exits.len() >= self.launch.workers.len()
            && self.exits.values().all(|e| e.is_success())
            && (self.end.ended_by_us.is_none() || self.is_ended_behind_its_training())
    }

    /// Returns true if we stopped its script after the training because it called a trainer again.
    fn is_ended_behind_its_training(&self) -> bool {
        let later = matches!(
            self.output.script,
            Some(ScriptNews::Again | ScriptNews::HeldBack { at_once: false, .. })
        );
        later && !self.called.is_empty()
    }

    /// Returns true if we stopped it before any of its workers failed.
    #[must_use]
    pub fn was_ended_by_us(&self) -> bool {
        !matches!(self.end.ended_by_us, None | Some(EndCause::WorkerFailed(_)))
    }

    /// The worker that shows why it ended.
    #[must_use]
    pub fn blamed(&self) -> Option<WorkerId> {
        let told = self.end.diagnosis.as_ref().and_then(|d| d.worker);
        let by_itself = self.end.failed_by_itself || !self.was_ended_by_us();
        let failed = self.end.first_failure.filter(|_| by_itself);
        told.or(failed.map(|(worker, _)| worker))
    }

    /// Returns true if we stopped it because it stalled or stayed after its end.
    #[must_use]
    pub fn outstayed(&self) -> bool {
        self.is_stuck() || self.output.noticed.contains_key(&NoticeKind::DoneButStays)
    }
}

impl Attempt {
    pub(super) fn note_numbers(&mut self, steps: &[StepNumbers]) {
        for loss in steps.iter().filter_map(|n| n.of.loss) {
            self.training.lost = if loss.0.is_finite() {
                0
            } else {
                self.training.lost.saturating_add(1)
            };
        }
        keep(&mut self.training.numbers, steps);
    }

    /// An attempt that was ordered but not launched yet.
    pub(super) fn begin(order: &LaunchOrder, term: Term, at: Tick, mark_before: Option<Step>) -> Self {
        Self {
            no: order.attempt,
            term,
            order: order.clone(),
            exits: BTreeMap::new(),
            nodes: AttemptNodes::default(),
            called: BTreeMap::new(),
            launch: AttemptLaunch {
                mark_before,
                ..AttemptLaunch::default()
            },
            training: AttemptTraining {
                step: None,
                phase: TrainerPhase::Startup,
                last_progress: at,
                last_active: at,
                longest_step: Ms(0),
                pace: AttemptProgress::begin(at),
                saved: None,
                first: None,
                numbers: Vec::new(),
                lost: 0,
                creep: Creep::default(),
                looked_at: Vec::new(),
            },
            saves: AttemptSaves::default(),
            output: AttemptOutput::default(),
            end: AttemptEnd::default(),
        }
    }
}
