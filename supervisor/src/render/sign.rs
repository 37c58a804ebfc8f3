//! The sign of a run's state: beside each word a sign and a colour, since colour alone tells not everybody anything.

use super::status::StatusView;

/// How a state is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusTone {
    /// As it should be.
    Good,
    /// Over, as somebody wanted.
    Calm,
    /// On its way, or with something to look at.
    Odd,
    /// Needs somebody.
    Bad,
}

impl StatusTone {
    /// In a word.
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

/// The sign of a run as it is.
#[must_use]
pub fn sign(view: &StatusView) -> (StatusTone, &'static str) {
    match (&view.outcome, view.lives()) {
        (Some(o), _) if o.word == "finished" => (StatusTone::Good, "✓"),
        (Some(o), _) if matches!(o.word, "stopped" | "out_of_time") => (StatusTone::Calm, "■"),
        (Some(_), _) => (StatusTone::Bad, "✗"),
        (None, false) => (StatusTone::Bad, "!"),
        (None, true) if view.problem.is_some() || view.held.is_some() => (StatusTone::Odd, "!"),
        (None, true) if view.mode == "running" => (StatusTone::Good, "▶"),
        (None, true) => (StatusTone::Odd, "…"),
    }
}
