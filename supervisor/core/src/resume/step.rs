//! From one step: what is loaded, what is lost, which disk edits come first.

use super::question::unfamiliar;
use super::{Choice, care_is_unfinished, is_elsewhere, needed_depth, refusal_reason, start};
use crate::checkpoint::{CheckpointSummary, Resumability, StateKind, Verdict};
use crate::event::{ScanReport, Tracker};
use crate::id::Step;
use crate::reason::Reason;
use crate::record::{DiskEdit, Outcome, StartPoint};
use crate::spec::RunSpec;
use crate::state::State;
use camino::Utf8PathBuf;

/// From this step, which is whole and proven. `care`: the run is taken into care here; `foreign`: the steps
/// above it are another run's.
pub(super) fn from_step(
    s: &State,
    spec: &RunSpec,
    scan: &ScanReport,
    c: &CheckpointSummary,
    care: bool,
    foreign: bool,
    mut reasons: Vec<Reason>,
) -> Choice {
    let above = scan.steps.iter().filter(|x| x.step > c.step && !is_elsewhere(&x.id));
    if let Some(x) = above.into_iter().find(|x| x.verdict == Verdict::Unreadable) {
        // It would have to go aside, and nothing is known of it.
        reasons.insert(0, refusal_reason("unreadable", x));
        return Choice::Unreadable { reasons };
    }
    if let Some((outcome, reason)) = unfamiliar(s, c) {
        reasons.insert(0, reason);
        return Choice::Refuse { outcome, reasons };
    }
    let lost = match fitness(spec, c) {
        Ok(lost) => lost,
        Err((outcome, reason)) => {
            reasons.insert(0, reason);
            return Choice::Refuse { outcome, reasons };
        }
    };
    if let Some(mark) = s.mark.filter(|m| c.step < *m && !care)
        && s.step_backs > spec.policy.step_backs
    {
        let why = format!(
            "stepping back from {mark} to {} would be step-back {} (limit {})",
            c.step, s.step_backs, spec.policy.step_backs
        );
        reasons.insert(0, Reason::new("too_many_step_backs", why.clone()));
        return Choice::Refuse {
            outcome: Outcome::GaveUp { why },
            reasons,
        };
    }
    let from = StartPoint::Step {
        ckpt: c.id.clone(),
        step: c.step,
        pins: c.pins,
        load: load_contents(s, spec, c),
    };
    let mut edits = move_aside(scan, Some(c.step), foreign, &reasons);
    if scan.tracker != Tracker::Step(c.step) && !is_elsewhere(&c.id) {
        edits.push(DiskEdit::WriteTracker { step: c.step });
    }
    if !lost.is_empty() {
        let names: Vec<_> = lost.iter().map(|k| k.words()).collect();
        reasons.push(Reason::new(
            "degraded",
            format!("lost at this resume: {}", names.join(", ")),
        ));
    }
    start(from, edits, lost, care, reasons)
}

/// What is lost at a resume from this step, or why it is not allowed.
fn fitness(spec: &RunSpec, c: &CheckpointSummary) -> Result<Vec<StateKind>, (Outcome, Reason)> {
    match &c.resume {
        Resumability::Exact => Ok(Vec::new()),
        Resumability::Degraded { lost } if spec.policy.degraded.allows(lost) => Ok(lost.clone()),
        Resumability::Degraded { lost } => {
            let names: Vec<_> = lost.iter().map(|k| k.words()).collect();
            let why = format!("{} can only be resumed without its {}", c.id, names.join(", "));
            let text = format!("{why}; `supervisor.degraded_resume` does not allow that");
            Err((Outcome::NoProof { why }, Reason::new("degraded_not_allowed", text)))
        }
        Resumability::Not { why } => {
            let why = format!("{} is whole but does not fit this run: {why}", c.id);
            let reason = Reason::new("does_not_fit", why.clone());
            Err((Outcome::Deterministic { why }, reason))
        }
    }
}

/// What the step holds, narrowed by the user's own wish for the first resume.
fn load_contents(s: &State, spec: &RunSpec, c: &CheckpointSummary) -> Vec<String> {
    let wish = spec
        .roles
        .iter()
        .find(|r| r.load_wish && !s.wish_done)
        .map(|r| &r.load_contents);
    c.contents
        .iter()
        .filter(|k| k.as_str() != "hf_model")
        .filter(|k| wish.is_none_or(|w| w.contains(k)))
        .cloned()
        .collect()
}

/// Every step above the start goes aside: the trainer would write into it, and its marks survive a re-save.
pub(super) fn move_aside(scan: &ScanReport, above: Option<Step>, foreign: bool, reasons: &[Reason]) -> Vec<DiskEdit> {
    let why = |c: &CheckpointSummary| match above {
        Some(step) => format!("above the resume point {step}"),
        None => reasons
            .first()
            .map_or_else(|| format!("fresh start, {}", c.verdict), |r| r.text.clone()),
    };
    scan.steps
        .iter()
        .filter(|c| !is_elsewhere(&c.id) && above.is_none_or(|a| c.step > a))
        .map(|c| DiskEdit::MoveAside {
            from: c.id.clone(),
            whole: c.verdict == Verdict::Whole,
            foreign,
            why: why(c),
        })
        .collect()
}

pub(super) fn from_path(s: &State, spec: &RunSpec, scan: &ScanReport, path: &Utf8PathBuf) -> Choice {
    let is_it = |c: &&CheckpointSummary| match &spec.root {
        Some(root) => root.join(&c.id.0) == *path,
        None => c.id.0 == *path,
    };
    let asked = Reason::new(
        "resume_path",
        format!("the configuration asks for {path} (resume_mode=resume_path)"),
    );
    match scan.steps.iter().find(is_it) {
        Some(c) if c.is_proven(needed_depth(s, spec)) => {
            let care = s.care.as_ref().is_none_or(|k| k.intent != spec.resume) || care_is_unfinished(s);
            from_step(s, spec, scan, c, care, care, vec![asked])
        }
        Some(c) if c.verdict == Verdict::Whole => {
            let text = format!("{} is not proven yet", c.id);
            Choice::Unreadable {
                reasons: vec![asked, Reason::new("not_proven_yet", text)],
            }
        }
        Some(c) if c.verdict == Verdict::Unreadable => Choice::Unreadable {
            reasons: vec![refusal_reason("unreadable", c)],
        },
        Some(c) => {
            let why = refusal_reason("not_whole", c);
            Choice::Refuse {
                outcome: Outcome::NoProof { why: why.text.clone() },
                reasons: vec![asked, why],
            }
        }
        None => {
            let why = format!("{path} does not exist");
            Choice::Refuse {
                outcome: Outcome::NoProof { why: why.clone() },
                reasons: vec![asked, Reason::new("no_such_step", why)],
            }
        }
    }
}
