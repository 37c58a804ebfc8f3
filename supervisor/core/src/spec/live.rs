//! A trainer that keeps one checkpoint and overwrites it in place (AReaL).
//!
//! What stands in the trainer's own directories is the *live set*: the state of each engine and what is kept of the run beside
//! it. Copies of it that were proven are *generations*. A launch starts from the live set; where that is not whole, a
//! generation is put in its place first.

use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the only checkpoint stands, what belongs to it and where it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveSpec {
    /// Directory for generations and for what goes aside: on the file system of the checkpoint root, outside of it.
    pub store: Utf8PathBuf,
    /// The name by which the trainer knows its user: it is a part of the checkpoint root.
    pub user: String,
    /// Directory of the records by which the processes of this trial find each other, where they are files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Utf8PathBuf>,
    /// Processes that write their place in the data, where known: AReaL begins anew if another number loads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_ranks: Option<u32>,
    /// Updates that the optimizer of an engine makes in one step at most, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updates_per_step: Option<u32>,
    /// What starts the trainer ends with an error even where the training came to its end.
    #[serde(default)]
    pub exit_says_nothing: bool,
    /// Engines that save in the background: what describes a save may be there before its data.
    #[serde(default)]
    pub async_save: bool,
    /// How often the trainer is to act, by the file beside its checkpoint that would otherwise say it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub frequencies: BTreeMap<String, Frequencies>,
    /// Its workers are jobs of Slurm's, which outlive whoever submitted them: by what they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmJobs>,
}

/// By what jobs look like those of a run. It is no proof: names and scripts are free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmJobs {
    /// How their names begin.
    pub prefix: String,
    /// The directory of the scripts that are submitted.
    pub scripts: Utf8PathBuf,
}

/// How often AReaL saves, exports or evaluates; `None`: never by this measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Frequencies {
    /// Every so many epochs (`freq_epochs`).
    pub epochs: Option<i64>,
    /// Every so many steps (`freq_steps`).
    pub steps: Option<i64>,
    /// Every so many seconds (`freq_secs`).
    pub secs: Option<i64>,
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
    /// Whether weights may be newer than the counters and the place in the data.
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

/// Whether a live set is resumed from whose weights are newer than its counters: a save was cut short between the two, and the
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
