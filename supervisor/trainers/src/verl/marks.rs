//! Counters that rise from step to step, read from the reports on a step's files.

use super::names::ShardContent;
use super::required_files;
use super::step_files::{RoleFiles, StepFiles};
use std::collections::BTreeMap;
use supervise_checkpoint::StepCounters;

/// Batches that the dataloader has returned in this epoch.
pub(crate) const BATCHES: &str = "data.batches";
pub(crate) const OPTIMIZER: &str = "optimizer";
pub(crate) const SCHEDULE: &str = "schedule";

pub(crate) fn marks(survey: &StepFiles<'_>) -> StepCounters {
    let mut counters = BTreeMap::new();
    for (role, files) in &survey.roles {
        if files.is_megatron() || files.is_first_megatron() {
            super::megatron::count(role, &files.megatron, &mut counters);
        } else {
            count(role, files, &mut counters);
        }
    }
    let data = survey.data.iter().chain(survey.data_parts.iter().map(|(_, file)| file));
    let batches = data.filter_map(|file| file.torch()?.batches);
    counters.extend(batches.max().map(|n| (BATCHES.to_owned(), n)));
    StepCounters {
        counters,
        digest: digest(survey),
    }
}

/// The name of a counter, without the role if the step is the role.
pub(crate) fn name_of(role: &str, what: &str) -> String {
    if role.is_empty() {
        what.to_owned()
    } else {
        format!("{role}.{what}")
    }
}

/// The highest counts among the ranks of the loaded world size.
fn count(role: &str, files: &RoleFiles<'_>, counters: &mut BTreeMap<String, u64>) {
    let told = files.fsdp_config.and_then(|config| config.world_size());
    let Some(world) = told.or_else(|| files.likely_world()) else {
        return;
    };
    let (mut optimizer, mut schedule) = (None, None);
    for content in [ShardContent::Optimizer, ShardContent::Extra] {
        for (_, file) in files.of(world, content).into_iter().flatten() {
            let Some(facts) = file.torch() else {
                continue;
            };
            optimizer = optimizer.max(facts.optimizer_steps.iter().max().copied());
            schedule = schedule.max(facts.scheduler_steps);
        }
    }
    for (what, count) in [(OPTIMIZER, optimizer), (SCHEDULE, schedule)] {
        counters.extend(count.map(|n| (name_of(role, what), n)));
    }
}

/// CRC-32 over the sorted names and checksums of all required files; `None` if one has no checksum.
fn digest(survey: &StepFiles<'_>) -> Option<u32> {
    let mut files: Vec<(u32, &str, u32)> = Vec::new();
    required_files::each(survey, &mut |wanted| {
        files.push((wanted.file.place, wanted.file.path, wanted.file.report?.crc?));
        Some(())
    })?;
    // Sort by index: comparing many long names would take most of the time.
    files.sort_unstable_by_key(|(place, ..)| *place);
    let mut hash = crc32fast::Hasher::new();
    for (_, path, crc) in &files {
        hash.update(path.as_bytes());
        hash.update(&[0]);
        hash.update(&crc.to_le_bytes());
    }
    (!files.is_empty()).then(|| hash.finalize())
}
