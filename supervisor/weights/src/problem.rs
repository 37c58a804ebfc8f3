//! Why a model cannot be built from its files.

use supervise_core::checkpoint::{Finding, Verdict};

/// A fault in the source, with its verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ModelError {
    /// Verdict on the source, which determines the exit code.
    pub verdict: Verdict,
    /// One sentence: what and where.
    pub text: String,
}

impl ModelError {
    /// Creates an error with this verdict.
    #[must_use]
    pub fn new(verdict: Verdict, text: impl Into<String>) -> Self {
        Self {
            verdict,
            text: text.into(),
        }
    }

    /// Creates an error for damaged bytes.
    #[must_use]
    pub fn damaged(text: impl Into<String>) -> Self {
        Self::new(Verdict::Damaged, text)
    }

    /// Creates an error for an unsupported or ambiguous form.
    #[must_use]
    pub fn unknown(text: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, text)
    }

    /// Creates an error from a finding in a file.
    #[must_use]
    pub fn found(file: &str, finding: &Finding) -> Self {
        Self::new(finding.effect(), format!("{file}: {}", finding.detail))
    }
}
