//! How an attempt gets on: when the present part of it began, and what counted as progress meanwhile.

use super::Attempt;
use crate::event::{Event, EventKind, TrainerPhase};
use crate::id::{Ms, Step, Tick};
use crate::journal::record::Decision;
use crate::observe::durations::{Clocks, DurationKind};
use serde::{Deserialize, Serialize};

/// Progress of an attempt beside its step and phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttemptProgress {
    /// When the present step, save or validation began.
    #[serde(default)]
    pub began: Tick,
    /// When the newest step was printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stepped: Option<Tick>,
    /// How often a step rose.
    #[serde(default)]
    pub steps: u64,
    /// Signs of progress within a phase: batches of a validation.
    #[serde(default)]
    pub beats: u64,
    /// Size of the save that goes on, where it grew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grown: Option<(Step, u64)>,
    /// The file system answers again since: what waited for it is given its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excused: Option<Tick>,
    /// The trainer said first, since it last got on, that it brings a part of itself back in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heals: Option<Tick>,
    /// The present stall was told already.
    #[serde(default)]
    pub told: bool,
}

impl AttemptProgress {
    /// Begins, at a launch or where another term takes over.
    #[must_use]
    pub fn begin(at: Tick) -> Self {
        Self {
            began: at,
            ..Self::default()
        }
    }

    /// The clock that runs in a phase.
    #[must_use]
    pub fn clock(&self, phase: TrainerPhase) -> DurationKind {
        phase.clock(self.steps > 0)
    }

    /// A new term has a clock of its own: what it does not know the beginning of is not measured.
    pub(super) fn restart(&mut self, at: Tick) {
        self.began = at;
        self.stepped = None;
        self.excused = None;
        self.heals = None;
    }

    /// The machine slept.
    pub(super) fn shift(&mut self, missing: Ms) {
        self.began = self.began.after(missing);
        self.stepped = self.stepped.map(|t| t.after(missing));
        self.excused = self.excused.map(|t| t.after(missing));
        self.heals = self.heals.map(|t| t.after(missing));
    }

    /// A step rose, or another phase began.
    fn advance(&mut self, clocks: &mut Clocks, phase: TrainerPhase, rose: bool, at: Tick) {
        let took = at.since(self.began);
        // A repair shows nothing of how long a step takes.
        let counts = self.heals.is_none();
        if counts && took > Ms(0) {
            clocks.note(self.clock(phase), took);
        }
        self.began = at;
        self.told = false;
        self.grown = None;
        if rose {
            if let Some(before) = self.stepped.replace(at).filter(|_| counts) {
                clocks.note_gap(at.since(before));
            }
            self.steps = self.steps.saturating_add(1);
        }
    }
}

impl Attempt {
    /// A person held it up to now: nothing is measured by that, nothing is overdue.
    pub(super) fn excuse(&mut self, at: Tick) {
        self.training.last_progress = at;
        self.training.last_active = at;
        self.training.pace.restart(at);
    }

    /// The guard told how far it is.
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
        if rose || *phase != self.training.phase {
            // How a save of an earlier term began is not known.
            if self.training.phase == TrainerPhase::Save && self.training.pace.stepped.is_some() {
                self.training.creep.note_save(
                    self.training.step.unwrap_or_default(),
                    e.at.since(self.training.pace.began),
                );
            }
            self.training.pace.advance(clocks, self.training.phase, rose, e.at);
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

    /// Takes in a decision upon the present part of it.
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
