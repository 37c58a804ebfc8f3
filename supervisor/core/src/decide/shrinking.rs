//! Memory or room that shrinks step by step: told once, and where it is wished, a restart right after a save.

use super::Deciding;
use crate::creep::Forecast;
use crate::id::Step;
use crate::reason::Reason;
use crate::record::{Notice, Then};
use crate::state::Mode;

impl Deciding<'_> {
    pub(super) fn on_used(&mut self) {
        let Some(step) = self.s.live().and_then(|a| a.step) else {
            return;
        };
        if let Some(f) = self.ends_before(step) {
            let text = words(&f);
            self.notice(Notice::Creep, text.clone(), Reason::new(Notice::Creep.code(), text));
        }
    }

    /// Something that does not last until the save after the next one, counted from this step.
    fn ends_before(&self, step: Step) -> Option<Forecast> {
        let every = self.spec.cadence.every?.max(1);
        let after_next = (step.0 / every).saturating_add(2).saturating_mul(every);
        let f = self.s.live()?.creep.forecast().filter(|f| f.until.0 < after_next)?;
        // A run that comes to its planned end before needs nothing.
        let last = crate::resume::last_step(&self.s, self.spec);
        last.is_none_or(|last| f.until < last).then_some(f)
    }

    /// A step was just proven, so that a restart costs nothing but its start. `true`: it is restarted.
    pub(super) fn is_restarted_for_memory(&mut self) -> bool {
        let p = &self.spec.policy;
        let wanted = p.restart_for_memory && p.recovery && p.prove && !p.observe && self.s.mode == Mode::Running;
        let (Some(mark), Some(a), true) = (self.s.mark, self.s.live(), wanted) else {
            return false;
        };
        let Some(f) = self
            .ends_before(mark)
            .filter(|f| f.what.is_memory() && self.s.mark > a.mark_before)
        else {
            return false;
        };
        // A step of its own, and nothing trained beyond it; else it waits for the next save, where it lasts until then.
        let every = self.spec.cadence.every.unwrap_or_default();
        let fresh = a.step.is_some_and(|s| s.0 <= mark.0.saturating_add(1));
        if !fresh && f.until.0 >= mark.0.saturating_add(every) {
            return false;
        }
        let text = format!(
            "{}: step {mark} is proven, and a restart now gives the memory back (memory.restart_after_save); no retry is charged",
            words(&f)
        );
        self.stop(Then::Choose, true, vec![Reason::new("creep_restart", text)]);
        true
    }
}

fn words(f: &Forecast) -> String {
    let mib = |bytes: u64| bytes >> 20;
    format!(
        "{} shrinks by {} MiB a step; {} MiB are left, which lasts until step {}",
        f.what.words(),
        mib(f.per_step),
        mib(f.left),
        f.until
    )
}
