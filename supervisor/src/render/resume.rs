//! The result of `supervise resume`, as text.

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
}

impl ResumeView {
    /// `before`: the state before clearing; `written`: a block was cleared.
    #[must_use]
    pub fn of(run: &str, before: &RunState, written: bool, next: String) -> Self {
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
            next,
            because: held.into_iter().chain(told.or(ended)).collect(),
        }
    }

    /// The result as text.
    #[must_use]
    pub fn text(&self) -> String {
        let said = match self.written {
            true => "nothing stands against its next start any more",
            false => "nothing stood against its next start",
        };
        let mut out = format!("run {}: {said}\n", self.run);
        for line in &self.because {
            out.push_str(&format!("  {}\n", shown(line)));
        }
        out.push_str(&format!("  as its journal tells, {}\n", shown(&self.next)));
        out.push_str("  start it as before: `supervise run`, its service, or its batch script\n");
        out
    }
}
