//! The places of a trainer's saves: a directory for each step, or one checkpoint that is overwritten.
//!
//! The checkpoint in that one place is the *live set*: the state of each engine and what is kept of the run beside it.
//! Copies of it that were proven are *generations*. A launch starts from the live set; where that is not whole, a
//! generation is put in its place first.

use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The places of a trainer's saves. Written as `live` of a specification, which is there for [`SavePolicy::InPlace`] only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Option<InPlaceSpec>", into = "Option<InPlaceSpec>")]
pub enum SavePolicy {
    /// In a directory for each step.
    #[default]
    Steps,
    /// In one place, which each save overwrites.
    InPlace(InPlaceSpec),
}

impl SavePolicy {
    /// Each step has a directory.
    #[must_use]
    pub fn is_steps(&self) -> bool {
        *self == Self::Steps
    }

    /// One checkpoint is overwritten.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        !self.is_steps()
    }

    /// The one checkpoint that is overwritten.
    #[must_use]
    pub fn in_place(&self) -> Option<&InPlaceSpec> {
        match self {
            Self::Steps => None,
            Self::InPlace(place) => Some(place),
        }
    }

    /// How each role is spread over ranks; empty where saves tell it.
    #[must_use]
    pub fn spread(&self) -> BTreeMap<String, RoleSpread> {
        self.in_place().map(|place| place.spread.clone()).unwrap_or_default()
    }
}

/// How a role is spread over ranks when it saves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSpread {
    /// What runs it: another one cannot load what this one saved.
    pub backend: String,
    /// Its parallel sizes, as the trainer writes them, each spread in one way only.
    pub sizes: String,
    /// Shares that the data is dealt out in, each with a place of its own.
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

/// The only checkpoint of a trainer, and where it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InPlaceSpec {
    /// Directory for generations and for what goes aside: on the file system of the checkpoint root, outside of it.
    pub store: Utf8PathBuf,
    /// The command ends with an error even where the training came to its end.
    #[serde(default)]
    pub exit_says_nothing: bool,
    /// How each role is spread over ranks, where its saves do not tell it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spread: BTreeMap<String, RoleSpread>,
    /// Fields that only the trainer's adapter reads.
    #[serde(flatten)]
    pub own: Map<String, Value>,
}

/// How the only checkpoint of a trainer is kept from being lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protect {
    /// Each proven save is copied.
    pub enabled: bool,
    /// Generations that are kept, two at least.
    pub keep: u32,
    /// Bytes a second that a copy may read; 0 for no limit.
    pub rate: u64,
    /// Bytes that stay free beside a copy and the next save.
    pub reserve: u64,
    /// True if weights may be newer than the counters and the place in the data.
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

/// True if a live set is resumed from whose weights are newer than its counters: a save was cut short between the two, and the
/// steps between them would be trained again, on newer weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptAhead {
    /// It counts as unfinished.
    Never,
    /// It counts as unfinished; where nothing else is left, the run ends with a question.
    Ask,
    /// It is resumed from, and what is repeated is said.
    Always,
}
