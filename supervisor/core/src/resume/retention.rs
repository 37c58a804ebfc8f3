//! Steps that may be deleted to keep the number of steps the user set.

mod roles;

use crate::checkpoint::finiteness::{Finiteness, NewestFinite};
use crate::checkpoint::{CheckpointSummary, CkptId, Depth};
use crate::id::Step;
use crate::resume::generations::spare_generations;
use crate::spec::RunSpec;
use crate::state::RunState;

/// A user who keeps this many steps has space for one more.
const MANY: u32 = 10;

/// Steps to delete, oldest first: only whole steps and pruned remnants of this run, below two that are proven to the
/// policy's depth, never the newest two whole ones, and only below a step whose weights are known to be finite. If the
/// trainer keeps different numbers per role, roles of steps.
#[must_use]
pub fn prune(s: &RunState, spec: &RunSpec) -> Vec<CkptId> {
    if spec.saves.is_in_place() {
        return spare_generations(s, spec);
    }
    let mut out = Surplus::of(s, spec).map_or_else(Vec::new, |surplus| surplus.free(s));
    out.reverse();
    // While workers run, the trainer's own raised number leaves some slack, so several small deletions are made
    // together.
    let together = if s.live().is_some() && spec.keep >= Some(MANY) && spec.policy.retention.keep_raise > 1 {
        2
    } else {
        1
    };
    if out.len() < together {
        out.clear();
    }
    out
}

/// The step whose weights must be checked before older steps can be deleted. A check of the newest step serves until as
/// many newer steps exist as the user keeps, so a run that keeps K steps reads the weights of about one save in K.
#[must_use]
pub fn look_before_prune(s: &RunState, spec: &RunSpec) -> Option<CkptId> {
    let surplus = Surplus::of(s, spec).filter(|_| !spec.saves.is_in_place())?;
    surplus.waits_for(s)
}

/// One of the surplus steps, or a role of one.
struct Spare {
    step: Step,
    id: CkptId,
    is_husk: bool,
}

/// Surplus steps, newest first.
struct Surplus {
    steps: Vec<Spare>,
    /// Whether the limit of steps that wait for a check of their weights is reached.
    is_full: bool,
}

impl Surplus {
    fn of(s: &RunState, spec: &RunSpec) -> Option<Self> {
        let p = &spec.policy;
        let failed = s.disk.prune_failed.is_some() && s.disk.prune_failed == s.progress.mark;
        if !p.retention.prune || !p.recovers() || failed {
            return None;
        }
        match spec.keeps_by_role() {
            true => roles::surplus(s, spec),
            false => Self::of_steps(s, spec),
        }
    }

    fn of_steps(s: &RunState, spec: &RunSpec) -> Option<Self> {
        let p = &spec.policy;
        let keep = spec.keep.filter(|keep| *keep > 0);
        if keep.is_none() && s.disk.extra.is_empty() {
            return None;
        }
        let (scan, care) = (s.disk.scan.as_ref()?, s.requests.care.as_ref()?);
        let resume = s.attempt.as_ref().map(|a| a.order.from.step());
        let ours = || scan.steps.iter().filter(|c| !c.id.0.is_absolute());
        let whole = || ours().filter(|c| is_whole(c));
        let kept = keep.map(|keep| (keep as usize).max(2));
        let doubtful = |c: &CheckpointSummary| s.is_doubtful(c);
        // A step whose weights may be non-finite does not replace an older one.
        let sound = || whole().filter(|c| !doubtful(c));
        // Steps that were only checked for structure do not replace proven ones: two proven steps stay, and all above
        // them.
        let proven = sound().filter(|c| c.is_proven(p.proof.depth)).nth(1);
        // What was saved because we asked for it takes no place of the user's own steps, and goes first.
        let extra = |c: &CheckpointSummary| s.disk.extra.contains(&c.step);
        let oldest = kept.and_then(|kept| sound().filter(|c| !extra(c)).nth(kept - 1));
        let below = oldest.zip(proven).map(|(kept, proven)| kept.step.min(proven.step));
        let asked = |c: &CheckpointSummary| {
            extra(c) && !c.husk && Some(c.step) != resume && proven.is_some_and(|proven| c.step < proven.step)
        };
        // A trainer that loads its best step at the end still needs it.
        let best = whole().next().and_then(|c| c.trainer_note).and_then(|note| note.best);
        let newest: Vec<&CkptId> = whole().take(2).map(|c| &c.id).collect();
        // Once two newer steps are proven, the attempt's start is no longer needed.
        let is_above = |c: &CheckpointSummary| below.is_some_and(|below| c.step < below);
        // At most this many steps wait for a check of their weights; beyond that the two newest of all stay.
        let most = keep.map_or(usize::MAX, |keep| keep.saturating_add(p.retention.keep_raise) as usize);
        let (waiting, has_sound) = (whole().filter(|c| doubtful(c)).count(), sound().next().is_some());
        let spoilt = |c: &CheckpointSummary| waiting > most && doubtful(c) && has_sound && Some(c.step) != resume;
        let steps = ours()
            .filter(|c| is_above(c) || spoilt(c) || asked(c))
            .filter(|c| Some(c.step) != best && !newest.contains(&&c.id))
            // Steps below the one where the run was adopted belong to an older run.
            .filter(|c| care.step.is_none_or(|s| c.step >= s))
            .filter(|c| c.husk || is_whole(c))
            .map(|c| Spare {
                step: c.step,
                id: c.id.clone(),
                is_husk: c.husk,
            });
        Some(Self {
            steps: steps.collect(),
            is_full: whole().count() > most,
        })
    }

    fn free(self, s: &RunState) -> Vec<CkptId> {
        // All are deleted together once the newest step is known.
        if !self.is_full && self.waits_for(s).is_some() {
            return Vec::new();
        }
        let finite = newest_known(s);
        // If checks show nothing, do not wait for one.
        let blind = s.newest_finite() == NewestFinite::None && s.odd_steps().is_empty();
        let goes = |c: &Spare| {
            let below = finite.is_some_and(|f| c.step < f);
            finite != Some(c.step) && (below || blind || self.is_full || c.is_husk)
        };
        self.steps.iter().filter(|c| goes(c)).map(|c| c.id.clone()).collect()
    }

    /// The step that must be checked before all of them can be deleted.
    fn waits_for(&self, s: &RunState) -> Option<CkptId> {
        let finite = newest_known(s);
        let waits = self.steps.iter().any(|c| finite.is_none_or(|f| c.step >= f));
        match s.newest_finite() {
            NewestFinite::After(ckpt) if waits => Some(ckpt),
            _ => None,
        }
    }
}

fn newest_known(s: &RunState) -> Option<Step> {
    let steps = s.disk.scan.iter().flat_map(|scan| &scan.steps);
    steps
        .filter(|c| !c.id.0.is_absolute())
        .find(|c| s.finiteness(&c.id) == Finiteness::Finite)
        .map(|c| c.step)
}

/// Checked, and nothing is missing.
fn is_whole(c: &CheckpointSummary) -> bool {
    c.is_proven(Depth::Structure)
}
