//! The current attempt of a run, or the last one.

use serde::Serialize;
use supervise_core::diagnosis::last_lines;
use supervise_core::event::TrainerPhase;
use supervise_core::journal::record::{SaveRequestEnd, StartPoint};
use supervise_core::spec::gang::AttemptNodes;
use supervise_core::state::{Attempt, SaveRequest};

/// The current attempt, or the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttemptView {
    pub no: u32,
    pub step: Option<u64>,
    /// What it is doing; `null` if it has exited.
    pub phase: Option<TrainerPhase>,
    /// The step it started from; 0 for a fresh start, `null` if it runs as written.
    pub resumed_from: Option<u64>,
    /// PIDs of its workers.
    pub workers: Vec<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<AttemptNodes>,
    pub gone: bool,
    /// What is wrong with it, even if nothing is done about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The newest request for a save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save_request: Option<SaveRequestView>,
    /// The last output of the worker that failed first, if no line in it is known.
    pub lines: Vec<String>,
}

/// A request to the trainer for a save.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SaveRequestView {
    /// Its number within the run.
    pub id: u64,
    pub by: String,
    /// The step that the trainer said it saves.
    pub answered: Option<u64>,
    /// `open`, `proven`, `unanswered`, `unproven` or `failed`.
    pub state: &'static str,
    /// The step that is proven.
    pub proven: Option<u64>,
}

impl SaveRequestView {
    #[must_use]
    pub fn of(request: &SaveRequest) -> Self {
        let (state, proven) = match request.end.as_ref().map(|(end, _)| end) {
            None => ("open", None),
            Some(SaveRequestEnd::Proven { step, .. }) => ("proven", Some(step.0)),
            Some(SaveRequestEnd::Unanswered) => ("unanswered", None),
            Some(SaveRequestEnd::Unproven) => ("unproven", None),
            Some(SaveRequestEnd::Failed { .. }) => ("failed", None),
        };
        Self {
            id: request.order.id,
            by: request.order.by.words().to_owned(),
            answered: request.answered.map(|(step, _)| step.0),
            state,
            proven,
        }
    }

    /// What is still to come of it.
    fn words(&self) -> Option<String> {
        match (self.state, self.answered) {
            ("open", Some(step)) => Some(format!("; step {step} is saved, as {} asked", self.by)),
            ("open", None) => Some(format!("; a save was asked for by {}", self.by)),
            ("unanswered", _) => Some("; the trainer did not answer the last request for a save".to_owned()),
            _ => None,
        }
    }
}

impl AttemptView {
    pub(super) fn of(a: &Attempt) -> Self {
        let warnings = a.output.noticed.iter().filter(|(kind, _)| kind.is_warning());
        Self {
            no: a.no.0,
            step: a.training.step.map(|s| s.0),
            phase: (!a.end.gone).then_some(a.training.phase),
            resumed_from: match &a.order.from {
                StartPoint::AsIs => None,
                other => Some(other.step().0),
            },
            workers: a.launch.workers.iter().map(|w| w.pid).collect(),
            nodes: (!a.nodes.is_empty()).then(|| a.nodes.clone()),
            gone: a.end.gone,
            warnings: warnings.map(|(_, text)| text.clone()).collect(),
            save_request: a.saves.asked.as_ref().map(SaveRequestView::of),
            lines: last_lines(a).to_vec(),
        }
    }

    /// In one line.
    pub(super) fn text(&self) -> String {
        let from = match self.resumed_from {
            Some(0) => ", from scratch".to_owned(),
            Some(n) => format!(", resumed from step {n}"),
            None => ", started as written".to_owned(),
        };
        let step = self.step.map(|s| format!(", at step {s}")).unwrap_or_default();
        let phase = self.phase.map(|p| format!(" ({})", phase_word(p))).unwrap_or_default();
        let end = if self.gone { ", ended" } else { "" };
        let asked = self.save_request.as_ref().and_then(SaveRequestView::words);
        format!("{}{from}{step}{phase}{end}{}", self.no, asked.unwrap_or_default())
    }
}

/// A phase in one word.
#[must_use]
pub fn phase_word(p: TrainerPhase) -> &'static str {
    match p {
        TrainerPhase::Startup => "starting up",
        TrainerPhase::Step => "training",
        TrainerPhase::Save => "saving",
        TrainerPhase::Validate => "validating",
        TrainerPhase::Exit => "ending",
    }
}
