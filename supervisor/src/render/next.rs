//! The next launch as far as the journal shows: nothing is checked again.

use super::outcome::outcome_words;
use super::record::{edit_because, start_point};
use super::status::RunLiveness;
use super::{count, one_line, shown_command, time};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth};
use supervise_core::event::ScanReport;
use supervise_core::journal::record::{RunOutcome, StartPoint};
use supervise_core::policy::backoff::pause;
use supervise_core::resume::{ResumeChoice, answered_again, choose, in_next_term, needed_depth};
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;

const LONG: usize = 600;

/// The next launch.
#[derive(Debug, Clone, Default)]
pub struct NextView {
    /// What the next start would do, as text.
    pub would: String,
    pub reasons: Vec<String>,
    pub edits: Vec<String>,
    pub lost: Vec<&'static str>,
    pub failure: String,
    /// The command and its working directory.
    pub command: String,
    /// The run needs attention: a start only acts with `--again`.
    pub again: bool,
    /// How it would be refused.
    pub refused: Option<RunOutcome>,
    from: Option<CkptId>,
}

impl NextView {
    /// Derives it from the journal, for a start on a machine with this boot ID.
    #[must_use]
    pub fn of(state: &RunState, spec: &RunSpec, alive: RunLiveness, boot: &str) -> Self {
        let mut view = Self {
            failure: failure(state, spec),
            command: format!("{}, in {}", shown_command(&spec.command), spec.cwd),
            ..Self::default()
        };
        let before = answered_again(state, spec);
        view.again = before.is_some();
        let Some(scan) = &state.disk.scan else {
            "no scan of the checkpoints is in the journal, so this cannot be told".clone_into(&mut view.would);
            return view;
        };
        let later = match alive.supervisor.alive {
            true => None,
            false => Some(in_next_term(state.clone(), spec, boot.to_owned())),
        };
        let mut then = later.unwrap_or_else(|| state.clone());
        let needed = needed_depth(&then, spec);
        // A launch proves what it starts from before: here it counts as it was seen.
        then.disk.doubt = false;
        let mut by_sight = spec.clone();
        by_sight.policy.proof.depth = Depth::Structure;
        by_sight.policy.proof.depth_is_fixed = true;
        let choice = choose(&then, &by_sight, scan);
        let (would, reasons) = match &choice {
            ResumeChoice::Start {
                from,
                edits,
                lost,
                reasons,
                ..
            } => {
                view.edits = edits.iter().map(|e| edit_because(e, reasons)).collect();
                view.lost = lost.iter().map(|kind| kind.words()).collect();
                if let StartPoint::Step { ckpt, .. } = from {
                    view.from = Some(ckpt.clone());
                }
                (
                    format!("{}{}", start_point(from), first_proven(&view, scan, needed)),
                    reasons,
                )
            }
            ResumeChoice::Finished { step, reasons } => (
                format!("do nothing: step {step} is the last one and is proven"),
                reasons,
            ),
            ResumeChoice::Unreadable { reasons } => ("wait".to_owned(), reasons),
            ResumeChoice::Refuse { outcome, reasons } => (
                format!(
                    "be refused ({}; exit code {})",
                    outcome_words(outcome),
                    outcome.exit_code()
                ),
                reasons,
            ),
        };
        if let ResumeChoice::Refuse { outcome, .. } = &choice {
            view.refused = Some(outcome.clone());
        }
        view.reasons = reasons.iter().map(|r| one_line(&r.text, LONG)).collect();
        view.would = match (before, alive.supervisor.alive, state.live()) {
            (Some(outcome), ..) => format!(
                "a start would do nothing: the run failed and needs attention ({}); with --again, once the cause is fixed, it would {would}",
                outcome_words(outcome)
            ),
            (None, true, Some(a)) => format!("if attempt {} ended now, the next one would {would}", a.no),
            (None, true, None) => format!("the next attempt would {would}"),
            (None, false, Some(_)) if alive.guard.alive => {
                format!("a start would take over the running workers; once they have ended, it would {would}")
            }
            (None, false, _) => format!("a start would {would}"),
        };
        view
    }

    /// Whether a step is still needed or may be deleted. `steps`: all of them, newest first.
    #[must_use]
    pub fn needs(&self, step: &CheckpointSummary, steps: &[CheckpointSummary]) -> String {
        if self.from.as_ref() == Some(&step.id) {
            return "keep it: the next launch starts from it".to_owned();
        }
        if !step.is_proven(Depth::Structure) {
            return match steps
                .iter()
                .any(|c| c.is_proven(Depth::Structure) && c.step > step.step)
            {
                true => "nothing resumes from it, and newer ones are proven: it may go".to_owned(),
                false => "leave it: it may be being written, and goes aside by itself if it is torn".to_owned(),
            };
        }
        let newer = steps
            .iter()
            .filter(|c| c.is_proven(Depth::Structure) && c.step > step.step);
        match newer.count() {
            0 => "keep it: no newer one is proven".to_owned(),
            1 => "keep it: it is what is left if the newer one cannot be loaded".to_owned(),
            n => format!("it may go: {n} newer ones are proven"),
        }
    }
}

/// Added for a step that must be read before resuming.
fn first_proven(view: &NextView, scan: &ScanReport, needed: Depth) -> &'static str {
    let step = view
        .from
        .as_ref()
        .and_then(|id| scan.steps.iter().find(|c| c.id == *id));
    match step {
        Some(step) if !step.is_proven(needed) => ", once every byte of it was read and is as it was written",
        _ => "",
    }
}

fn failure(s: &RunState, spec: &RunSpec) -> String {
    let p = &spec.policy;
    if !p.start.recovery || p.start.observe {
        return "it is launched once, and nothing is launched again".to_owned();
    }
    let left = p.failure.retries.saturating_sub(s.budget.charged);
    let first = pause(&p.backoff, s.budget.charged.saturating_add(1), 1000);
    let more = match left {
        0 => "the next failure without a newly proven step ends it".to_owned(),
        n => format!(
            "it is launched again after {}, and ends after {} more without a newly proven step",
            time::span(first),
            count(u64::from(n) + 1, "failure")
        ),
    };
    format!(
        "{more} ({} of {} are used); classes that ask for another answer are on the page of the configuration",
        s.budget.charged,
        count(u64::from(p.failure.retries), "retry").replace("retrys", "retries")
    )
}
