//! Whether the run can resume from a step, as it is or resharded.

use super::reshard::{cut_anew, wanted};
use super::spread::{self, SpreadChange};
use super::step::{LoadedParts, allowed, from_loaded};
use super::{ResumeChoice, depth_of, is_elsewhere, is_named, refusal_reason};
use crate::checkpoint::{CheckpointSummary, Resumability, StateKind, Verdict};
use crate::event::ScanReport;
use crate::journal::reason::Reason;
use crate::journal::record::RunOutcome;
use crate::spec::RunSpec;
use crate::state::RunState;
use camino::Utf8PathBuf;

/// Resumes from this step, which is whole and proven. `care`: the run is adopted here; `foreign`: the steps above it
/// belong to another run.
pub(super) fn from_step(
    s: &RunState,
    spec: &RunSpec,
    scan: &ScanReport,
    c: &CheckpointSummary,
    care: bool,
    foreign: bool,
    mut reasons: Vec<Reason>,
) -> ResumeChoice {
    if let Some(reshard) = wanted(spec, c) {
        return cut_anew(s, spec, scan, c, reshard, care, foreign, reasons);
    }
    let lost = match fitness(s, spec, c) {
        Ok((lost, told)) => {
            reasons.extend(told);
            lost
        }
        Err((outcome, reason)) => {
            reasons.insert(0, reason);
            return ResumeChoice::Refuse { outcome, reasons };
        }
    };
    let loaded = LoadedParts {
        holds: &c.holds,
        every: &c.contents,
        lost,
        pins: c.pins,
        put_away: Vec::new(),
    };
    from_loaded(s, spec, scan, c, loaded, care, foreign, reasons)
}

pub(super) fn from_path(s: &RunState, spec: &RunSpec, scan: &ScanReport, path: &Utf8PathBuf) -> ResumeChoice {
    let asked = Reason::new("resume_path", format!("the configuration asks for {path}"));
    match scan.steps.iter().find(|c| is_named(spec, c)) {
        Some(c) if c.is_proven(depth_of(s, spec, c)) => {
            let care = s.requests.care.as_ref().is_none_or(|k| k.intent != spec.resume) || s.care_is_unfinished();
            from_step(s, spec, scan, c, care, care, vec![asked])
        }
        Some(c) if c.verdict == Verdict::Whole => {
            let text = format!("{} is not proven yet", c.id);
            ResumeChoice::Unreadable {
                reasons: vec![asked, Reason::new("not_proven_yet", text)],
            }
        }
        Some(c) if c.verdict == Verdict::Unreadable => ResumeChoice::Unreadable {
            reasons: vec![refusal_reason("unreadable", c)],
        },
        Some(c) => {
            let why = refusal_reason("not_whole", c);
            ResumeChoice::Refuse {
                outcome: RunOutcome::NoProof { why: why.text.clone() },
                reasons: vec![asked, why],
            }
        }
        None => {
            let why = format!("{path} does not exist");
            ResumeChoice::Refuse {
                outcome: RunOutcome::NoProof { why: why.clone() },
                reasons: vec![asked, Reason::new("no_such_step", why)],
            }
        }
    }
}

/// What a resume from this step loses, or why it is not allowed.
fn fitness(
    s: &RunState,
    spec: &RunSpec,
    c: &CheckpointSummary,
) -> Result<(Vec<StateKind>, Option<Reason>), (RunOutcome, Reason)> {
    let lost: &[StateKind] = match &c.resume {
        Resumability::Exact => &[],
        Resumability::Degraded { lost } => lost.as_slice(),
        Resumability::Not { why } => {
            let offer = match c.reshard.is_some() && !spec.policy.elastic && !is_elsewhere(&c.id) {
                true => ". With `supervisor.elastic: true` the run cuts it by itself, and keeps it as it is",
                false => "",
            };
            return Err(unfit(c, &format!("{why}{offer}")));
        }
    };
    match spread::change(s, spec, c) {
        SpreadChange::None => Ok((allowed(spec, c, lost)?, None)),
        SpreadChange::NotRecorded(told) => Ok((allowed(spec, c, lost)?, Some(told))),
        SpreadChange::Backend(why) => Err(unfit(c, &why)),
        SpreadChange::Sizes { lost: more, text } => {
            let lost: Vec<StateKind> = lost.iter().copied().chain(more).collect();
            match allowed(spec, c, &lost) {
                Ok(lost) => Ok((lost, Some(Reason::new("spread_changed", text)))),
                Err((_, mut refused)) => {
                    refused.text = format!("{text}. {}", refused.text);
                    let why = refused.text.clone();
                    Err((RunOutcome::NoProof { why }, refused))
                }
            }
        }
    }
}

fn unfit(c: &CheckpointSummary, why: &str) -> (RunOutcome, Reason) {
    let why = format!("{} is whole but does not fit this run: {why}", c.id);
    let reason = Reason::new("does_not_fit", why.clone());
    (RunOutcome::Deterministic { why }, reason)
}
