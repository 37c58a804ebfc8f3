//! Stopping workers: a save may finish, then SIGTERM, then the process tree is killed.

use super::Deciding;
use super::save_requests::LastSave;
use crate::checkpoint::Depth;
use crate::event::{TimerKey, TrainerPhase};
use crate::id::{Ms, ProcRef};
use crate::journal::reason::Reason;
use crate::journal::record::{ActKind, AfterStop, Decision, RunOutcome, WaitCondition, WorldQuery};
use crate::resume::scan_width;
use crate::state::RunMode;

/// How often a running save is checked during a drain.
pub(super) const DRAIN_LOOK: Ms = Ms(500);
pub(super) const LAST_LOOK: Ms = Ms::secs(3);
/// A kill that was not confirmed is repeated after this time.
pub(super) const KILL_AGAIN: Ms = Ms::secs(15);
/// How long to wait for the first scan during a drain.
const FIRST_LOOK: Ms = Ms::secs(3);

impl Deciding<'_> {
    pub(super) fn stop(&mut self, then: AfterStop, gently: bool, reasons: Vec<Reason>) {
        self.decided(Decision::Stop { then, gently }, reasons.clone());
        if gently {
            self.act(ActKind::Signal { signal: 15 }, reasons);
            let grace = match then {
                AfterStop::Stopped => self.spec.last_grace(),
                _ => self.spec.policy.grace.stop,
            };
            self.wake(TimerKey::KillDue, self.within(grace));
        } else {
            self.act(ActKind::KillTree, reasons);
            self.wake(TimerKey::KillDue, KILL_AGAIN);
        }
        self.on_timer(TimerKey::StateDeadline);
    }

    /// Stops the run within its grace periods, whatever it is doing. There is a time limit on everything that may not
    /// answer (a disk, the I/O worker, the journal).
    pub(super) fn wish_to_stop(&mut self, by: &str, now: bool) {
        self.end_run(Reason::new("asked_to_stop", format!("{by} asked to stop")), now);
    }

    pub(super) fn end_run(&mut self, reason: Reason, now: bool) {
        match &self.s.mode {
            RunMode::Running if now => self.stop(AfterStop::Stopped, false, vec![reason]),
            RunMode::Running => self.drain(reason),
            RunMode::Draining { .. } | RunMode::Stopping { .. } if now && self.s.live().is_some() => {
                self.stop(AfterStop::Stopped, false, vec![reason]);
            }
            // What was just started, or is about to be, has nothing to save.
            RunMode::Launching { .. } if self.s.live().is_some() => self.stop(AfterStop::Stopped, false, vec![reason]),
            RunMode::Stopping { gently, .. } => {
                // The stop in progress now ends the run instead of leading to a relaunch.
                let gently = *gently;
                self.kill_sooner(gently);
                self.decided(
                    Decision::Stop {
                        then: AfterStop::Stopped,
                        gently,
                    },
                    vec![reason],
                );
            }
            RunMode::Draining { until, then } => {
                let (until, then) = (*until, *then);
                self.drain_sooner(until, then, reason);
            }
            RunMode::Idle | RunMode::Choosing | RunMode::Waiting { .. } if self.s.live().is_none() => {
                self.finish_as_wished(vec![reason]);
            }
            // An edit in progress may finish shortly; no further one is started.
            RunMode::Arranging { .. } => self.wake(TimerKey::StateDeadline, LAST_LOOK),
            // They are being killed: end the run when that is done or times out.
            RunMode::Fencing | RunMode::Waiting { .. } => self.on_timer(TimerKey::StateDeadline),
            _ => {}
        }
    }

    fn drain(&mut self, reason: Reason) {
        let known_save = self
            .s
            .attempt
            .as_ref()
            .is_some_and(|a| a.training.phase == TrainerPhase::Save);
        if self.spec.root.is_none() || self.s.context.io_stalled.is_some() || self.spec.policy.grace.save.0 == 0 {
            return self.stop(AfterStop::Stopped, true, vec![reason]);
        }
        let until = self.drain_until();
        self.decided(
            Decision::Drain {
                until,
                then: AfterStop::Stopped,
            },
            vec![reason],
        );
        self.scan();
        let all = until.since(self.e.at);
        let first = if known_save { all } else { FIRST_LOOK };
        self.wake(TimerKey::DrainDue, first.min(all));
    }

    pub(super) fn on_scan_while_draining(&mut self, then: AfterStop) {
        let until = match self.s.mode {
            RunMode::Draining { until, .. } => until,
            _ => self.e.at,
        };
        if self.last_save() == LastSave::Proven && !self.save_in_progress() {
            let text = "the save that was asked for is over, and its step is proven: nothing more is trained";
            return self.stop(then, true, vec![Reason::new("saved", text)]);
        }
        // One that begins after the save that was waited for is another one.
        if self
            .s
            .requests
            .stop
            .as_ref()
            .is_some_and(|wish| self.s.progress.mark > wish.mark)
            && !self.saves_for_the_end()
            && self.last_save() != LastSave::Waiting
            && !self.asks_before_the_end(until)
        {
            let reason = Reason::new("saved", "the save that was going on is over, and its step is proven");
            return self.stop(then, true, vec![reason]);
        }
        let asked = self.last_save() == LastSave::Waiting || self.asks_before_the_end(until);
        if asked || self.save_in_progress() || self.save_is_due(until) {
            self.ask(WorldQuery::WakeAt {
                key: TimerKey::DrainDue,
                at: until,
            });
            self.wake(TimerKey::ScanDue, DRAIN_LOOK);
            return;
        }
        let text = match self.s.requests.stop.as_ref().is_some_and(|wish| wish.hand_back) {
            true => "no save ends before the machine is taken away",
            false => "no save is going on",
        };
        self.stop(then, true, vec![Reason::new("no_save", text)]);
    }

    pub(super) fn on_drain_due(&mut self) {
        if let RunMode::Draining { then, until } = self.s.mode {
            let reason = if self.e.at < until {
                Reason::new("no_answer", "nothing was heard of a save that is going on")
            } else {
                Reason::new("save_grace_over", "the time that a save may take at a stop is over")
            };
            self.stop(then, true, vec![reason]);
        }
    }

    /// Scans the disk once nobody writes any more: this shows the last save, and later what another writer adds. A disk
    /// that does not answer soon does not delay a stop.
    fn last_look(&mut self) {
        let can_look = self.spec.root.is_some()
            && self.spec.policy.start.recovery
            && self.s.context.io_stalled.is_none()
            && matches!(self.s.mode, RunMode::Stopping { .. });
        if !can_look {
            return self.stopped(Vec::new());
        }
        let whole = scan_width(&self.s, self.spec);
        self.ask(WorldQuery::Scan {
            depth: Depth::Structure,
            whole,
        });
        self.wake(TimerKey::StateDeadline, LAST_LOOK);
    }

    pub(super) fn stopped(&mut self, mut reasons: Vec<Reason>) {
        let wish = self.s.requests.stop.as_ref();
        let by = wish.map_or("an operator", |w| &w.by);
        let text = match wish.is_some_and(|w| w.hand_back) {
            true => "no worker lives, and the machine can be taken away".to_owned(),
            false => format!("no worker lives; {by} asked to stop"),
        };
        reasons.insert(0, Reason::new("stopped", text));
        self.finish_as_wished(reasons);
    }

    /// Describes processes of an attempt that could not be killed.
    pub(super) fn left_words(&self) -> String {
        let left = self
            .s
            .attempt
            .as_ref()
            .map(|a| a.end.unkillable.as_slice())
            .unwrap_or_default();
        let names: Vec<String> = left.iter().map(ToString::to_string).collect();
        match names.as_slice() {
            [] => String::new(),
            names => format!(": {}", names.join(", ")),
        }
    }

    /// Returns true if the workers have exited and only the last scan is awaited.
    pub(super) fn is_last_look(&self) -> bool {
        matches!(
            self.s.mode,
            RunMode::Stopping {
                then: AfterStop::Stopped,
                ..
            }
        ) && self.s.live().is_none()
    }

    pub(super) fn on_kill_due(&mut self) {
        if self.is_last_look() {
            return;
        }
        match self.s.mode {
            RunMode::Stopping { gently: true, then } => {
                let reason = Reason::new("grace_over", "SIGTERM did not end the workers in time");
                self.decided(Decision::Stop { then, gently: false }, vec![reason.clone()]);
                self.act(ActKind::KillTree, vec![reason]);
                self.wake(TimerKey::KillDue, KILL_AGAIN);
                self.on_timer(TimerKey::StateDeadline);
            }
            RunMode::Stopping { gently: false, .. } | RunMode::Fencing => {
                // A guard that was stopped or hangs cannot kill its tree, so do it without the guard.
                let reason = Reason::new("kill_again", "the tree was not reported gone: it is killed again");
                self.act(ActKind::KillTree, vec![reason]);
                self.wake(TimerKey::KillDue, KILL_AGAIN);
            }
            _ => {}
        }
    }

    fn wait_for_the_unkillable(&mut self, unkillable: &[ProcRef]) {
        let names: Vec<String> = unkillable.iter().map(ToString::to_string).collect();
        let text = format!(
            "processes {} do not die (uninterruptible sleep): nothing is launched over them",
            names.join(", ")
        );
        let until = self.e.at.after(super::UNKILLABLE_LIMIT);
        if let Some(by) = self.s.context.lease_lost.clone() {
            // Whoever holds the lease now has to fence them.
            return self.finish(RunOutcome::LeaseHeld { by }, vec![Reason::new("unkillable", text)]);
        }
        self.decided(
            Decision::Wait {
                what: WaitCondition::TreeGone,
                until,
            },
            vec![Reason::new("unkillable", text)],
        );
        self.on_timer(TimerKey::StateDeadline);
    }

    pub(super) fn on_tree_gone(&mut self, unkillable: &[ProcRef]) {
        if !unkillable.is_empty() {
            return self.wait_for_the_unkillable(unkillable);
        }
        let then = match &self.s.mode {
            RunMode::Stopping { then, .. } | RunMode::Draining { then, .. } => *then,
            RunMode::Running => AfterStop::Diagnose,
            RunMode::Fencing => AfterStop::Choose,
            RunMode::Waiting {
                what: WaitCondition::TreeGone,
                ..
            } if self.s.requests.stop.is_some() => AfterStop::Stopped,
            RunMode::Waiting {
                what: WaitCondition::TreeGone,
                ..
            } if self.was_seen_to_end() => AfterStop::Diagnose,
            RunMode::Waiting {
                what: WaitCondition::TreeGone,
                ..
            } => AfterStop::Choose,
            _ => return,
        };
        match then {
            AfterStop::Stopped => self.last_look(),
            AfterStop::LeaseLost => {
                let by = self
                    .s
                    .context
                    .lease_lost
                    .clone()
                    .unwrap_or_else(|| "another supervisor".to_owned());
                let reason = match self.s.context.displaced {
                    true => Reason::new("displaced", "all workers are gone; the run's place is not what it was"),
                    false => Reason::new(
                        "lease_lost",
                        "all workers are gone; the run is left to whoever holds the lease",
                    ),
                };
                self.finish(RunOutcome::LeaseHeld { by }, vec![reason]);
            }
            AfterStop::Choose => {
                let reason = Reason::new("fenced", "nothing of an earlier attempt lives");
                self.choose(vec![reason]);
            }
            AfterStop::Diagnose => self.find_out(),
        }
    }
    fn was_seen_to_end(&self) -> bool {
        self.s
            .attempt
            .as_ref()
            .is_some_and(|a| a.end.ended_by_us.is_some() || !a.exits.is_empty() || a.end.guard_lost)
    }
}
