//! Whether a run that finished has something left to train: more may be planned now.

use super::last_step;
use crate::checkpoint::CheckpointSummary;
use crate::id::Step;
use crate::journal::reason::Reason;
use crate::journal::record::STOPPED_EARLY;
use crate::spec::RunSpec;
use crate::state::RunState;

/// Why a run that ended at this step, below the last planned one, is not continued; `None`: it is.
pub(super) fn ended_before(s: &RunState, spec: &RunSpec, c: &CheckpointSummary) -> Option<Reason> {
    let last = last_step(s, spec)?;
    if !spec.may_end_early || s.progress.finished != Some(c.step) {
        return None;
    }
    let was_last = c.trainer_note.and_then(|note| note.planned) == Some(c.step);
    if s.progress.stopped_early && !was_last {
        let text = format!(
            "the trainer ended its training by itself at step {0}; to train on from there: `--from {0}`",
            c.step
        );
        return Some(Reason::new(STOPPED_EARLY, text));
    }
    let done = s.attempt.as_ref().and_then(|a| a.training.step);
    (done >= Some(last)).then(|| last_step_done(last, c.step))
}

/// The reason if the last planned steps were done and not saved.
pub(crate) fn last_step_done(last: Step, saved: Step) -> Reason {
    let text = format!("all {last} planned steps were done; the newest that is saved is {saved}");
    Reason::new("last_step_done", text)
}
