//! Resuming from an incomplete step, if no step is whole and the policy allows losing the rest.
//!
//! A whole step with everything always comes first, however old it is. Contents must be proven as deep as a whole step
//! would have to be.

use super::step::{LoadedParts, from_loaded, named};
use super::{ResumeChoice, depth_of, is_elsewhere, last_step};
use crate::checkpoint::{CheckpointSummary, PartialStep, Resumability};
use crate::event::ScanReport;
use crate::id::Step;
use crate::journal::reason::Reason;
use crate::journal::record::{DiskEdit, RunOutcome};
use crate::spec::RunSpec;
use crate::spec::policy::DegradedPolicy;
use crate::state::RunState;

/// The newest step with proven contents, or the requested one.
fn best<'a>(
    s: &RunState,
    spec: &RunSpec,
    scan: &'a ScanReport,
    from: Option<Step>,
) -> Option<(&'a CheckpointSummary, &'a PartialStep)> {
    // From the last planned step there is nothing left to train.
    let goes_on = |c: &CheckpointSummary| last_step(s, spec).is_none_or(|last| c.step < last);
    let fits = |c: &CheckpointSummary| !matches!(c.resume, Resumability::Not { .. }) && goes_on(c);
    scan.steps
        .iter()
        .filter(|c| !c.husk && !is_elsewhere(&c.id) && fits(c))
        .filter(|c| from.map_or(!s.disk.distrusted.contains(&c.id), |f| c.step == f))
        .find_map(|c| {
            let part = c.part.as_ref().filter(|p| p.is_proven(depth_of(s, spec, c)))?;
            Some((c, part))
        })
}

/// Replaces a refusal or a fresh start: resumes from the remaining contents if the policy allows it, else mentions what
/// could be kept.
pub(super) fn or_degraded(
    s: &RunState,
    spec: &RunSpec,
    scan: &ScanReport,
    from: Option<Step>,
    other: ResumeChoice,
) -> ResumeChoice {
    let Some((c, part)) = best(s, spec, scan, from) else {
        return other;
    };
    if matches!(other, ResumeChoice::Unreadable { .. }) {
        return other;
    }
    if spec.policy.degraded.allows(&part.lost) {
        return go_on(s, spec, scan, c, part, from.is_some());
    }
    let ResumeChoice::Refuse {
        outcome: RunOutcome::NoProof { why },
        mut reasons,
    } = other
    else {
        return other;
    };
    let why = format!("{why}. {}", offer(spec, c, part, from));
    reasons.insert(0, Reason::new("part_is_left", why.clone()));
    ResumeChoice::Refuse {
        outcome: RunOutcome::NoProof { why },
        reasons,
    }
}

fn go_on(
    s: &RunState,
    spec: &RunSpec,
    scan: &ScanReport,
    c: &CheckpointSummary,
    part: &PartialStep,
    asked: bool,
) -> ResumeChoice {
    let text = format!(
        "{} is {}, and whole except for its {}: `supervisor.degraded_resume` allows to go on without",
        c.id,
        c.verdict,
        named(&part.lost)
    );
    let mut reasons = vec![Reason::new("part_is_left", text)];
    reasons.extend(c.why().map(|f| Reason::new("not_whole", format!("{}: {f}", c.id))));
    let put_away = part.aside.iter().map(|entry| DiskEdit::PartAside {
        from: c.id.clone(),
        entry: entry.clone(),
        why: "the trainer would load it, and it is not whole".to_owned(),
    });
    let loaded = LoadedParts {
        holds: &part.holds,
        every: &[],
        lost: part.lost.clone(),
        pins: part.pins,
        put_away: put_away.collect(),
    };
    let care = s.requests.care.is_none() || asked;
    from_loaded(
        s,
        spec,
        scan,
        c,
        loaded,
        care,
        s.requests.care.is_none() && !asked,
        reasons,
    )
}

fn offer(spec: &RunSpec, c: &CheckpointSummary, part: &PartialStep, from: Option<Step>) -> String {
    let found = c.why().map_or_else(String::new, |f| format!(" ({f})"));
    let lost = named(&part.lost);
    let Some(setting) = DegradedPolicy::that_allows(&part.lost) else {
        return format!("{} could only be resumed without its {lost}{found}", c.id);
    };
    let with = from.map_or_else(String::new, |n| format!(" --from {n}"));
    let asks = match spec.policy.degraded {
        DegradedPolicy::Ask => "you are asked first",
        _ => "the settings do not allow that",
    };
    format!(
        "{} could be resumed without its {lost}{found}; {asks} (degraded_resume): to agree, say `run{with} --set supervisor.degraded_resume={setting}`",
        c.id
    )
}
