//! Reads a configuration of the SFT trainer.

use super::VerlConfigReader;
use super::VerlFacts;
use super::arrange::holds_step;
use super::defaults::VerlBaseConfig;
use super::version::ReleaseSeries;
use super::{batch, ray, strategy, user_settings};
use crate::adapter::{AdapterPayload, TrainerFacts};
use crate::command::{self, EntryPoint};
use crate::launch::{self, RayMode};
use crate::read::{ReadInput, ReadOutput};
use supervise_core::checkpoint::StateKind;
use supervise_core::id::Step;
use supervise_core::spec::{GangSpec, LauncherKind, ResumeIntent, RoleSpec, SaveCadence};

fn not_restored(reader: &mut VerlConfigReader<'_>, roles: &[RoleSpec]) -> Vec<StateKind> {
    let mut out = user_settings::not_restored(roles);
    out.extend(user_settings::loses_data_order(reader).then_some(StateKind::DataOrder));
    out
}

/// Returns true for the Ray trainer, in which a single process reads the data.
fn is_over_ray(input: &ReadInput<'_>) -> bool {
    matches!(command::entry(input.command), Some((EntryPoint::SftRay, _)))
}

const SEQUENCE: &str = "engine.ulysses_sequence_parallel_size";

pub(crate) fn read(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>) -> ReadOutput {
    let older = reader.basis.tree == VerlBaseConfig::SftOld;
    let megatron = strategy::read(reader, "");
    let mut role = user_settings::role(reader, "", megatron);
    let root = user_settings::root(reader, input.cwd);
    if let Some(root) = root.as_deref().filter(|r| holds_step(r)) {
        let message = format!(
            "{root} holds `global_step_N` itself: verl's SFT trainer takes the step from the first such name in a path"
        );
        reader.no_recovery(
            "step_in_root",
            "trainer.default_local_dir",
            message,
            "choose another directory",
        );
    }
    if reader.value("trainer.default_hdfs_dir").is_some() {
        reader.note(
            "hdfs_copies",
            "trainer.default_hdfs_dir",
            "every step is also copied there; only local steps are proven and resumed from",
        );
    }
    let keep = reader
        .int("trainer.max_ckpt_to_keep")
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| *n > 0);
    let ray = ray::read(reader, input, true);
    let (gang, world) = ranks(reader, input, &ray);
    // With Ray there is one dataloader, and Megatron's ranks are counted differently.
    if !older && role.megatron.is_none() && !is_over_ray(input) {
        role.sequence = reader.positive(SEQUENCE).or(Some(1));
    }
    strategy::check(reader, &role, world);
    let roles = vec![role];
    // In this order, so that an error is not repeated by what follows from it.
    let cadence = cadence(reader);
    let last_step = reader.positive("trainer.total_training_steps").map(|n| Step(n.into()));
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
        gang,
        facts: TrainerFacts {
            keep: keep
                .map(|n| ("trainer.max_ckpt_to_keep".to_owned(), n))
                .into_iter()
                .collect(),
            own: AdapterPayload::new(VerlFacts {
                async_save: match older {
                    true => Vec::new(),
                    false => user_settings::async_saves(reader, &["checkpoint.async_save".to_owned()]),
                },
                file_logger: user_settings::logs_to_file(reader),
                loggers: user_settings::loggers(reader),
                saves_on_demand: false,
                validates_first: false,
                older_sft: older,
                never_resumes: resume.is_none(),
            }),
            ray,
            ..TrainerFacts::default()
        },
        not_restored: not_restored(reader, &roles),
        roles,
        machines: ray::machines(reader),
        ..ReadOutput::blank(super::SFT)
    }
}

/// What the user requests; `None`: the trainer cannot resume.
fn resume(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>) -> Option<ResumeIntent> {
    if reader.basis.tree != VerlBaseConfig::SftOld || reader.basis.since(ReleaseSeries::V0_5, 0) {
        return Some(user_settings::resume(reader, input.cwd, true));
    }
    reader.no_recovery(
        "cannot_resume",
        "trainer.resume_mode",
        "the SFT trainer of verl 0.4 saves exported weights only and cannot resume",
        "use verl 0.5 or newer",
    );
    None
}

/// The last step is always saved; before it, every N steps or at the end of each epoch.
fn cadence(reader: &mut VerlConfigReader<'_>) -> SaveCadence {
    let key = "trainer.save_freq";
    let by_epoch = reader
        .value(key)
        .is_some_and(|n| n.as_str() == Some("after_each_epoch"));
    if by_epoch {
        reader.warn(
            "epoch_boundary",
            key,
            "every step is saved at the end of an epoch, and resumed there verl trains nothing in the epoch that follows; use a number of steps that does not divide an epoch",
        );
    }
    let every = if by_epoch { None } else { reader.int(key) };
    if every == Some(0) {
        reader.problem(
            key,
            "verl divides by it and fails at the first step",
            "give a number above 0, -1 for only the last step, or after_each_epoch",
        );
    }
    SaveCadence {
        every: every.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0),
        at_end: true,
    }
}

/// The launcher of the ranks, and how many there are. Only the Ray trainer reads the number from its configuration.
fn ranks(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>, ray: &RayMode) -> (GangSpec, Option<u32>) {
    let driver = GangSpec::driver();
    let mut number = |key: &str| match reader.has(key) {
        true => reader.positive(key),
        // 0.6 has no such keys: only torchrun says it.
        false => Some(1),
    };
    let nodes = number("trainer.nnodes");
    let per_node = number("trainer.n_gpus_per_node");
    let configured = nodes.zip(per_node).and_then(|(n, m)| n.checked_mul(m));
    if command::is_torchrun(input.command) {
        return (driver, command::torchrun_world(input.command));
    }
    match command::entry(input.command) {
        Some((EntryPoint::SftRay, _)) => return (launch::ray::gang(ray), configured),
        // A script of the user's starts them: only it knows how many.
        None if !input.command.is_empty() && input.workers.is_none() => return (driver, None),
        _ => {}
    }
    let workers = input.workers.or(per_node).unwrap_or(1);
    if input.workers.is_some() && reader.is_said("trainer.n_gpus_per_node") && per_node != input.workers {
        reader.note(
            "workers",
            "trainer.n_gpus_per_node",
            format!("{workers} workers are started on each machine, whatever this key says"),
        );
    }
    let world = nodes.and_then(|n| n.checked_mul(workers));
    (
        GangSpec {
            launcher: LauncherKind::Gang,
            workers: world.unwrap_or(workers),
            nodes: nodes.filter(|_| world.is_some()).unwrap_or(1),
            gpus: Vec::new(),
        },
        world,
    )
}
