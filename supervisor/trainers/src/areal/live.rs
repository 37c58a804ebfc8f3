//! The AReaL-specific part of a specification: the only checkpoint.

use crate::slurm::SlurmJobs;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use supervise_checkpoint::Frequencies;
use supervise_core::spec::SavePolicy;

/// Settings given to AReaL, and what its only checkpoint should be. Field names are part of the specification format.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ArealSpec {
    /// AReaL's name for its user, which is part of the checkpoint root.
    pub user: String,
    /// Directory of the records by which the trial's processes find each other, if they are files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Utf8PathBuf>,
    /// Processes that write a dataloader position, if known: AReaL starts fresh if another number loads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_ranks: Option<u32>,
    /// Most updates that an engine's optimizer makes per step, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updates_per_step: Option<u32>,
    /// Engines save in the background: the description of a save may exist before its data.
    #[serde(default)]
    pub async_save: bool,
    /// How often AReaL should act, by the file next to its checkpoint that would override it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub frequencies: BTreeMap<String, Frequencies>,
    /// How to recognize its jobs, if its workers are Slurm jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmJobs>,
}

impl ArealSpec {
    /// Reads the part from a specification; `None`: another trainer wrote it.
    #[must_use]
    pub fn of(saves: &SavePolicy) -> Option<Self> {
        let own = saves.in_place()?.own.clone();
        serde_json::from_value(Value::Object(own)).ok()
    }

    /// Converts it to its form in a specification.
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

    /// Keeps the field names from before this part was the adapter's own.
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
