//! How an attempt failed: what happened first and where, the evidence, what followed, what was ruled out, what to do.

use super::one_line;
use super::time::local_stamp;
use super::{bytes, count};
use camino::Utf8Path;
use serde::Serialize;
use supervise_core::event::scan::RuleKind;
use supervise_core::id::{Step, WallMs};
use supervise_core::journal::record::Diagnosis;
use supervise_core::observe::collectives::Collectives;
use supervise_core::observe::exception::WorkerException;
use supervise_core::observe::machine::{KernelKind, MachineFacts};
use supervise_core::observe::stacks::Stacks;
use supervise_core::rulebook::log_cause::{LogPlace, LogSource};
use supervise_core::rulebook::taxonomy::{Class, FailureClass};
use supervise_core::state::Attempt;
use supervise_host::evidence::error_file;

const LINES: usize = 3;
const DECISIONS: usize = 3;
const LONG: usize = 240;

/// How one attempt failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailureAccount {
    /// The first event, as text.
    pub first: String,
    /// The worker that failed first; in a gang this is the rank.
    pub worker: Option<u32>,
    pub host: Option<String>,
    pub step: Option<Step>,
    /// When, in ms since 1970.
    pub at: Option<WallMs>,
    pub evidence: Vec<LineRef>,
    /// Later lines and exits that it caused.
    pub followed: Vec<LineRef>,
    /// Causes that the machine facts rule out, and causes that could not be checked.
    pub ruled_out: Vec<String>,
    /// Decisions with their reasons.
    pub decided: Vec<String>,
    pub todo: Option<String>,
    /// The file with the stacks of a stalled attempt, below the run directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<String>,
}

/// A line and its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LineRef {
    pub file: Option<String>,
    /// Line number from 1, if known.
    pub line: Option<u64>,
    pub text: String,
}

/// A matched line of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SightingView {
    pub means: RuleKind,
    pub worker: u32,
    pub line: u64,
    pub text: String,
    pub count: u64,
}

/// When and where the first failure was seen, and the decisions after it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct FirstFailure {
    pub(super) host: Option<String>,
    pub(super) at: Option<WallMs>,
    pub(super) decided: Vec<String>,
}

impl SightingView {
    pub(super) fn matters(&self) -> bool {
        matches!(self.means, RuleKind::Failure(_) | RuleKind::Exception)
    }

    pub(super) fn words(&self) -> String {
        let times = match self.count {
            0 | 1 => String::new(),
            n => format!(" ({n} times)"),
        };
        let line = match self.line {
            0 => String::new(),
            n => format!(" line {n}"),
        };
        format!("worker {}{line}: {}{times}", self.worker, one_line(&self.text, 300))
    }
}

impl FirstFailure {
    pub(super) fn decide(&mut self, words: String) {
        if self.decided.len() < DECISIONS && !self.decided.contains(&words) {
            self.decided.push(words);
        }
    }
}

impl FailureAccount {
    pub(super) fn of(a: &Attempt, d: &Diagnosis, sightings: &[SightingView], seen: &FirstFailure) -> Self {
        let no = a.no.0;
        let failed = a.end.first_failure.map(|(w, _)| w.0);
        let place = read_place(a, d);
        let is_root = |s: &SightingView| match place {
            Some(p) => (s.worker, s.line) == (p.worker.0, p.line),
            None => s.line > 0 && !s.text.is_empty() && d.text.contains(head(&s.text)),
        };
        let root = sightings.iter().position(is_root);
        let stacks = a.end.evidence.as_ref().and_then(|facts| facts.stacks.as_ref());
        let stands = stacks.filter(|_| a.is_stuck());
        // How workers exited says nothing if we killed them.
        let failed = failed.filter(|_| !a.is_stuck());
        let odd = stands.and_then(Stacks::odd).map(|w| w.0);
        let seen_root = root.and_then(|at| sightings.get(at));
        let worker = d.worker.map(|w| w.0);
        let worker = worker.or(seen_root.map(|s| s.worker)).or(odd).or(failed);
        let shown = place.map(|p| read_line(no, p)).or(seen_root.map(|s| line(no, s)));
        let mut evidence: Vec<LineRef> = shown.into_iter().collect();
        evidence.extend(stands.iter().flat_map(|s| s.told()).map(|text| stack(no, text)));
        if let Some(facts) = &a.end.evidence {
            let ours = facts
                .lines
                .iter()
                .filter(|l| l.ours || matches!(l.kind, KernelKind::Xid(_)));
            evidence.extend(ours.map(|l| kernel(no, &l.text)));
            let calls = facts.collectives.as_ref().and_then(Collectives::words);
            evidence.extend(calls.map(|text| collectives(no, text)));
        }
        let ending = a.end.evidence.iter().flat_map(|facts| &facts.endings);
        let ending = ending
            .clone()
            .find(|e| Some(e.worker.0) == worker && root.is_none() && place.is_none() && !a.is_stuck());
        evidence.extend(ending.map(|e| exception(no, e)));
        if evidence.is_empty() {
            let worker = worker.unwrap_or_default();
            let from = a.end.lines.len().saturating_sub(LINES);
            evidence.extend(a.end.lines.iter().skip(from).map(|text| last(no, worker, text)));
        }
        evidence.truncate(LINES);
        let others = sightings
            .iter()
            .enumerate()
            .filter(|(at, s)| Some(*at) != root && s.matters());
        let mut followed: Vec<LineRef> = others.map(|(_, s)| line(no, s)).take(LINES).collect();
        let ends = a
            .exits
            .iter()
            .filter(|(w, exit)| Some(w.0) != failed && !exit.is_success() && !a.is_stuck());
        followed.extend(
            ends.take(LINES)
                .map(|(w, exit)| said(format!("worker {w} {}", exit.words()))),
        );
        Self {
            first: one_line(&d.text, LONG),
            worker,
            host: seen.host.clone(),
            step: d.step,
            at: seen.at,
            evidence,
            followed,
            ruled_out: a
                .end
                .evidence
                .as_ref()
                .map(|f| ruled_out(f, &d.class))
                .unwrap_or_default(),
            decided: seen.decided.clone(),
            todo: d
                .class
                .row()
                .map(|row| row.advice.to_owned())
                .or_else(|| d.advice.clone()),
            stacks: (a.is_stuck() && a.end.evidence.is_some()).then(|| stacks_file(no)),
        }
    }

    /// One fact a line. `run_dir`: where its files are, if known.
    pub(super) fn lines(&self, class: &FailureClass, run_dir: Option<&Utf8Path>) -> Vec<String> {
        let place = [
            self.worker.map(|w| format!("worker {w}")),
            self.host.as_ref().map(|h| format!("on {h}")),
            self.step.map(|s| format!("at step {s}")),
            self.at.map(|at| format!("at {}", local_stamp(at))),
        ];
        let place = place.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let mut out = vec![format!("first     {} [{class}]", self.first)];
        if !place.is_empty() {
            out.push(format!("where     {place}"));
        }
        out.extend(self.evidence.iter().map(|p| format!("evidence  {}", p.words())));
        out.extend(self.followed.iter().map(|p| format!("then      {}", p.words())));
        if !self.ruled_out.is_empty() {
            out.push(format!("machine   {}", self.ruled_out.join("; ")));
        }
        out.extend(self.decided.iter().map(|d| format!("decided   {}", one_line(d, LONG))));
        out.extend(self.todo.iter().map(|t| format!("do        {t}")));
        let stacks = self.stacks.iter().map(|file| match run_dir {
            Some(dir) => format!("stacks    {}", dir.join(file)),
            None => format!("stacks    {file}"),
        });
        out.extend(stacks);
        out
    }
}

impl LineRef {
    fn words(&self) -> String {
        let text = one_line(&self.text, LONG);
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}:{line}: {text}"),
            (Some(file), None) => format!("{file}: {text}"),
            (None, _) => text,
        }
    }
}

fn collectives(no: u32, text: String) -> LineRef {
    LineRef {
        file: Some(format!("attempts/{no:04}/evidence/collectives.txt")),
        line: Some(1),
        text,
    }
}

fn stack(no: u32, text: String) -> LineRef {
    LineRef {
        file: Some(stacks_file(no)),
        line: None,
        text,
    }
}

fn stacks_file(no: u32) -> String {
    format!("attempts/{no:04}/evidence/stacks.txt")
}

fn exception(no: u32, ending: &WorkerException) -> LineRef {
    let frame = ending.chain.first().and_then(|raised| raised.frames.last());
    let place = frame.map_or_else(String::new, |f| {
        format!(" ({}, line {}, in {})", f.file, f.line, f.function)
    });
    LineRef {
        file: Some(format!("attempts/{no:04}/evidence/exceptions.txt")),
        line: None,
        text: format!("{}{place}", one_line(&ending.words(), LONG)),
    }
}

fn head(text: &str) -> &str {
    let end = text.char_indices().nth(100).map_or(text.len(), |(at, _)| at);
    text[..end].trim()
}

fn read_place<'a>(a: &'a Attempt, d: &Diagnosis) -> Option<&'a LogPlace> {
    let logs = a.end.evidence.as_ref()?.logs.as_ref()?;
    let causes = [Some(logs), logs.else_cause.as_deref()];
    let places = causes
        .into_iter()
        .flatten()
        .flat_map(|c| c.root.iter().chain(&c.report));
    let mut quoted = places.filter(|p| !p.text.is_empty() && d.text.contains(head(&p.text)));
    quoted.next()
}

fn read_line(no: u32, p: &LogPlace) -> LineRef {
    let (file, line) = match p.source {
        LogSource::Output => (format!("worker-{}.log", p.worker), Some(p.line)),
        LogSource::ErrorFile => (error_file(p.worker.0), None),
    };
    LineRef {
        file: Some(format!("attempts/{no:04}/{file}")),
        line,
        text: one_line(&p.text, LONG),
    }
}

fn line(no: u32, s: &SightingView) -> LineRef {
    let written = s.line > 0;
    LineRef {
        file: written.then(|| format!("attempts/{no:04}/worker-{}.log", s.worker)),
        line: written.then_some(s.line),
        text: one_line(&s.text, LONG),
    }
}

fn kernel(no: u32, text: &str) -> LineRef {
    LineRef {
        file: Some(format!("attempts/{no:04}/evidence/kernel.txt")),
        line: None,
        text: one_line(text, LONG),
    }
}

fn last(no: u32, worker: u32, text: &str) -> LineRef {
    LineRef {
        file: Some(format!("attempts/{no:04}/worker-{worker}.log")),
        line: None,
        text: one_line(text, LONG),
    }
}

fn said(text: String) -> LineRef {
    LineRef {
        file: None,
        line: None,
        text,
    }
}

fn ruled_out(facts: &MachineFacts, class: &FailureClass) -> Vec<String> {
    let mut out = Vec::new();
    let has = |want: fn(KernelKind) -> bool| facts.lines.iter().any(|l| want(l.kind));
    match &facts.unread {
        Some(why) => out.push(format!("the kernel's log was not looked at ({})", one_line(why, 120))),
        None => {
            if !has(|k| k == KernelKind::Oom) && *class != Class::MemHostOom {
                out.push("the kernel killed nothing for want of memory".to_owned());
            }
            if !has(|k| {
                matches!(
                    k,
                    KernelKind::Xid(_) | KernelKind::Gpu | KernelKind::Disk | KernelKind::Hardware
                )
            }) {
                out.push("it tells of no error of a GPU, a disk or the hardware".to_owned());
            }
        }
    }
    let room = |what: &str, room: Option<(u64, u64)>| room.map(|(free, _)| format!("{} free {what}", bytes(free)));
    out.extend(room("in /dev/shm", facts.shm));
    out.extend(room("for checkpoints", facts.disk));
    out.extend(room("of memory", facts.memory));
    let kept = facts.lines.len();
    if kept > 0 {
        let lines = count(u64::try_from(kept).unwrap_or(u64::MAX), "line");
        out.push(format!("{lines} of the kernel's log in evidence/kernel.txt"));
    }
    out
}
