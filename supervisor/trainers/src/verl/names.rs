//! verl's names on disk: step directories, shards, parts of the dataloader state.
//!
//! verl writes numbers without leading zeros. A name that only looks similar (`global_step_0010`, `global_steps_10`)
//! is never accepted: verl itself would read something else.

use supervise_checkpoint::FileKind;
use supervise_core::id::Step;

/// Returns true if an entry can only belong in the directory of a role.
pub(super) fn is_of_role(name: &str) -> bool {
    matches!(name, "ckpt_contents.json" | "dist_ckpt" | "transformer_config.json")
        || name.contains("_world_size_") && name.ends_with(".pt")
}

pub(super) const STEP: &str = "global_step_";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerlRootName {
    Step(Step),
    /// A step number with leading zeros: verl looks for the name without them.
    Padded,
    /// A number that no step can have.
    TooLarge,
    /// `global_steps_N`, which the documentation has but no release writes.
    Plural,
    /// A step's name with a suffix (`global_step_10.bak`).
    Suffixed,
    /// The tracker file's temporary name.
    TrackerLeftover,
    Other,
}

pub(crate) fn root_name(name: &str) -> VerlRootName {
    if name == TRACKER_LEFTOVER {
        return VerlRootName::TrackerLeftover;
    }
    if name
        .strip_prefix("global_steps_")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    {
        return VerlRootName::Plural;
    }
    let Some(rest) = name.strip_prefix(STEP) else {
        return VerlRootName::Other;
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    match (digits, digits == rest.len()) {
        (0, _) => VerlRootName::Other,
        (_, false) => VerlRootName::Suffixed,
        (n, true) if n > 1 && rest.starts_with('0') => VerlRootName::Padded,
        (_, true) => rest
            .parse()
            .map_or(VerlRootName::TooLarge, |n| VerlRootName::Step(Step(n))),
    }
}

pub(crate) fn step_dir(step: Step) -> String {
    format!("{STEP}{step}")
}

/// verl's pointer to its newest step.
pub(crate) const TRACKER: &str = "latest_checkpointed_iteration.txt";
const TRACKER_LEFTOVER: &str = "latest_checkpointed_iteration.txt.tmp";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ShardContent {
    Model,
    Optimizer,
    Extra,
}

impl ShardContent {
    /// In the order in which a rank writes them.
    pub(crate) const ALL: [Self; 3] = [Self::Model, Self::Optimizer, Self::Extra];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Optimizer => "optimizer",
            Self::Extra => "extra",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Optimizer => "optim",
            Self::Extra => "extra_state",
        }
    }

    pub(crate) fn file(self, world: u32, rank: u32) -> String {
        #[cfg(test)]
        BUILT.set(BUILT.get() + 1);
        format!("{}_world_size_{world}_rank_{rank}.pt", self.prefix())
    }
}

#[cfg(test)]
thread_local! {
    /// Counts the names built: judging a step of many ranks must build none.
    pub(crate) static BUILT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardName {
    pub(crate) content: ShardContent,
    pub(crate) world: u32,
    pub(crate) rank: u32,
}

pub(crate) fn shard(name: &str) -> Option<ShardName> {
    let stem = name.strip_suffix(".pt")?;
    let known = |c: ShardContent| Some((c, stem.strip_prefix(c.prefix())?.strip_prefix("_world_size_")?));
    let (content, numbers) = ShardContent::ALL.into_iter().find_map(known)?;
    let (world, rank) = numbers.split_once('_')?;
    let (world, rank) = (number(world)?, number(rank.strip_prefix("rank_")?)?);
    (rank < world).then_some(ShardName { content, world, rank })
}

/// Parses `data_R.pt`, the dataloader state of one data-parallel rank of the SFT trainer.
pub(crate) fn data_part(name: &str) -> Option<u32> {
    number(name.strip_prefix("data_")?.strip_suffix(".pt")?)
}

/// Directory of the storage units and the list in it: as TransferQueue 0.1.11 writes them, and as its documentation
/// names them.
pub(super) const QUEUE_UNITS: [(&str, &str); 2] = [
    ("simple_storage", "storage_unit_info.json"),
    ("storage_units", "su_info.json"),
];

/// Kind of a queue file to inspect. Values that a unit keeps on disk have no format; their sizes are known.
pub(super) fn queue_file(name: &str) -> Option<FileKind> {
    let units = QUEUE_UNITS.iter().find_map(|(dir, list)| {
        let inside = name.strip_prefix(dir)?.strip_prefix('/')?;
        let is_unit = inside.starts_with("su_") && inside.ends_with(".pkl") && !inside.contains('/');
        match inside == *list {
            true => Some(FileKind::QueueUnits),
            false => is_unit.then_some(FileKind::Pickle),
        }
    });
    match name {
        "metadata.json" => Some(FileKind::QueueMetadata),
        "controller_state.pkl" => Some(FileKind::Pickle),
        _ => units,
    }
}

/// Parses `model-00001-of-00003.safetensors` into part and total.
pub(crate) fn weights_part(name: &str) -> Option<(u32, u32)> {
    let stem = name
        .strip_suffix(".safetensors")
        .or_else(|| name.strip_suffix(".bin"))?;
    let (head, of) = stem.rsplit_once("-of-")?;
    let (_, part) = head.rsplit_once('-')?;
    Some((padded(part)?, padded(of)?))
}

fn number(text: &str) -> Option<u32> {
    let canonical = text == "0" || !text.starts_with('0');
    (canonical && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

fn padded(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_name_is_a_step() {
        for (name, what) in [
            ("global_step_10", VerlRootName::Step(Step(10))),
            ("global_step_0", VerlRootName::Step(Step(0))),
            ("global_step_0010", VerlRootName::Padded),
            ("global_step_99999999999999999999", VerlRootName::TooLarge),
            ("global_steps_10", VerlRootName::Plural),
            ("global_step_10.bak", VerlRootName::Suffixed),
            ("global_step_10_old", VerlRootName::Suffixed),
            ("global_step_", VerlRootName::Other),
            ("global_step_x", VerlRootName::Other),
            ("global_step_-1", VerlRootName::Other),
            ("latest_checkpointed_iteration.txt", VerlRootName::Other),
            ("latest_checkpointed_iteration.txt.tmp", VerlRootName::TrackerLeftover),
        ] {
            assert_eq!(root_name(name), what, "{name}");
        }
    }

    #[test]
    fn shard_names_are_read_and_written_alike() {
        for content in ShardContent::ALL {
            let name = content.file(16, 3);
            assert_eq!(
                shard(&name),
                Some(ShardName {
                    content,
                    world: 16,
                    rank: 3
                }),
                "{name}"
            );
        }
        for name in [
            "model_world_size_2_rank_2.pt",
            "model_world_size_2_rank_01.pt",
            "model_world_size_2_rank_0.pt.tmp",
            "model_world_size_2_rank_.pt",
            "models_world_size_2_rank_0.pt",
            "model_world_size_4294967296_rank_0.pt",
        ] {
            assert_eq!(shard(name), None, "{name}");
        }
    }

    #[test]
    fn parts_of_data_and_weights_are_read() {
        assert_eq!(data_part("data_12.pt"), Some(12));
        assert_eq!(data_part("data.pt"), None);
        assert_eq!(data_part("data_.pt"), None);
        assert_eq!(weights_part("model-00001-of-00003.safetensors"), Some((1, 3)));
        assert_eq!(weights_part("model.safetensors"), None);
    }
}
