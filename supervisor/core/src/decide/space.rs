//! Waiting for free space on a full disk, before a relaunch that would fill it again.
//!
//! The usual backoff comes first. Then the disk is queried repeatedly for a limited time, because idle machines cost
//! money. A full disk is not charged as a retry, however often it happens. Instead the backoffs grow, and when their
//! sum reaches the limit, the run ends.

use super::words::span_words;
use super::{CHOOSING_LIMIT, Deciding};
use crate::decide::danger::{amount, save_room};
use crate::event::{ActError, TimerKey};
use crate::id::Ms;
use crate::journal::reason::Reason;
use crate::journal::record::{Decision, Diagnosis, FailureAction, RunOutcome, WaitCondition, WorldQuery};
use crate::rulebook::taxonomy::Class;
use crate::state::RunMode;

pub(super) const CLASS: Class = Class::DiskFull;
const ASK_AGAIN: Ms = Ms::secs(15);
/// First backoff after a full disk. Each further one without a new step doubles it, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Ms = Ms::secs(5);
const LONGEST_PAUSE: Ms = Ms::secs(300);

impl Deciding<'_> {
    /// Queries the disk when a backoff is over or while waiting for space. Returns false if nothing waits for space.
    pub(super) fn ask_for_space(&mut self) -> bool {
        let due = match &self.s.mode {
            RunMode::Waiting {
                what: WaitCondition::Space,
                until,
            } => Some(*until),
            // A disk that does not answer is dealt with at the next start.
            RunMode::Waiting {
                what: WaitCondition::Backoff,
                until,
            } if self.filled_the_disk() && self.e.at < until.after(ASK_AGAIN) => None,
            _ => return false,
        };
        if due.is_some_and(|until| self.e.at >= until) {
            let needed = amount(save_room(&self.s).bytes);
            let why = format!(
                "the disk stayed full for {}: a save needs {needed}",
                span_words(CHOOSING_LIMIT)
            );
            self.give_up_on_space(why);
            return true;
        }
        self.ask(WorldQuery::Space);
        self.wake(TimerKey::Backoff, ASK_AGAIN);
        true
    }

    /// Handles the answer: free bytes, free inodes, and whether a test write worked.
    pub(super) fn on_space(&mut self, free: Option<u64>, files: Option<u64>, works: Option<bool>) {
        let is_waiting = match &self.s.mode {
            RunMode::Waiting {
                what: WaitCondition::Space,
                ..
            } => true,
            RunMode::Waiting {
                what: WaitCondition::Backoff,
                ..
            } if self.filled_the_disk() => false,
            _ => return,
        };
        let room = save_room(&self.s);
        let disk = self.spec.root.as_ref().unwrap_or(&self.spec.run_dir).clone();
        let short = match (free, files) {
            (Some(free), _) if free < room.bytes => Some(format!(
                "{} are free on the disk of {disk}, and a save needs {}: free some, and the run goes on",
                amount(free),
                amount(room.bytes)
            )),
            (_, Some(files)) if files < room.files.max(1) => Some(format!(
                "{files} more files can be made on the disk of {disk}, and a save makes {}: delete some, and the run goes on",
                room.files.max(1)
            )),
            _ if works == Some(false) => Some(format!(
                "the disk of {disk} still refuses what is written, though its file system has room: see your quota (`quota -s`, \
                 `lfs quota`); when there is room, the run goes on"
            )),
            _ => None,
        };
        match short {
            None => {
                let text = match free {
                    Some(free) => format!("{} are free, and a save needs {}", amount(free), amount(room.bytes)),
                    None => "the pause is over; how much space is free cannot be told".to_owned(),
                };
                self.choose(vec![Reason::new("space", text)]);
            }
            Some(_) if is_waiting => {}
            Some(text) => {
                let what = WaitCondition::Space;
                let until = self.e.at.after(CHOOSING_LIMIT);
                self.decided(Decision::Wait { what, until }, vec![Reason::new("no_space", text)]);
            }
        }
    }

    /// Returns true if the last attempt, or our own change, failed because of a full disk and the policy is to wait.
    fn filled_the_disk(&self) -> bool {
        let d = self.s.attempt.as_ref().and_then(|a| a.end.diagnosis.as_ref());
        self.s.disk.no_room || self.spec.root.is_some() && d.is_some_and(|d| self.waits_for_room(d))
    }

    pub(super) fn waits_for_room(&self, d: &Diagnosis) -> bool {
        d.class == CLASS && self.rule_for(d).answer == FailureAction::Wait
    }

    /// Handles a launch or a change of ours that found no free space: waits as after a trainer that found none.
    pub(super) fn on_no_room(&mut self, error: &ActError, reason: Reason) {
        let Some(pause) = self.pause_for_room() else {
            return self.give_up_on_space(error.what.clone());
        };
        let until = self.e.at.after(pause);
        let what = WaitCondition::Backoff;
        self.decided(Decision::Wait { what, until }, vec![reason]);
        self.wake(TimerKey::Backoff, pause);
    }

    /// The backoff after a full disk; `None` if the earlier ones reached the limit.
    pub(super) fn pause_for_room(&self) -> Option<Ms> {
        let before = self.s.disk.full.saturating_sub(1).min(64);
        let waited = (0..before).fold(0, |sum: u64, n| sum.saturating_add(nth_pause(n).0));
        (waited < CHOOSING_LIMIT.0).then(|| nth_pause(before))
    }

    pub(super) fn give_up_on_space(&mut self, why: String) {
        self.finish(
            RunOutcome::Environment { why: why.clone() },
            vec![Reason::new("no_space", why)],
        );
    }
}

fn nth_pause(before: u32) -> Ms {
    let doubled = FIRST_PAUSE.0.checked_shl(before.min(16)).unwrap_or(u64::MAX);
    Ms(doubled.min(LONGEST_PAUSE.0))
}
