//! A run that may go on, in words.

use super::record::outcome_words;
use super::terminal::shown;
use serde::Serialize;
use supervise_core::record::Outcome;

/// The answer, of a stable shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResumeView {
    /// Version of this shape.
    pub version: u32,
    /// Identity.
    pub run: String,
    /// How its last supervisor ended, as `status` says it; null: that is not known.
    pub was: Option<&'static str>,
    /// Its journal says that it may go on; false: it could before.
    pub written: bool,
    #[serde(skip)]
    ended: Option<String>,
}

impl ResumeView {
    /// `written`: something stood against its next start, and does no more.
    #[must_use]
    pub fn of(run: &str, was: Option<&Outcome>, written: bool) -> Self {
        Self {
            version: 1,
            run: run.to_owned(),
            was: was.map(Outcome::word),
            written,
            ended: was.map(outcome_words),
        }
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let said = match self.written {
            true => "its next start goes on",
            false => "its next start goes on, as it would have without this",
        };
        let mut out = format!("run {}: {said}\n", self.run);
        if let Some(ended) = &self.ended {
            out.push_str(&format!("  it had ended: {}\n", shown(ended)));
        }
        out.push_str("  start it as ever: supervise run, its service, or its batch script\n");
        out
    }
}
