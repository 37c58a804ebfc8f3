//! Part of a specification about the only checkpoint, for this adapter alone.

use crate::slurm::SlurmJobs;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use supervise_checkpoint::Frequencies;
use supervise_core::spec::SavePolicy;

/// Settings given to AReaL, and what its only checkpoint is expected to be. Names of fields are those of specifications.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ArealSpec {
    /// The name by which AReaL knows its user: it is a part of the checkpoint root.
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
    /// Engines that save in the background: what describes a save may be there before its data.
    #[serde(default)]
    pub async_save: bool,
    /// How often AReaL is to act, by the file beside its checkpoint that would otherwise say it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub frequencies: BTreeMap<String, Frequencies>,
    /// By what its jobs are known, where its workers are jobs of Slurm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmJobs>,
}

impl ArealSpec {
    /// The part that a specification keeps; `None`: another trainer wrote it.
    #[must_use]
    pub fn of(saves: &SavePolicy) -> Option<Self> {
        let own = saves.in_place()?.own.clone();
        serde_json::from_value(Value::Object(own)).ok()
    }

    /// As a specification keeps it.
    #[must_use]
    pub fn own(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(own)) => own,
            _ => Map::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As every field of it was written before it was this adapter's own.
    #[test]
    fn what_specifications_say_is_read_and_written_by_the_same_names() {
        let written: Value = serde_json::from_str(
            r#"{"store":"/share/supervise/ann/exp/t0","user":"ann","names":"/share/names/ann/exp/t0","data_ranks":2,
            "updates_per_step":4,"exit_says_nothing":true,"async_save":true,
            "frequencies":{"saver_info.json":{"epochs":null,"steps":5,"secs":600}},
            "slurm":{"prefix":"exp_t0:","scripts":"/share/logs/ann/exp/t0"}}"#,
        )
        .unwrap();
        let saves: SavePolicy = serde_json::from_value(written.clone()).unwrap();
        let live = ArealSpec::of(&saves).unwrap();
        assert_eq!(
            (live.user.as_str(), live.data_ranks, live.async_save),
            ("ann", Some(2), true)
        );
        assert_eq!(live.slurm.as_ref().unwrap().prefix, "exp_t0:");
        let place = saves.in_place().unwrap();
        assert!(place.exit_says_nothing);
        assert_eq!(live.frequencies["saver_info.json"].secs, Some(600));
        assert_eq!(live.own(), place.own);
        assert_eq!(serde_json::to_value(&saves).unwrap(), written);
        assert_eq!(ArealSpec::of(&SavePolicy::Steps), None);
    }
}
