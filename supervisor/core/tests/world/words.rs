//! Records in words, one line each: what the golden files hold.

use super::Logged;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use supervise_core::event::{Event, EventKind, OperatorRequest, ScanReport, TrackerState};
use supervise_core::journal::record::{
    ActKind, AfterStop, Decision, DiskEdit, JournalRecord, LaunchOrder, RunOutcome, StartPoint, WaitCondition,
};

/// One record: time, kind, what, reasons.
pub(crate) fn line(l: &Logged) -> String {
    let (kind, text) = match &l.record {
        JournalRecord::Fact(e) => ("fact", fact(e)),
        JournalRecord::Decided { what, reasons, .. } => ("decided", because(decision(what), reasons)),
        JournalRecord::Intended { act, reasons, .. } => ("intended", because(intent(&act.kind), reasons)),
        JournalRecord::Ignored { what, why, .. } => ("ignored", format!("{what}: {why}")),
    };
    format!("{:>10.1}s {kind:<8} {text}", l.at as f64 / 1000.0)
}

fn because(what: String, reasons: &[supervise_core::journal::reason::Reason]) -> String {
    let mut out = what;
    for (n, r) in reasons.iter().enumerate() {
        let _ = write!(out, "{} {} [{}]", if n == 0 { ":" } else { ";" }, r.text, r.code);
    }
    out
}

fn fact(e: &Event) -> String {
    match &e.kind {
        EventKind::TermStarted {
            term, living, orphans, ..
        } => {
            let found = match (living, orphans.len()) {
                (Some(l), _) => format!("a guard of attempt {} lives", l.attempt),
                (None, 0) => "nothing lives".to_owned(),
                (None, n) => format!("{n} orphans"),
            };
            format!("term {term} begins, {found}")
        }
        EventKind::ActDone { act, result } => match result {
            Ok(_) => format!("act {act} done"),
            Err(e) => format!("act {act} failed: {} ({:?})", e.what, e.kind),
        },
        EventKind::WorkerExited {
            attempt,
            worker,
            status,
            ..
        } => format!("worker {worker} of attempt {attempt} ended with {status}"),
        EventKind::TreeGone { attempt, unkillable } if unkillable.is_empty() => {
            format!("tree of attempt {attempt} is gone")
        }
        EventKind::TreeGone { attempt, unkillable } => {
            format!("{} processes of attempt {attempt} do not die", unkillable.len())
        }
        EventKind::GuardLost { attempt } => format!("the guard of attempt {attempt} is lost"),
        EventKind::Nodes { attempt, .. } => format!("news of the nodes of attempt {attempt}"),
        EventKind::Progress { phase, step, .. } => {
            let step = step.map_or_else(|| "none".to_owned(), |s| s.to_string());
            format!("progress: {phase:?}, step {step}").to_lowercase()
        }
        EventKind::Looked { look, .. } => format!("ranks: {}", look.words()),
        EventKind::Sighted { sighting, .. } => match sighting.number {
            Some(n) => format!("seen: {} {n}", sighting.rule),
            None => format!("seen: {}", sighting.rule),
        },
        EventKind::Checkpoints(r) => scan(r),
        EventKind::CheckpointsChanged(d) => format!("{} steps changed", d.len()),
        EventKind::Rehearsed(r) => format!("a relaunch was tried in advance: {:?}", r.result),
        EventKind::TrainerSeen(seen) => seen.words(),
        EventKind::Space { free, .. } => format!("free space: {free:?}"),
        EventKind::Timer(key) => format!("timer {key:?}"),
        EventKind::TimeGap { missing } => format!("{} s of time are missing", missing.0 / 1000),
        EventKind::IoStalled { what } => format!("no answer: {what}"),
        EventKind::IoRecovered => "the I/O worker answers again".to_owned(),
        EventKind::JournalStalled { why } => format!("the journal cannot be written: {why}"),
        EventKind::JournalRecovered => "the journal can be written again".to_owned(),
        EventKind::LeaseLost { by } => format!("the lease was taken by {by}"),
        EventKind::Displaced { what } | EventKind::LeaseSilent { what } => what.clone(),
        EventKind::Operator(OperatorRequest::Stop { after_save: true, .. }) => {
            "asked: stop after the next save".to_owned()
        }
        EventKind::Operator(OperatorRequest::Stop { left: Some(left), .. }) => {
            format!("asked: stop within {} s", left.0 / 1000)
        }
        EventKind::Operator(OperatorRequest::Stop { .. }) => "asked: stop".to_owned(),
        EventKind::Operator(OperatorRequest::HandBack { left, .. }) => format!("asked: hand back, left: {left:?}"),
        EventKind::Allocation { left, .. } => format!("the scheduler's job, left: {left:?}"),
        EventKind::Operator(OperatorRequest::Save { by }) => format!("asked: save, by {by}"),
        EventKind::SaveAnswered { id, step, .. } => format!("request {id} is answered: step {step} is saved"),
        EventKind::Operator(OperatorRequest::Hold { by, .. }) => format!("asked: hold, by {by}"),
        EventKind::Operator(OperatorRequest::Unhold { by }) => format!("asked: unhold, by {by}"),
        EventKind::Operator(OperatorRequest::Resume { by, .. }) => format!("asked: resume, by {by}"),
        EventKind::Operator(OperatorRequest::RollBack { by, to }) => format!("asked: back to {to}, by {by}"),
        EventKind::Operator(OperatorRequest::StopNow { .. }) => "asked: stop now".to_owned(),
        EventKind::Numbers { steps, .. } => format!("numbers of {} steps", steps.len()),
        EventKind::Script { news, .. } => format!("the script: {news:?}"),
        EventKind::Used { .. } => "usage was sampled".to_owned(),
        EventKind::Finite { ckpt, .. } => format!("the numbers of {ckpt} were looked at"),
        EventKind::Evidence { .. } => "evidence was gathered".to_owned(),
        EventKind::Told { event, to, .. } => format!("{to} was told of {event}"),
        EventKind::Collected { count, .. } => format!("{count} leftovers were deleted"),
    }
}

fn scan(r: &ScanReport) -> String {
    let mut by: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for c in r.steps.iter().rev() {
        let word = match (c.husk, c.proven) {
            (true, _) => "husk",
            (_, None) if c.verdict == supervise_core::checkpoint::Verdict::Whole => "unproven",
            _ => c.verdict.word(),
        };
        let name = if c.id.0.is_absolute() {
            c.id.to_string()
        } else {
            c.step.to_string()
        };
        by.entry(word).or_default().push(name);
    }
    let steps: Vec<String> = by.iter().map(|(w, n)| format!("{w} {}", n.join(" "))).collect();
    let steps = if steps.is_empty() {
        "nothing".to_owned()
    } else {
        steps.join(", ")
    };
    let tracker = match &r.tracker {
        TrackerState::Missing | TrackerState::Unused => "missing".to_owned(),
        TrackerState::Empty => "empty".to_owned(),
        TrackerState::Garbage(t) => format!("{t:?}"),
        TrackerState::NotAFile(what) => format!("({what})"),
        TrackerState::Step(n) => n.to_string(),
    };
    format!("scan: {steps}; tracker {tracker}")
}

fn decision(d: &Decision) -> String {
    match d {
        Decision::Fence { .. } => "fence".to_owned(),
        Decision::TakeOver { attempt } => format!("take over attempt {attempt}"),
        Decision::Choose => "choose".to_owned(),
        Decision::StartFrom { order, care, .. } => {
            let care = if *care { ", taken into care" } else { "" };
            format!("start {}{care}", from(order))
        }
        Decision::Launch { order } => format!("launch attempt {}", order.attempt),
        Decision::Run => "run".to_owned(),
        Decision::Drain { .. } => "let a save finish".to_owned(),
        Decision::Stop { then, gently } => {
            let how = if *gently { "gently" } else { "at once" };
            format!("stop {how}, then {}", follows(*then))
        }
        Decision::Diagnosed(d) => {
            let step = d
                .step
                .map_or_else(|| "before the first step".to_owned(), |s| format!("at step {s}"));
            format!("diagnosed {} {step} ({:?})", d.class, d.action)
        }
        Decision::Distrust { ckpt } => format!("distrust {ckpt}"),
        Decision::Trust { ckpts } => format!(
            "trust {}",
            ckpts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        ),
        Decision::Refilled => "own deaths count anew".to_owned(),
        Decision::Advanced { step } => format!("the retries count anew at step {step}"),
        Decision::Charge {
            attempts, step_backs, ..
        } => format!("charged {attempts}, step-backs {step_backs}"),
        Decision::Wait { what, .. } => format!("wait for {}", condition(what)),
        Decision::Mark { step } => format!("mark {step}"),
        Decision::HandBack { .. } => "hand back".to_owned(),
        Decision::SaveRequestEnded { id, how } => format!("request {id} is over: {how:?}"),
        Decision::StopAfterSave => "stop after the next save".to_owned(),
        Decision::Suspect { .. } => "suspect".to_owned(),
        Decision::Noticed { what, .. } => format!("notice {}", what.code()),
        Decision::SaveGrows { step, .. } => format!("step {step} grows"),
        Decision::WouldHave { .. } => "would have".to_owned(),
        Decision::Unwatched { .. } => "unwatched".to_owned(),
        Decision::Finish { outcome } => finish(outcome),
    }
}

fn finish(o: &RunOutcome) -> String {
    let step = match o {
        RunOutcome::Finished { step: Some(s) } => format!(" at step {s}"),
        RunOutcome::Finished { step: None } => " (unconfirmed)".to_owned(),
        _ => String::new(),
    };
    format!("finish {}: {}{step}", o.exit_code(), o.word())
}

fn follows(t: AfterStop) -> &'static str {
    match t {
        AfterStop::Diagnose => "diagnose",
        AfterStop::Stopped => "end",
        AfterStop::LeaseLost => "end, the lease is lost",
        AfterStop::Choose => "choose",
    }
}

fn condition(c: &WaitCondition) -> &'static str {
    match c {
        WaitCondition::Backoff => "the pause",
        WaitCondition::Readable => "a readable disk",
        WaitCondition::JournalWritable => "a writable journal",
        WaitCondition::TreeGone => "processes that do not die",
        WaitCondition::Space => "room on the disk",
        WaitCondition::ClusterFree => "a cluster that lets go",
        WaitCondition::GpusFree => "the GPUs",
        WaitCondition::Unheld => "its holder",
    }
}

fn from(o: &LaunchOrder) -> String {
    let lost: Vec<&str> = o.lost.iter().map(|k| k.words()).collect();
    let lost = if lost.is_empty() {
        String::new()
    } else {
        format!(" without {}", lost.join(", "))
    };
    match &o.from {
        StartPoint::Step { ckpt, .. } => format!("from {ckpt}{lost}"),
        StartPoint::Fresh => "from scratch".to_owned(),
        StartPoint::AsIs => "as written".to_owned(),
    }
}

/// An act in words.
pub(crate) fn intent(k: &ActKind) -> String {
    match k {
        ActKind::Arrange(edits) => {
            let words: Vec<String> = edits.iter().map(edit).collect();
            format!("arrange ({})", words.join(", "))
        }
        ActKind::Launch(o) => format!("launch attempt {} {}", o.attempt, from(o)),
        ActKind::Prune(ids) => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            format!("prune {}", ids.join(" "))
        }
        ActKind::Keep { ckpt, rate: 0, .. } => format!("keep {ckpt}, as fast as it goes"),
        ActKind::Keep { ckpt, .. } => format!("keep {ckpt}"),
        ActKind::Signal { signal } => format!("signal {signal}"),
        ActKind::KillTree => "kill the tree".to_owned(),
        ActKind::RequestSave(order) => format!("ask for a save ({}), by {}", order.id, order.by.words()),
        ActKind::Freeze => "freeze".to_owned(),
        ActKind::Thaw => "thaw".to_owned(),
        ActKind::Finish(o) => format!("exit {}", o.exit_code()),
    }
}

fn edit(e: &DiskEdit) -> String {
    match e {
        DiskEdit::MoveAside {
            from, whole, foreign, ..
        } => {
            let whole = if *whole { "whole " } else { "" };
            let place = if *foreign { "aside/foreign" } else { "aside" };
            format!("{whole}{from} to {place}")
        }
        DiskEdit::PartAside { from, entry, .. } => format!("{from}/{entry} to aside"),
        DiskEdit::WriteTracker { step } => format!("tracker names {step}"),
        DiskEdit::RemoveTracker => "no tracker".to_owned(),
        DiskEdit::SetFrequencies => "frequencies".to_owned(),
        DiskEdit::PutBack { from } => format!("{from} put back"),
        DiskEdit::Reshard(cut) => format!("{} of {} cut for {}", cut.ckpt, cut.from, cut.to),
        DiskEdit::EndReshard(cut) => format!("{}: what was begun of its cut is ended", cut.ckpt),
    }
}
