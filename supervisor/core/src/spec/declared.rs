//! A trainer that a file declares, as a term uses it.

use crate::id::fnv64;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};

/// The declaration of a run's trainer. Every process of a run reads the text here, so the file may change meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredTrainer {
    /// Its file; `None`: it is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Utf8PathBuf>,
    /// Identifies the text.
    pub digest: String,
    pub text: String,
    /// Directory of steps moved aside and of the lease, if it must not be in the checkpoint root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Utf8PathBuf>,
}

impl DeclaredTrainer {
    /// The digest of a text.
    #[must_use]
    pub fn digest_of(text: &str) -> String {
        format!("{:016x}", fnv64(text.as_bytes()))
    }
}
