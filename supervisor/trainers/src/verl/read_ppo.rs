//! What a PPO configuration says.

use super::reader::Reader;
use super::{strategy, wishes};
use crate::adapter::TrainerFacts;
use crate::read::{ReadInput, ReadOutput};
use supervise_core::checkpoint::StateKind;
use supervise_core::id::Step;
use supervise_core::spec::{GangSpec, LauncherKind, RoleSpec, SaveCadence, TrainerKind};

const ACTOR: &str = "actor_rollout_ref.actor";

/// Reads it; problems stay in the reader. `engine` is the model engine where it was chosen.
pub(crate) fn read(reader: &mut Reader<'_>, input: &ReadInput<'_>, engine: Option<&str>) -> ReadOutput {
    let critic = needs_critic(reader);
    let engine = engine.map(|e| if e == "dp" { "fsdp" } else { e });
    let world = world(reader);
    let mut roles = Vec::new();
    for name in ["actor", "critic"].into_iter().take(1 + usize::from(critic)) {
        let megatron = strategy::read(reader, name, engine);
        let role = wishes::role(reader, name, megatron);
        strategy::check(reader, &role, world);
        roles.push(role);
    }
    let mut async_keys = vec![format!("{ACTOR}.checkpoint.async_save")];
    async_keys.extend(critic.then(|| "critic.checkpoint.async_save".to_owned()));
    let (keep, keep_keys) = keep(reader, critic);
    check_version(reader, roles.iter().any(|r| r.megatron.is_some()));
    let mut not_restored = wishes::not_restored(&roles);
    not_restored.push(StateKind::Rollout);
    ReadOutput {
        root: wishes::root(reader, input.cwd),
        cadence: cadence(reader),
        last_step: reader.positive("trainer.total_training_steps").map(|n| Step(n.into())),
        world,
        resume: wishes::resume(reader, input.cwd, false),
        keep,
        gang: GangSpec {
            launcher: LauncherKind::Driver,
            workers: 1,
            gpus: Vec::new(),
        },
        facts: TrainerFacts {
            keep: keep_keys,
            async_save: wishes::async_saves(reader, &async_keys),
            file_logger: wishes::logs_to_file(reader),
            validates_first: validates_first(reader, &roles),
            settings: Vec::new(),
        },
        roles,
        not_restored,
        ..ReadOutput::blank(TrainerKind::VerlPpo)
    }
}

/// `critic.enable` where it is set, else whether the advantage estimator is GAE.
fn needs_critic(reader: &mut Reader<'_>) -> bool {
    if reader.value("critic.enable").is_some() {
        return reader.flag("critic.enable");
    }
    reader.string("algorithm.adv_estimator").is_some_and(|e| e == "gae")
}

fn cadence(reader: &mut Reader<'_>) -> SaveCadence {
    let key = "trainer.save_freq";
    let every = reader.int(key).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    if every.is_none() {
        reader.no_recovery(
            "never_saves",
            key,
            "verl saves no checkpoint at all, not even of the last step: there would be nothing to resume from",
            "set how many steps lie between saves",
        );
    }
    SaveCadence {
        every,
        at_end: every.is_some(),
    }
}

/// Ranks of the actor's group. With separate pools the configuration of another place counts: not known.
fn world(reader: &mut Reader<'_>) -> Option<u32> {
    let ranks = reader
        .positive("trainer.nnodes")?
        .checked_mul(reader.positive("trainer.n_gpus_per_node")?);
    let mode = reader.string("trainer.v1.trainer_mode");
    ranks.filter(|_| mode.as_deref() != Some("separate_async"))
}

/// The user's number, only where every role has one: a step is pruned as a whole.
fn keep(reader: &mut Reader<'_>, critic: bool) -> (Option<u32>, Vec<(String, u32)>) {
    let mut keys = vec!["trainer.max_actor_ckpt_to_keep"];
    keys.extend(critic.then_some("trainer.max_critic_ckpt_to_keep"));
    let all: Option<Vec<(String, u32)>> = keys
        .into_iter()
        .map(|key| {
            let n = reader.int(key).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0)?;
            Some((key.to_owned(), n))
        })
        .collect();
    let all = all.unwrap_or_default();
    (all.iter().map(|(_, n)| *n).max(), all)
}

/// What the older trainer (`use_v1=false`) cannot do, and runs that train nothing.
fn check_version(reader: &mut Reader<'_>, megatron: bool) {
    if reader.flag("trainer.val_only") {
        reader.warn(
            "validates_only",
            "trainer.val_only",
            "this run only validates: there is nothing to save or to resume",
        );
    }
    let hdfs = "trainer.default_hdfs_dir";
    let v1 = reader.flag("trainer.use_v1");
    if reader.value(hdfs).is_some() {
        if v1 && megatron {
            reader.note(
                "hdfs_copies",
                hdfs,
                "what Megatron saves is also copied there; only local steps are proven and resumed from",
            );
        } else if v1 {
            reader.note(
                "hdfs_ignored",
                hdfs,
                "verl neither uploads FSDP checkpoints there nor reads them from there",
            );
        } else {
            reader.no_recovery(
                "hdfs_no_resume",
                hdfs,
                "with trainer.use_v1=false every resume fails: `load from hdfs is not implemented yet`",
                "set it to null",
            );
        }
    }
    if !v1 && reader.int("trainer.critic_warmup").is_some_and(|n| n > 0) {
        reader.note(
            "critic_warmup",
            "trainer.critic_warmup",
            "with trainer.use_v1=false nothing is saved before the warm-up is over",
        );
    }
}

fn validates_first(reader: &mut Reader<'_>, roles: &[RoleSpec]) -> bool {
    !roles.is_empty() && reader.flag("trainer.val_before_train")
}
