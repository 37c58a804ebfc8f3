//! While workers run: exits, progress, alarms, stalls, marks.

use super::Deciding;
use crate::event::{ExitStatus, Phase, TimerKey};
use crate::generations::{to_keep, went_back};
use crate::id::Ms;
use crate::reason::{Evidence, Reason};
use crate::record::{Act, ActKind, Decision, Then};
use crate::retention::prune;
use crate::script::ScriptNews;
use crate::state::Mode;

/// How often progress is judged.
const STALL_CHECK: Ms = Ms::secs(10);
/// A tree that neither computed nor printed for this long counts as still: the second signal.
const STILL: Ms = Ms::secs(30);

/// Time that a trainer which says that it failed has for its traceback, and its other ranks for theirs.
const LAST_WORDS: Ms = Ms(20_000);

impl Deciding<'_> {
    pub(super) fn on_worker_exited(&mut self, status: ExitStatus) {
        if !matches!(self.s.mode, Mode::Running | Mode::Draining { .. }) {
            return;
        }
        if self.spec.policy.observe || status.is_success() {
            return;
        }
        let then = match &self.s.mode {
            Mode::Draining { then, .. } => *then,
            _ => Then::Diagnose,
        };
        let who = self.s.attempt.as_ref().and_then(|a| a.first_failure);
        let text = match who {
            Some((worker, status)) => format!("worker {worker} {}", status.words()),
            None => format!("a worker {}", status.words()),
        };
        let reason = Reason::new("worker_failed", text.clone()).with(Evidence::Exit(text));
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
            Mode::Stopping { then, .. } | Mode::Draining { then, .. } => *then,
            _ => Then::Diagnose,
        };
        self.stop(then, false, reasons);
    }

    /// A script that starts something else, or without our words, is ended before the first save of what it starts.
    pub(super) fn on_script(&mut self, news: &ScriptNews) {
        if !matches!(self.s.mode, Mode::Running | Mode::Draining { .. }) || self.spec.policy.observe {
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
        };
        self.stop(Then::Diagnose, false, vec![reason]);
    }

    pub(super) fn on_scan_while_running(&mut self) {
        let wish = self.s.stop.as_ref().filter(|w| w.after_save);
        if wish.is_some_and(|w| self.s.mark > w.mark) {
            let reason = Reason::new("saved", "a new step is proven, and a stop was asked for at that point");
            return self.stop(Then::Stopped, true, vec![reason]);
        }
        let watched = self.spec.policy.prove && self.spec.policy.recovery && !self.spec.policy.observe;
        if let Some(text) = went_back(&self.s, self.spec).filter(|_| watched) {
            return self.stop(Then::Choose, false, vec![Reason::new("went_back", text)]);
        }
        self.prune_now();
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

    /// Makes the user's number of steps true, if more are there. One deletion at a time.
    pub(super) fn prune_now(&mut self) -> bool {
        let old = prune(&self.s, self.spec);
        let deletes = |a: &Act| matches!(a.kind, ActKind::Prune(_));
        let is_due = !old.is_empty() && !self.s.pending.values().any(deletes);
        if is_due {
            let text = match self.spec.saves.is_in_place() {
                true => format!("{} newer generations are proven", self.spec.policy.protect.keep.max(2)),
                false => {
                    let keep = self.spec.keep.unwrap_or_default();
                    format!("{} newer steps are proven (kept: {keep})", keep.max(2))
                }
            };
            self.act(ActKind::Prune(old), vec![Reason::new("retention", text)]);
        }
        is_due
    }

    pub(super) fn on_stall_check(&mut self) {
        if !matches!(self.s.mode, Mode::Running) {
            return;
        }
        self.wake(TimerKey::StallCheck, STALL_CHECK);
        let Some(a) = self.s.live() else { return };
        if self.spec.policy.observe || a.workers.is_empty() {
            return;
        }
        if self.end_what_stays() {
            return;
        }
        let Some(a) = self.s.live() else { return };
        // It said so itself: to wait for what it still cleans up could take hours.
        if let Some(since) = a.failed.filter(|t| self.e.at.since(*t) >= LAST_WORDS) {
            let text = format!(
                "the trainer said {} s ago that it failed, and has not ended",
                self.e.at.since(since).0 / 1000
            );
            return self.stop(Then::Diagnose, false, vec![Reason::new("said_failed", text)]);
        }
        let limit = self.stall_limit();
        let silent = self.e.at.since(a.last_progress);
        let still = self.e.at.since(a.last_active);
        if silent < limit || self.spec.root.is_none() {
            return;
        }
        let what = match a.phase {
            Phase::Startup => "no first step",
            Phase::Save => "a save that does not end",
            _ => "no progress",
        };
        // A save whose files are incomplete may take as long as a save may, whatever the output says.
        let saving = self.save_in_progress() && silent < limit.max(self.spec.policy.stall_save);
        if still >= STILL && !saving {
            let text = format!(
                "stuck: {what} for {} s (limit {} s), and its processes have neither computed nor printed for {} s",
                silent.0 / 1000,
                limit.0 / 1000,
                still.0 / 1000
            );
            self.stop(Then::Diagnose, false, vec![Reason::new("stalled", text)]);
        } else if silent.0 < limit.0.saturating_add(STALL_CHECK.0) {
            let text = format!(
                "{what} for {} s (limit {} s), but its processes work: it is left alone",
                silent.0 / 1000,
                limit.0 / 1000
            );
            let reason = Reason::new("suspected", text.clone());
            self.decided(Decision::Suspect { what: text }, vec![reason]);
        }
    }

    fn stall_limit(&self) -> Ms {
        let p = &self.spec.policy;
        let Some(a) = self.s.live() else {
            return p.stall_startup;
        };
        match a.phase {
            Phase::Startup => p.stall_startup,
            Phase::Save => p.stall_save,
            Phase::Step | Phase::Validate | Phase::Exit => {
                let learnt = a.longest_step.0 as f64 * p.stall_factor;
                Ms((learnt as u64).max(p.stall_minimum.0))
            }
        }
    }
}
