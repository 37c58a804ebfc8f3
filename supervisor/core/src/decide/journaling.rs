//! Events that are news, and those that are not.

use super::ACTIVITY_EVERY;
use crate::event::{EventKind, TrainerPhase};
use crate::id::{Step, Tick};
use crate::state::{Attempt, RunMode, RunState};

/// Progress that changes nothing, wake-ups, scans that say the same again, and the last words of ranks that we end because they stand
/// still are not journaled.
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

/// The present attempt is being ended because it stands still. A handler of its own for our signals may print, steps too.
fn are_last_words(s: &RunState) -> bool {
    matches!(s.mode, RunMode::Stopping { .. }) && s.attempt.as_ref().is_some_and(Attempt::is_stuck)
}

/// A new step or phase of the present attempt, or a sign of progress within one.
pub(super) fn is_step(s: &RunState, phase: TrainerPhase, step: Option<Step>, beats: u64) -> bool {
    let a = s.attempt.as_ref();
    a.is_some_and(|a| {
        step.is_some() && step > a.training.step || phase != a.training.phase || beats > a.training.pace.beats
    })
}
