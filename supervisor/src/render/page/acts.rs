//! Actions on a run's page: the forms, the confirmation of a rollback, and the command that starts the run again.

use super::super::config::StartCommand;
use super::super::next::NextView;
use super::super::rollback::RollbackView;
use super::super::status::StatusView;
use super::super::terminal::{line, shown};
use super::super::{bytes, count};
use super::{named, whole};
use maud::{Markup, html};

/// A proof without progress for this many seconds is waiting for a file system.
const STILL: u64 = 5;

/// A rollback requested on a page and not yet in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentBack {
    pub to: u64,
    pub seconds: u64,
    /// Bytes that its proof has read.
    pub read: u64,
    pub still: u64,
    /// Why it was refused; `None`: still being proven.
    pub refused: Option<String>,
}

/// What the next start would do after a rollback, as far as known before it is requested.
#[derive(Debug, Clone, Copy)]
pub enum RollbackPreview<'a> {
    Made(&'a RollbackView),
    /// The proof of the step was not done in time.
    Late,
    Refused(&'a str),
}

pub(super) fn forms(s: &StatusView, key: &str, steps: bool) -> Markup {
    let form = |verb: &str, more: Markup| {
        html! { form.act method="post" action={ "/run/" (s.run) "/act/" (verb) } { (hidden(key)) (more) } }
    };
    html! {
        details #act {
            summary { "Act" }
            @if s.supervisor.alive && s.outcome.is_some() { p { "It is ending." } }
            @else if s.supervisor.alive {
                @if s.takes_saves { (form("save", html! { button { "Save now" } " " span.soft { "at the end of its step; the training goes on" } })) }
                @if s.held.is_some() { (form("unhold", html! { button { "Resume" } " " span.soft { "it goes on, and its supervisor sees to it again" } })) }
                @else {
                    (form("hold", html! { label { "Hold it, to " input name="reason" maxlength="200"; } " " button { "Hold" } }))
                }
                (form("stop-after-save", html! { button { "Stop at the next proven step" } " " span.soft { "nothing is lost" } }))
                (asks(s, StopKind::Gently))
                (asks(s, StopKind::Now))
                @if steps { p.soft { "It goes back to an earlier step once it is stopped." } }
            } @else if let Some(there) = &s.elsewhere {
                p { "Its supervisor is on " (shown(&there.host)) ", out of reach from here: " code { "supervise stop " (s.run) } " there." }
            } @else {
                @if steps {
                    form.act method="get" action={ "/run/" (s.run) "/rollback" } {
                        label { "Send it back to step " input name="to" type="number" min="0" required; } " " button { "Look first" }
                    }
                }
                p { a href={ "/run/" (s.run) "/resume" } { "How to start it again" } }
            }
        }
    }
}

/// How the workers of a run are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopKind {
    Gently,
    Now,
}

impl StopKind {
    /// Its name in addresses.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Gently => "stop",
            Self::Now => "stop-now",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn of(verb: &str) -> Option<Self> {
        [Self::Gently, Self::Now].into_iter().find(|kind| kind.verb() == verb)
    }

    fn title(self) -> &'static str {
        match self {
            Self::Gently => "Stop",
            Self::Now => "Stop now",
        }
    }
}

/// The button that leads to the question.
fn asks(s: &StatusView, kind: StopKind) -> Markup {
    let about = match kind {
        StopKind::Gently => "its workers get time to end; steps since the last save are lost",
        StopKind::Now => "the workers are killed at once",
    };
    html! {
        form.act method="get" action={ "/run/" (s.run) "/stop" } {
            button name="how" value=(kind.verb()) { (kind.title()) "…" } " " span.soft { (about) }
        }
    }
}

/// The confirmation page of a stop: what is lost.
#[must_use]
pub fn stop(s: &StatusView, kind: StopKind, key: &str) -> String {
    let (name, place) = named(s);
    let step = s.attempt.as_ref().and_then(|a| a.step).unwrap_or_default();
    let proven = s.mark.unwrap_or_default();
    let main = html! {
        h1 { (kind.title()) "?" }
        p { a href={ "/run/" (s.run) } { (shown(name)) } }
        p.place { (shown(place)) }
        p {
            @match kind {
                StopKind::Gently => "Its workers are asked to end, and killed if they do not.",
                StopKind::Now => "Its workers are killed at once.",
            }
        }
        @if step > proven {
            p.odd {
                "Lost: the training of " (count(step - proven, "step")) ", " (proven + 1) " to " (step) ". "
                @if s.mark.is_some() { "The run resumes from step " (proven) "." } @else { "No step is proven: it would start from the beginning." }
            }
        } @else if s.mark.is_some() {
            p { "The run resumes from step " (proven) "." }
        } @else { p { "No step is proven: the run would start from the beginning." } }
        form.act method="post" action={ "/run/" (s.run) "/act/" (kind.verb()) } {
            (hidden(key))
            button.danger { (kind.title()) }
            " " a href={ "/run/" (s.run) } { "Leave it running" }
        }
        form.act method="post" action={ "/run/" (s.run) "/act/stop-after-save" } {
            (hidden(key))
            button { "Stop at the next proven step instead" } " " span.soft { "nothing is lost" }
        }
    };
    whole(&format!("{}: {name}", kind.title()), None, &main)
}

fn hidden(key: &str) -> Markup {
    html! { input type="hidden" name="key" value=(key); }
}

pub(super) fn sent_back(s: &StatusView, asked: Option<&SentBack>) -> Markup {
    html! {
        @if let Some(back) = s.roll_back.as_ref() {
            p.odd { "Its next start goes back to step " (back.to) ": " (shown(&back.by)) " asked for that." }
        }
        @match asked {
            Some(SentBack { to, refused: Some(why), .. }) => p.bad { "Going back to step " (to) " failed: " (shown(why)) },
            Some(SentBack { to, seconds, read, still, refused: None }) => p.odd {
                "It was asked to go back to step " (to) " " (seconds) " s ago: that step is still being proven, " (bytes(*read)) " are read."
                @if *still >= STILL { " Nothing more for " (still) " s: a file system does not answer." }
            },
            None => {},
        }
    }
}

/// The confirmation page of a rollback: what would happen, and what is lost.
#[must_use]
pub fn rollback(s: &StatusView, to: u64, promise: RollbackPreview<'_>, key: &str) -> String {
    let name = s.root.as_ref().or(s.run_dir.as_ref()).unwrap_or(&s.run);
    let main = html! {
        h1 { "Back to step " (to) "?" }
        p { a href={ "/run/" (s.run) } { "The run" } " " (shown(name)) }
        @match promise {
            RollbackPreview::Refused(why) => p.bad { (shown(why)) },
            RollbackPreview::Made(view) => {
                p { "Its next start resumes from step " (view.to) "." }
                (lost(s, to))
                @if !view.aside.is_empty() {
                    p { (count(view.aside.len() as u64, "newer step")) " will go aside, not deleted: " (shown(&view.aside.join(", "))) }
                }
                @if !view.lost.is_empty() {
                    p.odd { "It does not bring back: " (view.lost.iter().map(|kind| kind.words()).collect::<Vec<_>>().join(", ")) }
                }
                @for reason in &view.reasons { p.soft { "because " (shown(&reason.text)) } }
            }
            RollbackPreview::Late => {
                p.odd { "The step is large, or its file system slow: its proof is not made yet, so it is not known which steps would go aside." }
                (lost(s, to))
                p { "It can be asked for all the same: it is proven first, and refused where it is not whole." }
            }
        }
        @if !matches!(promise, RollbackPreview::Refused(_)) {
            p { "Nothing is moved and nothing is started now. The next start does it, once; until then another wish replaces this one." }
            form.act method="post" action={ "/run/" (s.run) "/act/rollback" } {
                (hidden(key))
                input type="hidden" name="to" value=(to);
                button { "Send it back to step " (to) }
                " " a href={ "/run/" (s.run) } { "Leave it as it is" }
            }
        }
    };
    whole("Back to a step", None, &main)
}

fn lost(s: &StatusView, to: u64) -> Markup {
    let printed = s.attempt.as_ref().and_then(|a| a.step);
    let highest = s.mark.into_iter().chain(printed).max().unwrap_or_default();
    html! {
        @if highest > to {
            p.odd { "Lost: the training of " (count(highest - to, "step")) ", " (to + 1) " to " (highest) ". They are trained again." }
        }
    }
}

/// Content of the page that says how to start a run again.
#[derive(Debug)]
pub struct ResumePage<'a> {
    pub status: &'a StatusView,
    pub next: Option<&'a NextView>,
    /// Options of its start to repeat in the next one.
    pub options: &'a [&'a str],
    /// The command that started it, or why it is unknown.
    pub started: Result<&'a StartCommand, &'a str>,
    /// The machine of its last term, if known.
    pub ran_on: Option<&'a str>,
    pub here: &'a str,
}

/// The page that says how to start a run again.
#[must_use]
pub fn resume(v: &ResumePage<'_>) -> String {
    let s = v.status;
    let main = html! {
        h1 { "Start it again" }
        p { a href={ "/run/" (s.run) } { "The run" } }
        @if s.lives() {
            p {
                "Its supervisor lives: there is nothing to start."
                @if s.held.is_some() { " It is held, until somebody lets it go on: " code { "supervise unhold " (s.run) } }
            }
        } @else { (words(v)) }
    };
    whole("Start it again", None, &main)
}

fn words(v: &ResumePage<'_>) -> Markup {
    let s = v.status;
    let again = v.next.is_some_and(|n| n.again);
    html! {
        @if let Some(next) = v.next { p { (shown(&next.would)) } }
        @if let Some(back) = &s.roll_back { p.odd { "It goes back to step " (back.to) ", as " (shown(&back.by)) " asked." } }
        @match v.started {
            Err(why) => p.bad { (shown(why)) },
            Ok(started) => (command(started, again, v.options)),
        }
        @if again { p.odd { code { "--again" } " is there because the run ended with a failure that needs you: fix the cause first." } }
        @if let Some(host) = v.ran_on.filter(|host| *host != v.here) {
            p.odd { "Its last term ran on " (shown(host)) ", and this page comes from " (shown(v.here)) ": start it there." }
        }
        @if let Some(job) = &s.scheduler {
            p.odd { "It ran in Slurm job " (shown(&job.job)) ": start it in an allocation, or submit its batch script again." }
        }
        p.soft {
            "No page starts a run. The server has another environment than the shell you started it from: modules, virtual environment, GPUs, limits, allocation. \
             Copy the line into such a shell."
        }
    }
}

fn command(started: &StartCommand, again: bool, options: &[&str]) -> Markup {
    let mut words: Vec<String> = ["supervise", "run"].map(str::to_owned).into();
    words.extend(again.then(|| "--again".to_owned()));
    words.extend(options.iter().map(|o| (*o).to_owned()));
    words.extend(started.arguments());
    let words: Vec<String> = words.iter().map(|w| quoted(w)).collect();
    let text = format!("cd {} && {}", quoted(&started.cwd), words.join(" "));
    // A line that the page cannot show unchanged must not be copied.
    let is_exact = !started.hidden && line(&text) == text;
    html! {
        pre { (shown(&text)) }
        @if !is_exact {
            p.bad { "Something in it is hidden (a secret), or cannot be shown as it is: put it back before you start it." }
        }
    }
}

/// Quotes a word for any shell, braces included.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
