//! Waiting for space on a disk that was full, before the relaunch that would fill it again.
//!
//! The pause before a relaunch comes first. Then the disk is asked, and asked again, for a bounded time: idle machines cost.

use super::words::span_words;
use super::{CHOOSING_LIMIT, Deciding};
use crate::danger::largest_save;
use crate::event::TimerKey;
use crate::id::Ms;
use crate::reason::Reason;
use crate::record::{Action, Ask, Condition, Decision, Outcome};
use crate::state::Mode;

/// How often the disk is asked.
const ASK_AGAIN: Ms = Ms::secs(15);
/// The least that a save needs.
const LEAST: u64 = 64 << 20;

impl Deciding<'_> {
    /// The pause is over, or the disk is asked once more. `false`: nothing waits for space.
    pub(super) fn ask_for_space(&mut self) -> bool {
        let due = match &self.s.mode {
            Mode::Waiting {
                what: Condition::Space,
                until,
            } => Some(*until),
            // A disk that does not answer is looked into at the next start.
            Mode::Waiting {
                what: Condition::Backoff,
                until,
            } if self.filled_the_disk() && self.e.at < until.after(ASK_AGAIN) => None,
            _ => return false,
        };
        if due.is_some_and(|until| self.e.at >= until) {
            self.give_up_on_space();
            return true;
        }
        self.ask(Ask::Space);
        self.wake(TimerKey::Backoff, ASK_AGAIN);
        true
    }

    /// So many bytes are free; `None`: the file system does not tell.
    pub(super) fn on_space(&mut self, free: Option<u64>) {
        let is_waiting = match &self.s.mode {
            Mode::Waiting {
                what: Condition::Space, ..
            } => true,
            Mode::Waiting {
                what: Condition::Backoff,
                ..
            } if self.filled_the_disk() => false,
            _ => return,
        };
        let needed = self.space_needed();
        match free.filter(|free| *free < needed) {
            None => {
                let text = match free {
                    Some(free) => format!("{} are free, and a save needs {}", amount(free), amount(needed)),
                    None => "the pause is over; how much space is free cannot be told".to_owned(),
                };
                self.choose(vec![Reason::new("space", text)]);
            }
            Some(_) if is_waiting => {}
            Some(free) => {
                let root = self.spec.root.as_ref().map_or("the disk", |r| r.as_str());
                let text = format!(
                    "{} are free on the disk of {root}, and a save needs {}: free some, and the run goes on",
                    amount(free),
                    amount(needed)
                );
                let what = Condition::Space;
                let until = self.e.at.after(CHOOSING_LIMIT);
                self.decided(Decision::Wait { what, until }, vec![Reason::new("no_space", text)]);
            }
        }
    }

    /// The last attempt ended because the disk was full, and the policy is to wait.
    fn filled_the_disk(&self) -> bool {
        let d = self.s.attempt.as_ref().and_then(|a| a.diagnosis.as_ref());
        self.spec.root.is_some() && d.is_some_and(|d| d.class == "disk.full" && self.rule_for(d).answer == Action::Wait)
    }

    /// A save is as large as the largest there is, and a little more.
    fn space_needed(&self) -> u64 {
        let largest = largest_save(&self.s);
        largest.saturating_add(largest / 20).max(LEAST)
    }

    fn give_up_on_space(&mut self) {
        let why = format!(
            "the disk stayed full for {}: a save needs {}",
            span_words(CHOOSING_LIMIT),
            amount(self.space_needed())
        );
        self.finish(
            Outcome::Environment { why: why.clone() },
            vec![Reason::new("no_space", why)],
        );
    }
}

fn amount(bytes: u64) -> String {
    match bytes {
        n if n >= 10 << 30 => format!("{} GiB", n >> 30),
        n => format!("{} MiB", n >> 20),
    }
}
