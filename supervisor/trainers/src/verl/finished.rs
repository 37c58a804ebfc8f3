//! How to tell that FSDP's manager finished saving a role.
//!
//! Every verl since 0.4.1 writes `fsdp_config.json` after rank 0's shards. Older releases and their forks (EasyR1) do
//! not: there, the shard names give the number of ranks, and the tracker, which is written last, names the last
//! finished step. Which kind saved a root is known from the run's release or from the root: if no step has the file,
//! its trainer does not write it.

use super::names::{ShardContent, TRACKER};
use super::step_files::{RoleFiles, StepFiles};
use super::version::{ReleaseSeries::V0_4, VerlRelease};
use std::fmt;
use supervise_core::event::TrackerState;
use supervise_core::id::Step;

pub(super) const MARKER: &str = "fsdp_config.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinishRule<'a> {
    Marker,
    /// By the names of all shards, and by the tracker.
    Tracker {
        /// The run's release, if known to write no such file.
        release: Option<VerlRelease>,
        says: &'a TrackerState,
        step: Step,
        /// The dataloader state exists, which is written between the roles and the tracker.
        has_data: bool,
    },
}

impl<'a> FinishRule<'a> {
    /// Chooses the rule for one step. `version`: of the run's trainer, if known; `is_marked`: some step of the root
    /// has the file.
    pub(crate) fn of(
        version: Option<&str>,
        is_marked: bool,
        says: &'a TrackerState,
        step: Step,
        survey: &StepFiles<'_>,
    ) -> Self {
        let release = version.and_then(VerlRelease::of);
        let writes_it = release.map_or(is_marked, |release| release.since(V0_4, 1));
        match writes_it {
            true => Self::Marker,
            false => Self::Tracker {
                release,
                says,
                step,
                has_data: survey.data.is_some() || !survey.data_parts.is_empty(),
            },
        }
    }

    /// Returns true if shard names and the tracker decide.
    pub(super) fn is_by_names(self) -> bool {
        matches!(self, Self::Tracker { .. })
    }

    /// Returns true if every save of the release has all kinds of shards.
    pub(super) fn has_all_kinds(self) -> bool {
        matches!(self, Self::Tracker { release: Some(_), .. })
    }

    /// Why the save of a role without the marker is unfinished; `None`: it is finished.
    pub(super) fn objection(self, files: &RoleFiles<'_>) -> Option<String> {
        let Self::Tracker {
            says, step, has_data, ..
        } = self
        else {
            return files
                .root_config
                .is_none()
                .then(|| "rank 0 writes this file after its shards: the save was not finished".to_owned());
        };
        let finished = match says {
            TrackerState::Step(last) => step <= *last,
            // An empty tracker was cut off while being written, after the dataloader state.
            TrackerState::Empty => has_data || files.root_config.is_some(),
            TrackerState::Missing | TrackerState::Garbage(_) | TrackerState::NotAFile(_) | TrackerState::Unused => {
                files.root_config.is_some()
            }
        };
        (!finished).then(|| match says {
            TrackerState::Step(last) => format!(
                "no step here has this file ({self}), and {TRACKER}, which is written last, names step {last}: the save of this one was not finished"
            ),
            _ => format!(
                "no step here has this file ({self}), and {TRACKER}, which is written last, names no step: nothing says that the save was finished"
            ),
        })
    }

    /// Notes what shows that a step without the marker is complete.
    pub(super) fn note(self, files: &RoleFiles<'_>, world: u32) -> String {
        let kinds: Vec<&str> = ShardContent::ALL
            .into_iter()
            .filter(|c| files.of(world, *c).is_some())
            .map(ShardContent::word)
            .collect();
        let kinds = kinds.join(", ");
        let by = match self {
            Self::Tracker {
                says: TrackerState::Step(last),
                ..
            } => format!("{TRACKER}, which is written last and names step {last}"),
            Self::Tracker { .. } if files.root_config.is_none() => {
                format!("the dataloader's state, which is written before {TRACKER} alone")
            }
            Self::Tracker { .. } | Self::Marker => {
                "config.json in the role itself, which rank 0 writes after its shards".to_owned()
            }
        };
        format!("no {MARKER} ({self}): judged by the names of its shards ({kinds} of {world} ranks) and by {by}")
    }
}

/// Which trainer the save is attributed to.
impl fmt::Display for FinishRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Marker => f.write_str("taken for a save of verl 0.4.0 or older"),
            Self::Tracker {
                release: Some(release), ..
            } => write!(f, "this is {release}, which writes none"),
            Self::Tracker { release: None, .. } => {
                f.write_str("taken for a save of verl 0.4.0 or older, or of a fork such as EasyR1")
            }
        }
    }
}
