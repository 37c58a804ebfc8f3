//! Notifications: which records are events, and what is sent.
//!
//! [`notice`] is pure: a record and the state after it in, a [`Notification`] out. [`NotifyThrottle`] limits how
//! often events are sent. [`send`] delivers them in a separate process: neither the training nor its supervisor waits
//! for it.

mod pace;
pub mod send;

pub use pace::NotifyThrottle;

use crate::render::advice::advice;
use crate::render::condition;
use crate::render::outcome::outcome_in;
use crate::render::record::words;
use crate::render::time::{span, stamp};
use serde::{Deserialize, Serialize};
use supervise_config::redact_text;
use supervise_config::settings::{EventChoice, OnEvent, WebhookShape};
use supervise_core::id::{Ms, Tick, WallMs};
use supervise_core::journal::record::{Decision, JournalRecord, RunOutcome};
use supervise_core::state::{Attempt, RunMode, RunState};

const LONG: Ms = Ms::secs(600);
const TEXT: usize = 1500;

/// An event as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    pub version: u32,
    pub event: EventChoice,
    pub run: String,
    pub root: Option<String>,
    pub attempt: Option<u32>,
    pub step: Option<u64>,
    pub proven: Option<u64>,
    pub text: String,
    /// What the operator can do, one line each.
    pub todo: Vec<String>,
    /// The supervisor's machine.
    pub host: String,
    /// When, in ms since 1970.
    pub wall: WallMs,
    /// The same in UTC, as text.
    pub time: String,
    pub exit_code: Option<u8>,
    /// Earlier events that were not sent because there were too many.
    pub left_out: u64,
    /// A test of the targets: receivers get `test` as the event.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub test: bool,
}

/// Where notifications go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifyTargets {
    /// A command that gets the notification on standard input.
    pub command: Option<Vec<String>>,
    pub webhook: Option<String>,
    pub shape: WebhookShape,
}

impl NotifyTargets {
    /// The targets in the settings.
    #[must_use]
    pub fn of(settings: &OnEvent) -> Self {
        Self {
            command: settings.command.clone(),
            webhook: settings.webhook.clone(),
            shape: settings.shape,
        }
    }

    /// The result if nothing was sent.
    #[must_use]
    pub fn failed(&self, why: String) -> NotifyResult {
        let to = if self.command.is_some() { "command" } else { "webhook" };
        NotifyResult {
            to: to.to_owned(),
            arrived: false,
            note: why,
        }
    }

    /// Returns true if no target is configured.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.command.is_none() && self.webhook.is_none()
    }
}

/// The result of one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifyResult {
    /// `command` or `webhook`.
    pub to: String,
    pub arrived: bool,
    pub note: String,
}

/// The run that events belong to.
#[derive(Debug, Clone, Copy)]
pub struct EventRun<'a> {
    pub run: &'a str,
    pub root: Option<&'a str>,
    /// This machine.
    pub host: &'a str,
}

/// Returns the event in a record, if it is one; `s` is the state after it.
#[must_use]
pub fn notice(r: &JournalRecord, s: &RunState, whose: EventRun<'_>) -> Option<Notification> {
    let JournalRecord::Decided { what, reasons, .. } = r else {
        return None;
    };
    if let Decision::Finish { outcome } = what {
        let text = outcome_in(outcome, s);
        return Some(build(end(outcome), text, Some(outcome), s, whose));
    }
    let event = reasons.iter().find_map(|r| of_code(&r.code))?;
    let text = words(r, s).or_else(|| reasons.first().map(|r| r.text.clone()))?;
    Some(build(event, text, None, s, whose))
}

/// Returns an event if the run has been waiting for long.
#[must_use]
pub fn long_wait(s: &RunState, now: Tick, whose: EventRun<'_>) -> Option<Notification> {
    let what = match &s.mode {
        RunMode::Waiting { what, .. } => condition::awaited(what),
        RunMode::Fencing => "for the end of an earlier attempt",
        RunMode::Choosing => "for the checkpoint root to answer",
        _ => return None,
    };
    // Asked again and again, it has been waited for since the first answer.
    let lasted = now.since(s.context.held_since.unwrap_or(s.since));
    let why = s.why.first().map_or_else(String::new, |r| format!(": {}", r.text));
    (lasted >= LONG).then(|| {
        let text = format!("has waited {} {what}{why}", span(lasted));
        build(EventChoice::Waiting, text, None, s, whose)
    })
}

/// Builds a test notification.
#[must_use]
pub fn trial(run: &str, host: &str, wall: WallMs) -> Notification {
    Notification {
        version: 1,
        event: EventChoice::Finished,
        run: run.to_owned(),
        root: None,
        attempt: None,
        step: None,
        proven: None,
        text: "a test of on_event: nothing happened".to_owned(),
        todo: vec!["nothing: this came from `supervise notify --test`".to_owned()],
        host: host.to_owned(),
        wall,
        time: stamp(wall),
        exit_code: None,
        left_out: 0,
        test: true,
    }
}

/// Returns true if the run ends with this event.
#[must_use]
pub fn is_end(event: EventChoice) -> bool {
    !matches!(
        event,
        EventChoice::Waiting
            | EventChoice::UnconfirmedResume
            | EventChoice::Stall
            | EventChoice::Creep
            | EventChoice::NotFinite
            | EventChoice::Collapse
    )
}

fn end(outcome: &RunOutcome) -> EventChoice {
    match outcome {
        RunOutcome::Finished { .. } | RunOutcome::ScriptUnfinished { .. } => EventChoice::Finished,
        RunOutcome::Stopped | RunOutcome::OutOfTime => EventChoice::Stopped,
        RunOutcome::Deterministic { .. } => EventChoice::Deterministic,
        RunOutcome::NoProof { .. } => EventChoice::NoProof,
        RunOutcome::LeaseHeld { .. } => EventChoice::LeaseHeld,
        RunOutcome::Stranger { .. } => EventChoice::Stranger,
        RunOutcome::GaveUp { .. } => EventChoice::GaveUp,
        RunOutcome::Environment { .. } => EventChoice::Environment,
        RunOutcome::Config { .. } => EventChoice::Configuration,
    }
}

/// The event for a reason code, whatever was decided.
fn of_code(code: &str) -> Option<EventChoice> {
    let begins = |with: &[&str]| with.iter().any(|w| code.starts_with(w));
    if begins(&["stall"]) {
        Some(EventChoice::Stall)
    } else if begins(&["unconfirmed_resume", "resumed_", "resume_"]) && code != "resume_confirmed" {
        Some(EventChoice::UnconfirmedResume)
    } else if begins(&["creep"]) {
        Some(EventChoice::Creep)
    } else if begins(&["not_finite", "odd_weights"]) {
        Some(EventChoice::NotFinite)
    } else if begins(&["entropy_collapse", "reward_collapse"]) {
        Some(EventChoice::Collapse)
    } else {
        None
    }
}

fn build(
    event: EventChoice,
    text: String,
    outcome: Option<&RunOutcome>,
    s: &RunState,
    whose: EventRun<'_>,
) -> Notification {
    let run = whose.run;
    let attempt = s.attempt.as_ref();
    let todo = match outcome {
        Some(outcome) => advice(outcome, s, run, attempt.and_then(Attempt::blamed).map(|w| w.0)),
        None => vec![
            format!("why: supervise explain {run}"),
            format!("now: supervise status {run}"),
        ],
    };
    let mut text = redact_text(&text);
    text.truncate(text.floor_char_boundary(TEXT));
    Notification {
        version: 1,
        event,
        run: run.to_owned(),
        root: whose.root.map(redact_text),
        attempt: attempt.map(|a| a.no.0),
        step: attempt.and_then(|a| a.training.step).map(|step| step.0),
        proven: s.progress.mark.map(|step| step.0),
        text,
        todo,
        host: whose.host.to_owned(),
        wall: s.wall,
        time: stamp(s.wall),
        exit_code: outcome.and(s.exit_code()),
        left_out: 0,
        test: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::journal::reason::Reason;
    use supervise_core::journal::record::AfterStop;
    use supervise_core::journal::record::WaitCondition;

    const WHOSE: EventRun<'_> = EventRun {
        run: "0123456789abcdef",
        root: Some("/ckpt"),
        host: "node-1",
    };

    fn decided(what: Decision, code: &'static str, text: &str) -> JournalRecord {
        JournalRecord::Decided {
            at: Tick(5),
            what,
            reasons: vec![Reason::new(code, text)],
        }
    }

    fn told(r: &JournalRecord) -> Option<Notification> {
        let mut s = RunState::default();
        s.apply(r);
        notice(r, &s, WHOSE)
    }

    #[test]
    fn the_end_of_a_run_is_told_with_its_exit_code_and_advice() {
        let why = "6 attempts in a row".to_owned();
        let outcome = RunOutcome::GaveUp { why: why.clone() };
        let n = told(&decided(Decision::Finish { outcome }, "budget", &why)).unwrap();
        assert_eq!((n.event, n.exit_code), (EventChoice::GaveUp, Some(6)));
        assert!(n.text.contains(&why) && !n.todo.is_empty(), "{n:?}");
        let json = serde_json::to_value(&n).unwrap();
        assert_eq!((&json["event"], &json["host"]), (&"gave_up".into(), &"node-1".into()));
    }

    #[test]
    fn a_reason_makes_an_event_whatever_it_led_to() {
        let stop = Decision::Stop {
            then: AfterStop::Diagnose,
            gently: false,
        };
        let event = |code| told(&decided(stop.clone(), code, "x")).map(|n| n.event);
        assert_eq!(event("stalled"), Some(EventChoice::Stall));
        assert_eq!(event("resumed_elsewhere"), Some(EventChoice::UnconfirmedResume));
        assert_eq!(event("unconfirmed_resume"), Some(EventChoice::UnconfirmedResume));
        assert_eq!(event("creep"), Some(EventChoice::Creep));
        assert_eq!(event("not_finite"), Some(EventChoice::NotFinite));
        assert_eq!(event("odd_weights"), Some(EventChoice::NotFinite));
        assert_eq!(event("entropy_collapse"), Some(EventChoice::Collapse));
        assert_eq!((event("worker_failed"), event("resume_confirmed")), (None, None));
    }

    #[test]
    fn a_secret_in_the_words_is_hidden() {
        let suspect = Decision::Suspect { what: "x".into() };
        let n = told(&decided(suspect, "stalled", "token hf_abcdefghijklmnopqrstuvwx")).unwrap();
        assert!(!n.text.contains("hf_abc"), "{n:?}");
    }

    #[test]
    fn a_wait_is_told_when_it_lasts() {
        let mut s = RunState::default();
        s.apply(&decided(
            Decision::Wait {
                what: WaitCondition::Readable,
                until: Tick(u64::MAX),
            },
            "unreadable",
            "step 8 cannot be read",
        ));
        let wait = |at| long_wait(&s, Tick(at), WHOSE);
        assert_eq!(wait(600_000), None);
        let n = wait(700_000).unwrap();
        assert!(n.text.contains("readable: step 8 cannot be read"), "{n:?}");
        assert!(!is_end(n.event));
    }
}
