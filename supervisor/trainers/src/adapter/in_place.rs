//! The layout of a trainer that keeps a single checkpoint and overwrites it: the state of each engine, and next to it
//! the run's own state. Copies have the same layout; in generations that the trainer writes itself the names differ.

use super::ExpectedLayout;
use std::fmt;
use supervise_core::checkpoint::{CheckpointSummary, Finding};
use supervise_core::id::Step;

/// Paths inside such a checkpoint.
pub trait InPlaceLayout: Sync + fmt::Debug {
    /// The only file of a checkpoint, directly in its directory; `None`: it consists of directories.
    fn file(&self) -> Option<&'static str> {
        None
    }
    /// Directory of the run's own state: read first, so put in place last.
    fn info(&self) -> &'static str;
    /// Directory of an engine's state, below the engine's name.
    fn state(&self) -> &'static str;
    /// Directory of all engines in a generation of the trainer's own.
    fn payloads(&self) -> &'static str;
    /// Maps a path of the live set to its path in a generation of the trainer's own.
    fn as_own(&self, path: &str) -> String;
    /// Describes a set that the trainer would load but that is missing or unreadable.
    fn no_set(&self, step: Step, finding: Finding) -> CheckpointSummary;
    /// Files of [`InPlaceLayout::info`] with stored intervals, which override the trainer's configuration.
    fn stored(&self, expect: &ExpectedLayout) -> Vec<String>;
    /// Rewrites such a file to match the configuration; `None` if it already does.
    ///
    /// # Errors
    /// Why the file cannot be changed.
    fn corrected(&self, expect: &ExpectedLayout, name: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>, String>;
}
