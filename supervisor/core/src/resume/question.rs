//! Questions that only a person can answer: somebody else writes here; the tracker was set back.

use super::{Choice, is_elsewhere};
use crate::checkpoint::{CheckpointSummary, Verdict};
use crate::event::{ScanReport, Tracker};
use crate::reason::Reason;
use crate::record::Outcome;
use crate::spec::RunSpec;
use crate::state::State;

/// Steps that appeared while no attempt of this run lived.
pub(super) fn stranger(s: &State, scan: &ScanReport) -> Option<Choice> {
    let settled = s.settled.as_ref()?;
    if s.attempt.is_none() || s.care.is_none() {
        return None;
    }
    let c = scan
        .steps
        .iter()
        .find(|c| !settled.contains(&c.id) && s.mark.is_none_or(|m| c.step > m) && !is_elsewhere(&c.id))?;
    let by = format!(
        "{} appeared while no worker of this run lived: somebody else writes here, or it was copied in",
        c.id
    );
    Some(Choice::Refuse {
        outcome: Outcome::LeaseHeld { by: by.clone() },
        reasons: vec![Reason::new("stranger", by)],
    })
}

/// The tracker names less than the newest whole step by more than one save.
pub(super) fn rolled_back(s: &State, spec: &RunSpec, scan: &ScanReport, c: &CheckpointSummary) -> Option<Choice> {
    let Tracker::Step(named) = scan.tracker else {
        return None;
    };
    let one_save = spec.cadence.every.unwrap_or(u64::MAX);
    if named.0.saturating_add(one_save) >= c.step.0 {
        return None;
    }
    // The trainer itself skips the tracker only in a save that is killed: one save at most.
    let there = scan
        .steps
        .iter()
        .any(|x| x.step == named && !x.husk && x.verdict == Verdict::Whole)
        || scan.steps.iter().any(|x| x.step == named && x.proven.is_none());
    if !there && s.care.is_some() {
        return None;
    }
    let why = format!(
        "the tracker names step {named}, but {} is whole: a person may have rolled back. Say which one is meant: --from {named} or --from {}",
        c.id, c.step
    );
    Some(Choice::Refuse {
        outcome: Outcome::NoProof { why: why.clone() },
        reasons: vec![Reason::new("rolled_back", why)],
    })
}
