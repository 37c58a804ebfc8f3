//! A step that W ranks saved, written as N ranks would have saved it.
//!
//! Every byte that is read is compared with its checksum as it is read, and the new step gets its name when all of it is durable: whoever is
//! killed leaves nothing under that name.

mod content;
mod write;

pub use content::{StepContent, of as content};
pub use write::{ReshardStats, WriteProgressFn, all as write};

use crate::output_dir::OutputDirError;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::checkpoint::Verdict;

/// Why a step was not cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCut {
    /// The step is not what is needed.
    #[error("{text}")]
    Step {
        /// The verdict that follows.
        verdict: Verdict,
        /// The thing and its place.
        text: String,
        /// The next thing to do.
        hint: Option<String>,
    },
    /// The machine does not allow it.
    #[error("{text}")]
    Machine {
        /// The thing and its place.
        text: String,
        /// The next thing to do.
        hint: Option<String>,
    },
    /// There is no room for it.
    #[error("it takes {want} bytes and {free} are free in {at}")]
    NoRoom {
        /// The directory.
        at: Utf8PathBuf,
        /// Bytes that it takes.
        want: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Something stands at the target.
    #[error("{0} exists and is not an empty directory")]
    Exists(Utf8PathBuf),
    /// A directory is not there.
    #[error("there is no directory {0}")]
    NoParent(Utf8PathBuf),
    /// Whoever asked for it wants no more of it.
    #[error("it was interrupted")]
    Interrupted,
    /// A mistake in this program.
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

    /// Says what to do next.
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
