//! Work of a command after its last planned step.

use super::last_step;
use crate::id::Step;
use crate::journal::reason::Reason;
use crate::journal::record::NoticeKind;
use crate::spec::RunSpec;
use crate::state::{Attempt, RunState};

/// Why the work after the last step is not done, if it counts.
pub(super) fn undone_tail(s: &RunState, spec: &RunSpec) -> Option<Reason> {
    let is_open = |a: &&Attempt| {
        spec.has_tail
            && a.launch.launched.is_some()
            && !a.succeeded()
            && !a.output.noticed.contains_key(&NoticeKind::DoneButStays)
    };
    let a = s.attempt.as_ref().filter(is_open)?;
    let how = match a.end.diagnosis.is_some() && a.end.first_failure.is_some() {
        true => "the command failed after its last step",
        false if a.end.ended_by_us.is_some() => "the command was ended after its last step",
        false => "the command was not seen to end after its last step",
    };
    let text = format!("{how}: what it does there, such as saving the model, is not known to be done");
    Some(Reason::new("tail_failed", text))
}

/// Returns true if a trainer that was resumed at its last planned step trained on before it ended: such a step is no
/// progress.
#[must_use]
pub fn is_overrun(s: &RunState, spec: &RunSpec, step: Step) -> bool {
    let from = s.attempt.as_ref().map(|a| a.order.from.step());
    let from = from.filter(|from| last_step(s, spec).is_some_and(|last| *from >= last));
    spec.has_tail && from.is_some_and(|from| step > from)
}
