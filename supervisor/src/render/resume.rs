//! The result of `supervise resume`, as text.

use super::advice::next_step;
use super::next::NextView;
use super::outcome::outcome_words;
use super::terminal::shown;
use serde::Serialize;
use supervise_core::journal::record::RunOutcome;
use supervise_core::state::RunState;

/// The stable JSON of the result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResumeView {
    pub version: u32,
    pub run: String,
    /// Outcome of its last supervisor, in the words of `status`; `null`: unknown.
    pub was: Option<&'static str>,
    /// A block was cleared in the journal; false: nothing blocked the next start.
    pub written: bool,
    /// What the next start would do, as far as the journal shows.
    pub next: String,
    #[serde(skip)]
    because: Vec<String>,
    /// What to do first if the next start would be refused.
    #[serde(skip)]
    first: Option<String>,
}

impl ResumeView {
    /// `before`: the state before clearing; `then`: the state in which the next start acts; `written`: a block was cleared.
    #[must_use]
    pub fn of(run: &str, before: &RunState, then: &RunState, written: bool, next: NextView) -> Self {
        let was = before.outcome.as_ref();
        let ended = was.map(|outcome| format!("it had ended: {}", outcome_words(outcome)));
        let held = before
            .requests
            .held
            .as_ref()
            .map(|held| format!("it was {}", held.words()));
        let told = before
            .requests
            .let_go
            .as_ref()
            .map(|let_go| format!("it {}", let_go.words()));
        Self {
            version: 1,
            run: run.to_owned(),
            was: was.map(RunOutcome::word),
            written,
            first: next.refused.and_then(|refused| next_step(&refused, then, run)),
            next: next.would,
            because: held.into_iter().chain(told.or(ended)).collect(),
        }
    }

    /// The result as text.
    #[must_use]
    pub fn text(&self) -> String {
        let said = match (&self.first, self.written) {
            (Some(_), true) => "its failure is cleared, but its next start would be refused again",
            (Some(_), false) => "nothing is to be cleared, but its next start would be refused",
            (None, true) => "its next start is no longer blocked",
            (None, false) => "nothing blocked its next start",
        };
        let mut out = format!("run {}: {said}\n", self.run);
        // The refusal says the same again.
        for line in self.because.iter().filter(|_| self.first.is_none()) {
            out.push_str(&format!("  {}\n", shown(line)));
        }
        out.push_str(&format!("  {}\n", shown(&self.next)));
        out.push_str(&match &self.first {
            Some(first) => format!("  next: {}\n", shown(first)),
            None => "  start it as before: `supervise run`, its service, or its batch script\n".to_owned(),
        });
        out
    }
}
