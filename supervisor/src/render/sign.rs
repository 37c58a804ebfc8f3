//! The sign of a run's state. Each state has a word, a sign and a color, because color alone is not accessible.

use super::progress::{ProgressPace, ProgressReport};
use super::status::StatusView;

/// How good a state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusTone {
    Good,
    /// Stopped on request.
    Calm,
    /// In transition, or worth a look.
    Odd,
    Bad,
}

impl StatusTone {
    /// The CSS class of the tone.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Calm => "calm",
            Self::Odd => "odd",
            Self::Bad => "bad",
        }
    }
}

/// The tone and the sign of a run.
#[must_use]
pub fn sign(view: &StatusView) -> (StatusTone, &'static str) {
    match (&view.outcome, view.lives()) {
        (Some(o), _) if o.word == "finished" => (StatusTone::Good, "✓"),
        (Some(o), _) if matches!(o.word, "stopped" | "out_of_time") => (StatusTone::Calm, "■"),
        (Some(_), _) => (StatusTone::Bad, "✗"),
        (None, false) => (StatusTone::Bad, "!"),
        (None, true) if view.supervisor.stopped => (StatusTone::Bad, "!"),
        (None, true) if view.problem.is_some() || view.held.is_some() => (StatusTone::Odd, "!"),
        (None, true)
            if view
                .progress
                .as_ref()
                .is_some_and(|p| p.pace == Some(ProgressPace::Overdue)) =>
        {
            (StatusTone::Bad, "!")
        }
        (None, true) if view.progress.as_ref().is_some_and(ProgressReport::is_late) => (StatusTone::Odd, "!"),
        (None, true) if view.mode == "running" => (StatusTone::Good, "▶"),
        (None, true) => (StatusTone::Odd, "…"),
    }
}
