//! Counters that rise from step to step, to detect a step with another one's state.

use camino::Utf8Path;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use supervise_core::id::Step;

/// Counters of one step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepCounters {
    /// By name: `actor.optimizer` (Adam's updates), `actor.schedule` (steps of the learning-rate schedule), `data.batches` (batches
    /// yielded in this epoch). The role is left out if the step has only one.
    pub counters: BTreeMap<String, u64>,
    /// CRC-32 over the sorted names and CRC-32s of all files, if every byte was read: equal digests, equal bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<u32>,
}

/// An earlier proven step of the same lineage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierStep {
    pub step: Step,
    pub marks: StepCounters,
}

/// CRC-32 over the names and CRC-32s of files, for [`StepCounters::digest`]. The caller sorts them by name.
pub fn digest<'a>(files: impl IntoIterator<Item = (&'a Utf8Path, u32)>) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for (path, crc) in files {
        // A zero ends each name, so that no two lists of files give the same bytes.
        sum.update(path.as_str().as_bytes());
        sum.update(&[0]);
        sum.update(&crc.to_le_bytes());
    }
    sum.finalize()
}
