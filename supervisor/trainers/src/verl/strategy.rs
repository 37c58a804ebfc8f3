//! The strategy that trains a role, and Megatron's switches: which verl refuses, and what they allow at a resume.
//!
//! Megatron writes weights in two ways, through a bridge to Hugging Face format or as its own shards, and reads them
//! back the same way. What cannot be written or read back is reported here, before a GPU is used.

use super::VerlConfigReader;
use super::defaults::VerlBaseConfig;
use super::version::ReleaseSeries;
use supervise_core::spec::{MegatronSpec, ParallelSizes, RoleSpec};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RoleKeys {
    pub(crate) strategy: &'static str,
    pub(crate) engine: &'static str,
    pub(crate) optim: &'static str,
    pub(crate) model: &'static str,
    pub(crate) checkpoint: &'static str,
}

impl RoleKeys {
    pub(crate) fn in_tree(role: &str, tree: VerlBaseConfig) -> Self {
        match tree {
            VerlBaseConfig::SftOld => SFT_OLD,
            VerlBaseConfig::Ppo | VerlBaseConfig::PpoMegatron | VerlBaseConfig::Sft | VerlBaseConfig::SftMegatron => {
                Self::of(role)
            }
        }
    }

    /// Keys of a role; SFT's only role has an empty name.
    pub(crate) fn of(role: &str) -> Self {
        match role {
            "" => Self {
                strategy: "engine.strategy",
                engine: "engine",
                optim: "optim",
                model: "model",
                checkpoint: "checkpoint",
            },
            "critic" => Self {
                strategy: "critic.strategy",
                engine: "critic.megatron",
                optim: "critic.optim",
                model: "critic.model",
                checkpoint: "critic.checkpoint",
            },
            _ => Self {
                strategy: "actor_rollout_ref.actor.strategy",
                engine: "actor_rollout_ref.actor.megatron",
                optim: "actor_rollout_ref.actor.optim",
                model: "actor_rollout_ref.model",
                checkpoint: "actor_rollout_ref.actor.checkpoint",
            },
        }
    }
}

const SFT_OLD: RoleKeys = RoleKeys {
    strategy: "model.strategy",
    engine: "model.fsdp_config",
    optim: "optim",
    model: "model",
    checkpoint: "trainer.checkpoint",
};

/// Reads Megatron's switches if it is the strategy. Strategies whose steps cannot be proven are errors.
pub(crate) fn read(reader: &mut VerlConfigReader<'_>, role: &str) -> Option<MegatronSpec> {
    let keys = RoleKeys::in_tree(role, reader.basis.tree);
    let said = reader.string(keys.strategy);
    let engine = reader
        .basis
        .engine
        .as_deref()
        .map(|e| if e == "dp" { "fsdp" } else { e });
    let strategy = match engine {
        Some(engine) if !reader.is_said(keys.strategy) => engine.to_owned(),
        _ => said.unwrap_or_else(|| "fsdp".to_owned()),
    };
    match strategy.as_str() {
        "fsdp" | "fsdp2" => None,
        "megatron" => {
            if engine != Some("megatron") {
                let way = match (role, reader.basis.since(ReleaseSeries::V0_7, 1)) {
                    ("", _) => "engine=megatron",
                    (_, true) => "model_engine=megatron",
                    (_, false) => "--config-name=ppo_megatron_trainer",
                };
                let message = format!("verl's own settings for Megatron are only there with {way}");
                reader.warn("model_engine", keys.strategy, message);
            }
            Some(switches(reader, role, &keys))
        }
        other => {
            let message =
                format!("the checkpoint layout of `{other}` is not known yet, so none of its steps could be proven");
            reader.no_recovery("layout_unknown", keys.strategy, message, "use fsdp, fsdp2 or megatron");
            None
        }
    }
}

fn switches(reader: &mut VerlConfigReader<'_>, role: &str, keys: &RoleKeys) -> MegatronSpec {
    let key = |name: &str| format!("{}.{name}", keys.engine);
    let mut size = |name: &str| match reader.value(&key(name)) {
        Some(_) => reader.positive(&key(name)).unwrap_or(1),
        None => 1,
    };
    let parallel = ParallelSizes {
        tensor: size("tensor_model_parallel_size"),
        pipeline: size("pipeline_model_parallel_size"),
        context: size("context_parallel_size"),
        expert: size("expert_model_parallel_size"),
    };
    let rank = format!("{}.lora.rank", keys.model);
    let bridge = bridge(reader, &key("use_mbridge"));
    // Before 0.9, verl fell back to Megatron's own writer if the bridge could not write.
    let falls_back =
        !reader.basis.since(ReleaseSeries::V0_9, 0) && (!bridge || role == "critic" && legacy_bridge(reader, keys));
    MegatronSpec {
        parallel,
        bridge,
        dist: falls_back || reader.flag(&key("use_dist_checkpointing")),
        adapters: reader.int(&rank).is_some_and(|rank| rank > 0),
        any_parallel: reader.flag(&key("dist_ckpt_optim_fully_reshardable")),
        schedule: reader.flag(&format!("{}.use_checkpoint_opt_param_scheduler", keys.optim)),
    }
}

/// Returns true if there is a bridge to Hugging Face format: by the key, else by the release's default.
fn bridge(reader: &mut VerlConfigReader<'_>, key: &str) -> bool {
    if reader.value(key).is_some() {
        return reader.flag(key);
    }
    if reader.basis.release.is_none() {
        reader.no_recovery(
            "version_unknown",
            key,
            "where the weights are written depends on it, and releases of verl differ in what they do by themselves",
            "set it (up to 0.6 it is False, since 0.7 it is True)",
        );
    }
    reader.basis.since(ReleaseSeries::V0_7, 0)
}

/// Returns true for the bridge that could not write a critic. Up to 0.6 there was no other.
fn legacy_bridge(reader: &mut VerlConfigReader<'_>, keys: &RoleKeys) -> bool {
    !reader.basis.since(ReleaseSeries::V0_7, 0) || reader.flag(&format!("{}.vanilla_mbridge", keys.engine))
}

/// Reports errors in a role's switches, and what they mean for a resume.
pub(crate) fn check(reader: &mut VerlConfigReader<'_>, role: &RoleSpec, world: Option<u32>) {
    let keys = RoleKeys::in_tree(&role.name, reader.basis.tree);
    let Some(run) = role.megatron else {
        return has_no_effect(reader, &role.name);
    };
    // Older releases fall back to another writer if one is missing.
    if reader.basis.since(ReleaseSeries::V0_9, 0) {
        check_writers(reader, role, run, &keys);
    }
    check_ranks(reader, run, world, &keys);
    let fsdp = format!("{}.use_megatron_fsdp", keys.engine);
    if reader.flag(&fsdp) {
        reader.no_recovery(
            "not_resumed",
            &fsdp,
            "steps of Megatron's own FSDP can be verified, and no run is resumed from them yet",
            "set it to False",
        );
    }
    if reader.resumes() {
        tell(reader, run, &keys);
    }
}

/// Megatron switches that have no effect with another strategy.
const MEGATRON_SWITCHES: [&str; 9] = [
    "use_mbridge",
    "vanilla_mbridge",
    "use_dist_checkpointing",
    "dist_ckpt_optim_fully_reshardable",
    "distrib_optim_fully_reshardable_mem_efficient",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
];

fn has_no_effect(reader: &mut VerlConfigReader<'_>, role: &str) {
    let at = match role {
        "" => "engine",
        "critic" => "critic.megatron",
        _ => "actor_rollout_ref.actor.megatron",
    };
    for name in MEGATRON_SWITCHES {
        let key = format!("{at}.{name}");
        if reader.is_said(&key) {
            reader.warn(
                "no_effect",
                &key,
                "it is a switch of Megatron's, and FSDP trains this role: it has no effect",
            );
        }
    }
}

/// Reports what a resume restores, and under which conditions.
fn tell(reader: &mut VerlConfigReader<'_>, run: MegatronSpec, keys: &RoleKeys) {
    if !run.schedule {
        reader.warn(
            "schedule_restarts",
            &format!("{}.use_checkpoint_opt_param_scheduler", keys.optim),
            "Megatron starts the learning-rate schedule anew at every resume; set it to True to have it restored",
        );
    }
    let key = format!("{}.dist_ckpt_optim_fully_reshardable", keys.engine);
    if run.any_parallel {
        reader.warn(
            "resharding",
            &key,
            "each save gathers the whole optimizer in the memory of one rank's host, which may not hold it, so watch that memory (distrib_optim_fully_reshardable_mem_efficient=True gathers in pieces over Gloo: slower, with less of it); in return ranks that share the model in any other way can load it",
        );
    } else {
        reader.note(
            "resharding",
            &key,
            "a resume may change the number of data-parallel ranks and needs the same tensor, pipeline, context and expert parallel sizes",
        );
    }
    // Reported once for all Megatron roles.
    let layout = match reader.basis.release {
        None => "only steps with ckpt_contents.json are proven and resumed from, which verl writes since 0.9",
        Some(release) if release.series < ReleaseSeries::V0_9 => {
            "this verl writes no ckpt_contents.json, which came with 0.9: its steps are not proven"
        }
        Some(_) => return,
    };
    if reader.findings.iter().all(|f| f.code != "megatron_layout") {
        reader.note("megatron_layout", keys.strategy, layout);
    }
}

/// Checks that the weights are written at all, and where a load finds them.
fn check_writers(reader: &mut VerlConfigReader<'_>, role: &RoleSpec, run: MegatronSpec, keys: &RoleKeys) {
    let saves = |content: &str| role.save_contents.iter().any(|c| c == content);
    let (model, exported) = (saves("model"), saves("hf_model"));
    let bridge = format!("{}.use_mbridge", keys.engine);
    let dist = format!("{}.use_dist_checkpointing", keys.engine);
    let save = format!("{}.save_contents", keys.checkpoint);
    let rank = format!("{}.lora.rank", keys.model);
    if !run.bridge && exported {
        let hint = format!("leave it out, or set {bridge}=True");
        let message = format!("hf_model goes through a bridge, and {bridge} is False: verl refuses to start");
        reader.no_recovery("hf_model_without_bridge", &save, message, &hint);
    }
    if !run.bridge && !run.dist && model {
        let message = format!("there is neither a bridge nor Megatron's own writer ({dist}): verl refuses to start");
        let hint = format!("set {dist}=True, or {bridge}=True");
        reader.no_recovery("weights_not_saved", &bridge, message, &hint);
    }
    let vanilla = format!("{}.vanilla_mbridge", keys.engine);
    if run.adapters && (!run.bridge || reader.flag(&vanilla)) {
        reader.no_recovery(
            "adapters_without_bridge",
            &rank,
            "adapters need Megatron-Bridge: verl refuses to start",
            &format!("set {bridge}=True and {vanilla}=False"),
        );
    }
}

/// The world size must be a multiple of the ranks that share one copy.
fn check_ranks(reader: &mut VerlConfigReader<'_>, run: MegatronSpec, world: Option<u32>, keys: &RoleKeys) {
    let ParallelSizes {
        tensor,
        pipeline,
        context,
        ..
    } = run.parallel;
    let Some(ranks) = run.parallel.ranks() else {
        return reader.problem(
            keys.engine,
            "these sizes are more ranks than can be",
            "make them smaller",
        );
    };
    if let Some(world) = world.filter(|world| !world.is_multiple_of(ranks)) {
        let message = format!(
            "{world} ranks are no multiple of {ranks} (tensor {tensor} x pipeline {pipeline} x context {context}): verl refuses to start"
        );
        let key = format!("{}.tensor_model_parallel_size", keys.engine);
        reader.problem(&key, message, "change the sizes, or the number of ranks");
    }
}
