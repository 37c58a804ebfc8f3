//! What a command does after its last planned step.

use super::last_step;
use crate::id::Step;
use crate::record::Notice;
use crate::spec::RunSpec;
use crate::state::{Attempt, State};

/// The last attempt failed, and what its command does after the last step counts.
pub(super) fn failed_after_training(s: &State, spec: &RunSpec) -> bool {
    let failed = |a: &Attempt| {
        a.diagnosis.is_some()
            && a.first_failure.is_some()
            && !a.succeeded()
            && !a.noticed.contains_key(&Notice::DoneButStays)
    };
    spec.has_tail && s.attempt.as_ref().is_some_and(failed)
}

/// A trainer that is resumed at its last planned step may train on before it comes to its end: that step is no progress of the run.
#[must_use]
pub fn is_overrun(s: &State, spec: &RunSpec, step: Step) -> bool {
    let from = s.attempt.as_ref().map(|a| a.order.from.step());
    let from = from.filter(|from| last_step(s, spec).is_some_and(|last| *from >= last));
    spec.has_tail && from.is_some_and(|from| step > from)
}
