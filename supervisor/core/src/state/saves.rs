//! Saves on request: the request under way, and since when training is not saved.

use super::RunState;
use crate::id::{Ms, Step, Tick};
use crate::journal::record::{SaveOrder, SaveRequestEnd};
use crate::observe::durations::{Clocks, DurationKind};
use serde::{Deserialize, Serialize};

/// Printed steps whose times are kept.
const KEPT: usize = 32;
/// Answers are looked for at this interval, so one is seen up to this much later than it was given.
pub const ANSWER_LOOK: Ms = Ms(500);

/// A request to the trainer for a save, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveRequest {
    #[serde(flatten)]
    pub order: SaveOrder,
    /// When it was made.
    pub at: Tick,
    /// The newest step printed until then.
    pub step: Option<Step>,
    /// The step that the trainer said it saves, and when this was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<(Step, Tick)>,
    /// How it ended, and when; `None`: it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<(SaveRequestEnd, Tick)>,
}

/// What an attempt saved, and what it was asked to save.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttemptSaves {
    /// The newest request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<SaveRequest>,
    /// The operator whose request waits until a save can be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wished_by: Option<String>,
    /// Whether the last request was not answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deaf: bool,
    /// When the newest steps were printed, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub printed: Vec<(Step, Tick)>,
    /// Since when the training is not in a proven step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsaved_since: Option<Tick>,
    /// The same for the time before this term.
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub unsaved_before: Ms,
    /// When the running save began, or the last one if it is not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Tick>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_no_time(span: &Ms) -> bool {
    span.0 == 0
}

impl AttemptSaves {
    /// The request under way.
    #[must_use]
    pub fn open(&self) -> Option<&SaveRequest> {
        self.asked.as_ref().filter(|r| r.end.is_none())
    }

    /// For how long the training was not saved.
    #[must_use]
    pub fn unsaved(&self, now: Tick) -> Option<Ms> {
        let since = self.unsaved_since?;
        Some(Ms(now.since(since).0.saturating_add(self.unsaved_before.0)))
    }

    /// Notes a printed step, which was begun at `began`.
    pub(super) fn note_step(&mut self, step: Step, began: Tick, at: Tick) {
        self.unsaved_since.get_or_insert(began);
        if self.printed.len() >= KEPT {
            let mut n = 0;
            self.printed.retain(|_| {
                n += 1;
                n % 2 == 0
            });
        }
        self.printed.push((step, at));
    }

    /// Notes a proven step: what was trained before its save is safe. A step that was printed before it is certainly in
    /// it.
    fn note_proven(&mut self, step: Step, clocks: &mut Clocks, at: Tick) {
        let before = self.printed.iter().rev().find(|(s, _)| *s < step).map(|(_, at)| *at);
        let after = self.printed.iter().find(|(s, _)| *s > step).map(|(_, at)| *at);
        let answered = self.asked.as_ref().and_then(|r| r.answered.filter(|(s, _)| *s == step));
        let answered = answered.map(|(_, seen)| Tick(seen.0.saturating_sub(ANSWER_LOOK.0)));
        let its_own = |began: &Tick| before.is_none_or(|t| *began >= t) && after.is_none_or(|t| *began <= t);
        let began = self.began.filter(its_own).or(answered);
        if let Some(began) = began {
            clocks.note(DurationKind::SaveProven, at.since(began));
            self.began = None;
        }
        if let Some(safe) = began.max(before) {
            self.unsaved_since = self.unsaved_since.max(Some(safe));
            self.unsaved_before = Ms(0);
        }
    }

    /// Restarts on the clock of a new term. `last`: the last progress on the old one.
    pub(super) fn restart(&mut self, last: Tick, at: Tick) {
        self.unsaved_before = self.unsaved(last).unwrap_or_default();
        self.unsaved_since = self.unsaved_since.map(|_| at);
        self.printed.clear();
        self.began = None;
        if let Some(request) = &mut self.asked {
            request.at = at;
            request.order.until = None;
            request.answered = request.answered.map(|(step, _)| (step, at));
            request.end = request.end.take().map(|(end, _)| (end, at));
        }
    }

    /// Shifts the times that a pause of the machine must not count for.
    pub(super) fn shift(&mut self, missing: Ms) {
        self.unsaved_since = self.unsaved_since.map(|t| t.after(missing));
        if let Some(request) = &mut self.asked {
            request.at = request.at.after(missing);
        }
    }
}

impl RunState {
    pub(super) fn on_save_wished(&mut self, by: &str) {
        if let Some(a) = self.attempt.as_mut().filter(|a| !a.end.gone)
            && a.saves.open().is_none()
        {
            a.saves.wished_by.get_or_insert_with(|| by.to_owned());
        }
    }

    pub(super) fn on_save_order(&mut self, order: &SaveOrder) {
        self.requests.saves = self.requests.saves.max(order.id);
        let at = self.now;
        if let Some(a) = self.attempt.as_mut() {
            a.saves.wished_by = None;
            a.saves.asked = Some(SaveRequest {
                order: order.clone(),
                at,
                step: a.training.step,
                answered: None,
                end: None,
            });
        }
    }

    pub(super) fn on_save_answered(&mut self, id: u64, step: Step, at: Tick) {
        let saves = self.attempt.as_mut().map(|a| &mut a.saves);
        let Some(saves) = saves else { return };
        if let Some(request) = saves.asked.as_mut().filter(|r| r.order.id == id) {
            request.answered.get_or_insert((step, at));
            request.end.take_if(|(end, _)| *end == SaveRequestEnd::Unanswered);
            saves.deaf = false;
        }
    }

    pub(super) fn on_save_request_ended(&mut self, id: u64, end: &SaveRequestEnd, at: Tick) {
        if let SaveRequestEnd::Proven { step, extra: true } = end {
            let there = |s: &Step| self.disk.scan.iter().flat_map(|scan| &scan.steps).any(|c| c.step == *s);
            self.disk.extra.retain(|s| s != step && there(s));
            self.disk.extra.push(*step);
        }
        let saves = self.attempt.as_mut().map(|a| &mut a.saves);
        let Some(saves) = saves else { return };
        if let Some(request) = saves.asked.as_mut().filter(|r| r.order.id == id) {
            request.end = Some((end.clone(), at));
            saves.deaf |= *end == SaveRequestEnd::Unanswered;
        }
    }

    pub(super) fn note_save_proven(&mut self, step: Step, at: Tick) {
        if let Some(a) = self.attempt.as_mut().filter(|a| !a.end.gone) {
            a.saves.note_proven(step, &mut self.clocks, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saves(printed: &[(u64, u64)]) -> AttemptSaves {
        let mut saves = AttemptSaves::default();
        for (step, at) in printed {
            saves.note_step(Step(*step), Tick(at - 100), Tick(*at));
        }
        saves
    }

    #[test]
    fn a_proven_step_makes_safe_what_was_trained_before_its_save() {
        let mut clocks = Clocks::default();
        let mut s = saves(&[(1, 1000), (2, 2000), (3, 3000)]);
        assert_eq!(s.unsaved(Tick(3000)), Some(Ms(2100)));
        s.note_proven(Step(2), &mut clocks, Tick(3500));
        assert_eq!(
            s.unsaved(Tick(3500)),
            Some(Ms(2500)),
            "it was saved after step 1 was printed"
        );
        s.began = Some(Tick(3050));
        s.note_proven(Step(3), &mut clocks, Tick(3600));
        assert_eq!(s.unsaved(Tick(3600)), Some(Ms(550)));
        assert_eq!(clocks.of(DurationKind::SaveProven).map(|d| d.count()), Some(1));
    }

    #[test]
    fn a_save_that_began_after_the_next_step_is_not_that_of_the_proven_one() {
        let mut s = saves(&[(1, 1000), (2, 2000), (3, 3000)]);
        s.began = Some(Tick(3100));
        s.note_proven(Step(2), &mut Clocks::default(), Tick(3500));
        assert_eq!((s.unsaved(Tick(3500)), s.began), (Some(Ms(2500)), Some(Tick(3100))));
    }

    #[test]
    fn a_long_attempt_keeps_few_times_and_forgets_none_that_is_new() {
        let all: Vec<(u64, u64)> = (1..=1000).map(|n| (n, n * 1000)).collect();
        let mut s = saves(&all);
        assert!(s.printed.len() <= KEPT);
        s.note_proven(Step(990), &mut Clocks::default(), Tick(1_000_000));
        let unsaved = s.unsaved(Tick(1_000_000)).unwrap();
        assert!((Ms(11_000)..=Ms(20_000)).contains(&unsaved), "{unsaved:?}");
    }

    #[test]
    fn a_new_term_counts_on() {
        let mut s = saves(&[(1, 5000)]);
        s.restart(Tick(9000), Tick(0));
        assert_eq!(s.unsaved(Tick(1000)), Some(Ms(5100)));
    }
}
