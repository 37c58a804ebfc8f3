//! Events while workers run: exits, progress, matched lines, marks.

use super::Deciding;
use crate::checkpoint::{CkptId, Verdict};
use crate::event::{ExitStatus, Sighting};
use crate::journal::reason::{Evidence, Reason};
use crate::journal::record::{Act, ActKind, AfterStop, NoticeKind};
use crate::resume::generations::{to_keep, went_back};
use crate::resume::retention::prune;
use crate::spec::script::ScriptNews;
use crate::state::{RunMode, WORKER_FAILED};

impl Deciding<'_> {
    pub(super) fn on_worker_exited(&mut self, status: ExitStatus) {
        if !matches!(self.s.mode, RunMode::Running | RunMode::Draining { .. }) {
            return;
        }
        if self.spec.policy.start.observe || status.is_success() || self.s.is_held() {
            return;
        }
        let then = match &self.s.mode {
            RunMode::Draining { then, .. } => *then,
            _ => AfterStop::Diagnose,
        };
        let who = self.s.attempt.as_ref().and_then(|a| a.end.first_failure);
        let text = match who {
            Some((worker, status)) => format!("worker {worker} {}", status.words()),
            None => format!("a worker {}", status.words()),
        };
        let reason = Reason::new(WORKER_FAILED, text.clone()).with(Evidence::Exit(text));
        self.stop(then, false, vec![reason]);
    }

    pub(super) fn on_guard_lost(&mut self) {
        if self.s.live().is_none() {
            return;
        }
        let reasons = vec![Reason::new(
            "guard_lost",
            "the guard died: what is left of its workers is ended",
        )];
        let then = match &self.s.mode {
            RunMode::Stopping { then, .. } | RunMode::Draining { then, .. } => *then,
            _ => AfterStop::Diagnose,
        };
        self.stop(then, false, reasons);
    }

    /// Stops a script that starts something else, or without our words, before its first save. What it does besides the
    /// running training ends nothing.
    pub(super) fn on_script(&mut self, news: &ScriptNews) {
        if !matches!(self.s.mode, RunMode::Running | RunMode::Draining { .. }) || self.spec.policy.start.observe {
            return;
        }
        let reason = match news {
            ScriptNews::Refused { why } => Reason::new("script_refused", why.clone()),
            ScriptNews::Unmarked { what } => Reason::new(
                "script_past_us",
                format!("a trainer runs that was not given our overrides: {what}"),
            ),
            ScriptNews::Again => Reason::new(
                "script_again",
                "the script starts a trainer again: relaunches are the supervisor's",
            ),
            ScriptNews::HeldBack { what, at_once: false } => Reason::new(
                "script_next",
                format!("the training is over, and the script calls another one, which is held back: {what}"),
            ),
            ScriptNews::Spoilt { what } => Reason::new("script_spoilt", what.clone()),
            ScriptNews::HeldBack { at_once: true, .. }
            | ScriptNews::Called { .. }
            | ScriptNews::Returned { .. }
            | ScriptNews::Failed { .. } => return,
        };
        self.stop(AfterStop::Diagnose, false, vec![reason]);
    }

    /// Warns at once that the trainer saves as another user, because such a step will not be resumed from.
    pub(super) fn warn_of_another_owner(&mut self) {
        let start = self.s.attempt.as_ref().map(|a| a.order.from.step());
        let steps = self.s.disk.scan.iter().flat_map(|scan| &scan.steps);
        let other = steps.filter(|c| Some(c.step) > start).find(|c| c.other_owner.is_some());
        let Some((id, why)) = other.map(|c| (c.id.clone(), c.why().map(ToString::to_string))) else {
            return;
        };
        let text = format!("{id}: {}", why.unwrap_or_default());
        let reason = Reason::new(NoticeKind::AnotherOwner.code(), text.clone());
        self.notice(NoticeKind::AnotherOwner, text, reason);
    }

    /// Warns at once that a training loop saves into a place or under a name that is no checkpoint of the run.
    pub(super) fn warn_of_no_save(&mut self, line: &Sighting) {
        let said = line
            .text
            .split_once("not saved: ")
            .map_or(line.text.as_str(), |(_, why)| why);
        let text = format!("a save does not count, and a crash would cost it: {}", said.trim());
        let reason = Reason::new(NoticeKind::NotSaved.code(), text.clone());
        self.notice(NoticeKind::NotSaved, text, reason);
    }

    /// Warns at the first such step, and not only after a crash, that the run will not resume from it.
    pub(super) fn warn_of_reported(&mut self) {
        let steps = self.s.disk.scan.iter().flat_map(|scan| &scan.steps);
        let mut reported = steps.filter(|c| c.is_reported_only() && c.verdict != Verdict::Whole);
        let Some(c) = reported.next() else { return };
        let why = c.why().map_or("", |f| f.detail.as_str());
        let text = format!("{}: {why}; without it, a failure ends the run", c.id);
        let reason = Reason::new(NoticeKind::ReportedOnly.code(), text.clone());
        self.notice(NoticeKind::ReportedOnly, text, reason);
    }

    pub(super) fn on_scan_while_running(&mut self) {
        let wish = self.s.requests.stop.as_ref().filter(|w| w.after_save);
        if wish.is_some_and(|w| self.s.progress.mark > w.mark) {
            let reason = Reason::new("saved", "a new step is proven, and a stop was asked for at that point");
            return self.stop(AfterStop::Stopped, true, vec![reason]);
        }
        let watched = self.spec.policy.recovers();
        if let Some(text) = went_back(&self.s, self.spec).filter(|_| watched) {
            return self.stop(AfterStop::Choose, false, vec![Reason::new("went_back", text)]);
        }
        if self.is_restarted_for_memory() {
            return;
        }
        self.prune_now();
        self.look_at_weights_before_prune();
        if let Some(copy) = to_keep(&self.s, self.spec) {
            let text = format!("step {} is proven, and the next save overwrites it", copy.step);
            let kind = ActKind::Keep {
                ckpt: copy.ckpt,
                step: copy.step,
                pins: copy.pins,
                rate: copy.rate,
            };
            self.act(kind, vec![Reason::new("keep", text)]);
        }
    }

    /// Returns true if all of them were saved only because it was asked for.
    fn are_extra(&self, ids: &[CkptId]) -> bool {
        let mut steps = self.s.disk.scan.iter().flat_map(|scan| &scan.steps);
        steps.all(|c| !ids.contains(&c.id) || self.s.disk.extra.contains(&c.step))
    }

    /// Deletes surplus steps. One deletion at a time.
    pub(super) fn prune_now(&mut self) -> bool {
        let old = prune(&self.s, self.spec);
        let deletes = |a: &Act| matches!(a.kind, ActKind::Prune(_));
        let is_due = !old.is_empty() && !self.s.pending.values().any(deletes);
        if is_due {
            let text = match self.spec.saves.is_in_place() {
                true => format!("{} newer generations are proven", self.spec.policy.protect.keep.max(2)),
                false if self.spec.keeps_by_role() => {
                    "two newer steps are proven (each role is kept at its own number)".to_owned()
                }
                false if self.are_extra(&old) => {
                    "two newer steps are proven, and it was saved because that was asked for".to_owned()
                }
                false => {
                    let keep = self.spec.keep.unwrap_or_default();
                    format!("{} newer steps are proven (kept: {keep})", keep.max(2))
                }
            };
            self.act(ActKind::Prune(old), vec![Reason::new("retention", text)]);
        }
        is_due
    }
}
