//! Stalls: when a lack of progress ends an attempt.
//!
//! *Soft limit*: progress is overdue by what this run has learned about itself, and its processes are shown to be
//! stuck. *Hard limit*: there was no progress for so long that this alone decides, whatever the processes do.

use super::Deciding;
use super::stall_limits::{LOOKS, STALL_CHECK, StallLimits};
use crate::checkpoint::Verdict;
use crate::event::{Event, EventKind, TimerKey, TrainerPhase};
use crate::id::{AttemptNo, Ms};
use crate::journal::reason::Reason;
use crate::journal::record::{AfterStop, Decision, JournalRecord};
use crate::observe::activity::ActivitySample;
use crate::state::{Attempt, RunMode, STALLED};

/// A process tree that neither computed nor printed for this long counts as still. Samples of its ranks usually show it
/// earlier.
const STILL: Ms = Ms::secs(50);
/// Time for a trainer that reports a failure to print its traceback, and for its other ranks to print theirs.
const LAST_WORDS: Ms = Ms(20_000);
/// A save that has been silent for this long is checked for growing files.
const LONG_SAVE: Ms = Ms::secs(60);

impl Deciding<'_> {
    pub(super) fn on_stall_check(&mut self) {
        if !matches!(self.s.mode, RunMode::Running) {
            return;
        }
        self.wake(TimerKey::StallCheck, STALL_CHECK);
        if self.s.live().is_none_or(|a| a.launch.workers.is_empty()) || self.s.is_held() {
            return;
        }
        if !self.spec.policy.start.observe && self.end_what_stays() {
            return;
        }
        let Some(a) = self.s.live() else { return };
        // It said so itself: to wait for what it still cleans up could take hours.
        let failed = a.output.failed.filter(|_| !self.spec.policy.start.observe);
        if let Some(since) = failed.filter(|t| self.e.at.since(*t) >= LAST_WORDS) {
            let text = format!(
                "the trainer said {} s ago that it failed, and has not ended",
                self.e.at.since(since).0 / 1000
            );
            return self.stop(AfterStop::Diagnose, false, vec![Reason::new("said_failed", text)]);
        }
        if self.limits(a).is_unwatched() {
            return self.tell_unwatched();
        }
        if self.is_late(LOOKS) {
            let text = self.late_text("whatever its processes do, this decides");
            return self.stalled(text);
        }
        self.judge_tree();
    }

    pub(super) fn on_look(&mut self, attempt: AttemptNo, look: &ActivitySample) {
        let is_judged = |a: &&Attempt| {
            let limits = self.limits(a);
            a.no == attempt && !limits.is_unwatched() && !limits.is_over()
        };
        let watched = self.s.live().filter(is_judged);
        let Some(a) = watched.filter(|_| matches!(self.s.mode, RunMode::Running) && !self.s.is_held()) else {
            return;
        };
        let text = if self.is_late(Ms(0)) {
            self.late_text(&look.words())
        } else if look.is_stuck() && self.limits(a).is_overdue(self.e.at) && !self.may_save(a) {
            let (silent, limit) = (self.e.at.since(a.training.last_progress), self.limits(a).soft());
            let (what, ranks) = (what_is_missing(a.training.phase), look.words());
            format!(
                "stuck: {what} for {} s (limit {} s): {ranks}",
                silent.0 / 1000,
                limit.0 / 1000
            )
        } else {
            return;
        };
        if !self.spec.policy.start.observe || !a.training.pace.told {
            self.push(JournalRecord::Fact(self.e.clone()));
        }
        self.stalled(text);
    }

    fn limits<'b>(&'b self, a: &'b Attempt) -> StallLimits<'b> {
        StallLimits::new(&self.s, self.spec, a)
    }

    /// Returns true if there was no progress for the hard limit and `more`, which alone decides.
    fn is_late(&self, more: Ms) -> bool {
        // Work after the last step belongs to the user.
        let Some(a) = self.s.live() else { return false };
        let limits = self.limits(a);
        if limits.is_over() || limits.is_healing(self.e.at) {
            return false;
        }
        let silent = self.e.at.since(a.training.last_progress);
        limits
            .hard()
            .is_some_and(|limit| silent.0 >= limit.0.saturating_add(more.0))
    }

    fn late_text(&self, ranks: &str) -> String {
        let Some(a) = self.s.live() else { return String::new() };
        format!(
            "stuck: {} for {} s, which is longer than the hard limit of {} s (stall.hard): {ranks}",
            what_is_missing(a.training.phase),
            self.e.at.since(a.training.last_progress).0 / 1000,
            self.limits(a).hard().unwrap_or_default().0 / 1000,
        )
    }

    /// Returns true if a save has incomplete files and is within its time limit, whatever the output says.
    fn may_save(&self, a: &Attempt) -> bool {
        let limits = self.limits(a);
        self.save_in_progress() && limits.waited(self.e.at) < limits.soft().max(self.spec.policy.stall.save)
    }

    /// Judges by the whole process tree if nothing is known about the ranks: too many of them, or a guard of an older
    /// release.
    fn judge_tree(&mut self) {
        let Some(a) = self.s.live().filter(|a| self.limits(a).is_overdue(self.e.at)) else {
            return;
        };
        let (limit, waited) = (self.limits(a).soft(), self.limits(a).waited(self.e.at));
        let silent = self.e.at.since(a.training.last_progress);
        let what = what_is_missing(a.training.phase);
        let still = self.e.at.since(a.training.last_active);
        if still >= STILL && !self.may_save(a) {
            if waited.0 < limit.0.saturating_add(LOOKS.0) {
                return;
            }
            let text = format!(
                "stuck: {what} for {} s (limit {} s), and its processes have neither computed nor printed for {} s",
                silent.0 / 1000,
                limit.0 / 1000,
                still.0 / 1000
            );
            self.stalled(text);
        } else if waited.0 < limit.0.saturating_add(STALL_CHECK.0) && !self.spec.policy.start.observe {
            let until = match self.limits(a).hard() {
                Some(hard) => format!("; no progress for {} s ends it (stall.hard)", hard.0 / 1000),
                None => String::new(),
            };
            // It is not known here which of them worked.
            let text = format!(
                "{what} for {} s (limit {} s), but processes or a GPU were active {} s ago; still waiting{until}",
                silent.0 / 1000,
                limit.0 / 1000,
                still.0 / 1000
            );
            let reason = Reason::new("suspected", text.clone());
            self.decided(Decision::Suspect { what: text }, vec![reason]);
        }
    }

    /// Ends an attempt because of a stall. This is the only place that does, so the stacks of its processes are taken
    /// before the kill that it requests.
    fn stalled(&mut self, mut text: String) {
        if let Some(since) = self.s.live().and_then(|a| a.training.pace.heals) {
            let ago = self.e.at.since(since).0 / 1000;
            text.push_str(&format!(
                "; it said {ago} s ago that a part of it is brought back in place"
            ));
        }
        let reason = Reason::new(STALLED, text.clone());
        if !self.spec.policy.start.observe {
            return self.stop(AfterStop::Diagnose, false, vec![reason]);
        }
        if self.s.live().is_some_and(|a| !a.training.pace.told) {
            let what = format!("{text}: it would have been ended and started again");
            self.decided(Decision::WouldHave { what }, vec![reason]);
        }
    }

    fn tell_unwatched(&mut self) {
        let Some(a) = self.s.live() else { return };
        if a.training.pace.told || self.e.at.since(a.training.last_progress) < self.spec.policy.stall.startup {
            return;
        }
        let lines = match self.spec.policy.stall.progress {
            Some(_) => "no line matches `progress`",
            None => "no lines that tell steps were seen",
        };
        let what = format!(
            "{lines} for {} s: a hang of this command is not noticed; `progress` says which lines tell a step",
            self.e.at.since(a.training.last_progress).0 / 1000
        );
        let reason = Reason::new("unwatched", what.clone());
        self.decided(Decision::Unwatched { what }, vec![reason]);
    }

    /// A save whose files grow makes progress, however long it takes. `seen`: the scan as it arrived, including the
    /// step being saved.
    pub(super) fn on_growth(&mut self, seen: &Event) {
        let (EventKind::Checkpoints(report), RunMode::Running) = (&seen.kind, &self.s.mode) else {
            return;
        };
        let (Some(a), Some(newest)) = (self.s.live(), report.steps.first()) else {
            return;
        };
        let above = a.order.from.step().max(self.s.progress.mark.unwrap_or_default());
        let is_written = newest.verdict == Verdict::Incomplete && !newest.husk && newest.step > above;
        if !is_written || self.e.at.since(a.training.last_progress) < LONG_SAVE {
            return;
        }
        let now = (newest.step, newest.bytes);
        if a.training
            .pace
            .grown
            .is_none_or(|before| before.0 != now.0 || before.1 < now.1)
        {
            let text = format!("step {} is being saved: {} bytes so far", now.0, now.1);
            let (step, bytes) = now;
            self.decided(
                Decision::SaveGrows { step, bytes },
                vec![Reason::new("save_grows", text)],
            );
        }
    }
}

fn what_is_missing(phase: TrainerPhase) -> &'static str {
    match phase {
        TrainerPhase::Startup => "no first step",
        TrainerPhase::Save => "a save that does not end",
        _ => "no progress",
    }
}
