//! Rewrites a step that W ranks saved as N ranks would have saved it.
//!
//! Every byte is compared with its checksum as it is read, and the new step gets its name once it is durable: an
//! interruption leaves nothing under that name.

mod content;
mod write;

pub use content::{StepContent, of as content};
pub use write::{ReshardStats, WriteProgressFn, all as write};

use crate::output_dir::OutputDirError;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::checkpoint::Verdict;

/// Why a step was not resharded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCut {
    /// The step cannot be resharded.
    #[error("{text}")]
    Step {
        /// The verdict that follows.
        verdict: Verdict,
        text: String,
        hint: Option<String>,
    },
    /// The machine does not allow it.
    #[error("{text}")]
    Machine {
        /// What is wrong, and where.
        text: String,
        hint: Option<String>,
    },
    /// There is not enough free space.
    #[error("it takes {want} bytes and {free} are free in {at}")]
    NoRoom {
        at: Utf8PathBuf,
        /// Bytes needed.
        want: u64,
        /// Bytes free.
        free: u64,
    },
    /// The target path exists.
    #[error("{0} exists and is not an empty directory")]
    Exists(Utf8PathBuf),
    /// A parent directory does not exist.
    #[error("there is no directory {0}")]
    NoParent(Utf8PathBuf),
    /// The caller cancelled it.
    #[error("it was interrupted")]
    Interrupted,
    /// A bug in this program.
    #[error("{0}")]
    Internal(String),
}

impl NotCut {
    fn step(verdict: Verdict, text: impl Into<String>) -> Self {
        let (text, hint) = (text.into(), None);
        Self::Step { verdict, text, hint }
    }

    fn machine(text: impl Into<String>) -> Self {
        let (text, hint) = (text.into(), None);
        Self::Machine { text, hint }
    }

    fn hint(mut self, words: impl Into<String>) -> Self {
        if let Self::Step { hint, .. } | Self::Machine { hint, .. } = &mut self {
            *hint = Some(words.into());
        }
        self
    }
}

fn begun(refused: OutputDirError, target: &Utf8Path) -> NotCut {
    match refused {
        OutputDirError::Exists => NotCut::Exists(target.to_owned()),
        OutputDirError::NoParent(dir) => NotCut::NoParent(dir),
        refused => NotCut::machine(format!("{target}: {refused}")),
    }
}
