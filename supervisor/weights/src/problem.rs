//! Why a model cannot be had from its files.

use supervise_core::checkpoint::{Finding, Verdict};

/// A fault of the source, and the verdict that follows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ModelError {
    /// Verdict on the source: the exit code follows from it.
    pub verdict: Verdict,
    /// One sentence: what and where.
    pub text: String,
}

impl ModelError {
    /// A problem with this verdict.
    #[must_use]
    pub fn new(verdict: Verdict, text: impl Into<String>) -> Self {
        Self {
            verdict,
            text: text.into(),
        }
    }

    /// Bytes are not what they should be.
    #[must_use]
    pub fn damaged(text: impl Into<String>) -> Self {
        Self::new(Verdict::Damaged, text)
    }

    /// A form that is not known, or has more than one meaning.
    #[must_use]
    pub fn unknown(text: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, text)
    }

    /// A reader's finding in a file.
    #[must_use]
    pub fn found(file: &str, finding: &Finding) -> Self {
        Self::new(finding.effect(), format!("{file}: {}", finding.detail))
    }
}
