//! Diagnosis of why an attempt ended: class, action, fingerprint.
//!
//! The first failure in time counts, not the loudest. A cascade line is never the root cause, and a bare SIGKILL is an unknown kill
//! until something explains it. A class never decides alone: see `decide`.

mod alive;
pub mod evidence;
mod exceptions;
mod from_logs;
mod log_encoding;
mod log_reader;
mod log_verdict;
mod patterns;
mod raised;
mod refine;
mod reported_exits;
mod root_cause;
mod rules;
mod runs;
mod stall;
mod steps;
mod texts;
mod wrapped;

pub use log_encoding::LogDoubt;
pub use log_reader::LogReader;
pub(crate) use log_verdict::AT_START;
pub use log_verdict::{Confidence, LogLine, LogVerdict};
pub use raised::exception_name;
pub use rules::{action, failure_rules, user_rules};

use crate::diagnosis::evidence::better;
use crate::event::scan::{RuleKind, TracebackScope};
use crate::event::{ExitStatus, Sighting, TrainerPhase};
use crate::id::{Step, WorkerId, fnv64};
use crate::journal::record::{Diagnosis, NoticeKind, StartPoint};
use crate::observe::collectives::Collectives;
use crate::observe::stacks::Stacks;
use crate::rulebook::log_cause::LogCause;
use crate::rulebook::taxonomy::{Class, FailureClass, FailureKind, Family, Weight};
use crate::spec::script::ScriptNews;
use crate::state::{Attempt, EndCause};
use from_logs::from_the_logs;
use log_verdict::public;
use root_cause::{LogClue, choose, class_of, is_telling};

/// Diagnoses an attempt. Its logs, read as `supervise diagnose` reads them, count unless the machine or our own acts show the cause.
#[must_use]
pub fn diagnose(a: &Attempt) -> Diagnosis {
    let told = with_the_node(a, from_the_ending(a, told(a)));
    match better(a, &told.class) {
        Some(shown) => Diagnosis {
            worker: told.worker,
            ..build(a, shown.class, shown.text, &shown.shape)
        },
        None => with_the_rank(a, told),
    }
}

/// The cause from our own acts, from the logs, or from the output that was scanned while it was written.
fn told(a: &Attempt) -> Diagnosis {
    if let Some(d) = from_our_acts(a) {
        return d;
    }
    match a.end.evidence.as_ref().and_then(|facts| facts.logs.as_ref()) {
        None => from_words(a),
        Some(LogCause { unread: Some(why), .. }) => {
            let mut d = from_words(a);
            d.text = format!("{} (as seen while it ran: {why})", d.text);
            d
        }
        Some(logs) => match beside_the_call(a, logs) {
            Some(why) => {
                let mut d = from_words(a);
                d.text = format!("{} ({why})", d.text);
                d
            }
            None => from_the_logs(a, logs),
        },
    }
}

/// Why the root line does not count, if a launch script called the trainer.
fn beside_the_call(a: &Attempt, logs: &LogCause) -> Option<String> {
    let place = logs.root.as_ref()?;
    let class = logs.class.as_ref()?;
    let before = a.called.get(&place.worker).is_some_and(|line| place.line <= *line);
    let is_kill = tells_of_a_kill(&RuleKind::Failure(class.clone()));
    let why = match (before, was_call_killed(a) && !is_kill) {
        (true, _) => "it was printed before the script called the trainer",
        (false, true) => "the trainer was killed from outside",
        (false, false) => return None,
    };
    Some(format!("not {class} of line {}: {why}", place.line))
}

/// A silent node is the cause of broken connections to it.
fn with_the_node(a: &Attempt, told: Diagnosis) -> Diagnosis {
    match a.nodes.silent().filter(|_| told.class.is_in(Family::Comm)) {
        Some(nodes) => {
            let text = format!("nothing is heard of node {nodes} any more; {}", told.text);
            build(a, Class::NodeSilent, text, nodes)
        }
        None => told,
    }
}

/// Falls back to the exception that the interpreter saved when it exited, if the output does not explain the exit.
fn from_the_ending(a: &Attempt, told: Diagnosis) -> Diagnosis {
    let Some((worker, ExitStatus::Code(1))) = a.end.first_failure.filter(|_| told.class == Class::ExitUnexplained)
    else {
        return told;
    };
    let endings = a.end.evidence.iter().flat_map(|facts| &facts.endings);
    let Some(ending) = endings.clone().find(|e| e.worker == worker) else {
        return told;
    };
    let seen = exceptions::sightings(ending);
    match root(seen.iter(), a, Weight::Effect) {
        Some((class, s)) => {
            let text = format!("the exception that ended {}: {}", place(s), shorten(&s.text));
            build(a, class, text, &s.text)
        }
        None => told,
    }
}

/// Adds to a hang or a communication failure the rank that the flight recorder or the stacks point to.
fn with_the_rank(a: &Attempt, mut told: Diagnosis) -> Diagnosis {
    let Some(facts) = &a.end.evidence else { return told };
    let hung = told.class.is_in(Family::Hang);
    let calls = facts.collectives.as_ref();
    let calls = calls.filter(|_| hung || told.class.is_in(Family::Comm));
    let stacks = facts.stacks.as_ref().filter(|_| hung);
    if hung {
        told.worker = stacks.and_then(Stacks::odd).or(told.worker);
    }
    let named = [calls.and_then(Collectives::named), stacks.and_then(Stacks::named)];
    for words in named.into_iter().flatten() {
        told.text = format!("{}; {words}", told.text);
    }
    told
}

/// The cause, if our own observations or acts establish it.
fn from_our_acts(a: &Attempt) -> Option<Diagnosis> {
    if a.output.scratch && a.order.from.step().0 > 0 {
        return Some(named(
            a,
            Class::CkptMissingPart,
            "the trainer started from scratch although a resume was ordered",
        ));
    }
    match &a.end.ended_by_us {
        Some(EndCause::NotResumed(why)) => return Some(named(a, Class::CkptMissingPart, why)),
        Some(cause) if a.end.spoilt => return Some(named(a, Class::NumNan, cause.words())),
        _ => {}
    }
    if let Some(why) = a.output.noticed.get(&NoticeKind::DoneButStays) {
        return Some(named(a, Class::EndEarlySuccess, why));
    }
    a.end.guard_lost.then(|| {
        named(
            a,
            Class::OwnGuardLost,
            "the guard of this attempt died; its workers were ended with it",
        )
    })
}

/// The cause from exit codes and from the output that was scanned while it was written.
fn from_words(a: &Attempt) -> Diagnosis {
    let seen = match was_call_killed(a) {
        true => root(
            a.standing().filter(|(means, _)| tells_of_a_kill(means)),
            a,
            Weight::Effect,
        ),
        false => root(a.standing(), a, Weight::Effect).or_else(|| said(a)),
    };
    if let Some((class, s)) = seen {
        let text = format!("{}: {}", place(s), shorten(&s.text));
        return build(a, class, text, &s.text);
    }
    if let Some(d) = from_its_stop(a) {
        return d;
    }
    match a.end.first_failure {
        Some((w, status)) => unsaid(a, w, status),
        None if a.succeeded() => build(a, Class::EndEarlySuccess, "all workers exited with code 0".into(), ""),
        None => build(a, Class::KillUnknown, "the workers ended out of sight".into(), ""),
    }
}

/// The cause, if we stopped the attempt for a stall, or because its script was about to start the trainer again.
fn from_its_stop(a: &Attempt) -> Option<Diagnosis> {
    if let Some(EndCause::Stalled(why)) = &a.end.ended_by_us {
        let class = match a.training.phase {
            TrainerPhase::Startup => Class::HangStartup,
            TrainerPhase::Save => Class::HangSave,
            TrainerPhase::Step | TrainerPhase::Validate | TrainerPhase::Exit => Class::HangStep,
        };
        return Some(build(a, class, why.clone(), ""));
    }
    (a.output.script == Some(ScriptNews::Again)).then(|| {
        let text = "the trainer ended, and the script would have started it again".to_owned();
        build(a, Class::ExitUnexplained, text, "")
    })
}

/// Returns true if the trainer called by a script was killed from outside, so that nothing it printed is the cause.
fn was_call_killed(a: &Attempt) -> bool {
    let killed = matches!(
        a.end.first_failure,
        Some((_, ExitStatus::Signal(9) | ExitStatus::Code(137)))
    );
    killed && !a.called.is_empty() && a.end.failed_by_itself
}

/// Returns true for classes that explain the kill of a process: an OOM killer, a scheduler, a node that is taken away.
fn tells_of_a_kill(means: &RuleKind) -> bool {
    match means {
        RuleKind::Failure(FailureClass::Known(class)) => {
            matches!(class, Class::MemHostOom | Class::MemRayOom)
                || matches!(class.family(), Family::Sched | Family::Node)
        }
        RuleKind::Failure(FailureClass::User(_)) => true,
        _ => false,
    }
}

/// A worker failed without printing a cause: classifies its exit, or what its peers report.
fn unsaid(a: &Attempt, w: WorkerId, status: ExitStatus) -> Diagnosis {
    // Ray reports the death of a process, but nothing says why it died.
    if class_of(status) == Class::ExitUnexplained && lost_a_process(a) {
        let text = format!(
            "worker {w} {}: a process of its Ray cluster died, and nothing says of what",
            status.words()
        );
        return build(a, Class::KillUnknown, text, "");
    }
    if !is_telling(status)
        && let Some((class, s)) =
            root(a.standing(), a, Weight::Hint).or_else(|| root(a.output.sightings.iter(), a, Weight::Effect))
        && (class_of(status) == Class::ExitUnexplained || class == Class::CommNcclTimeout)
    {
        let text = format!("{}: {}", place(s), shorten(&s.text));
        return build(a, class, text, "");
    }
    let class = class_of(status).into();
    // Our own kills were handled above.
    let text = format!("worker {w} {}{}", status.words(), hint(&class));
    build(a, class, text, "")
}

/// Remark after an exit that nothing else explains.
fn hint(class: &FailureClass) -> &'static str {
    match class {
        FailureClass::Known(Class::KillUnknown) => {
            ", from outside: by somebody, or an OOM killer that left no record here (see dmesg)"
        }
        _ => "",
    }
}

/// The last output lines of the worker that failed first, if no known failure was found: the only evidence left.
#[must_use]
pub fn last_lines(a: &Attempt) -> &[String] {
    let logs = a.end.evidence.iter().filter_map(|facts| facts.logs.as_ref());
    let read = logs.clone().any(|l| l.root.is_some() || l.report.is_some());
    let seen = || root(a.standing(), a, Weight::Effect).or_else(|| said(a)).is_some();
    let known = a.end.diagnosis.is_none() || read || seen();
    if known { &[] } else { &a.end.lines }
}

fn named(a: &Attempt, class: Class, text: &str) -> Diagnosis {
    build(a, class, text.to_owned(), "")
}

/// The worker whose output names this class, if that is the cause.
pub(crate) fn teller(a: &Attempt, class: &FailureClass) -> Option<WorkerId> {
    let logs = a.end.evidence.as_ref().and_then(|facts| facts.logs.as_ref());
    if let Some(logs) = logs.filter(|l| l.class.as_ref() == Some(class)) {
        return logs.root.as_ref().map(|p| p.worker);
    }
    let (told, s) = root(a.standing(), a, Weight::Effect)?;
    (told == *class).then_some(s.worker)
}

/// The root sighting, if its weight is at least `least`. Teardown by the launcher and signals are no causes.
fn root<'a>(
    seen: impl Iterator<Item = &'a (RuleKind, Sighting)>,
    a: &Attempt,
    least: Weight,
) -> Option<(FailureClass, &'a Sighting)> {
    let seen: Vec<(LogClue<'_>, FailureClass, &Sighting)> = seen
        .filter_map(|(means, s)| {
            let (class, named) = match means {
                RuleKind::Failure(class @ FailureClass::User(_)) => (class.counts_as(), class.clone()),
                RuleKind::Failure(class) => (class.counts_as(), class.counts_as().into()),
                RuleKind::Exception => {
                    let class = rules::classify_exception(s, stage(a));
                    (class, class.into())
                }
                _ => return None,
            };
            let clue = LogClue {
                class,
                text: &s.text,
                raised: s.rule.is_raised(),
                in_thread: s.rule.through() == TracebackScope::Thread,
                chained: s.rule.is_chained(),
                loose: s.rule.quoted,
                own: s.rule.is_users(),
            };
            (!matches!(class, Class::CommLauncherTeardown | Class::OpSignal)).then_some((clue, named, s))
        })
        .collect();
    let clues: Vec<LogClue<'_>> = seen.iter().map(|(clue, ..)| *clue).collect();
    let choice = choose(&clues).filter(|c| c.weight <= least)?;
    seen.get(choice.at).map(|(_, named, s)| (named.clone(), *s))
}

/// The failure that the trainer itself reports, if its class is a cause.
fn said(a: &Attempt) -> Option<(FailureClass, &Sighting)> {
    let (_, s) = a
        .output
        .sightings
        .iter()
        .find(|(means, _)| *means == RuleKind::Failed)?;
    let class = rules::classify_exception(s, stage(a));
    (!is_symptom(class)).then(|| (class.into(), s))
}

/// Returns true for symptoms, and for an exception raised by an outside signal: the exits of the other processes say more.
fn is_symptom(class: Class) -> bool {
    class.row().kind == FailureKind::Cascade || class == Class::OpSignal
}

/// Returns true if Ray reported the death of one of its processes.
fn lost_a_process(a: &Attempt) -> bool {
    let died = |means: &RuleKind| *means == RuleKind::Failure(Class::RayActorDied.into());
    a.output.sightings.iter().any(|(means, _)| died(means))
}

fn stage(a: &Attempt) -> rules::AttemptStage {
    match (a.training.step, resumed_at(a)) {
        (Some(_), _) => rules::AttemptStage::Stepping,
        (None, Some(_)) => rules::AttemptStage::Resuming,
        (None, None) => rules::AttemptStage::Starting,
    }
}

fn build(a: &Attempt, class: impl Into<FailureClass>, text: String, line: &str) -> Diagnosis {
    let class = class.into();
    let mut key = class.code().to_owned();
    key.push('\n');
    key.push_str(&normalise(line));
    Diagnosis {
        action: action(&class),
        answer: None,
        advice: None,
        fingerprint: fnv64(key.as_bytes()),
        step: a.training.step.or(resumed_at(a)),
        text,
        node: None,
        // Exits of workers that we stopped say nothing.
        worker: a.end.first_failure.filter(|_| !a.was_ended_by_us()).map(|(w, _)| w),
        at_start: class == AT_START,
        class: match class {
            FailureClass::Known(class) => public(class).into(),
            other => other,
        },
    }
}

/// The step an attempt resumed from. It counts as reached, so that a failure in the next step matches the same failure of an
/// earlier attempt.
fn resumed_at(a: &Attempt) -> Option<Step> {
    match &a.order.from {
        StartPoint::Step { step, .. } => Some(*step),
        StartPoint::Fresh | StartPoint::AsIs => None,
    }
}

/// Replaces what differs between attempts: numbers, addresses, long hexadecimals.
fn normalise(line: &str) -> String {
    let mut out = String::with_capacity(line.len().min(256));
    let mut in_number = false;
    for c in line.chars().take(256) {
        let digit = c.is_ascii_digit() || (in_number && (c.is_ascii_hexdigit() || c == 'x' || c == '.'));
        if digit && !in_number {
            out.push('#');
        }
        if !digit {
            out.push(c);
        }
        in_number = digit;
    }
    out
}

/// Line 0 marks messages from elsewhere about a worker, such as the kernel's.
fn place(s: &Sighting) -> String {
    match s.line {
        0 => format!("worker {}", s.worker),
        line => format!("worker {} line {line}", s.worker),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(300) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
