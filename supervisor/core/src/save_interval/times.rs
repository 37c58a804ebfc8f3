use super::SaveMeasurements;
use crate::event::{EventKind, TrainerPhase};
use crate::id::{AttemptNo, Ms, Step, Tick};
use crate::journal::record::{Decision, JournalRecord};
use crate::ledger::{TimeCategory, TimeLedger};
use crate::observe::durations::Durations;
use crate::state::{Attempt, RunState};

/// How long steps and saves took, collected from the records of a run in their order.
#[derive(Debug, Clone, Default)]
pub struct SaveTimes {
    steps: Durations,
    stalls: Durations,
    /// From the beginning of a save until it was proven.
    saves: Durations,
    attempt: Option<AttemptNo>,
    phase: Option<TrainerPhase>,
    /// When the newest step was printed, and which one it was.
    stepped: Option<(Tick, Step)>,
    began: Option<Tick>,
    /// A save that is not proven yet.
    unproven: Option<Tick>,
    /// Steps that were proven.
    proven: u64,
}

impl SaveTimes {
    /// Takes in a record; `s` is the state after it.
    pub fn note(&mut self, s: &RunState, record: &JournalRecord) {
        let Some(a) = s.live().filter(|a| a.launch.launched.is_some()) else {
            self.forget_attempt();
            return;
        };
        if self.attempt != Some(a.no) || begins_term(record) {
            self.forget_attempt();
            self.attempt = Some(a.no);
        }
        self.look(a, s.now);
        if let JournalRecord::Decided {
            what: Decision::Mark { .. },
            ..
        } = record
        {
            self.proven = self.proven.saturating_add(1);
            if let Some(began) = self.unproven.take() {
                self.saves.note(s.now.since(began));
            }
        }
    }

    fn look(&mut self, a: &Attempt, now: Tick) {
        let (before, phase) = (self.phase, a.training.phase);
        let saves = |p: Option<TrainerPhase>| p == Some(TrainerPhase::Save);
        let interrupted = before.is_some_and(|p| p != TrainerPhase::Step) || phase != TrainerPhase::Step;
        if saves(Some(phase)) && !saves(before) {
            (self.began, self.unproven) = (Some(now), Some(now));
        }
        if !saves(Some(phase))
            && let Some(began) = self.began.take()
        {
            self.stalls.note(now.since(began));
        }
        self.phase = Some(phase);
        match (a.training.step, self.stepped) {
            (Some(step), Some((since, last))) if step > last => {
                if !interrupted {
                    let each = now.since(since).0 / (step.0 - last.0).max(1);
                    self.steps.note(Ms(each));
                }
                self.stepped = Some((now, step));
            }
            (Some(step), None) => self.stepped = Some((now, step)),
            _ if interrupted => self.stepped = self.stepped.map(|(_, step)| (now, step)),
            _ => {}
        }
    }

    fn forget_attempt(&mut self) {
        *self = Self {
            steps: std::mem::take(&mut self.steps),
            stalls: std::mem::take(&mut self.stalls),
            saves: std::mem::take(&mut self.saves),
            proven: self.proven,
            ..Self::default()
        };
    }

    /// What the run has shown; `None`: no step or no save was seen.
    #[must_use]
    pub fn measured(&self, ledger: &TimeLedger, nodes: u32) -> Option<SaveMeasurements> {
        let seconds = |ms: Ms| ms.0 as f64 / 1000.0;
        let step = seconds(self.steps.median()?);
        let parts = ledger.parts();
        // Phases are recorded about once a second, and short saves are in few of these records.
        let average = seconds(parts.of(TimeCategory::Saving)) / self.proven.max(1) as f64;
        let stall = seconds(self.stalls.median()?).min(average.max(0.001));
        let new = ledger.trained().new.max(1) as f64;
        let whole_step = seconds(parts.of(TimeCategory::Productive)) / new;
        let trained = [TimeCategory::Productive, TimeCategory::Repeated, TimeCategory::Saving];
        Some(SaveMeasurements {
            step,
            slow_step: self.steps.percentile(90).map_or(0.0, seconds),
            between: (whole_step - step).max(0.0),
            stall,
            save: self.saves.percentile(90).map_or(stall, seconds).max(stall),
            failures: super::sudden_failures(ledger),
            trained: trained.iter().map(|part| seconds(parts.of(*part))).sum(),
            nodes,
        })
    }
}

/// The clock of a new term has another zero.
fn begins_term(record: &JournalRecord) -> bool {
    matches!(record, JournalRecord::Fact(e) if matches!(e.kind, EventKind::TermStarted { .. }))
}
