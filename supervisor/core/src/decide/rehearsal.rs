//! When a relaunch is rehearsed.

use crate::event::rehearsal::RehearsalResult;
use crate::spec::RunSpec;
use crate::state::RunState;

/// Returns true if a rehearsal is due now that workers run: once per configuration and release, and again in a later
/// term if it could not be tried.
#[must_use]
pub(super) fn is_due(s: &RunState, spec: &RunSpec) -> bool {
    let relaunches = spec.policy.start.recovery && !spec.policy.start.observe;
    let is_known = s.rehearsal.as_ref().is_some_and(|r| {
        let same = r.config == spec.config_hash && r.version == spec.trainer_version;
        same && (r.term == s.term || !matches!(r.result, RehearsalResult::Unknown { .. }))
    });
    spec.policy.rehearse && relaunches && !is_known
}
