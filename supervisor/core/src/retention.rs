//! Which steps may be deleted so that the user's number of kept steps stays true.

use crate::checkpoint::{CheckpointSummary, CkptId};
use crate::live::spare_generations;
use crate::spec::RunSpec;
use crate::state::State;

/// Steps to delete, oldest first: only whole or husk steps of this lineage, after a newer one is proven,
/// never the newest two whole ones, never the present resume point.
#[must_use]
pub fn prune(s: &State, spec: &RunSpec) -> Vec<CkptId> {
    let p = &spec.policy;
    if spec.live.is_some() {
        return spare_generations(s, spec);
    }
    let (Some(keep), true) = (spec.keep, p.prune && p.prove && p.recovery && !p.observe) else {
        return Vec::new();
    };
    let (Some(scan), Some(care)) = (&s.scan, &s.care) else {
        return Vec::new();
    };
    if keep == 0 || s.prune_failed.is_some() && s.prune_failed == s.mark {
        return Vec::new();
    }
    let resume = s.attempt.as_ref().map(|a| a.order.from.step());
    let wholes: Vec<&CheckpointSummary> = scan.steps.iter().filter(|c| is_known_good(c, spec)).collect();
    let kept = (keep as usize).max(2);
    let Some(oldest_kept) = wholes.get(kept.saturating_sub(1)) else {
        return Vec::new();
    };
    let mut out: Vec<CkptId> = scan
        .steps
        .iter()
        .filter(|c| c.step < oldest_kept.step && Some(c.step) != resume && !c.id.0.is_absolute())
        // What stood below the step taken into care is an older run's.
        .filter(|c| care.step.is_none_or(|s| c.step >= s))
        .filter(|c| c.husk || is_known_good(c, spec))
        .map(|c| c.id.clone())
        .collect();
    out.reverse();
    out
}

/// Proven as deep as the policy asks for: what was only looked at while workers run does not let a proven one go.
fn is_known_good(c: &CheckpointSummary, spec: &RunSpec) -> bool {
    c.is_proven(spec.policy.depth) && !c.id.0.is_absolute()
}
