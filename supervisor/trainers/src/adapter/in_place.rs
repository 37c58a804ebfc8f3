//! The layout of a trainer that keeps one checkpoint only and overwrites it: the state of each engine, and beside it what is kept of
//! the run. Copies have the same layout; generations that the trainer writes by itself name their parts otherwise.

use super::ExpectedLayout;
use std::fmt;
use supervise_core::checkpoint::{CheckpointSummary, Finding};
use supervise_core::id::Step;

/// Place of the parts of such a checkpoint.
pub trait InPlaceLayout: Sync + fmt::Debug {
    /// The directory of what is kept of the run: read before all else, so put in its place last.
    fn info(&self) -> &'static str;
    /// The directory of an engine's state, below the engine's name.
    fn state(&self) -> &'static str;
    /// The directory of all engines in a generation of the trainer's own.
    fn payloads(&self) -> &'static str;
    /// Place where a path of the live set stands in a generation of the trainer's own.
    fn as_own(&self, path: &str) -> String;
    /// A set that the trainer would load and that is not there, or cannot be told.
    fn no_set(&self, step: Step, finding: Finding) -> CheckpointSummary;
    /// Files of [`InPlace::info`] that say how often the trainer is to act, whatever its configuration says.
    fn stored(&self, expect: &ExpectedLayout) -> Vec<String>;
    /// Such a file as the configuration wants it; `None`: it is so already.
    ///
    /// # Errors
    /// Why the file cannot be changed, in words.
    fn corrected(&self, expect: &ExpectedLayout, name: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>, String>;
}
