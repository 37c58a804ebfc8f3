//! Fresh starts: on request, into an empty root, or refused.

use super::step::move_aside;
use super::{ResumeChoice, is_elsewhere, refusal_reason, start};
use crate::checkpoint::Verdict;
use crate::event::{ScanReport, TrackerState};
use crate::journal::reason::Reason;
use crate::journal::record::{DiskEdit, RunOutcome, StartPoint};
use crate::spec::RunSpec;
use crate::state::RunState;

/// Most copies of the only checkpoint whose problems are reported, including the live set.
const KEPT: usize = 4;

pub(super) fn fresh_by_wish(s: &RunState, spec: &RunSpec, scan: &ScanReport) -> ResumeChoice {
    let (code, text) = if spec.policy.start.fresh {
        ("fresh_asked", "a fresh start was asked for (--fresh)")
    } else {
        (
            "resume_disabled",
            "the configuration switches resuming off: this run starts from scratch, once",
        )
    };
    let reasons = vec![Reason::new(code, text)];
    fresh(s, scan, true, true, reasons)
}

/// Resumes a fresh start that was decided but whose disk edits were not finished.
pub(super) fn go_on_clearing(s: &RunState, scan: &ScanReport) -> ResumeChoice {
    let text = "a fresh start was decided before, and other steps are still to be moved aside";
    fresh(s, scan, true, true, vec![Reason::new("fresh_unfinished", text)])
}

fn fresh(s: &RunState, scan: &ScanReport, foreign: bool, care: bool, reasons: Vec<Reason>) -> ResumeChoice {
    if let Some(c) = scan.steps.iter().find(|c| c.verdict == Verdict::Unreadable) {
        return ResumeChoice::Unreadable {
            reasons: vec![refusal_reason("unreadable", c)],
        };
    }
    let mut edits = move_aside(s, scan, None, foreign, &reasons);
    if !scan.tracker.is_absent() {
        edits.push(DiskEdit::RemoveTracker);
    }
    start(StartPoint::Fresh, edits, Vec::new(), care, reasons)
}

/// Returns true if there may be work to lose. A step in an unknown layout may be whole. And if two steps are
/// incomplete or damaged, at most the newest one can be an interrupted save.
fn holds_work(spec: &RunSpec, scan: &ScanReport) -> bool {
    let own = || scan.steps.iter().filter(|c| !c.husk && !is_elsewhere(&c.id));
    let in_part = own()
        .filter(|c| c.part.is_some() || c.verdict == Verdict::Damaged)
        .count();
    spec.saves.is_steps() && (own().any(|c| c.verdict == Verdict::Unknown && c.other_owner.is_none()) || in_part > 1)
}

/// If no step can be proven: a fresh start if nothing can be lost by it, else a refusal.
pub(super) fn from_nothing(s: &RunState, spec: &RunSpec, scan: &ScanReport, mut reasons: Vec<Reason>) -> ResumeChoice {
    let steps = scan.steps.iter().filter(|c| !c.husk && !is_elsewhere(&c.id)).count();
    if s.progress.mark.is_none() {
        if s.requests.care.as_ref().is_some_and(|c| c.step.is_none()) && !holds_work(spec, scan) {
            let text = "this run began from scratch and has no proven step yet: it begins again";
            reasons.insert(0, Reason::new("began_fresh", text));
            return fresh(s, scan, false, false, reasons);
        }
        if steps == 0 && scan.tracker.is_absent() {
            let text = match scan.remarks.last() {
                None => "the checkpoint root holds no step: this is a fresh start".to_owned(),
                Some(told) => format!("the checkpoint root itself holds no step: this is a fresh start; {told}"),
            };
            reasons.insert(0, Reason::new("empty_root", text));
            return fresh(s, scan, false, true, reasons);
        }
        if spec.policy.start.allow_fresh {
            let text = "no step is provable, and --allow-fresh was given: starting from scratch";
            reasons.insert(0, Reason::new("fresh_allowed", text));
            return fresh(s, scan, true, true, reasons);
        }
    }
    let why = match (s.progress.mark, steps, &scan.tracker) {
        (Some(mark), _, _) => {
            format!("step {mark} was proven in this run, and no step is provable now")
        }
        (None, 0, t) => format!("the tracker {} but the root holds no step", tracker_words(t)),
        (None, _, _) if spec.saves.is_in_place() => {
            "the only checkpoint is not provable, and neither is anything that was kept of it".to_owned()
        }
        (None, n, _) => format!("none of the {n} steps in the root is provable"),
    };
    // The newest step says most; for the only checkpoint, report each copy.
    let said = if spec.saves.is_in_place() { KEPT } else { 1 };
    let why = reasons.iter().take(said).fold(why, |why, r| format!("{why}; {r}"));
    let why = format!("{why}. To begin at step 0 all the same: --fresh, which moves aside what is there");
    reasons.insert(0, Reason::new("no_proof", why.clone()));
    ResumeChoice::Refuse {
        outcome: RunOutcome::NoProof { why },
        reasons,
    }
}

fn tracker_words(t: &TrackerState) -> String {
    match t {
        TrackerState::Missing | TrackerState::Unused => "is missing,".into(),
        TrackerState::Empty => "is empty,".into(),
        TrackerState::Garbage(text) => format!("says {text:?},"),
        TrackerState::NotAFile(what) => format!("is {what},"),
        TrackerState::Step(n) => format!("names step {n},"),
    }
}
