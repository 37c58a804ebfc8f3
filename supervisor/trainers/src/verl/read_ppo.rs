//! Reads a PPO configuration.

use super::VerlConfigReader;
use super::VerlFacts;
use super::version::ReleaseSeries;
use super::{batch, ray, strategy, user_settings};
use crate::adapter::{AdapterPayload, TrainerFacts};
use crate::command::{self, EntryPoint};
use crate::launch;
use crate::read::{ReadInput, ReadOutput};
use supervise_core::checkpoint::StateKind;
use supervise_core::id::Step;
use supervise_core::spec::{Numbering, ResumeIntent, RoleSpec, SaveCadence};

const ACTOR: &str = "actor_rollout_ref.actor";

pub(crate) fn read(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>) -> ReadOutput {
    let critic = needs_critic(reader);
    let trainer = trainer(reader, input);
    check_engine(reader, input);
    let world = world(reader);
    let mut roles = Vec::new();
    for name in ["actor", "critic"].into_iter().take(1 + usize::from(critic)) {
        let megatron = strategy::read(reader, name);
        let role = user_settings::role(reader, name, megatron);
        strategy::check(reader, &role, world);
        roles.push(role);
    }
    let mut async_keys = vec![format!("{ACTOR}.checkpoint.async_save")];
    async_keys.extend(critic.then(|| "critic.checkpoint.async_save".to_owned()));
    let (keep, keep_keys) = keep(reader, &mut roles);
    check_trainer(reader, trainer, roles.iter().any(|r| r.megatron.is_some()));
    let mut not_restored = user_settings::not_restored(&roles);
    not_restored.push(StateKind::Rollout);
    not_restored.extend(user_settings::loses_data_order(reader).then_some(StateKind::DataOrder));
    let ray = ray::read(reader, input, false);
    // In this order, so that an error is not repeated by what follows from it.
    let root = user_settings::root(reader, input.cwd);
    let cadence = cadence(reader);
    let last_step = last_step(reader, trainer);
    let indivisible = batch::indivisible(reader, &roles, world);
    let resume = resume(reader, input);
    ReadOutput {
        root,
        cadence,
        last_step,
        indivisible,
        world,
        resume: resume.clone().unwrap_or(ResumeIntent::Disabled),
        keep,
        gang: launch::ray::gang(&ray),
        facts: TrainerFacts {
            keep: keep_keys,
            own: AdapterPayload::new(VerlFacts {
                async_save: user_settings::async_saves(reader, &async_keys),
                file_logger: user_settings::logs_to_file(reader),
                loggers: user_settings::loggers(reader),
                saves_on_demand: trainer != Trainer::V1,
                validates_first: validates_first(reader, &roles),
                older_sft: false,
                never_resumes: resume.is_none(),
            }),
            ray,
            ..TrainerFacts::default()
        },
        roles,
        not_restored,
        numbering: match trainer {
            Trainer::FullyAsync => Numbering::Else,
            Trainer::V1 | Trainer::V0 => Numbering::Steps,
        },
        machines: ray::machines(reader),
        ..ReadOutput::blank(super::PPO)
    }
}

/// Which of verl's PPO trainers runs: they differ in what they restore and refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trainer {
    /// The newer one, since 0.9.
    V1,
    /// The older one, and those that inherit from it.
    V0,
    /// The fully asynchronous one, whose steps are weight versions.
    FullyAsync,
}

fn trainer(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>) -> Trainer {
    match command::entry(input.command) {
        Some((EntryPoint::FullyAsync, _)) => Trainer::FullyAsync,
        Some((EntryPoint::Relative | EntryPoint::Other | EntryPoint::Foreign, _)) => Trainer::V0,
        // The key is missing without a default: an unknown release.
        _ if reader.has("trainer.use_v1") => match reader.flag("trainer.use_v1") {
            true => Trainer::V1,
            false => Trainer::V0,
        },
        _ => Trainer::V0,
    }
}

/// What the user requests; `None`: the trainer cannot resume, or this is unknown.
fn resume(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>) -> Option<ResumeIntent> {
    const MODE: &str = "trainer.resume_mode";
    let mut said = command::overrides_in(input.command)
        .into_iter()
        .chain(input.set.iter().map(String::as_str));
    // In Hydra, `+` only adds a new key; `++` adds or sets it.
    let given = said.find(|text| text.starts_with('+') && command::override_key(text) == MODE);
    let is_added = given.is_some_and(|text| !text.starts_with("++"));
    if reader.is_composed() && reader.has(MODE) && given.is_some() && !is_added {
        reader.no_recovery(
            "cannot_resume",
            MODE,
            "++ adds the key to a verl that does not have it, and would not read it: whether this one can resume is not known",
            "write it without the signs: verl then says whether it has it",
        );
        return None;
    }
    if reader.is_composed() && (is_added || !reader.has(MODE)) {
        let version = input
            .version
            .map_or("this release of verl".to_owned(), |v| format!("verl {v}"));
        reader.no_recovery(
            "cannot_resume",
            MODE,
            format!("{version} has no {MODE}: its trainer cannot resume, and started again it trains from step 0 and writes over its steps"),
            "use a verl that can resume",
        );
        return None;
    }
    let intent = user_settings::resume(reader, input.cwd, false);
    Some(match command::entry(input.command) {
        // Its other state, which only `auto` loads, is unknown.
        Some((EntryPoint::Foreign | EntryPoint::Other, _)) if intent == ResumeIntent::Auto => ResumeIntent::Tracker,
        _ if intent == ResumeIntent::Auto && is_in_run_of_mlflow(reader, input) => ResumeIntent::Tracker,
        _ => intent,
    })
}

/// Each attempt logs its configuration into the same MLflow run, which accepts no parameter with a changed value:
/// resuming by a path would stop the logging.
fn is_in_run_of_mlflow(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>) -> bool {
    let is_named = (input.env)("MLFLOW_RUN_ID").is_some_and(|id| !id.is_empty());
    is_named && user_settings::loggers(reader).iter().any(|name| name == "mlflow")
}

/// Older releases selected Megatron by a configuration's name.
fn check_engine(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>) {
    let group = command::overrides_in(input.command)
        .into_iter()
        .chain(input.set.iter().map(String::as_str))
        .any(|text| command::override_key(text) == "model_engine");
    if group && !reader.basis.since(ReleaseSeries::V0_7, 1) {
        reader.problem(
            "model_engine",
            "this verl has no such group, which came with 0.7.1: it refuses to start",
            "choose Megatron with --config-name=ppo_megatron_trainer",
        );
    }
}

/// The last planned step. The fully asynchronous trainer counts samples instead.
fn last_step(reader: &mut VerlConfigReader<'_>, trainer: Trainer) -> Option<Step> {
    if trainer == Trainer::FullyAsync {
        reader.note(
            "steps_are_versions",
            "rollout.total_rollout_steps",
            "steps are versions of the weights, and samples that wait in the queue are lost with a crash",
        );
        return None;
    }
    reader.positive("trainer.total_training_steps").map(|n| Step(n.into()))
}

/// `critic.enable` if set and known (since 0.6), else whether the advantage estimator is GAE.
fn needs_critic(reader: &mut VerlConfigReader<'_>) -> bool {
    if reader.basis.since(ReleaseSeries::V0_6, 0) && reader.value("critic.enable").is_some() {
        return reader.flag("critic.enable");
    }
    reader.string("algorithm.adv_estimator").is_some_and(|e| e == "gae")
}

fn cadence(reader: &mut VerlConfigReader<'_>) -> SaveCadence {
    let key = "trainer.save_freq";
    let problems = reader.problems.len();
    let every = reader.int(key).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    // A value that is not a number is already reported.
    if every.is_none() && reader.problems.len() == problems {
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

/// Ranks of the actor's group. With separate pools another part of the configuration decides: unknown.
fn world(reader: &mut VerlConfigReader<'_>) -> Option<u32> {
    let ranks = reader
        .positive("trainer.nnodes")?
        .checked_mul(reader.positive("trainer.n_gpus_per_node")?);
    let mode = reader.string("trainer.v1.trainer_mode");
    ranks.filter(|_| mode.as_deref() != Some("separate_async"))
}

/// The user's retention, and the values by key. If roles differ, each gets its own.
fn keep(reader: &mut VerlConfigReader<'_>, roles: &mut [RoleSpec]) -> (Option<u32>, Vec<(String, u32)>) {
    let mut set = Vec::new();
    let mut numbers = Vec::new();
    for role in roles.iter() {
        let key = format!("trainer.max_{}_ckpt_to_keep", role.name);
        let number = reader.int(&key).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        set.extend(number.map(|n| (key, n)));
        numbers.push(number);
    }
    if numbers.iter().any(|n| *n != numbers[0]) {
        for (role, number) in roles.iter_mut().zip(&numbers) {
            role.keep = *number;
        }
    }
    let all: Option<Vec<u32>> = numbers.into_iter().collect();
    (all.and_then(|all| all.into_iter().max()), set)
}

fn check_trainer(reader: &mut VerlConfigReader<'_>, trainer: Trainer, megatron: bool) {
    if reader.flag("trainer.val_only") {
        reader.warn(
            "validates_only",
            "trainer.val_only",
            "this run only validates: there is nothing to save or to resume",
        );
    }
    let previous = "trainer.remove_previous_ckpt_in_save";
    if reader.flag(previous) {
        reader.warn(
            "removes_previous",
            previous,
            "verl keeps one checkpoint, whatever trainer.max_actor_ckpt_to_keep says, and deletes it before the next one is proven; leave it out",
        );
    }
    let hdfs = "trainer.default_hdfs_dir";
    let v1 = trainer == Trainer::V1;
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
                "with this trainer every resume fails: `load from hdfs is not implemented yet`",
                "set it to null, or use the newer trainer where there is one (trainer.use_v1, since 0.9)",
            );
        }
    }
    let skips = trainer == Trainer::V0 && reader.basis.since(ReleaseSeries::V0_7, 1);
    if skips && reader.int("trainer.critic_warmup").is_some_and(|n| n > 0) {
        reader.note(
            "critic_warmup",
            "trainer.critic_warmup",
            "this trainer saves nothing before the warm-up is over",
        );
    }
}

fn validates_first(reader: &mut VerlConfigReader<'_>, roles: &[RoleSpec]) -> bool {
    !roles.is_empty() && reader.flag("trainer.val_before_train")
}
