//! verl's own defaults, by release, for the keys read here.
//!
//! They lie below the user's configuration, so that a YAML with only the author's changes is enough. The supervisor
//! ignores verl's several hundred other keys. `tests/real/verl_versions.py` compares the table with the
//! configurations in the released wheels.

use super::version::{ReleaseSeries, VerlRelease};
use ReleaseSeries::{V0_4, V0_5, V0_6, V0_7, V0_8, V0_9};
use supervise_config::{ConfigNode, ConfigTree, ConfigValue, ValueOrigin};

/// One of verl's configurations, on which a run's own is composed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerlBaseConfig {
    /// `ppo_trainer`.
    Ppo,
    /// `ppo_megatron_trainer`, which newer releases select with `model_engine=megatron`.
    PpoMegatron,
    /// `sft_trainer_engine`.
    Sft,
    /// `sft_trainer_engine` with `engine=megatron optim=megatron`.
    SftMegatron,
    /// `sft_trainer`, of the older SFT trainer (`fsdp_sft_trainer`).
    SftOld,
}

impl VerlBaseConfig {
    pub const ALL: [Self; 5] = [Self::Ppo, Self::PpoMegatron, Self::Sft, Self::SftMegatron, Self::SftOld];

    /// Returns true if a release has it.
    #[must_use]
    pub fn is_in(self, release: VerlRelease) -> bool {
        match self {
            Self::Ppo | Self::PpoMegatron => true,
            Self::Sft | Self::SftMegatron => release.series >= V0_6,
            Self::SftOld => !release.since(V0_7, 1),
        }
    }

    /// Returns true if it belongs to an SFT trainer.
    #[must_use]
    pub fn is_sft(self) -> bool {
        !matches!(self, Self::Ppo | Self::PpoMegatron)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

#[derive(Debug, Clone, Copy)]
enum Plain {
    Null,
    Bool(bool),
    Int(i128),
    Str(&'static str),
    List(&'static [&'static str]),
}

use Plain::{Bool, Int, List, Null, Str};

/// A key with the configurations that have it, its first release, the release that removed it, and its value.
#[derive(Debug, Clone, Copy)]
struct DefaultRow {
    trees: u8,
    from: Option<VerlRelease>,
    until: Option<VerlRelease>,
    key: &'static str,
    value: Plain,
}

impl DefaultRow {
    const fn from(self, series: ReleaseSeries, patch: u32) -> Self {
        let from = Some(VerlRelease::new(series, patch));
        Self { from, ..self }
    }

    const fn until(self, series: ReleaseSeries, patch: u32) -> Self {
        let until = Some(VerlRelease::new(series, patch));
        Self { until, ..self }
    }

    fn holds_in(&self, tree: VerlBaseConfig, release: VerlRelease) -> bool {
        self.trees & tree.bit() != 0
            && self.from.is_none_or(|from| release >= from)
            && self.until.is_none_or(|until| release < until)
    }

    fn holds_in_all(&self, tree: VerlBaseConfig) -> bool {
        let mut having = VerlRelease::KNOWN.into_iter().filter(|r| tree.is_in(*r));
        having.all(|release| self.holds_in(tree, release))
    }
}

const FSDP: u8 = VerlBaseConfig::Ppo.bit();
const MEGATRON: u8 = VerlBaseConfig::PpoMegatron.bit();
const PPO: u8 = FSDP | MEGATRON;
const SFT_MEGATRON: u8 = VerlBaseConfig::SftMegatron.bit();
const SFT: u8 = VerlBaseConfig::Sft.bit() | SFT_MEGATRON;
const OLD: u8 = VerlBaseConfig::SftOld.bit();
const ANY: u8 = PPO | SFT | OLD;

const CONTENTS: Plain = List(&["model", "optimizer", "extra"]);
const FOLLOWS: Plain = Str("${.save_contents}");

const fn row(trees: u8, key: &'static str, value: Plain) -> DefaultRow {
    DefaultRow {
        trees,
        from: None,
        until: None,
        key,
        value,
    }
}

/// Where and when all of them save and resume.
const TRAINER: &[DefaultRow] = &[
    row(
        ANY,
        "trainer.default_local_dir",
        Str("checkpoints/${trainer.project_name}/${trainer.experiment_name}"),
    ),
    row(ANY, "trainer.default_hdfs_dir", Null),
    row(ANY, "trainer.total_training_steps", Null),
    row(ANY, "trainer.logger", List(&["console", "wandb"])),
    row(ANY, "trainer.save_freq", Int(-1)),
    row(PPO, "data.train_batch_size", Int(1024)),
    row(SFT | OLD, "data.train_batch_size", Int(256)),
    row(PPO, "actor_rollout_ref.actor.ppo_mini_batch_size", Int(256)),
    row(PPO, "actor_rollout_ref.rollout.n", Int(1)),
    row(PPO | SFT, "trainer.resume_mode", Str("auto")),
    row(OLD, "trainer.resume_mode", Str("auto")).from(V0_5, 0),
    row(PPO | SFT, "trainer.resume_from_path", Null),
    row(OLD, "trainer.resume_from_path", Null).from(V0_5, 0),
    row(PPO | OLD, "trainer.nnodes", Int(1)),
    row(SFT, "trainer.nnodes", Int(1)).from(V0_7, 0),
    row(PPO | OLD, "trainer.n_gpus_per_node", Int(8)),
    row(SFT, "trainer.n_gpus_per_node", Int(1)).from(V0_7, 0),
    row(PPO, "trainer.project_name", Str("verl_examples")),
    row(PPO, "trainer.experiment_name", Str("gsm8k")),
    row(SFT | OLD, "trainer.project_name", Str("gsm8k-sft")),
    row(SFT | OLD, "trainer.experiment_name", Str("test")),
    row(SFT | OLD, "trainer.max_ckpt_to_keep", Null),
    row(PPO, "trainer.max_actor_ckpt_to_keep", Null),
    row(PPO, "trainer.max_critic_ckpt_to_keep", Null),
];

/// Roles and strategies, and what else affects saves.
const STRATEGIES: &[DefaultRow] = &[
    row(PPO, "trainer.val_before_train", Bool(true)),
    row(FSDP, "trainer.val_only", Bool(false)).from(V0_4, 1),
    row(MEGATRON, "trainer.val_only", Bool(false)).from(V0_8, 0),
    row(PPO, "trainer.critic_warmup", Int(0)),
    row(PPO, "trainer.use_v1", Bool(true)).from(V0_9, 0),
    row(PPO, "trainer.v1.trainer_mode", Str("sync")).from(V0_9, 0),
    row(PPO, "algorithm.adv_estimator", Str("gae")),
    row(PPO, "critic.enable", Null).from(V0_6, 0),
    row(FSDP, ACTOR_STRATEGY, Str("fsdp")),
    row(MEGATRON, ACTOR_STRATEGY, Str("megatron")),
    row(FSDP, CRITIC_STRATEGY, Str("fsdp")).until(V0_4, 1),
    row(MEGATRON, CRITIC_STRATEGY, Str("megatron")).until(V0_4, 1),
    row(PPO, CRITIC_STRATEGY, Str("${actor_rollout_ref.actor.strategy}"))
        .from(V0_4, 1)
        .until(V0_5, 0),
    row(FSDP, CRITIC_STRATEGY, Str("fsdp")).from(V0_5, 0),
    row(MEGATRON, CRITIC_STRATEGY, Str("megatron")).from(V0_5, 0),
    row(VerlBaseConfig::Sft.bit(), "engine.strategy", Str("fsdp")),
    row(OLD, "model.strategy", Str("fsdp2")),
];
const ACTOR_STRATEGY: &str = "actor_rollout_ref.actor.strategy";
const CRITIC_STRATEGY: &str = "critic.strategy";

const CHECKPOINT: &[DefaultRow] = &[
    row(PPO, "actor_rollout_ref.actor.checkpoint.contents", CONTENTS).until(V0_4, 1),
    row(PPO, "critic.checkpoint.contents", CONTENTS).until(V0_4, 1),
    row(PPO, "actor_rollout_ref.actor.checkpoint.save_contents", CONTENTS).from(V0_4, 1),
    row(PPO, "critic.checkpoint.save_contents", CONTENTS).from(V0_4, 1),
    row(
        PPO,
        ACTOR_LOAD,
        Str("${actor_rollout_ref.actor.checkpoint.save_contents}"),
    )
    .from(V0_4, 1)
    .until(V0_5, 0),
    row(PPO, ACTOR_LOAD, FOLLOWS).from(V0_5, 0),
    row(PPO, CRITIC_LOAD, Str("${critic.checkpoint.save_contents}"))
        .from(V0_4, 1)
        .until(V0_5, 0),
    row(PPO, CRITIC_LOAD, FOLLOWS).from(V0_5, 0),
    row(MEGATRON, "actor_rollout_ref.actor.checkpoint.async_save", Bool(false)).from(V0_4, 1),
    row(FSDP, "actor_rollout_ref.actor.checkpoint.async_save", Bool(false)).from(V0_6, 0),
    row(MEGATRON, "critic.checkpoint.async_save", Bool(false)).from(V0_4, 1),
    row(FSDP, "critic.checkpoint.async_save", Bool(false)).from(V0_6, 0),
    row(SFT, "checkpoint.save_contents", CONTENTS),
    row(SFT, "checkpoint.load_contents", Str("${checkpoint.save_contents}")),
    row(OLD, "trainer.checkpoint.save_contents", CONTENTS).from(V0_5, 0),
    row(
        OLD,
        "trainer.checkpoint.load_contents",
        Str("${trainer.checkpoint.save_contents}"),
    )
    .from(V0_5, 0),
];
const ACTOR_LOAD: &str = "actor_rollout_ref.actor.checkpoint.load_contents";
const CRITIC_LOAD: &str = "critic.checkpoint.load_contents";

const SWITCHES: &[DefaultRow] = &[
    row(MEGATRON, "actor_rollout_ref.actor.megatron.use_mbridge", Bool(false))
        .from(V0_5, 0)
        .until(V0_7, 0),
    row(MEGATRON, "actor_rollout_ref.actor.megatron.use_mbridge", Bool(true)).from(V0_7, 0),
    row(
        MEGATRON,
        CRITIC_BRIDGE,
        Str("${oc.select:actor_rollout_ref.actor.megatron.use_mbridge,False}"),
    )
    .from(V0_5, 0)
    .until(V0_6, 0),
    row(MEGATRON, CRITIC_BRIDGE, Bool(false)).from(V0_6, 0).until(V0_7, 0),
    row(MEGATRON, CRITIC_BRIDGE, Bool(true)).from(V0_7, 0),
    row(
        MEGATRON,
        "actor_rollout_ref.actor.megatron.use_dist_checkpointing",
        Bool(false),
    ),
    row(MEGATRON, "critic.megatron.use_dist_checkpointing", Bool(false)),
    row(MEGATRON, "actor_rollout_ref.actor.megatron.vanilla_mbridge", Bool(true))
        .from(V0_7, 0)
        .until(V0_9, 0),
    row(
        MEGATRON,
        "actor_rollout_ref.actor.megatron.vanilla_mbridge",
        Bool(false),
    )
    .from(V0_9, 0),
    row(MEGATRON, "critic.megatron.vanilla_mbridge", Bool(true))
        .from(V0_7, 0)
        .until(V0_9, 0),
    row(MEGATRON, "critic.megatron.vanilla_mbridge", Bool(false)).from(V0_9, 0),
    row(MEGATRON, ACTOR_RESHARDABLE, Bool(true))
        .from(V0_7, 1)
        .until(V0_8, 0),
    row(MEGATRON, ACTOR_RESHARDABLE, Bool(false)).from(V0_8, 0),
    row(MEGATRON, CRITIC_RESHARDABLE, Bool(true))
        .from(V0_7, 1)
        .until(V0_8, 0),
    row(MEGATRON, CRITIC_RESHARDABLE, Bool(false)).from(V0_8, 0),
    row(
        MEGATRON,
        "actor_rollout_ref.actor.optim.use_checkpoint_opt_param_scheduler",
        Bool(false),
    )
    .from(V0_4, 1),
    row(MEGATRON, "critic.optim.use_checkpoint_opt_param_scheduler", Bool(false)).from(V0_4, 1),
    row(SFT_MEGATRON, "engine.use_mbridge", Bool(false)).until(V0_7, 0),
    row(SFT_MEGATRON, "engine.use_mbridge", Bool(true)).from(V0_7, 0),
    row(SFT_MEGATRON, "engine.use_dist_checkpointing", Bool(false)),
    row(SFT_MEGATRON, "engine.vanilla_mbridge", Bool(true))
        .from(V0_7, 0)
        .until(V0_9, 0),
    row(SFT_MEGATRON, "engine.vanilla_mbridge", Bool(false)).from(V0_9, 0),
    row(SFT_MEGATRON, "engine.dist_ckpt_optim_fully_reshardable", Bool(true))
        .from(V0_7, 1)
        .until(V0_8, 0),
    row(SFT_MEGATRON, "engine.dist_ckpt_optim_fully_reshardable", Bool(false)).from(V0_8, 0),
    row(SFT_MEGATRON, "optim.use_checkpoint_opt_param_scheduler", Bool(false)),
];
const CRITIC_BRIDGE: &str = "critic.megatron.use_mbridge";
const ACTOR_RESHARDABLE: &str = "actor_rollout_ref.actor.megatron.dist_ckpt_optim_fully_reshardable";
const CRITIC_RESHARDABLE: &str = "critic.megatron.dist_ckpt_optim_fully_reshardable";

fn rows() -> impl Iterator<Item = &'static DefaultRow> {
    [TRAINER, STRATEGIES, CHECKPOINT, SWITCHES].into_iter().flatten()
}

fn rows_of(tree: VerlBaseConfig, release: Option<VerlRelease>) -> impl Iterator<Item = &'static DefaultRow> {
    rows().filter(move |row| match release {
        Some(release) => row.holds_in(tree, release),
        None => row.holds_in_all(tree),
    })
}

/// verl's defaults for one of its configurations. For an unknown release: those that all known releases share.
#[must_use]
pub fn verl_defaults(tree: VerlBaseConfig, release: Option<VerlRelease>) -> ConfigTree {
    let origin = origin(release);
    let mut out = ConfigTree::empty(origin.clone());
    for row in rows_of(tree, release) {
        // Keys of the tables above are always accepted: none of them goes through a list.
        let _ = out.add(row.key, ConfigNode::new(value(row.value, &origin), origin.clone()));
    }
    out
}

pub(crate) fn default_keys(tree: VerlBaseConfig, release: Option<VerlRelease>) -> impl Iterator<Item = &'static str> {
    rows_of(tree, release).map(|row| row.key)
}

fn origin(release: Option<VerlRelease>) -> ValueOrigin {
    let of = match release {
        Some(release) => release.series.to_string(),
        None => format!("every verl from {} to {}", V0_4.series(), V0_9.series()),
    };
    ValueOrigin::Default { of }
}

fn value(plain: Plain, origin: &ValueOrigin) -> ConfigValue {
    match plain {
        Null => ConfigValue::Null,
        Bool(b) => ConfigValue::Bool(b),
        Int(n) => ConfigValue::Int(n),
        Str(s) => ConfigValue::Str(s.to_owned()),
        List(items) => ConfigValue::List(
            items
                .iter()
                .map(|s| ConfigNode::new(ConfigValue::Str((*s).to_owned()), origin.clone()))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_release_has_two_defaults_for_a_key() {
        for tree in VerlBaseConfig::ALL {
            for release in VerlRelease::KNOWN {
                let mut keys: Vec<&str> = default_keys(tree, Some(release)).collect();
                let all = keys.len();
                keys.sort_unstable();
                keys.dedup();
                assert_eq!(keys.len(), all, "{tree:?} of {release}");
                let defaults = verl_defaults(tree, Some(release));
                for key in keys {
                    let node = defaults.get(key).unwrap_or_else(|| panic!("{key}"));
                    let said = format!("default of verl {}", release.series.series());
                    assert_eq!(node.origin.to_string(), said, "{key}");
                }
            }
        }
    }

    #[test]
    fn of_an_unknown_release_only_what_all_share_is_assumed() {
        let shared = verl_defaults(VerlBaseConfig::PpoMegatron, None);
        for key in [
            "trainer.default_local_dir",
            "trainer.save_freq",
            "trainer.resume_mode",
            "algorithm.adv_estimator",
        ] {
            let node = shared.get(key).unwrap_or_else(|| panic!("{key}"));
            assert_eq!(
                node.origin.to_string(),
                "default of every verl from 0.4 to 0.9",
                "{key}"
            );
        }
        for key in [
            "trainer.use_v1",
            CRITIC_BRIDGE,
            ACTOR_LOAD,
            ACTOR_RESHARDABLE,
            CRITIC_STRATEGY,
        ] {
            assert!(shared.get(key).is_none(), "{key}");
        }
        assert!(
            verl_defaults(VerlBaseConfig::SftOld, None)
                .get("trainer.resume_mode")
                .is_none()
        );
    }
}
