//! The words that a line begins with if it is to stand out.

use std::fmt::{self, Display, Formatter};

/// The first words of a line that stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    /// The command failed.
    Error,
    /// The run ended with the same error again.
    Failed,
    /// The run ended without retries.
    GaveUp,
    /// The run ended without a step to resume from.
    NoCheckpoint,
    /// Something needs a person's attention.
    Warning,
    /// The run ended well.
    Finished,
    /// Something worth saying.
    Note,
    /// What to do about an error.
    Hint,
}

impl Lead {
    const ALL: [Self; 8] = [
        Self::Error,
        Self::Failed,
        Self::GaveUp,
        Self::NoCheckpoint,
        Self::Warning,
        Self::Finished,
        Self::Note,
        Self::Hint,
    ];

    /// The words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Failed => "failed:",
            Self::GaveUp => "gave up:",
            Self::NoCheckpoint => "no provable checkpoint:",
            Self::Warning => "WARNING:",
            Self::Finished => "finished:",
            Self::Note => "note:",
            Self::Hint => "  hint:",
        }
    }

    /// The lead of a line, also after the time of a decision. A note that warns is a warning.
    #[must_use]
    pub fn of(line: &str) -> Option<Self> {
        let text = match line.split_once(' ') {
            Some((time, text)) if time.ends_with('Z') && time.starts_with(|c: char| c.is_ascii_digit()) => text,
            _ => line,
        };
        let lead = |text: &str| Self::ALL.into_iter().find(|lead| text.starts_with(lead.words()));
        let first = lead(text)?;
        let rest = text.strip_prefix(first.words()).unwrap_or_default().trim_start();
        match (first, lead(rest)) {
            (Self::Note, Some(Self::Warning)) => Some(Self::Warning),
            _ => Some(first),
        }
    }
}

impl Display for Lead {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
