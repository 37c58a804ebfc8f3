//! Diagnosis from the logs, corrected by what only the supervisor knows: its orders and acts, kernel messages, the trainer's own
//! report.

use super::reported_exits::rank;
use super::{action, build, from_its_stop, hint, root, said, shorten, unsaid};
use crate::event::ExitStatus;
use crate::event::scan::RuleKind;
use crate::journal::record::{Diagnosis, StartPoint};
use crate::rulebook::log_cause::{LogCause, LogPlace};
use crate::rulebook::taxonomy::{Class, FailureClass, Family, Weight};
use crate::state::Attempt;

/// Uses the class from the logs unless the supervisor knows better.
pub(super) fn from_the_logs(a: &Attempt, logs: &LogCause) -> Diagnosis {
    // A start from scratch was ordered, or the resume is proven: the output is wrong about that.
    let ordered = logs.else_cause.as_deref().filter(|_| !a.output.scratch);
    let cause = ordered.unwrap_or(logs);
    let mut d = weighed(a, cause);
    if ordered.is_some() && Some(&d.class) != logs.class.as_ref() {
        d.text = format!("{} (it started as it was ordered to, whatever it says of that)", d.text);
    }
    d
}

fn weighed(a: &Attempt, logs: &LogCause) -> Diagnosis {
    if let Some(d) = killed_for_memory(a, logs) {
        return d;
    }
    if let Some(d) = torn_since(a, logs) {
        return d;
    }
    let by_us = a.was_ended_by_us() || a.output.script.is_some();
    if let (Some(class), Some(place)) = (&logs.class, &logs.root)
        && (logs.sure || !by_us)
    {
        return at(a, class, logs, place);
    }
    let unexplained = logs.class.as_ref().is_none_or(|class| *class == Class::ExitUnexplained);
    if let Some((class, s)) = said(a).filter(|_| unexplained) {
        let text = format!(
            "the trainer itself, worker {} line {}: {}",
            s.worker,
            s.line,
            shorten(&s.text)
        );
        return build(a, class, text, &s.text);
    }
    if let Some(d) = from_its_stop(a) {
        return d;
    }
    match (&logs.class, a.end.first_failure) {
        (Some(class), Some((w, status))) => {
            let text = match (&logs.report, logs.ended) {
                (Some(p), Some(end)) => reported(p, ExitStatus::of_number(end), class),
                _ => format!("worker {w} {}{}", status.words(), hint(class)),
            };
            build(a, class.clone(), text, "")
        }
        (_, Some((w, status))) => unsaid(a, w, status),
        (Some(class), None) => build(a, class.clone(), "the workers ended out of sight".into(), ""),
        (None, None) if a.succeeded() => build(a, Class::EndEarlySuccess, "all workers exited with code 0".into(), ""),
        (None, None) => build(a, Class::KillUnknown, "the workers ended out of sight".into(), ""),
    }
}

/// In the log alone, a missing shard looks like another world size. But the step resumed from was proven with all its shards, and the
/// world size was checked before launch: the shard was lost since.
fn torn_since(a: &Attempt, logs: &LogCause) -> Option<Diagnosis> {
    let is_proven = matches!(a.order.from, StartPoint::Step { .. });
    let is_shard = |p: &&LogPlace| p.text.contains("No such file") && p.text.contains("_world_size_");
    let of_ranks = logs.class == Some(Class::CkptMismatch.into()) && is_proven;
    let place = logs.root.as_ref().filter(|_| of_ranks).filter(is_shard)?;
    let text = format!(
        "{place}: {} (it was there when the step was proven)",
        shorten(&place.text)
    );
    Some(Diagnosis {
        worker: Some(place.worker),
        ..build(a, Class::CkptCorrupt, text, &place.text)
    })
}

/// Describes the first exit that the launcher reports, one of its child processes.
fn reported(p: &LogPlace, end: ExitStatus, class: &FailureClass) -> String {
    let who = match rank(&p.text) {
        Some(rank) => format!("rank {rank} under the launcher of worker {}", p.worker),
        None => format!("a process under the launcher of worker {}", p.worker),
    };
    let text = shorten(&p.text);
    format!("{who} {}{} (line {}: {text})", end.words(), hint(class), p.line)
}

/// Diagnosis from the root line.
fn at(a: &Attempt, class: &FailureClass, logs: &LogCause, place: &LogPlace) -> Diagnosis {
    // Only the trainer's adapter may recognize the steps before it.
    let at_start = logs.at_start && a.training.step.is_none();
    let key = if at_start {
        super::AT_START.into()
    } else {
        class.clone()
    };
    let text = format!("{place}: {}", shorten(&place.text));
    // Which of several echoes or warnings comes first is random: keep it out of the fingerprint.
    let line = if logs.sure { place.text.as_str() } else { "" };
    Diagnosis {
        action: action(&key),
        worker: Some(place.worker),
        ..build(a, key, text, line)
    }
}

/// An OOM kill that the guard read from the kernel log or the cgroup counters: a killed process prints nothing. A machine failure in
/// the output has equal weight, so it is kept.
fn killed_for_memory(a: &Attempt, logs: &LogCause) -> Option<Diagnosis> {
    let of_machine = |class: &FailureClass| {
        let memory = [Class::MemRayOom, Class::MemHostOom];
        class.is_in(Family::Gpu) || class.is_in(Family::Node) || memory.iter().any(|m| class == m)
    };
    let told = logs.class.as_ref().filter(|_| logs.root.is_some());
    if told.is_some_and(of_machine) {
        return None;
    }
    let by_kernel = a
        .standing()
        .filter(|(means, s)| s.line == 0 && *means == RuleKind::Failure(Class::MemHostOom.into()));
    let (class, s) = root(by_kernel, a, Weight::Machine)?;
    Some(Diagnosis {
        worker: Some(s.worker),
        ..build(a, class, format!("worker {}: {}", s.worker, shorten(&s.text)), &s.text)
    })
}
