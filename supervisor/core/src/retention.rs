//! The steps that may be deleted so that the user's number of kept steps stays true.

use crate::checkpoint::{CheckpointSummary, CkptId, Depth};
use crate::finiteness::Finiteness;
use crate::generations::spare_generations;
use crate::spec::RunSpec;
use crate::state::State;

/// A user who keeps so many steps has room for one more.
const MANY: u32 = 10;

/// Steps to delete, oldest first: only whole or husk steps of this lineage, below two that are proven as deep as the policy asks for,
/// never the newest two whole ones, never the present resume point.
#[must_use]
pub fn prune(s: &State, spec: &RunSpec) -> Vec<CkptId> {
    let p = &spec.policy;
    if spec.saves.is_in_place() {
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
    let ours = || scan.steps.iter().filter(|c| !c.id.0.is_absolute());
    let kept = (keep as usize).max(2);
    let doubtful = |c: &CheckpointSummary| s.is_doubtful(c);
    // A step whose weights may be no numbers is no reason to let an older one go.
    let sound = || ours().filter(|c| is_whole(c) && !doubtful(c));
    // What was only looked at while workers run does not let a proven one go: two that are proven stay, and all above them.
    let proven = sound().filter(|c| c.is_proven(p.depth)).nth(1);
    let below = sound()
        .nth(kept - 1)
        .zip(proven)
        .map(|(kept, proven)| kept.step.min(proven.step));
    let newest: Vec<&CkptId> = ours().filter(|c| is_whole(c)).take(2).map(|c| &c.id).collect();
    let finite = ours()
        .find(|c| s.finiteness(&c.id) == Finiteness::Finite)
        .map(|c| &c.id);
    // So many wait for a look at their weights; beyond that the two newest of all do.
    let waiting = ours().filter(|c| is_whole(c) && doubtful(c)).count();
    let is_full = waiting > keep.saturating_add(p.keep_raise) as usize;
    let has_sound = || sound().next().is_some();
    let goes =
        |c: &CheckpointSummary| below.is_some_and(|below| c.step < below) || is_full && doubtful(c) && has_sound();
    let mut out: Vec<CkptId> = ours()
        .filter(|c| goes(c) && Some(c.step) != resume && finite != Some(&c.id) && !newest.contains(&&c.id))
        // What stood below the step taken into care is an older run's.
        .filter(|c| care.step.is_none_or(|s| c.step >= s))
        .filter(|c| c.husk || is_whole(c))
        .map(|c| c.id.clone())
        .collect();
    out.reverse();
    // While workers run, the trainer's own number leaves room: of many small deletions some go together.
    let together = if s.live().is_some() && keep >= MANY && p.keep_raise > 1 {
        2
    } else {
        1
    };
    if out.len() < together {
        out.clear();
    }
    out
}

/// Looked at, and nothing of it is missing.
fn is_whole(c: &CheckpointSummary) -> bool {
    c.is_proven(Depth::Structure)
}
