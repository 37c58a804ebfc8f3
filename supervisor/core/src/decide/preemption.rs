//! Preemption: the run stops in time, and resumes when the scheduler restarts it.

use super::Deciding;
use super::start::BARREN_TERMS;
use super::stop::DRAIN_LOOK;
use super::words::span_words;
use crate::event::TimerKey;
use crate::id::{Ms, Tick};
use crate::journal::reason::Reason;
use crate::journal::record::{AfterStop, Decision, RunOutcome};
use crate::observe::durations::DurationKind;
use crate::resume::last_step;
use crate::resume::save_interval;

/// Without a notice from the scheduler, a run stops this long before the end of its job, plus the time its workers
/// need. Schedulers check limits about twice a minute and may be early.
const LEAD: Ms = Ms::secs(60);
/// Longest time until the scheduler is queried again, because its limits may change.
const ASK_AGAIN: Ms = Ms::secs(1800);
/// Shortest time until the scheduler is queried again.
const ASK_PAUSE: Ms = Ms::secs(5);
/// Time for a kill, the last records and the release of the lease.
const LAST_ACTS: Ms = Ms::secs(5);

impl Deciding<'_> {
    pub(super) fn on_allocation(&mut self, left: Option<Ms>) {
        let Some(left) = left.filter(|_| !self.s.is_to_stop() && !self.spec.policy.start.observe) else {
            return;
        };
        let lead = Ms(self.spec.last_grace().0.saturating_add(LEAD.0));
        // Time for a save that is asked for, after which the machine is handed back at once.
        let save = self
            .needed_before_the_end()
            .filter(|_| self.spec.no_save_door().is_none());
        let lead = Ms(lead.0.saturating_add(save.unwrap_or_default().0));
        // Even a job that is shorter than this is used.
        if left <= lead && self.s.has_launched() {
            return self.hand_back("the scheduler's time limit", Some(left));
        }
        let wait = Ms(left.0.saturating_sub(lead.0)).max(Ms(left.0 / 2));
        self.wake(TimerKey::AllocationEnd, wait.min(ASK_AGAIN).max(ASK_PAUSE));
    }

    /// Starts a preemption: a save may still finish, then the workers are stopped.
    pub(super) fn hand_back(&mut self, by: &str, left: Option<Ms>) {
        let text = match left {
            Some(left) => format!("{by}: the machine is taken away in {}", span_words(left)),
            None => format!("{by}: the machine is taken away soon"),
        };
        let reason = Reason::new("hand_back", text);
        let (by, until) = (by.to_owned(), left.map(|left| self.e.at.after(left)));
        self.decided(Decision::HandBack { by, until }, vec![reason.clone()]);
        self.end_run(reason, false);
    }

    /// The grace period, cut to the time before the scheduler kills everything.
    pub(super) fn within(&self, grace: Ms) -> Ms {
        self.usable().map_or(grace, |usable| grace.min(usable))
    }

    /// The time left, minus that for the last acts.
    fn usable(&self) -> Option<Ms> {
        let until = self.s.requests.stop.as_ref()?.until?;
        let left = until.since(self.e.at);
        Some(Ms(left.0 - LAST_ACTS.0.min(left.0 / 2)))
    }

    /// Until when a save may take.
    pub(super) fn drain_until(&self) -> Tick {
        let p = &self.spec.policy;
        let Some(usable) = self.usable() else {
            return self.e.at.after(p.grace.save);
        };
        let save = Ms(usable.0 - self.spec.last_grace().0.min(usable.0 / 2));
        // The machine would do nothing else until then.
        self.e.at.after(if self.hands_back() {
            save
        } else {
            save.min(p.grace.save)
        })
    }

    pub(super) fn drain_sooner(&mut self, until: Tick, then: AfterStop, reason: Reason) {
        let sooner = self.drain_until();
        if sooner < until {
            self.decided(Decision::Drain { until: sooner, then }, vec![reason]);
            self.wake(TimerKey::DrainDue, sooner.since(self.e.at));
        }
        self.wake(TimerKey::ScanDue, DRAIN_LOOK);
    }

    /// Shortens the grace period after SIGTERM in the same way.
    pub(super) fn kill_sooner(&mut self, gently: bool) {
        if let Some(usable) = self.usable().filter(|_| gently) {
            let due = self.s.since.after(self.spec.last_grace());
            self.wake(TimerKey::KillDue, usable.min(due.since(self.e.at)));
        }
    }

    /// Returns true if a newer step than the proven one is being saved before the preemption.
    pub(super) fn saves_for_the_end(&self) -> bool {
        self.hands_back() && (self.save_in_progress() || self.newest_unsaved().is_some())
    }

    fn hands_back(&self) -> bool {
        self.s.requests.stop.as_ref().is_some_and(|w| w.hand_back)
    }

    /// The newest step that is due for a save but not proven: its save may not have started yet.
    pub(super) fn newest_unsaved(&self) -> Option<u64> {
        let (a, every) = (self.s.live()?, save_interval(&self.s, self.spec)?.max(1));
        let at = a.training.step?.0;
        let saved = self.s.progress.mark.unwrap_or_default().max(a.order.from.step()).0;
        Some(at - at % every).filter(|newest| *newest > saved)
    }

    /// Returns true if the next save should start and finish before the preemption, judging by what this run has shown.
    /// Training after the last save is lost anyway.
    pub(super) fn save_is_due(&self, until: Tick) -> bool {
        let (Some(a), Some(every)) = (
            self.s.live().filter(|_| self.hands_back()),
            save_interval(&self.s, self.spec),
        ) else {
            return false;
        };
        let at = a.training.step.unwrap_or_default().max(a.order.from.step()).0;
        let next = (at / every.max(1) + 1).saturating_mul(every.max(1));
        let mut next = self.newest_unsaved().unwrap_or(next);
        if let Some(last) = last_step(&self.s, self.spec) {
            next = next.min(last.0);
        }
        let took = |clock| self.s.clocks.of(clock).and_then(|d| d.median()).unwrap_or_default();
        let steps = took(DurationKind::Step).0.saturating_mul(next.saturating_sub(at));
        let begun = self.e.at.since(a.training.last_progress).0;
        let missing = steps.saturating_sub(begun).saturating_add(took(DurationKind::Save).0);
        self.e.at.after(Ms(missing)) <= until
    }

    /// Finishes the run with the requested outcome.
    pub(super) fn finish_as_wished(&mut self, mut reasons: Vec<Reason>) {
        if !self.hands_back() {
            return self.finish(RunOutcome::Stopped, reasons);
        }
        self.note_advance();
        let barren = self
            .s
            .budget
            .barren_terms
            .saturating_add(u32::from(!self.s.has_launched()));
        if barren < BARREN_TERMS {
            return self.finish(RunOutcome::OutOfTime, reasons);
        }
        let why = format!(
            "{barren} times in a row the machine was taken away before a new step was proven: no save fits into the time that the scheduler gives"
        );
        reasons.insert(0, Reason::new("barren_terms", why.clone()));
        self.finish(RunOutcome::GaveUp { why }, reasons);
    }
}
