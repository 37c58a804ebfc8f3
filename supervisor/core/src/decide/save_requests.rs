//! Saves on request: who asks for one, when, and what becomes of it.
//!
//! There is one request at a time. Nothing is asked that cannot end before the machine is taken away.

use super::Deciding;
use super::words::span_words;
use crate::decide::danger::dangers;
use crate::event::{EventKind, TimerKey, TrainerPhase};
use crate::id::{Ms, Step, Tick};
use crate::journal::reason::Reason;
use crate::journal::record::{ActKind, Decision, SaveOrder, SaveRequestEnd, SaveRequester, WorldQuery};
use crate::observe::durations::DurationKind;
use crate::resume::{generations, last_step, save_interval};
use crate::save_interval::SaveSpans;
use crate::spec::RunSpec;
use crate::state::{ANSWER_LOOK, Attempt, RunMode, RunState, SaveRequest};

/// How often a late answer is looked for.
const LATE_LOOK: Ms = Ms::secs(10);
/// A trainer is given at least this long to answer, ...
const LEAST_WAIT: Ms = Ms::secs(5);
/// ... and at most this long.
const LONGEST_WAIT: Ms = Ms::secs(3600);
/// A step and a save of unknown length are taken to last this long if a deadline is near.
const UNKNOWN_STEP: Ms = Ms::secs(60);
const UNKNOWN_SAVE: Ms = Ms::secs(120);
/// Asked saves stop the training for at most a quarter of the time.
const TRAIN_PER_SAVE: u64 = 3;

/// Why an operator cannot ask for a save now.
#[must_use]
pub fn cannot_save(s: &RunState, spec: &RunSpec) -> Option<String> {
    if let Some(why) = spec.no_save_door() {
        return Some(why.to_owned());
    }
    let trains = matches!(s.mode, RunMode::Running | RunMode::Launching { .. }) && s.live().is_some();
    if !trains {
        return Some(format!("no attempt is training (the run is {})", s.mode.word()));
    }
    s.is_to_stop().then(|| "the run is about to stop".to_owned())
}

/// How a request stands when the machine is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastSave {
    /// None was asked for, or it came to nothing.
    None,
    Waiting,
    Proven,
}

impl Deciding<'_> {
    pub(super) fn on_save_wish(&mut self) {
        if let Some(why) = cannot_save(&self.s, self.spec) {
            self.ignore("request for a save", &why);
        }
    }

    /// Ends the request under way if its step is proven.
    pub(super) fn note_asked_save(&mut self) {
        let (Some(request), Some(mark)) = (self.open_request(), self.s.progress.mark) else {
            return;
        };
        let is_in = match request.answered {
            Some((step, _)) => mark >= step,
            None => request.step.is_some_and(|step| mark > step),
        };
        if !is_in {
            return;
        }
        let (id, took) = (request.order.id, self.e.at.since(request.at));
        let text = format!("step {mark} is proven, {} after it was asked for", span_words(took));
        let how = SaveRequestEnd::Proven {
            step: mark,
            extra: !self.is_regular(mark),
        };
        self.end_request(id, how, Reason::new("asked_save_proven", text));
    }

    /// Ends a request that came to nothing, makes one that is due, and sets the timer for the next look.
    pub(super) fn follow_saves(&mut self) {
        if self.spec.no_save_door().is_some() {
            return;
        }
        let trains = matches!(self.s.mode, RunMode::Running | RunMode::Draining { .. });
        let Some(a) = self.s.live().filter(|_| trains) else {
            return;
        };
        if a.saves.open().is_some() {
            self.end_what_is_late();
            if let Some(request) = self.open_request().filter(|r| r.answered.is_none()) {
                let next = ANSWER_LOOK.0.min(self.answer_until(request).since(self.e.at).0.max(1));
                self.wake(TimerKey::SaveRequest, Ms(next));
            }
            return;
        }
        let goes_on = self.s.mode == RunMode::Running && !self.s.is_to_stop();
        if goes_on
            && self.may_ask()
            && let Some((by, reason)) = self.who_asks()
        {
            return self.request_save(by, None, reason);
        }
        let late = self.s.live().and_then(|a| a.saves.asked.as_ref());
        let late = late.is_some_and(|r| matches!(r.end, Some((SaveRequestEnd::Unanswered, _))));
        let late = late.then(|| self.e.at.after(LATE_LOOK));
        let due = self.due_for_max_loss().filter(|due| *due > self.e.at);
        if let Some(next) = late.into_iter().chain(due).min() {
            self.wake(TimerKey::SaveRequest, next.since(self.e.at));
        }
    }

    pub(super) fn on_save_timer(&mut self) {
        let asked = self.s.live().and_then(|a| Some((a.no, a.saves.asked.as_ref()?)));
        let waits = |r: &SaveRequest| matches!(r.end, None | Some((SaveRequestEnd::Unanswered, _)));
        if let Some((attempt, request)) = asked.filter(|(_, r)| r.answered.is_none() && waits(r)) {
            let id = request.order.id;
            self.ask(WorldQuery::SaveAnswer { attempt, id });
        }
    }

    /// The request for the time when the machine is taken away.
    pub(super) fn last_save(&self) -> LastSave {
        let stop = self.s.requests.stop.as_ref().filter(|w| w.hand_back);
        let asked = self.s.live().and_then(|a| a.saves.asked.as_ref());
        let (Some(stop), Some(request)) = (stop, asked) else {
            return LastSave::None;
        };
        match &request.end {
            None => LastSave::Waiting,
            Some((SaveRequestEnd::Proven { .. }, at)) if *at >= stop.at => LastSave::Proven,
            Some(_) => LastSave::None,
        }
    }

    /// Asks for a save before the machine is taken away, once, and only if it will be proven by then. Returns true if it
    /// does.
    pub(super) fn asks_before_the_end(&mut self, until: Tick) -> bool {
        let Some(stop) = self.s.requests.stop.clone().filter(|w| w.hand_back) else {
            return false;
        };
        let asked = self.s.live().and_then(|a| a.saves.asked.as_ref());
        let is_first = asked.is_none_or(|r| r.at < stop.at);
        if self.spec.no_save_door().is_some() || !is_first || !self.may_ask() || self.is_deaf() {
            return false;
        }
        let Some(needed) = self.needed_before_the_end() else {
            return false;
        };
        if self.e.at.after(needed) > until {
            return false;
        }
        let text = format!(
            "the machine is taken away; a step and a save need at most {}, and there are {}",
            span_words(needed),
            span_words(until.since(self.e.at))
        );
        let reason = Reason::new("save_before_the_end", text);
        self.request_save(SaveRequester::Notice(stop.by), Some(until), reason);
        true
    }

    /// The time that a save needs from being asked for to being proven; `None`: not known, and too dangerous to try.
    pub(super) fn needed_before_the_end(&self) -> Option<Ms> {
        let spans = SaveSpans::of(&self.s);
        let in_place = self.spec.saves.is_in_place();
        let save = match spans.slow_save {
            Some(save) => save,
            None if in_place => return None,
            None => UNKNOWN_SAVE,
        };
        // The checkpoint that is overwritten is copied afterwards, which reads and writes as much again.
        let copy = if in_place && self.spec.policy.protect.enabled {
            save
        } else {
            Ms(0)
        };
        let step = spans.step.unwrap_or(UNKNOWN_STEP);
        let parts = [step, spans.validation, save, copy];
        Some(Ms(parts.iter().fold(0, |sum, part| sum.saturating_add(part.0))))
    }

    /// Returns true if a memory restart waits for this: the save that was asked for it is proven.
    pub(super) fn is_saved_for_memory(&self) -> bool {
        let asked = self.s.live().and_then(|a| a.saves.asked.as_ref());
        asked.is_some_and(|r| {
            r.order.by == SaveRequester::Memory && matches!(r.end, Some((SaveRequestEnd::Proven { .. }, _)))
        })
    }

    fn open_request(&self) -> Option<&SaveRequest> {
        self.s.live()?.saves.open()
    }

    fn is_deaf(&self) -> bool {
        self.s.live().is_some_and(|a| a.saves.deaf)
    }

    /// Returns true if the user's own interval saves this step.
    fn is_regular(&self, step: Step) -> bool {
        let own = save_interval(&self.s, self.spec).is_some_and(|every| step.0.is_multiple_of(every.max(1)));
        own || last_step(&self.s, self.spec) == Some(step)
    }

    /// Returns true if there is something to save, and no save is under way.
    fn may_ask(&self) -> bool {
        let Some(a) = self.s.live() else { return false };
        let saved = self.s.progress.mark.unwrap_or_default().max(a.order.from.step());
        let is_unsaved = a.training.step.is_some_and(|step| step > saved);
        let is_copied = self.s.is_keeping() || generations::to_keep(&self.s, self.spec).is_some();
        a.saves.open().is_none()
            && is_unsaved
            && a.training.phase != TrainerPhase::Save
            && a.training.phase != TrainerPhase::Exit
            && !self.save_in_progress()
            && !self.expects_regular(a)
            && !is_copied
    }

    /// Returns true if the user's own save of a printed step is about to begin, or was not looked at yet.
    fn expects_regular(&self, a: &Attempt) -> bool {
        let Some(due) = self.newest_unsaved() else {
            return false;
        };
        let printed = a.saves.printed.iter().find(|(step, _)| step.0 >= due);
        let save = SaveSpans::of(&self.s).save.unwrap_or_default();
        let wait = Ms(save.0.saturating_add(2 * self.spec.policy.scan_interval.0));
        printed.is_some_and(|(_, at)| self.e.at.since(*at) < wait)
    }

    fn who_asks(&self) -> Option<(SaveRequester, Reason)> {
        let a = self.s.live()?;
        if let Some(by) = a.saves.wished_by.clone() {
            let reason = Reason::new("save_asked", format!("{by} asked for it"));
            return Some((SaveRequester::Operator(by), reason));
        }
        if a.saves.deaf || self.s.is_held() {
            return None;
        }
        if matches!(self.e.kind, EventKind::Used { .. }) && self.spec.policy.restart_for_memory {
            let step = a.training.step?;
            let mut soon = dangers(&self.s, self.spec).into_iter();
            if let Some(d) = soon.find(|d| d.forecast.what.is_memory() && self.is_soon(d, step)) {
                let text = format!("{}; a restart after it gives the memory back", d.words());
                return Some((SaveRequester::Memory, Reason::new("save_for_memory", text)));
            }
        }
        let (max, unsaved) = (self.spec.policy.max_loss?, a.saves.unsaved(self.e.at)?);
        self.due_for_max_loss().filter(|due| *due <= self.e.at)?;
        let text = format!(
            "the training of {} is not in a proven step, and at most {} may be lost",
            span_words(unsaved),
            span_words(max)
        );
        Some((SaveRequester::MaxLoss, Reason::new("save_for_max_loss", text)))
    }

    /// When a save must be asked for, so that no more than `max_loss` can be lost.
    fn due_for_max_loss(&self) -> Option<Tick> {
        let max = self.spec.policy.max_loss?;
        let a = self.s.live().filter(|a| !a.saves.deaf && !self.s.is_held())?;
        let (since, unsaved) = (a.saves.unsaved_since?, a.saves.unsaved_before);
        let spans = SaveSpans::of(&self.s);
        let lead = spans.lead(max);
        let due = since.after(Ms(max.0.saturating_sub(lead.0).saturating_sub(unsaved.0)));
        let stall = self.s.clocks.of(DurationKind::Save).and_then(|d| d.median());
        let last = a.saves.asked.as_ref().and_then(|r| r.end.as_ref()).map(|(_, at)| *at);
        let rest = stall.unwrap_or_default().0.saturating_mul(TRAIN_PER_SAVE);
        Some(due.max(last.map_or(due, |at| at.after(Ms(rest)))))
    }

    fn request_save(&mut self, by: SaveRequester, until: Option<Tick>, reason: Reason) {
        let id = self.s.requests.saves.saturating_add(1);
        self.act(ActKind::RequestSave(SaveOrder { id, by, until }), vec![reason]);
        self.wake(TimerKey::SaveRequest, ANSWER_LOOK);
    }

    fn end_request(&mut self, id: u64, how: SaveRequestEnd, reason: Reason) {
        self.decided(Decision::SaveRequestEnded { id, how }, vec![reason]);
    }

    /// A step and a half, with what may come in between.
    fn answer_until(&self, request: &SaveRequest) -> Tick {
        let spans = SaveSpans::of(&self.s);
        let wait = spans.step.map_or(self.spec.policy.stall.startup.0, |step| {
            step.0.saturating_add(step.0 / 2).saturating_add(spans.validation.0)
        });
        request.at.after(Ms(wait).clamp(LEAST_WAIT, LONGEST_WAIT))
    }

    fn end_what_is_late(&mut self) {
        let Some(request) = self.open_request() else { return };
        let id = request.order.id;
        if let Some((step, seen)) = request.answered {
            let save = SaveSpans::of(&self.s).slow_save.unwrap_or_default();
            let wait = Ms(save.0.saturating_mul(2)).max(self.spec.policy.stall.save);
            if self.e.at >= seen.after(wait) {
                let text = format!(
                    "the trainer said that it saves step {step}, but no step was proven within {}",
                    span_words(wait)
                );
                self.end_request(id, SaveRequestEnd::Unproven, Reason::new("asked_save_unproven", text));
            }
            return;
        }
        let until = self.answer_until(request);
        if self.e.at >= until {
            let text = format!(
                "the trainer did not answer within {}, a step and a half: it goes on, and saves at its own interval",
                span_words(until.since(request.at))
            );
            self.end_request(id, SaveRequestEnd::Unanswered, Reason::new("save_unanswered", text));
        }
    }
}
