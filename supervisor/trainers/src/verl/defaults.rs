//! verl 0.9.1's own defaults, for the keys that are read here.
//!
//! They lie beneath the user's configuration, so that a YAML that only says what its author changed is enough. Everything else
//! of verl's several hundred keys is none of the supervisor's business.

use supervise_config::{ConfigTree, Node, Origin, Value};

/// Whose defaults these are.
pub(crate) const OF: &str = "verl 0.9.1";

#[derive(Debug, Clone, Copy)]
enum Plain {
    Null,
    Bool(bool),
    Int(i128),
    Str(&'static str),
    List(&'static [&'static str]),
}

use Plain::{Bool, Int, List, Null, Str};

/// Keys that both trainers have.
const TRAINER: &[(&str, Plain)] = &[
    (
        "trainer.default_local_dir",
        Str("checkpoints/${trainer.project_name}/${trainer.experiment_name}"),
    ),
    ("trainer.default_hdfs_dir", Null),
    ("trainer.total_training_steps", Null),
    ("trainer.logger", List(&["console", "wandb"])),
    ("trainer.save_freq", Int(-1)),
    ("trainer.resume_mode", Str("auto")),
    ("trainer.resume_from_path", Null),
    ("trainer.nnodes", Int(1)),
];

const PPO: &[(&str, Plain)] = &[
    ("trainer.project_name", Str("verl_examples")),
    ("trainer.experiment_name", Str("gsm8k")),
    ("trainer.n_gpus_per_node", Int(8)),
    ("trainer.val_before_train", Bool(true)),
    ("trainer.val_only", Bool(false)),
    ("trainer.critic_warmup", Int(0)),
    ("trainer.max_actor_ckpt_to_keep", Null),
    ("trainer.max_critic_ckpt_to_keep", Null),
    ("trainer.use_v1", Bool(true)),
    ("trainer.v1.trainer_mode", Str("sync")),
    ("algorithm.adv_estimator", Str("gae")),
    ("actor_rollout_ref.actor.strategy", Str("fsdp")),
    ("actor_rollout_ref.actor.checkpoint.save_contents", List(CONTENTS)),
    (
        "actor_rollout_ref.actor.checkpoint.load_contents",
        Str("${.save_contents}"),
    ),
    ("actor_rollout_ref.actor.checkpoint.async_save", Bool(false)),
    ("critic.enable", Null),
    ("critic.strategy", Str("fsdp")),
    ("critic.checkpoint.save_contents", List(CONTENTS)),
    ("critic.checkpoint.load_contents", Str("${.save_contents}")),
    ("critic.checkpoint.async_save", Bool(false)),
];

const SFT: &[(&str, Plain)] = &[
    ("trainer.project_name", Str("gsm8k-sft")),
    ("trainer.experiment_name", Str("test")),
    ("trainer.n_gpus_per_node", Int(1)),
    ("trainer.max_ckpt_to_keep", Null),
    ("engine.strategy", Str("fsdp")),
    ("checkpoint.save_contents", List(CONTENTS)),
    ("checkpoint.load_contents", Str("${checkpoint.save_contents}")),
];

const CONTENTS: &[&str] = &["model", "optimizer", "extra"];

/// verl's defaults for PPO, or for the SFT trainer.
#[must_use]
pub fn verl_defaults(sft: bool) -> ConfigTree {
    let mut tree = ConfigTree::empty(origin());
    for (key, plain) in TRAINER.iter().chain(if sft { SFT } else { PPO }) {
        // A key of the tables above cannot fail to be added: none of them goes through a list.
        let _ = tree.add(key, Node::new(value(*plain), origin()));
    }
    tree
}

fn origin() -> Origin {
    Origin::Default { of: OF.to_owned() }
}

fn value(plain: Plain) -> Value {
    match plain {
        Null => Value::Null,
        Bool(b) => Value::Bool(b),
        Int(n) => Value::Int(n),
        Str(s) => Value::Str(s.to_owned()),
        List(items) => Value::List(
            items
                .iter()
                .map(|s| Node::new(Value::Str((*s).to_owned()), origin()))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_there_with_its_origin() {
        for (sft, table) in [(false, PPO), (true, SFT)] {
            let tree = verl_defaults(sft);
            for (key, _) in TRAINER.iter().chain(table) {
                let node = tree.get(key).unwrap_or_else(|| panic!("{key}"));
                assert_eq!(node.origin.to_string(), "default of verl 0.9.1", "{key}");
            }
        }
    }
}
