//! Progress of an attempt: when its current part started, and what counted as progress since.

use super::Attempt;
use crate::event::{Event, EventKind, TrainerPhase};
use crate::id::{Ms, Step, Tick};
use crate::journal::record::Decision;
use crate::observe::durations::{Clocks, DurationKind};
use serde::{Deserialize, Serialize};

/// Progress of an attempt besides its step and phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttemptProgress {
    /// When the current step, save or validation started.
    #[serde(default)]
    pub began: Tick,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stepped: Option<Tick>,
    /// How often the step rose.
    #[serde(default)]
    pub steps: u64,
    /// Signs of progress within a phase, such as batches of a validation.
    #[serde(default)]
    pub beats: u64,
    /// Step and size of the running save, if it grew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grown: Option<(Step, u64)>,
    /// When the file system answered again: whatever waited for it gets its full time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excused: Option<Tick>,
    /// When the trainer first announced an in-process restart since its last progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heals: Option<Tick>,
    /// Whether the current stall was already reported.
    #[serde(default)]
    pub told: bool,
}

impl AttemptProgress {
    /// Starts at a launch, or when another term takes over.
    #[must_use]
    pub fn begin(at: Tick) -> Self {
        Self {
            began: at,
            ..Self::default()
        }
    }

    /// The clock that measures a phase.
    #[must_use]
    pub fn clock(&self, phase: TrainerPhase) -> DurationKind {
        phase.clock(self.steps > 0)
    }

    /// Restarts on the clock of a new term. A part whose start is not known is not measured.
    pub(super) fn restart(&mut self, at: Tick) {
        self.began = at;
        self.stepped = None;
        self.excused = None;
        self.heals = None;
    }

    /// Shifts all times by a time gap.
    pub(super) fn shift(&mut self, missing: Ms) {
        self.began = self.began.after(missing);
        self.stepped = self.stepped.map(|t| t.after(missing));
        self.excused = self.excused.map(|t| t.after(missing));
        self.heals = self.heals.map(|t| t.after(missing));
    }

    /// Notes that the step rose by `risen`, or that another phase started.
    fn advance(&mut self, clocks: &mut Clocks, phase: TrainerPhase, risen: u64, at: Tick) {
        let took = at.since(self.began);
        // A step with an in-process restart says nothing about the time per step.
        let counts = self.heals.is_none();
        if counts && took > Ms(0) {
            clocks.note(self.clock(phase), took);
        }
        self.began = at;
        self.told = false;
        self.grown = None;
        if risen > 0 {
            if let Some(before) = self.stepped.replace(at).filter(|_| counts) {
                clocks.note_gap(at.since(before));
                clocks.note_steps(at.since(before), risen);
            }
            self.steps = self.steps.saturating_add(1);
        }
    }
}

impl Attempt {
    /// An operator held the attempt until now: the time is not measured, and nothing is overdue.
    pub(super) fn excuse(&mut self, at: Tick) {
        self.training.last_progress = at;
        self.training.last_active = at;
        self.training.pace.restart(at);
    }

    /// Takes in the guard's report of progress.
    pub(super) fn get_on(&mut self, clocks: &mut Clocks, e: &Event) {
        let EventKind::Progress {
            phase,
            step,
            beats,
            risen,
            activity,
            ..
        } = &e.kind
        else {
            return;
        };
        let rose = step.is_some() && *step > self.training.step;
        if let Some(step) = step.filter(|_| rose) {
            self.saves.note_step(step, self.training.pace.began, e.at);
        }
        if rose || *phase != self.training.phase {
            // How a save of an earlier term began is not known.
            if self.training.phase == TrainerPhase::Save && self.training.pace.stepped.is_some() {
                self.training.creep.note_save(
                    self.training.step.unwrap_or_default(),
                    e.at.since(self.training.pace.began),
                );
            }
            let more = step
                .unwrap_or_default()
                .0
                .saturating_sub(self.training.step.unwrap_or_default().0);
            let risen = if rose { more.max(1) } else { 0 };
            self.training.pace.advance(clocks, self.training.phase, risen, e.at);
        }
        if *phase == TrainerPhase::Save && self.training.phase != TrainerPhase::Save {
            self.saves.began = Some(e.at);
        }
        if rose {
            // Steps that are printed faster than they are told count too.
            self.training.pace.steps = self.training.pace.steps.max(*risen);
            if self.training.step.is_some() {
                self.training.longest_step = self.training.longest_step.max(e.at.since(self.training.last_progress));
            }
            self.training.step = *step;
        }
        if rose || *phase != self.training.phase || *beats > self.training.pace.beats {
            self.training.last_progress = e.at;
            self.training.pace.told = false;
            self.training.pace.heals = None;
        }
        self.training.pace.beats = self.training.pace.beats.max(*beats);
        self.training.phase = *phase;
        // What printed a step or entered a phase has worked.
        if self.training.last_progress == e.at || activity.is_work() {
            self.training.last_active = e.at;
        }
    }

    pub(super) fn note_pace(&mut self, what: &Decision, at: Tick) {
        match what {
            Decision::SaveGrows { step, bytes } => {
                if self
                    .training
                    .pace
                    .grown
                    .is_some_and(|(s, before)| s == *step && before < *bytes)
                {
                    self.training.last_progress = at;
                }
                self.training.pace.grown = Some((*step, *bytes));
            }
            Decision::WouldHave { .. } | Decision::Unwatched { .. } => self.training.pace.told = true,
            _ => {}
        }
    }
}
