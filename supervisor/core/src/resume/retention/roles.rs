//! Retention if the trainer keeps different numbers per role, or all steps of some roles.

use super::{Spare, Surplus, is_whole};
use crate::checkpoint::{CheckpointSummary, CkptId};
use crate::id::Step;
use crate::spec::RunSpec;
use crate::state::RunState;

/// Surplus roles of steps, or whole steps if all their roles are surplus, newest first. Two proven steps stay complete,
/// and all above them.
pub(super) fn surplus(s: &RunState, spec: &RunSpec) -> Option<Surplus> {
    let (scan, care) = (s.disk.scan.as_ref()?, s.requests.care.as_ref()?);
    let ours = || {
        scan.steps
            .iter()
            .filter(|c| !c.id.0.is_absolute() && !s.is_doubtful(c))
            .filter(|c| c.husk || is_whole(c))
            // Steps below the one where the run was adopted belong to an older run.
            .filter(|c| care.step.is_none_or(|from| c.step >= from))
    };
    let second = ours().filter(|c| c.is_proven(spec.policy.proof.depth)).nth(1)?;
    let holds = |c: &CheckpointSummary, role: &str| c.roles.iter().any(|r| r == role);
    // What was saved because we asked for it takes no place of the user's own steps, and goes first.
    let extra = |c: &CheckpointSummary| s.disk.extra.contains(&c.step);
    let resume = s.attempt.as_ref().map(|a| a.order.from.step());
    // The oldest step to keep, for each role.
    let oldest = |role: &str, keep: u32| -> Option<Step> {
        let mut own = ours().filter(|c| holds(c, role) && !extra(c));
        let last = own.nth(keep.max(2) as usize - 1)?;
        Some(last.step.min(second.step))
    };
    let limits: Vec<(&str, Option<Step>)> = spec
        .roles
        .iter()
        .map(|role| (role.name.as_str(), role.keep.and_then(|keep| oldest(&role.name, keep))))
        .collect();
    let mut steps = Vec::new();
    for c in ours().filter(|c| c.step < second.step) {
        let spare = |id: CkptId| Spare {
            step: c.step,
            id,
            is_husk: c.husk,
        };
        let goes = |limit: &Option<Step>| limit.is_some_and(|limit| c.step < limit);
        let there = || limits.iter().filter(|(role, _)| holds(c, role));
        if extra(c) && Some(c.step) != resume || there().all(|(_, limit)| goes(limit)) {
            steps.push(spare(c.id.clone()));
        } else {
            let roles = there().filter(|(_, limit)| goes(limit));
            steps.extend(roles.map(|(role, _)| spare(CkptId(c.id.0.join(role)))));
        }
    }
    let most = spec.roles.iter().filter_map(|r| r.keep).max().unwrap_or(u32::MAX);
    let most = most.saturating_add(spec.policy.retention.keep_raise) as usize;
    let whole = scan.steps.iter().filter(|c| !c.id.0.is_absolute() && is_whole(c));
    Some(Surplus {
        steps,
        is_full: whole.count() > most,
    })
}
