//! The only checkpoint of a trainer that overwrites it, and the generations kept of it.
//!
//! Both are steps of a scan: the live set as `live.SAVE`, a generation as `step_N.SAVE`. SAVE identifies one save and
//! is the same in a copy, so a save that failed to load is recognized in all of its copies.
//!
//! Newer builds of AReaL write each save into its own directory and delete the previous one: the live set is the one
//! their pointer names. Others that are there are named `generation_stepN.SAVE`, and what an older build wrote in
//! place, which the pointer hides, is `older.SAVE`. AReaL can resume from both if the pointer is changed.

use crate::checkpoint::kind::{is_kept, is_live, is_same_save, save_of, whole_live};
use crate::checkpoint::{CheckpointSummary, CkptId, PinsHash, Verdict};
use crate::id::Step;
use crate::journal::reason::Reason;
use crate::journal::record::{DiskEdit, StartPoint};
use crate::spec::RunSpec;
use crate::state::{NotKept, RunState};

/// After this many copies in a row that a save voided, a copy is no longer rate-limited ...
const HURRY: u32 = 2;
/// ... and after this many, only one in `EVERY` saves is copied.
const SPARE: u32 = 4;
const EVERY: u64 = 4;

/// Detects another trainer: while ours is running, its only checkpoint has an earlier step than it resumed from or than
/// was seen there, or another save of that step. A running trainer saves each step once.
pub(crate) fn went_back(s: &RunState, spec: &RunSpec) -> Option<String> {
    let a = s.live().filter(|_| spec.saves.is_in_place())?;
    let live = s.disk.scan.as_ref().and_then(|r| whole_live(&r.steps))?;
    let from = match &a.order.from {
        StartPoint::Step { ckpt, step, .. } => Some((*step, ckpt)),
        StartPoint::Fresh | StartPoint::AsIs => None,
    };
    let saved = a.training.saved.as_ref().map(|(step, ckpt)| (*step, ckpt));
    let (step, ckpt) = saved.filter(|(step, _)| from.is_none_or(|f| *step >= f.0)).or(from)?;
    let what = match strange(live, step, ckpt)? {
        UnexpectedSet::Older => format!("step {}", live.step),
        UnexpectedSet::Another => "another save of it".to_owned(),
    };
    Some(format!(
        "the live set held step {step} in this attempt, and holds {what} now: another trainer writes here"
    ))
}

/// A live set that no trainer leaves after the saved step.
pub(crate) enum UnexpectedSet {
    Older,
    /// The same step, saved once more.
    Another,
}

/// Compares the live set with what the trainer left that had saved `step` as `ckpt`; `None` if they agree.
pub(crate) fn strange(live: &CheckpointSummary, step: Step, ckpt: &CkptId) -> Option<UnexpectedSet> {
    if live.step < step {
        return Some(UnexpectedSet::Older);
    }
    let named = save_of(&live.id).is_some() && save_of(ckpt).is_some();
    (live.step == step && named && !is_same_save(&live.id, ckpt)).then_some(UnexpectedSet::Another)
}

/// Reports a live set with a step beyond the last one that the attempt printed. A step is printed right after its save,
/// and the last output may be lost with it.
pub(crate) fn beyond(s: &RunState, spec: &RunSpec, c: &CheckpointSummary) -> Option<Reason> {
    let a = s
        .attempt
        .as_ref()
        .filter(|a| spec.saves.is_in_place() && a.launch.launched.is_some())?;
    let printed = a.training.step?;
    (is_live(&c.id) && c.step.0 > printed.0.saturating_add(1)).then(|| {
        let text = format!(
            "WARNING: the live set holds step {}, and the last step that the trainer of attempt {} printed is {printed}: if another trainer was started here, this is its state",
            c.step, a.no
        );
        Reason::new("beyond", text)
    })
}

/// Returns true if the step, or one that it is a copy of, failed to load before.
pub(crate) fn is_distrusted(s: &RunState, spec: &RunSpec, id: &CkptId) -> bool {
    let copy = |d: &CkptId| spec.saves.is_in_place() && is_same_save(d, id);
    s.disk.distrusted.iter().any(|d| d == id || copy(d))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GenerationCopy {
    pub(crate) ckpt: CkptId,
    pub(crate) step: Step,
    pub(crate) pins: PinsHash,
    /// Bytes per second at most; 0: no limit.
    pub(crate) rate: u64,
}

/// The live set, if it is proven and no generation holds it yet.
pub(crate) fn to_keep(s: &RunState, spec: &RunSpec) -> Option<GenerationCopy> {
    let p = &spec.policy;
    let wanted = p.protect.enabled && p.recovers() && spec.saves.is_in_place();
    if !wanted || s.requests.care.is_none() || s.care_is_unfinished() || s.is_keeping() {
        return None;
    }
    let scan = s.disk.scan.as_ref()?;
    let live = scan.steps.iter().find(|c| is_live(&c.id))?;
    let proven = live.verdict == Verdict::Whole && live.proven.is_some() && save_of(&live.id).is_some();
    let kept = scan
        .steps
        .iter()
        .any(|c| is_kept(&c.id) && is_same_save(&c.id, &live.id) && c.verdict == Verdict::Whole);
    // A save may be found whole before its last write. After that write there is something new to copy.
    let in_vain = |f: &NotKept| f.ckpt == live.id && f.pins == live.pins;
    if !proven || kept || s.disk.keep_failed.as_ref().is_some_and(in_vain) || is_distrusted(s, spec, &live.id) {
        return None;
    }
    let number = live.step.0 / spec.cadence.every.unwrap_or(1).max(1);
    if s.disk.voided >= SPARE && !number.is_multiple_of(EVERY) {
        return None;
    }
    Some(GenerationCopy {
        ckpt: live.id.clone(),
        step: live.step,
        pins: live.pins,
        rate: if s.disk.voided >= HURRY { 0 } else { p.protect.rate },
    })
}

/// Surplus generations, oldest first: only if enough newer ones are whole, and never the resume point.
pub(crate) fn spare_generations(s: &RunState, spec: &RunSpec) -> Vec<CkptId> {
    let p = &spec.policy;
    let Some(scan) = s.disk.scan.as_ref().filter(|_| p.protect.enabled && p.recovers()) else {
        return Vec::new();
    };
    let is_good = |c: &&CheckpointSummary| {
        let whole = c.verdict == Verdict::Whole && c.proven.is_some();
        is_kept(&c.id) && whole && !is_distrusted(s, spec, &c.id)
    };
    let keep = (p.protect.keep as usize).max(2);
    let resume = s.attempt.as_ref().map(|a| a.order.from.step());
    let began = s.requests.care.as_ref().and_then(|c| c.step);
    let mut good: Vec<&CheckpointSummary> = scan.steps.iter().filter(is_good).collect();
    // If saves come faster than they can be proven in full, keep the newest fully proven one too.
    if let Some(at) = good
        .iter()
        .position(|c| c.is_proven(p.proof.depth))
        .filter(|at| *at >= keep)
    {
        good.remove(at);
    }
    // Two copies of one step are one generation: a step saved twice must not push out the ones before it.
    let mut steps: Vec<Step> = good.iter().map(|c| c.step).collect();
    steps.dedup();
    let oldest = steps.get(keep - 1).copied();
    let mut out: Vec<CkptId> = good
        .iter()
        .filter(|c| oldest.is_some_and(|step| c.step < step))
        .filter(|c| Some(c.step) != resume)
        // Generations below the step at which the run was adopted belong to an older run.
        .filter(|c| began.is_none_or(|step| c.step >= step))
        .map(|c| c.id.clone())
        .collect();
    out.reverse();
    out
}

/// Disk edits before a launch from this step; none if it is the live set.
pub(crate) fn arranged(
    s: &RunState,
    steps: &[CheckpointSummary],
    from: &CheckpointSummary,
    foreign: bool,
) -> Vec<DiskEdit> {
    let mut out = put_back(steps, from);
    // Copies of later steps no longer belong to this state.
    let above = steps
        .iter()
        .filter(|c| !is_live(&c.id) && c.step > from.step && !s.is_immovable(&c.id));
    out.extend(above.map(|c| DiskEdit::MoveAside {
        from: c.id.clone(),
        whole: c.verdict == Verdict::Whole,
        foreign,
        others: c.other_owner.is_some(),
        why: format!("above the resume point {}", from.step),
    }));
    // Once per launch: if it cannot be changed, it is left as it is.
    let stored = from.findings.iter().any(|f| f.code == "frequency_stored");
    out.extend((stored && s.disk.arranged == 0).then_some(DiskEdit::SetFrequencies));
    out
}

fn put_back(steps: &[CheckpointSummary], from: &CheckpointSummary) -> Vec<DiskEdit> {
    if is_live(&from.id) {
        return Vec::new();
    }
    // If the generation has a directory of its own, a whole one of an earlier step may stay.
    let stays = |c: &CheckpointSummary| !is_kept(&from.id) && c.step <= from.step && c.verdict == Verdict::Whole;
    let goes = |c: &&CheckpointSummary| is_live(&c.id) && !stays(c);
    let aside = steps.iter().filter(goes).map(|c| DiskEdit::MoveAside {
        from: c.id.clone(),
        whole: c.verdict == Verdict::Whole,
        foreign: false,
        others: false,
        why: match c.why() {
            Some(f) => format!("{} is put back: the live set is {}: {f}", from.id, c.verdict),
            None => format!("{} is put back", from.id),
        },
    });
    let back = DiskEdit::PutBack { from: from.id.clone() };
    aside.chain([back]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::kind::CkptKind;

    #[test]
    fn names_that_journals_keep_tell_the_kind() {
        for (name, kind) in [
            ("live", CkptKind::Live),
            ("live.0a1b2c3d", CkptKind::Live),
            ("lively", CkptKind::Step),
            ("older.4", CkptKind::Older),
            ("step_12.0a1b2c3d", CkptKind::Kept),
            ("generation_step12.0a1b2c3d", CkptKind::Own),
            ("global_step_12", CkptKind::Step),
            ("checkpoint-12", CkptKind::Step),
        ] {
            assert_eq!(CkptKind::of(&CkptId(name.into())), kind, "{name}");
        }
    }
}
