//! The state each engine saves, and how much of it a resume restores.

use super::backend::{Backend, EngineBackend};
use super::fields::{INT, REAL, TEXT, is};
use crate::kit::ConfigReader;
use std::collections::BTreeMap;
use supervise_core::checkpoint::StateKind;
use supervise_core::spec::{MegatronSpec, ParallelSizes, RoleSpec, RoleSpread};

/// The engines whose state is saved. The actor is always called `default`.
pub(super) fn roles(v: &mut ConfigReader<'_>, actor: Option<Backend>) -> Vec<RoleSpec> {
    let save = is(v, "recover.no_save_optim");
    let load = is(v, "recover.no_load_optim");
    let mut out = vec![role(v, "default", "actor", actor, save, save || load)];
    if v.is_set("critic") {
        let critic = critic(v, actor);
        out.push(role(v, "critic", "critic", critic, save, save || load));
    }
    out
}

/// How each saved engine is spread over ranks. `shared`: the controller distributes the data, not the ranks.
pub(super) fn spread(v: &mut ConfigReader<'_>, actor: Option<Backend>, shared: bool) -> BTreeMap<String, RoleSpread> {
    let of = |backend: Backend| {
        let (name, sizes) = backend.canonical();
        RoleSpread {
            backend: name.to_owned(),
            sizes,
            shares: if shared { 1 } else { backend.data },
        }
    };
    let critic = critic(v, actor).filter(|_| v.is_set("critic"));
    let all = [("default", actor), ("critic", critic)];
    all.into_iter()
        .filter_map(|(role, backend)| Some((role.to_owned(), of(backend?))))
        .collect()
}

fn critic(v: &mut ConfigReader<'_>, actor: Option<Backend>) -> Option<Backend> {
    let said = v.get("critic.backend", TEXT);
    said.and_then(|text| super::backend::parse(&text).ok()).or(actor)
}

fn role(
    v: &mut ConfigReader<'_>,
    name: &str,
    key: &str,
    backend: Option<Backend>,
    bare: bool,
    loads_bare: bool,
) -> RoleSpec {
    let contents = |bare: bool| {
        let all = ["model", "optimizer"].map(str::to_owned);
        all.into_iter().take(if bare { 1 } else { 2 }).collect::<Vec<_>>()
    };
    RoleSpec {
        name: name.to_owned(),
        save_contents: contents(bare),
        load_contents: contents(loads_bare),
        load_wish: loads_bare,
        fsdp_size: None,
        sequence: None,
        keep: None,
        megatron: backend.filter(Backend::is_megatron).map(|b| MegatronSpec {
            parallel: ParallelSizes {
                tensor: b.tensor,
                pipeline: b.pipeline,
                context: b.context,
                expert: b.expert,
            },
            bridge: false,
            dist: true,
            adapters: is(v, &format!("{key}.use_lora")),
            any_parallel: false,
            schedule: !loads_bare && is(v, &format!("{key}.megatron.use_checkpoint_opt_param_scheduler")),
        }),
    }
}

pub(super) fn not_restored(v: &mut ConfigReader<'_>, actor: Option<Backend>, is_rl: bool) -> Vec<StateKind> {
    let bare = is(v, "recover.no_save_optim") || is(v, "recover.no_load_optim");
    let megatron = actor.is_some_and(|a| a.is_megatron());
    let keeps_schedule = megatron && !bare && is(v, "actor.megatron.use_checkpoint_opt_param_scheduler");
    let mut out = Vec::new();
    if bare {
        out.push(StateKind::Optimizer);
    }
    if !keeps_schedule && has_schedule(v) {
        out.push(StateKind::LrSchedule);
    }
    if !megatron {
        out.push(StateKind::Rng);
    }
    if is_rl {
        out.push(StateKind::Rollout);
    }
    if v.is_set("critic") {
        out.push(StateKind::Critic);
    }
    out
}

fn has_schedule(v: &mut ConfigReader<'_>) -> bool {
    if !v.is_set("actor.optimizer") {
        return false;
    }
    let kind = v.needed("actor.optimizer.lr_scheduler_type", TEXT);
    let warmup = v.needed("actor.optimizer.warmup_steps_proportion", REAL);
    kind.is_some_and(|k| k != "constant") || warmup.is_some_and(|w| w > 0.0)
}

pub(super) fn check(v: &mut ConfigReader<'_>, actor: Option<Backend>, is_rl: bool) {
    versions(v, is_rl);
    let megatron = actor.is_some_and(|a| a.is_megatron());
    if megatron && is(v, "actor.use_lora") {
        v.no_recovery(
            "megatron_lora",
            "actor.use_lora",
            "AReaL saves no checkpoint of Megatron's adapters: the first save ends the run (NotImplementedError)",
            "train the whole model, or use the fsdp backend",
        );
    }
    if megatron && !is(v, "recover.no_save_optim") {
        v.warn(
            "megatron_optimizer",
            "recover.no_save_optim",
            "AReaL 1.0.4 fails to save Megatron's optimizer (\"flattened_range is not supported\"): set it to true, which loses the optimizer's state at each resume, or use a newer build",
        );
    }
    if megatron && is(v, "actor.megatron.async_save") {
        v.warn(
            "async_save",
            "actor.megatron.async_save",
            "the counters are written before the data is on disk: a save is proven, and copied, only when its data has arrived",
        );
    }
    schedule(v, actor);
    if v.is_set("critic") {
        v.warn(
            "critic_not_restored",
            "critic",
            "AReaL 1.0.4 saves the critic and does not load it: after a resume it begins again from critic.path",
        );
    }
    if v.needed("total_train_epochs", INT).is_some_and(|n| n > 1) {
        v.warn(
            "data_order",
            "total_train_epochs",
            "the order of the data is restored exactly within the first epoch only: a resume in a later one goes on in the order of the first",
        );
    }
    outputs(v);
}

fn versions(v: &mut ConfigReader<'_>, is_rl: bool) {
    let of = |v: &mut ConfigReader<'_>, key: &str| if v.is_set(key) { v.needed(key, TEXT) } else { None };
    let actor = of(v, "actor._version");
    let rollout = of(v, "rollout._version");
    let known = |said: &Option<String>| said.as_deref().is_none_or(|s| matches!(s, "v1" | "v2"));
    let differs = is_rl && rollout.is_some() && rollout != actor;
    if !known(&actor) || differs {
        let key = if differs { "rollout._version" } else { "actor._version" };
        v.problem(
            key,
            "AReaL knows v1 and v2, the same for actor and rollout",
            "remove `_version` from actor and rollout: v1 is the default",
        );
    } else if actor.as_deref() == Some("v2") {
        v.no_recovery(
            "controller_v2",
            "actor._version",
            "AReaL's controller v2 can neither save nor load a checkpoint to recover from (NotImplementedError)",
            "write v1",
        );
    }
}

/// An unsaved schedule restarts at a resume.
fn schedule(v: &mut ConfigReader<'_>, actor: Option<Backend>) {
    let saved = actor.is_some_and(|a| !matches!(a.kind, EngineBackend::Fsdp | EngineBackend::Archon));
    if saved || !has_schedule(v) {
        return;
    }
    let kind = v.needed("actor.optimizer.lr_scheduler_type", TEXT).unwrap_or_default();
    let text = format!(
        "FSDP and Archon do not save the learning-rate schedule: after a resume the {} from its beginning",
        match kind.as_str() {
            "constant" => "warmup is run again".to_owned(),
            kind => format!("{kind} schedule runs again"),
        }
    );
    match kind.as_str() {
        "constant" => v.note("schedule_replayed", "actor.optimizer.warmup_steps_proportion", text),
        _ => v.warn("schedule_replayed", "actor.optimizer.lr_scheduler_type", text),
    }
}

fn outputs(v: &mut ConfigReader<'_>) {
    let frequencies = ["freq_steps", "freq_epochs", "freq_secs"];
    let mut is_set = |part: &str| frequencies.iter().any(|f| v.get(&format!("{part}.{f}"), INT).is_some());
    let (exports, evaluates) = (is_set("saver"), is_set("evaluator"));
    if exports {
        v.note(
            "exports",
            "saver",
            "its exports (Hugging Face) hold no optimizer and no counters: no run is resumed from one; AReaL never deletes any",
        );
        if v.is_set("critic") && v.get("saver.freq_steps", INT).is_some_and(|n| n != 1) {
            v.warn(
                "exports_skip_roles",
                "saver.freq_steps",
                "actor and critic share one counter: with an even number only the critic is exported; set 1, or take freq_epochs",
            );
        }
    }
    if evaluates {
        v.note(
            "evaluation_lost",
            "evaluator",
            "the evaluation that follows a save is not made again by a resume from it",
        );
    }
    if is(v, "evaluator.eval_before_train") {
        v.note(
            "validates_first",
            "evaluator.eval_before_train",
            "the evaluation before the training runs at each relaunch",
        );
    }
    let mode = v.needed("stats_logger.wandb.mode", TEXT);
    if mode.is_some_and(|m| m != "disabled") {
        match v.needed("stats_logger.wandb.id_suffix", TEXT).as_deref() {
            Some("timestamp") => v.warn(
                "wandb_timestamp",
                "stats_logger.wandb.id_suffix",
                "each relaunch begins a run of its own at Weights & Biases; write `train`",
            ),
            _ => v.note(
                "wandb_one_run",
                "stats_logger.wandb.id_suffix",
                "all attempts go on in one run of Weights & Biases; steps that are repeated after a resume are logged at later numbers",
            ),
        }
    }
}
