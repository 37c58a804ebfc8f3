//! Resources that run out step by step: one notice and, if wanted, a restart right after a save.

use super::Deciding;
use crate::decide::danger::{RunDanger, dangers};
use crate::id::{Ms, Step};
use crate::journal::reason::Reason;
use crate::journal::record::{AfterStop, NoticeKind};
use crate::observe::creep::WatchedResource;
use crate::resume::save_interval;
use crate::state::RunMode;

/// Below this share of the limit only the next save counts: a heap that grows until garbage collection is no danger.
const FULL: f64 = 0.7;
/// While the save interval is unknown, a resource that lasts longer than this is not reported.
const SOON: Ms = Ms::secs(3600);

impl Deciding<'_> {
    pub(super) fn on_used(&mut self) {
        let Some(step) = self.s.live().and_then(|a| a.training.step) else {
            return;
        };
        let mut soon = dangers(&self.s, self.spec);
        soon.retain(|d| self.is_soon(d, step));
        for d in soon {
            let what = notice_of(d.forecast.what);
            self.notice(what, d.words(), Reason::new(what.code(), d.words()));
        }
        self.tell_of_slower();
    }

    /// Returns true if it does not last until the save after next, and is nearly full or does not last until the next
    /// one.
    pub(super) fn is_soon(&self, d: &RunDanger, step: Step) -> bool {
        let f = &d.forecast;
        let Some(next) = self.save_after(step, 1) else {
            return d.left.is_some_and(|left| left < SOON) && is_full(d);
        };
        match self.save_after(step, 2) {
            Some(after_next) if f.what == WatchedResource::Disk => f.until < after_next,
            Some(after_next) => f.until < next || f.until < after_next && is_full(d),
            None => false,
        }
    }

    fn save_after(&self, step: Step, nth: u64) -> Option<Step> {
        let every = save_interval(&self.s, self.spec)?.max(1);
        Some(Step((step.0 / every).saturating_add(nth).saturating_mul(every)))
    }

    /// Reports each time that grew by much, once. It is no danger, but worth knowing.
    fn tell_of_slower(&mut self) {
        let slower = self.s.live().map(|a| a.training.creep.slower()).unwrap_or_default();
        for s in slower {
            let (what, name) = match s.what {
                WatchedResource::SaveTime => (NoticeKind::SlowerSaves, "saves"),
                _ => (NoticeKind::SlowerSteps, "steps"),
            };
            let seconds = |ms: Ms| ms.0 as f64 / 1000.0;
            let text = format!(
                "{name} get slower: {:.1} s at first, {:.1} s now",
                seconds(s.from),
                seconds(s.to)
            );
            self.notice(what, text.clone(), Reason::new(what.code(), text));
        }
    }

    /// Restarts right after a step was proven, when a restart costs only its start. Returns true if it does.
    pub(super) fn is_restarted_for_memory(&mut self) -> bool {
        let p = &self.spec.policy;
        let wanted = p.restart_for_memory && p.recovers() && self.s.mode == RunMode::Running && !self.s.is_held();
        let (Some(mark), Some(a), true) = (self.s.progress.mark, self.s.live(), wanted) else {
            return false;
        };
        if self.is_saved_for_memory() {
            let text = format!(
                "step {mark}, which was asked for, is proven, and a restart now gives the memory back (memory.restart_after_save); no retry is charged"
            );
            self.stop(AfterStop::Choose, true, vec![Reason::new("creep_restart", text)]);
            return true;
        }
        let Some(after_next) = self
            .save_after(mark, 2)
            .filter(|_| self.s.progress.mark > a.launch.mark_before)
        else {
            return false;
        };
        let all = dangers(&self.s, self.spec);
        let mut memory = all.iter().filter(|d| d.forecast.what.is_memory());
        let Some(d) = memory.find(|d| d.forecast.until < after_next) else {
            return false;
        };
        // A step of this attempt with nothing trained beyond it; else wait for the next save, if the resource lasts
        // until then.
        let every = save_interval(&self.s, self.spec).unwrap_or_default();
        let fresh = a.training.step.is_some_and(|s| s.0 <= mark.0.saturating_add(1));
        if !fresh && d.forecast.until.0 >= mark.0.saturating_add(every) {
            return false;
        }
        let text = format!(
            "{}: step {mark} is proven, and a restart now gives the memory back (memory.restart_after_save); no retry is charged",
            d.words()
        );
        self.stop(AfterStop::Choose, true, vec![Reason::new("creep_restart", text)]);
        true
    }
}

fn is_full(d: &RunDanger) -> bool {
    d.forecast.used as f64 >= d.forecast.of as f64 * FULL
}

fn notice_of(what: WatchedResource) -> NoticeKind {
    match what {
        WatchedResource::Shm => NoticeKind::CreepShm,
        WatchedResource::Disk => NoticeKind::CreepDisk,
        WatchedResource::Files => NoticeKind::CreepFiles,
        _ => NoticeKind::Creep,
    }
}
