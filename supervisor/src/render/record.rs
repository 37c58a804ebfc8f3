//! One line per decision, in plain words, with its first reason.

mod edit;
mod saves;
mod script;

pub use edit::{edit_because, edit_words};

use super::condition;
use super::outcome::{outcome_in, outcome_words, proven_word};
use super::time::{clock, span, stamp};
use super::{bytes, count, one_line};
use crate::lead::Lead;
use std::fmt::{Display, from_fn};
use supervise_core::checkpoint::kind::is_live;
use supervise_core::event::rehearsal::RehearsalResult;
use supervise_core::event::scan::RuleKind;
use supervise_core::event::{ActOutput, EventKind, OperatorRequest, Sighting, StandbyResult};
use supervise_core::id::AttemptNo;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{
    ActKind, AfterStop, Decision, Diagnosis, DiskEdit, FailureAction, JournalRecord, LaunchOrder, RunOutcome,
    StartPoint, WaitCondition,
};
use supervise_core::rulebook::taxonomy::{Class, FailureClass};
use supervise_core::spec::gang::{NodesNews, lost_words};
use supervise_core::state::RunState;

/// A longer wait has no time limit.
const LONGEST: supervise_core::id::Ms = supervise_core::id::Ms::secs(366 * 86_400);
const FOREIGN: usize = 300;

const SAID: [&str; 8] = [
    "judged_anew",
    "vanished",
    "beyond",
    "stopped_early",
    "last_step_done",
    "tail_failed",
    "spread_changed",
    "spread_not_recorded",
];

/// A record as text; `None` if it says nothing new. `s` is the state after it.
#[must_use]
pub fn words(r: &JournalRecord, s: &RunState) -> Option<String> {
    match r {
        JournalRecord::Fact(e) => fact(&e.kind, s),
        JournalRecord::Decided { what, reasons, .. } => decided(what, reasons, s),
        JournalRecord::Intended { act, reasons, .. } => intended(&act.kind, reasons, s),
        JournalRecord::Ignored { .. } => None,
    }
}

/// Returns true if the record is shown even in quiet mode: there is still time to fix the problem.
#[must_use]
pub fn is_urgent(r: &JournalRecord) -> bool {
    match r {
        JournalRecord::Fact(e) => {
            matches!(&e.kind, EventKind::Rehearsed(r) if matches!(r.result, RehearsalResult::Refused { .. }))
        }
        JournalRecord::Decided {
            what: Decision::Noticed { what, .. },
            ..
        } => what.is_warning(),
        _ => false,
    }
}

/// The same with its time in front.
#[must_use]
pub fn line(r: &JournalRecord, s: &RunState) -> Option<String> {
    let words = words(r, s)?;
    Some([&clock(s.wall), " ", &words].concat())
}

/// Result of a relaunch rehearsal.
#[must_use]
pub fn rehearsed(r: &RehearsalResult) -> String {
    match r {
        RehearsalResult::Taken => "rehearsed a restart: the trainer takes all that it would be given".to_owned(),
        RehearsalResult::Refused { what } => format!(
            "WARNING: rehearsed a restart, and it would fail: {}; fix it before the first failure needs it",
            what.join("; ")
        ),
        RehearsalResult::Unknown { why } => format!("could not rehearse a restart: {why}"),
    }
}

fn attempt(s: &RunState) -> impl Display {
    from_fn(|f| match &s.attempt {
        Some(a) => write!(f, "attempt {}", a.no),
        None => f.write_str("the run"),
    })
}

fn fact(kind: &EventKind, s: &RunState) -> Option<String> {
    Some(match kind {
        EventKind::TermStarted {
            term,
            host,
            living,
            orphans,
            ..
        } => {
            let found = match (living, orphans.len()) {
                (Some(l), _) => format!("; attempt {} still runs under its guard", l.attempt),
                (None, 0) => String::new(),
                (None, n) => format!("; {} of an earlier attempt still live", processes(n)),
            };
            format!("term {term} begins on {host}{found}{}", other_release(s))
        }
        EventKind::ActDone { result: Err(e), .. } => format!("{}: {}", attempt(s), e.what),
        EventKind::ActDone {
            result: Ok(ActOutput::Resharded(derived)),
            ..
        } => edit::derived(derived),
        EventKind::ActDone { result: Ok(output), .. } => return launched(output, s),
        EventKind::WorkerExited {
            attempt,
            worker,
            status,
            first: true,
            ..
        } => {
            format!("attempt {attempt}: worker {worker} {}", status.words())
        }
        EventKind::TreeGone { attempt, unkillable } if !unkillable.is_empty() => {
            let pids: Vec<String> = unkillable.iter().map(ToString::to_string).collect();
            format!(
                "attempt {attempt}: SIGKILL did not end these processes: {}",
                pids.join(", ")
            )
        }
        EventKind::GuardLost { attempt } => format!("attempt {attempt}: its guard is gone"),
        EventKind::Nodes { attempt, news } => format!("attempt {attempt}: {}", nodes(news)),
        EventKind::Sighted {
            attempt,
            means,
            sighting,
        } if sighting.count == 1 => return sighted(*attempt, means, sighting),
        EventKind::Script { attempt, news } => format!("attempt {attempt}: {}", script::words(news)),
        EventKind::Rehearsed(r) => rehearsed(&r.result),
        EventKind::TrainerSeen(seen) => seen.words(),
        EventKind::TimeGap { missing } => format!(
            "the machine or the supervisor was paused for {}; timeouts were extended",
            span(*missing)
        ),
        EventKind::IoStalled { what } => format!("the file system does not answer: {what}"),
        EventKind::IoRecovered => "the file system answers again".to_owned(),
        EventKind::LeaseLost { by } => format!("another process is at work here: {by}"),
        EventKind::Displaced { what } | EventKind::LeaseSilent { what } => what.clone(),
        EventKind::Told {
            event,
            to,
            arrived: false,
            note,
        } => format!(
            "nobody could be told of {event} by on_event.{to}: {}",
            one_line(note, FOREIGN)
        ),
        EventKind::Allocation {
            job, restarts, ends, ..
        } => {
            let again = match restarts {
                0 => String::new(),
                n => format!(", started again {}", count((*n).into(), "time")),
            };
            let end = ends.map_or_else(
                || "no end is known".to_owned(),
                |at| format!("it ends at {}", stamp(at)),
            );
            format!("this is job {job} of Slurm's{again}; {end}")
        }
        EventKind::Operator(OperatorRequest::HandBack { by, left }) => match left {
            Some(left) => format!("{by}: the machine is taken away in {}", span(*left)),
            None => format!("{by}: the machine is taken away soon"),
        },
        EventKind::Operator(OperatorRequest::Stop { after_save, by, .. }) => {
            let when = if *after_save { " at the next proven step" } else { "" };
            format!("a stop{when} was asked for by {by}")
        }
        EventKind::Operator(OperatorRequest::Hold { .. }) => s.requests.held.as_ref()?.words(),
        EventKind::SaveAnswered { attempt, step, .. } => {
            format!("attempt {attempt}: the trainer answered: step {step} is saved")
        }
        EventKind::Operator(OperatorRequest::Save { by }) => format!("a save was asked for by {by}"),
        EventKind::Operator(OperatorRequest::Unhold { by }) => format!("no longer held: {by} lets it go on"),
        EventKind::Operator(OperatorRequest::Resume { by, .. }) => format!("{by} lets the run go on"),
        EventKind::Operator(OperatorRequest::RollBack { by, to }) => format!("{by} sends the run back to step {to}"),
        EventKind::Operator(OperatorRequest::StopNow { by }) => format!("an immediate stop was asked for by {by}"),
        EventKind::Collected {
            places,
            count: all,
            bytes: size,
        } => {
            let first = places.first().map_or("", |p| p.as_str());
            let more = if *all > 1 { ", …" } else { "" };
            format!(
                "`supervise gc` deleted {} ({}): {first}{more}",
                count(*all, "leftover"),
                bytes(*size)
            )
        }
        _ => return None,
    })
}

fn other_release(s: &RunState) -> String {
    match (&s.context.trainer_before, &s.context.trainer_version) {
        (Some(before), Some(now)) if before != now => {
            format!("; the trainer's version is {now} now, and was {before}")
        }
        _ => String::new(),
    }
}

fn sighted(attempt: AttemptNo, means: &RuleKind, seen: &Sighting) -> Option<String> {
    let what = match means {
        RuleKind::Resumed => match seen.number {
            Some(n) => format!("the trainer says that it resumed from step {n}"),
            None => "the trainer says that it resumed".to_owned(),
        },
        RuleKind::ResumePath => "the trainer printed its configuration".to_owned(),
        RuleKind::Scratch => "the trainer starts from scratch".to_owned(),
        RuleKind::Heals => format!(
            "a part of it is brought back in place, and is given the time of a start: {}",
            one_line(&seen.text, FOREIGN)
        ),
        RuleKind::Failure(class) => {
            // A report from elsewhere has no line number in the worker's output.
            let says = if seen.line > 0 { " says" } else { "" };
            format!(
                "worker {}{says} ({class}): {}",
                seen.worker,
                one_line(&seen.text, FOREIGN)
            )
        }
        _ => return None,
    };
    Some(format!("attempt {attempt}: {what}"))
}

fn launched(output: &ActOutput, s: &RunState) -> Option<String> {
    let ActOutput::Launched {
        guard, workers, ahead, ..
    } = output
    else {
        return None;
    };
    let no_more = |lasting: &bool| match lasting {
        true => "; none is started ahead any more",
        false => "",
    };
    let ahead = match ahead {
        None => String::new(),
        Some(StandbyResult::Went) => "; they had imported ahead".to_owned(),
        Some(StandbyResult::WentAlone { why, lasting }) => format!(
            "; the driver had imported ahead, for the workers of its Ray nothing had: {}{}",
            one_line(why, FOREIGN),
            no_more(lasting)
        ),
        Some(StandbyResult::Cold { why, lasting }) => format!(
            "; not from interpreters that had imported ahead: {}{}",
            one_line(why, FOREIGN),
            no_more(lasting)
        ),
    };
    let pids: Vec<String> = workers.iter().map(ToString::to_string).collect();
    let n = u64::try_from(workers.len()).unwrap_or(u64::MAX);
    Some(format!(
        "{}: {} started ({}), guard {guard}{ahead}",
        attempt(s),
        if n == 1 {
            "1 worker".to_owned()
        } else {
            count(n, "worker")
        },
        pids.join(", ")
    ))
}

fn nodes(news: &NodesNews) -> String {
    match news {
        NodesNews::On { nodes, lost } if nodes.is_empty() => format!("without {}", lost_words(lost)),
        NodesNews::On { nodes, lost } if lost.is_empty() => format!("on nodes {}", nodes.join(", ")),
        NodesNews::On { nodes, lost } => format!("on nodes {}; lost: {}", nodes.join(", "), lost_words(lost)),
        NodesNews::Wait { what } => format!("it waits for {}", one_line(what, FOREIGN)),
    }
}

fn processes(n: usize) -> String {
    if n == 1 {
        "1 process".to_owned()
    } else {
        format!("{n} processes")
    }
}

fn because(reasons: &[Reason]) -> impl Display {
    from_fn(|f| match reasons.first() {
        Some(r) => write!(f, ": {}", one_line(&r.text, 600)),
        None => Ok(()),
    })
}

fn decided(what: &Decision, reasons: &[Reason], s: &RunState) -> Option<String> {
    let why = because(reasons);
    let a = attempt(s);
    Some(match what {
        Decision::Fence { attempt: Some(n) } => format!("making sure that nothing of attempt {n} lives{why}"),
        Decision::TakeOver { attempt } => format!("attempt {attempt}: taken over from its guard{why}"),
        Decision::StartFrom { order, edits, .. } => start(order, edits, reasons),
        Decision::Drain { then, .. } => format!("{a}: a save may finish first, then {}{why}", then_words(*then)),
        Decision::Stop { then, gently } => {
            let how = if *gently { "stopping" } else { "killing" };
            format!("{a}: {how} the workers, then {}{why}", then_words(*then))
        }
        Decision::Diagnosed(d) => format!("{a}: {}{}", diagnosis(d), last_lines(s)),
        Decision::Distrust { ckpt } => format!("{ckpt} is not chosen again{why}"),
        Decision::Trust { ckpts } => {
            let names: Vec<String> = ckpts.iter().map(ToString::to_string).collect();
            format!("{} may be chosen again{why}", names.join(", "))
        }
        Decision::Advanced { .. } => format!("{a}: no retry is charged{why}"),
        Decision::Charge { attempts, .. } if *attempts > 0 => {
            format!(
                "{} without progress so far{why}",
                count(u64::from(*attempts), "attempt")
            )
        }
        Decision::Wait {
            what: WaitCondition::Backoff,
            ..
        } if reasons.first().is_some_and(|r| r.code == "backoff") => reasons.first()?.text.clone(),
        Decision::Wait { what, until } => {
            let left = span_at_most(what, until.since(s.now));
            match what {
                WaitCondition::Backoff => format!("restarting in {left}{why}"),
                what => format!("waiting {} {left}{why}", condition::until(what)),
            }
        }
        Decision::Mark { step } => format!("step {step} is {}{why}", proven_word(s)),
        Decision::HandBack { .. } => format!("{a}: stops in time, to go on when the scheduler starts it again{why}"),
        Decision::SaveRequestEnded { how, .. } => format!("{a}: {}{why}", saves::ended(how)),
        Decision::StopAfterSave => format!("{a}: stops at the next proven step{why}"),
        Decision::Suspect { what } | Decision::WouldHave { what } | Decision::Unwatched { what } => {
            format!("{a}: {what}")
        }
        Decision::Noticed { what, text } => {
            let warning = if what.is_warning() {
                format!("{} ", Lead::Warning)
            } else {
                String::new()
            };
            format!("{warning}{a}: {}", one_line(text, 600))
        }
        Decision::Finish { outcome } => format!("{}{}", outcome_in(outcome, s), finish_reason(outcome, reasons)),
        Decision::Fence { attempt: None }
        | Decision::Choose
        | Decision::Launch { .. }
        | Decision::Run
        | Decision::Refilled
        | Decision::SaveGrows { .. }
        | Decision::Charge { .. } => return None,
    })
}

fn span_at_most(what: &WaitCondition, left: supervise_core::id::Ms) -> String {
    match what {
        WaitCondition::Backoff => span(left),
        WaitCondition::ClusterFree | WaitCondition::GpusFree => format!("asking again in {}", span(left)),
        // A wait without a time limit.
        _ if left > LONGEST => "however long it takes".to_owned(),
        _ => format!("for at most {}", span(left)),
    }
}

fn then_words(then: AfterStop) -> &'static str {
    match then {
        AfterStop::Diagnose => "finding out why",
        AfterStop::Stopped => "the run is stopped",
        AfterStop::LeaseLost => "the run is left to whoever is there now",
        AfterStop::Choose => "choosing where to resume",
    }
}

/// `attempt 2: resume from global_step_6: newest whole step (proven: structure); moved aside: …`
fn start(order: &LaunchOrder, edits: &[DiskEdit], reasons: &[Reason]) -> String {
    let mut out = format!("attempt {}: {}", order.attempt, start_point(&order.from));
    if let Some(first) = reasons.first() {
        let text = match &order.from {
            StartPoint::Step { ckpt, .. } => {
                let prefix = format!("{ckpt} is the ");
                first.text.strip_prefix(&prefix).unwrap_or(&first.text)
            }
            _ => &first.text,
        };
        out.push_str(&format!(": {text}"));
    }
    for said in reasons.iter().filter(|r| SAID.contains(&r.code.as_ref())) {
        out.push_str(&format!("; {}", said.text));
    }
    for edit in edits {
        let words = edit_because(edit, reasons);
        out.push_str(&format!("; {words}"));
    }
    if !order.lost.is_empty() {
        let lost: Vec<&str> = order.lost.iter().map(|k| k.words()).collect();
        out.push_str(&format!("; NOT restored: {}", lost.join(", ")));
    }
    out
}

/// Where an attempt starts, as text.
#[must_use]
pub fn start_point(from: &StartPoint) -> String {
    match from {
        // The name of the only checkpoint does not say which step it holds.
        StartPoint::Step { ckpt, step, .. } if is_live(ckpt) => format!("resume from {ckpt} (step {step})"),
        StartPoint::Step { ckpt, .. } => format!("resume from {ckpt}"),
        StartPoint::Fresh => "start from scratch".to_owned(),
        StartPoint::AsIs => "run the command as written".to_owned(),
    }
}

/// A diagnosis as text.
#[must_use]
pub fn diagnosis(d: &Diagnosis) -> String {
    let step = d.step.map(|s| format!(" at step {s}")).unwrap_or_default();
    // These two name no cause.
    let class = match &d.class {
        FailureClass::Known(Class::ExitUnexplained | Class::KillUnknown) => String::new(),
        class => format!(" ({class})"),
    };
    format!(
        "{}{class}{step}; {}",
        one_line(&d.text, FOREIGN),
        action(d.answer.unwrap_or(d.action))
    )
}

/// The last lines of the worker that failed first, if nothing else says why it exited.
fn last_lines(s: &RunState) -> String {
    let Some(a) = &s.attempt else { return String::new() };
    let worker = a.end.first_failure.map_or(0, |(w, _)| w.0);
    supervise_core::diagnosis::last_lines(a)
        .iter()
        .map(|l| format!("\n    worker {worker}: {}", one_line(l, FOREIGN)))
        .collect()
}

fn action(a: FailureAction) -> &'static str {
    match a {
        FailureAction::Relaunch | FailureAction::Kill => "a restart may help",
        FailureAction::RelaunchLater => "a restart after a pause may help",
        FailureAction::RelaunchOnce => "one restart may help",
        FailureAction::Stop => "a restart will not help",
        FailureAction::FallBack => "falling back to an earlier step",
        FailureAction::Node => "a restart without this node may help",
        FailureAction::Wait => "a restart may help once its cause is gone",
    }
}

/// The first reason, unless the outcome already says it.
fn finish_reason(o: &RunOutcome, reasons: &[Reason]) -> String {
    let words = outcome_words(o);
    let mut out = match reasons.first() {
        Some(r) if !words.contains(&r.text) => because(reasons).to_string(),
        _ => String::new(),
    };
    for said in reasons.iter().skip(1).filter(|r| SAID.contains(&r.code.as_ref())) {
        out.push_str(&format!("; {}", one_line(&said.text, 600)));
    }
    out
}

fn intended(kind: &ActKind, reasons: &[Reason], s: &RunState) -> Option<String> {
    let why = because(reasons);
    Some(match kind {
        ActKind::Prune(steps) => {
            let names: Vec<String> = steps.iter().map(ToString::to_string).collect();
            format!("deleting {}{why}", names.join(", "))
        }
        ActKind::Keep { step, .. } => format!("keeping a copy of step {step}{why}"),
        ActKind::RequestSave(order) => format!("{}: {}{why}", attempt(s), saves::asked(order)),
        ActKind::Freeze => format!("{}: frozen while it is looked at{why}", attempt(s)),
        ActKind::Thaw => format!("{}: goes on{why}", attempt(s)),
        ActKind::Arrange(_) | ActKind::Launch(_) | ActKind::Signal { .. } | ActKind::KillTree | ActKind::Finish(_) => {
            return None;
        }
    })
}
