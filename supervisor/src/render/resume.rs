//! A run that may go on, in words.

use super::outcome::outcome_words;
use super::terminal::shown;
use serde::Serialize;
use supervise_core::journal::record::RunOutcome;
use supervise_core::state::RunState;

/// The answer, of a stable shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResumeView {
    /// Version of this shape.
    pub version: u32,
    /// Identity.
    pub run: String,
    /// How its last supervisor ended, in one word as `status` has it; null: that is not known.
    pub was: Option<&'static str>,
    /// Its journal says so now; false: nothing stood against its next start.
    pub written: bool,
    /// The next start's doing, as far as the journal tells.
    pub next: String,
    #[serde(skip)]
    because: Vec<String>,
}

impl ResumeView {
    /// The answer for a run as it was before; `written`: something stood against its next start, and does no more.
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

    /// For people.
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
        out.push_str("  start it as ever: `supervise run`, its service, or its batch script\n");
        out
    }
}
