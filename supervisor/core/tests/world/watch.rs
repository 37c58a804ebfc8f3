//! Invariants over more than one record. Numbers continue those of `RunState::check_invariants`, which holds
//! what can be seen in one state.

use super::disk::Disk;
use super::script::Truth;
use supervise_core::checkpoint::kind::is_live;
use supervise_core::checkpoint::{CkptId, Depth, Verdict};
use supervise_core::event::EventKind;
use supervise_core::id::Step;
use supervise_core::journal::record::{ActKind, Decision, DiskEdit, JournalRecord, LaunchOrder, StartPoint};
use supervise_core::resume::depth_of;
use supervise_core::spec::{ResumeIntent, RunSpec};
use supervise_core::state::{RunMode, RunState};

/// A state that waits for something may last so long.
const DEADLINE: u64 = 31 * 60_000;

#[derive(Debug, Default)]
pub(crate) struct Watch {
    mark: Option<Step>,
    /// Since when the workers are being ended gently.
    stopping: Option<u64>,
    draining: Option<u64>,
    /// SIGKILL was intended since the workers are being ended.
    killed: bool,
    mode: (&'static str, u64),
}

pub(crate) fn check(holds: bool, number: u8, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("invariant {number} is broken: {}", what()))
    }
}

impl Watch {
    /// The machine slept: waiting did not take that long.
    pub(crate) fn slept(&mut self, ms: u64) {
        self.mode.1 += ms;
        for t in [&mut self.stopping, &mut self.draining].into_iter().flatten() {
            *t += ms;
        }
    }

    /// Before a record is applied: may it be written in this state?
    pub(crate) fn before(&self, s: &RunState, spec: &RunSpec, disk: &Disk, r: &JournalRecord) -> Result<(), String> {
        let new_term = matches!(r, JournalRecord::Fact(e) if matches!(e.kind, EventKind::TermStarted { .. }));
        let finish = matches!(r, JournalRecord::Intended { act, .. } if matches!(act.kind, ActKind::Finish(_)));
        let ignored = matches!(r, JournalRecord::Ignored { .. });
        check(s.mode != RunMode::Finished || new_term || finish || ignored, 3, || {
            format!("after the end: {r:?}")
        })?;
        match r {
            JournalRecord::Fact(_) | JournalRecord::Ignored { .. } => Ok(()),
            JournalRecord::Decided { what, reasons, .. } => {
                check(!reasons.is_empty(), 8, || format!("no reason: {what:?}"))?;
                may_decide(s, spec, what)
            }
            JournalRecord::Intended { act, reasons, at } => {
                check(!reasons.is_empty(), 8, || format!("no reason: {act:?}"))?;
                check(act.term == s.term, 7, || format!("act of another term: {act:?}"))?;
                match &act.kind {
                    ActKind::Launch(order) => may_launch(s, spec, order),
                    ActKind::Arrange(edits) => may_arrange(s, edits),
                    ActKind::Prune(ids) => may_prune(s, spec, disk, ids),
                    ActKind::RequestSave(order) => super::saves::may_ask(s, spec, order, *at),
                    _ => Ok(()),
                }
            }
        }
    }

    /// After a record was applied.
    pub(crate) fn after(&mut self, s: &RunState, r: &JournalRecord, now: u64) -> Result<(), String> {
        if let JournalRecord::Decided {
            what: Decision::StartFrom { care: true, .. },
            ..
        } = r
        {
            self.mark = None;
        }
        check(s.progress.mark >= self.mark, 3, || {
            format!("the mark fell from {:?} to {:?}", self.mark, s.progress.mark)
        })?;
        self.mark = s.progress.mark;
        match &s.mode {
            RunMode::Stopping { gently: true, .. } => {
                self.stopping.get_or_insert(now);
            }
            _ => self.stopping = None,
        }
        let kill = matches!(r, JournalRecord::Intended { act, .. } if act.kind == ActKind::KillTree);
        self.killed = matches!(s.mode, RunMode::Stopping { .. }) && (self.killed || kill);
        match &s.mode {
            RunMode::Draining { .. } => {
                self.draining.get_or_insert(now);
            }
            _ => self.draining = None,
        }
        if self.mode.0 != s.mode.word() {
            self.mode = (s.mode.word(), now);
        }
        if let JournalRecord::Decided {
            what: Decision::Stop { gently: false, .. },
            ..
        } = r
        {
            check(matches!(s.mode, RunMode::Stopping { .. }), 5, || {
                "a stop that does not stop".to_owned()
            })?;
        }
        Ok(())
    }

    /// After an event: budgets and pending acts.
    pub(crate) fn after_event(&self, s: &RunState, spec: &RunSpec) -> Result<(), String> {
        check(s.budget.charged <= spec.policy.failure.retries + 1, 3, || {
            format!("{} attempts were charged", s.budget.charged)
        })?;
        let killed = self.killed || !matches!(s.mode, RunMode::Stopping { gently: false, .. });
        check(killed, 5, || "a stop at once that kills nothing".to_owned())?;
        let over = s.budget.charged > spec.policy.failure.retries;
        check(!over || s.mode == RunMode::Finished, 3, || {
            "the budget is used up, and it goes on".to_owned()
        })?;
        if let RunMode::Launching { order } = &s.mode {
            let intended = s
                .pending
                .values()
                .any(|a| matches!(&a.kind, ActKind::Launch(o) if **o == *order));
            check(intended, 7, || "launching without an intent".to_owned())?;
        }
        Ok(())
    }

    /// As time goes by: every wait has an end.
    pub(crate) fn clock(&self, s: &RunState, spec: &RunSpec, now: u64) -> Result<(), String> {
        let grace = spec.last_grace().0 + 1000;
        check(self.stopping.is_none_or(|t| now <= t + grace), 5, || {
            "SIGTERM was not enough, and the tree was not killed".to_owned()
        })?;
        // A machine that is taken away sets its own time.
        let wish = s.requests.stop.as_ref().filter(|w| w.hand_back);
        let taken = wish.and_then(|w| Some(w.until?.since(w.at).0));
        let grace = taken.unwrap_or(spec.policy.grace.save.0) + 1000;
        check(self.draining.is_none_or(|t| now <= t + grace), 5, || {
            "a save delays a stop for too long".to_owned()
        })?;
        let waits = matches!(
            s.mode,
            RunMode::Idle
                | RunMode::Fencing
                | RunMode::Choosing
                | RunMode::Arranging { .. }
                | RunMode::Launching { .. }
        );
        check(!waits || now <= self.mode.1 + DEADLINE, 5, || {
            format!("{} has no end", s.mode.word())
        })
    }
}

/// 2, 3: never from scratch where something was proven, unless a person wished it.
fn may_decide(s: &RunState, spec: &RunSpec, what: &Decision) -> Result<(), String> {
    let Decision::StartFrom { order, care, .. } = what else {
        return Ok(());
    };
    check(s.live().is_none(), 1, || {
        format!("a start is decided while {:?} lives", s.attempts)
    })?;
    if order.from != StartPoint::Fresh || s.progress.mark.is_none() {
        return Ok(());
    }
    let wish = spec.policy.start.fresh || spec.resume == ResumeIntent::Disabled;
    let unfinished = s
        .requests
        .care
        .as_ref()
        .is_some_and(|c| c.cleared && s.attempts < c.attempt);
    check(*care && (wish || unfinished) || !spec.policy.proof.is_on, 2, || {
        format!("from scratch, although {:?} was proven", s.progress.mark)
    })
}

/// 1, 2, 7.
fn may_launch(s: &RunState, spec: &RunSpec, order: &LaunchOrder) -> Result<(), String> {
    check(s.live().is_none(), 1, || {
        format!("attempt {} is launched over a living one", order.attempt)
    })?;
    let launching = matches!(&s.mode, RunMode::Launching { order: o } if o == order);
    check(launching, 7, || "a launch that was not decided".to_owned())?;
    let pending = s
        .pending
        .values()
        .any(|a| matches!(a.kind, ActKind::Launch(_) | ActKind::Arrange(_)));
    check(!pending, 7, || "two launches are pending".to_owned())?;
    if let StartPoint::Step { ckpt, .. } = &order.from
        && spec.policy.proof.is_on
    {
        let c = s
            .disk
            .scan
            .as_ref()
            .and_then(|r| r.steps.iter().find(|c| c.id == *ckpt));
        let depth = c.map_or(Depth::Full, |c| depth_of(s, spec, c));
        // Of a step that is not whole, only what the policy allows to lose may be left out.
        let part = c
            .and_then(|c| c.part.as_ref())
            .is_some_and(|p| p.is_proven(depth) && spec.policy.degraded.allows(&p.lost) && order.lost == p.lost);
        check(part || c.is_some_and(|c| c.is_proven(depth)), 2, || {
            format!("{ckpt} is not proven to {}", depth.word())
        })?;
    }
    Ok(())
}

/// 6: only what is above the start goes aside, or what something is put in the place of, and nothing that could not be read.
fn may_arrange(s: &RunState, edits: &[DiskEdit]) -> Result<(), String> {
    // Ends what an arrangement before it has begun.
    if s.mode == RunMode::Choosing
        && matches!(edits, [DiskEdit::EndReshard(cut)] if s.disk.cutting.as_ref() == Some(cut))
    {
        return Ok(());
    }
    let RunMode::Arranging { order } = &s.mode else {
        return Err("invariant 7 is broken: disk edits that were not decided".to_owned());
    };
    let steps = s.disk.scan.as_ref().map(|r| r.steps.as_slice()).unwrap_or_default();
    let put_back = edits.iter().any(|e| matches!(e, DiskEdit::PutBack { .. }));
    for e in edits {
        let DiskEdit::MoveAside { from, .. } = e else { continue };
        let Some(c) = steps.iter().find(|c| c.id == *from) else {
            return Err(format!("invariant 6 is broken: {from} was never seen"));
        };
        check(c.verdict != Verdict::Unreadable, 2, || {
            format!("{from} cannot be read and goes aside")
        })?;
        let above = order.from == StartPoint::Fresh || c.step > order.from.step();
        let replaced = put_back && is_live(from);
        check(above || replaced, 6, || format!("{from} is not above the start"))?;
    }
    Ok(())
}

/// 6: never the newest two whole steps, the resume point only below two of them, never what an older run left.
fn may_prune(s: &RunState, spec: &RunSpec, disk: &Disk, ids: &[CkptId]) -> Result<(), String> {
    // A proof of the structure cannot see it.
    let hidden = spec.policy.proof.depth == Depth::Structure;
    let good: Vec<(u64, &CkptId)> = disk
        .steps
        .iter()
        .filter(|(id, d)| !id.0.is_absolute() && (d.truth.is_good() || hidden && d.truth == Truth::Rotten))
        .map(|(id, d)| (d.step, id))
        .collect();
    for id in ids {
        // A step may be there twice, where a trainer keeps one set only.
        let number = disk.steps.get(id).map(|d| d.step);
        let newer = good.iter().filter(|(n, g)| *g != id && Some(*n) >= number).count();
        let is_good = good.iter().any(|(_, g)| *g == id);
        check(!is_good || newer >= 2, 6, || format!("{id} is one of the newest two"))?;
        let resume = s.attempt.as_ref().map(|a| &a.order.from);
        let held = matches!(resume, Some(StartPoint::Step { ckpt, .. }) if ckpt == id);
        check(!held || newer >= 2, 6, || format!("{id} is the resume point"))?;
        let care = s.requests.care.as_ref().and_then(|c| c.step).map(|c| c.0);
        check(number >= care, 6, || format!("{id} is an older run's"))?;
    }
    Ok(())
}
