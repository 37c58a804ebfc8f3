//! Which events are worth recording.

use super::ACTIVITY_EVERY;
use crate::event::{EventKind, TrainerPhase};
use crate::id::{Step, Tick};
use crate::state::{Attempt, RunMode, RunState};

/// Not recorded: progress that changes nothing, timers, unchanged scans, and the last output of ranks that we stop
/// because they stalled.
pub(super) fn worth_recording(s: &RunState, kind: &EventKind, at: Tick) -> bool {
    match kind {
        EventKind::Progress { .. } | EventKind::Sighted { .. } | EventKind::Numbers { .. } if are_last_words(s) => {
            false
        }
        EventKind::Timer(_) | EventKind::Space { .. } => false,
        EventKind::Allocation {
            job, restarts, ends, ..
        } => s
            .context
            .allocation
            .as_ref()
            .is_none_or(|a| (&a.job, a.restarts, a.ends) != (job, *restarts, *ends)),
        EventKind::Checkpoints(report) => {
            s.disk.scan.as_ref() != Some(report) || s.live().is_none() && s.disk.settled.is_none()
        }
        EventKind::Progress {
            phase,
            step,
            beats,
            activity,
            ..
        } => s.attempt.as_ref().is_none_or(|a| {
            is_step(s, *phase, *step, *beats)
                || activity.is_work() && at.since(a.training.last_active) >= ACTIVITY_EVERY
        }),
        _ => true,
    }
}

/// Returns true while the current attempt is being stopped because it stalled. A signal handler of its own may print,
/// even steps.
fn are_last_words(s: &RunState) -> bool {
    matches!(s.mode, RunMode::Stopping { .. }) && s.attempt.as_ref().is_some_and(Attempt::is_stuck)
}

/// Returns true for a new step or phase of the current attempt, or a sign of progress within one.
pub(super) fn is_step(s: &RunState, phase: TrainerPhase, step: Option<Step>, beats: u64) -> bool {
    let a = s.attempt.as_ref();
    a.is_some_and(|a| {
        step.is_some() && step > a.training.step || phase != a.training.phase || beats > a.training.pace.beats
    })
}
