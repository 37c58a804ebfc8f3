use crate::render::terminal::paragraph;
use crate::render::time::{clock, local_clock};
use serde::Serialize;
use supervise_core::id::WallMs;
use supervise_core::journal::reason::Reason;

/// One line of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimelineLine {
    /// When, in ms since 1970.
    pub at: WallMs,
    pub text: String,
    pub reasons: Vec<Reason>,
    /// A step was proven or deleted as planned.
    #[serde(skip)]
    pub routine: bool,
}

impl TimelineLine {
    /// The text without the time of day that it begins with.
    #[must_use]
    pub fn words(&self) -> String {
        let words = self.text.strip_prefix(&clock(self.at)).unwrap_or(&self.text);
        paragraph(words.trim_start())
    }

    /// The text with the time of day here.
    #[must_use]
    pub fn local(&self) -> String {
        format!("{} {}", local_clock(self.at), self.words())
    }
}
