//! The one checkpoint of a trainer that overwrites it, and the generations that are kept of it.
//!
//! Both are steps of a scan: the live set as `live.SAVE`, a generation as `step_N.SAVE`. SAVE tells one save from all others
//! and is the same in a copy, so that what failed to load is known again in each copy of it.
//!
//! Newer builds of AReaL write each save into a directory of its own and delete the one before: the live set is then the one that
//! their pointer names. Others that stand there are `generation_stepN.SAVE`, and what the pointer hides, because an older build
//! wrote it in place, is `older.SAVE`. Both stand where AReaL looks: it goes on from them when the pointer is changed.

use crate::checkpoint::kind::{is_kept, is_live, is_same_save, save_of, whole_live};
use crate::checkpoint::{CheckpointSummary, CkptId, PinsHash, Verdict};
use crate::id::Step;
use crate::journal::reason::Reason;
use crate::journal::record::{DiskEdit, StartPoint};
use crate::spec::RunSpec;
use crate::state::{NotKept, RunState};

/// Copies in a row that a save voided, after which a copy no longer holds back ...
const HURRY: u32 = 2;
/// ... and after which only every so many saves is copied.
const SPARE: u32 = 4;
const EVERY: u64 = 4;

/// While our trainer lives, its only checkpoint holds an earlier step than it resumed from, or than was seen there, or another
/// save of that step: another trainer writes it. One that lives saves each step once.
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

/// A state that no trainer with a saved step leaves in its only checkpoint.
pub(crate) enum UnexpectedSet {
    /// An earlier step.
    Older,
    /// The same step, saved once more.
    Another,
}

/// Returns true if the live set is not what the trainer left that had saved `step` as `ckpt`.
pub(crate) fn strange(live: &CheckpointSummary, step: Step, ckpt: &CkptId) -> Option<UnexpectedSet> {
    if live.step < step {
        return Some(UnexpectedSet::Older);
    }
    let named = save_of(&live.id).is_some() && save_of(ckpt).is_some();
    (live.step == step && named && !is_same_save(&live.id, ckpt)).then_some(UnexpectedSet::Another)
}

/// The live set holds a step beyond what the last attempt spoke of. It prints a step right after its save; what it printed
/// last may be lost with it.
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

/// Returns true if a step failed to load before, or what it is a copy of.
pub(crate) fn is_distrusted(s: &RunState, spec: &RunSpec, id: &CkptId) -> bool {
    let copy = |d: &CkptId| spec.saves.is_in_place() && is_same_save(d, id);
    s.disk.distrusted.iter().any(|d| d == id || copy(d))
}

/// The copy to be made now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GenerationCopy {
    /// The live set.
    pub(crate) ckpt: CkptId,
    /// Its step.
    pub(crate) step: Step,
    /// Its form when it was proven.
    pub(crate) pins: PinsHash,
    /// Bytes a second at most; 0 for no limit.
    pub(crate) rate: u64,
}

/// The live set, where it is proven and no generation holds it yet.
pub(crate) fn to_keep(s: &RunState, spec: &RunSpec) -> Option<GenerationCopy> {
    let p = &spec.policy;
    let wanted = p.protect.enabled && p.prove && p.recovery && !p.observe && spec.saves.is_in_place();
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
    // A save may be found whole before its own last write: what it is then is another thing to copy.
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

/// Generations beyond those that are kept, oldest first: only where as many newer ones are whole, and never the resume point.
pub(crate) fn spare_generations(s: &RunState, spec: &RunSpec) -> Vec<CkptId> {
    let p = &spec.policy;
    let Some(scan) = s
        .disk
        .scan
        .as_ref()
        .filter(|_| p.protect.enabled && p.prove && p.recovery && !p.observe)
    else {
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
    // Where saves come faster than bytes are read, the newest one of which every byte was read stays as well.
    if let Some(at) = good.iter().position(|c| c.is_proven(p.depth)).filter(|at| *at >= keep) {
        good.remove(at);
    }
    // Two copies of one step are one generation: a step that is saved twice must not push out the ones before it.
    let mut steps: Vec<Step> = good.iter().map(|c| c.step).collect();
    steps.dedup();
    let oldest = steps.get(keep - 1).copied();
    let mut out: Vec<CkptId> = good
        .iter()
        .filter(|c| oldest.is_some_and(|step| c.step < step))
        .filter(|c| Some(c.step) != resume)
        // What stood below the step taken into care is an older run's.
        .filter(|c| began.is_none_or(|step| c.step >= step))
        .map(|c| c.id.clone())
        .collect();
    out.reverse();
    out
}

/// Changes to make on disk before a launch from this step: nothing, where it is the live set.
pub(crate) fn arranged(
    s: &RunState,
    steps: &[CheckpointSummary],
    from: &CheckpointSummary,
    foreign: bool,
) -> Vec<DiskEdit> {
    let mut out = put_back(steps, from);
    // What was kept of later steps is another state's from now on.
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
    // Once for each launch: what cannot be changed is left as it is.
    let stored = from.findings.iter().any(|f| f.code == "frequency_stored");
    out.extend((stored && s.disk.arranged == 0).then_some(DiskEdit::SetFrequencies));
    out
}

fn put_back(steps: &[CheckpointSummary], from: &CheckpointSummary) -> Vec<DiskEdit> {
    if is_live(&from.id) {
        return Vec::new();
    }
    // Beside a generation of its own, a whole one of an earlier step is not in the way.
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
