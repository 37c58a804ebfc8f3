//! The first words of lines that stand out.

use std::fmt::{self, Display, Formatter};

/// The first words of a line that stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    Error,
    /// The run failed with the same error again.
    Failed,
    /// The run used up its retries.
    GaveUp,
    /// The run has no step to resume from.
    NoCheckpoint,
    /// An operator should look at this.
    Warning,
    Finished,
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

    /// The text.
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

    /// The lead of a line, also after a time stamp. A note that starts with a warning counts as a warning.
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
