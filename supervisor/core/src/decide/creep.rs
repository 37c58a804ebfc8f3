//! What shrinks step by step: told once, and where it is wished, a restart right after a save.

use super::Deciding;
use crate::decide::danger::{RunDanger, dangers};
use crate::id::{Ms, Step};
use crate::journal::reason::Reason;
use crate::journal::record::{AfterStop, NoticeKind};
use crate::observe::creep::WatchedResource;
use crate::resume::interval::save_interval;
use crate::state::RunMode;

/// Below this share of what there is, only the save that comes next counts: a heap that grows until it is collected is no danger.
const FULL: f64 = 0.7;
/// While the cadence of the saves is unknown, a resource that lasts for longer than this is not told.
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

    /// It does not last until the save after next, and is nearly full or does not last until the next one.
    fn is_soon(&self, d: &RunDanger, step: Step) -> bool {
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

    /// The step of the nth save after this step.
    fn save_after(&self, step: Step, nth: u64) -> Option<Step> {
        let every = save_interval(&self.s, self.spec)?.max(1);
        Some(Step((step.0 / every).saturating_add(nth).saturating_mul(every)))
    }

    /// Times that grew by much, each told once: no danger, and worth a look.
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

    /// A step was just proven, so that a restart costs nothing but its start. `true`: it is restarted.
    pub(super) fn is_restarted_for_memory(&mut self) -> bool {
        let p = &self.spec.policy;
        let wanted = p.restart_for_memory
            && p.recovery
            && p.prove
            && !p.observe
            && self.s.mode == RunMode::Running
            && !self.s.is_held();
        let (Some(mark), Some(a), true) = (self.s.progress.mark, self.s.live(), wanted) else {
            return false;
        };
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
        // A step of its own, and nothing trained beyond it; else it waits for the next save, where it lasts until then.
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
