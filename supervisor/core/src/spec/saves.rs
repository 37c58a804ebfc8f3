//! Where a trainer saves: into a directory per step, or into one checkpoint that it overwrites.
//!
//! The checkpoint in that one place is the *live set*: the state of each engine and the run's own state next to it.
//! Proven copies of it are *generations*. A launch starts from the live set; if that is not whole, a generation is put
//! back first.

use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Where a trainer saves. Serialized as the field `live` of the specification, only for [`SavePolicy::InPlace`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Option<InPlaceSpec>", into = "Option<InPlaceSpec>")]
pub enum SavePolicy {
    /// Into a directory per step.
    #[default]
    Steps,
    /// Into one place, which each save overwrites.
    InPlace(InPlaceSpec),
}

impl SavePolicy {
    /// Returns true if each step has a directory.
    #[must_use]
    pub fn is_steps(&self) -> bool {
        *self == Self::Steps
    }

    /// Returns true if one checkpoint is overwritten.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        !self.is_steps()
    }

    /// The checkpoint that is overwritten.
    #[must_use]
    pub fn in_place(&self) -> Option<&InPlaceSpec> {
        match self {
            Self::Steps => None,
            Self::InPlace(place) => Some(place),
        }
    }

    /// How each role is spread over ranks; empty if saves show it.
    #[must_use]
    pub fn spread(&self) -> BTreeMap<String, RoleSpread> {
        self.in_place().map(|place| place.spread.clone()).unwrap_or_default()
    }
}

/// How a role is spread over ranks when it saves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSpread {
    /// The engine that runs it. Another one cannot load its saves.
    pub backend: String,
    /// Its parallel sizes, as the trainer writes them, in canonical form.
    pub sizes: String,
    /// Number of shares that the data is divided into, each with its own position.
    pub shares: u32,
}

impl From<Option<InPlaceSpec>> for SavePolicy {
    fn from(place: Option<InPlaceSpec>) -> Self {
        place.map_or(Self::Steps, Self::InPlace)
    }
}

impl From<SavePolicy> for Option<InPlaceSpec> {
    fn from(saves: SavePolicy) -> Self {
        match saves {
            SavePolicy::Steps => None,
            SavePolicy::InPlace(place) => Some(place),
        }
    }
}

/// A trainer's only checkpoint, and where copies of it are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InPlaceSpec {
    /// Directory for generations and for what is moved aside: on the file system of the checkpoint root, but outside of
    /// it.
    pub store: Utf8PathBuf,
    /// Whether the command exits with an error even if the training finished.
    #[serde(default)]
    pub exit_says_nothing: bool,
    /// How each role is spread over ranks, if its saves do not show it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spread: BTreeMap<String, RoleSpread>,
    /// Fields that only the trainer's adapter reads.
    #[serde(flatten)]
    pub own: Map<String, Value>,
}

/// How a trainer's only checkpoint is protected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protect {
    /// Whether each proven save is copied.
    pub enabled: bool,
    /// Generations to keep, at least two.
    pub keep: u32,
    /// Bytes per second that a copy may read; 0: no limit.
    pub rate: u64,
    /// Bytes that must stay free besides a copy and the next save.
    pub reserve: u64,
    /// Whether weights may be newer than the counters and the position in the data.
    pub ahead: AcceptAhead,
}

impl Default for Protect {
    fn default() -> Self {
        Self {
            enabled: true,
            keep: 2,
            rate: 512 << 20,
            reserve: 1 << 30,
            ahead: AcceptAhead::Ask,
        }
    }
}

/// Whether to resume from a live set whose weights are newer than its counters, because a save was interrupted in
/// between. The steps in between would be trained again, on newer weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptAhead {
    /// It counts as unfinished.
    Never,
    /// It counts as unfinished; if nothing else is left, the run ends with a question.
    Ask,
    /// It is resumed from, and the repeated steps are reported.
    Always,
}
