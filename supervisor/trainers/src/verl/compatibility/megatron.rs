//! Whether Megatron can load a role with the run's current switches and parallel sizes.
//!
//! The manifest says how the weights were written, `transformer_config.json` how the ranks shared the model. What the
//! files do not say does not count against a step.

mod first;

use super::of_role;
use crate::adapter::ExpectedLayout;
use crate::verl::names::ShardContent;
use crate::verl::role::{MegatronSave, RoleState};
use crate::verl::strategy::RoleKeys;
use supervise_core::checkpoint::StateKind;
use supervise_core::id::Step;
use supervise_core::spec::{MegatronSpec, ParallelSizes};

/// State that is not loaded although it was saved, or why nothing can be loaded.
pub(super) fn loss(
    run: Option<&MegatronSpec>,
    expect: &ExpectedLayout,
    step: Step,
    role: &RoleState,
) -> Result<Vec<StateKind>, String> {
    if let Some(why) = first::refused(expect, step, role) {
        return Err(why);
    }
    if !role.contents.contains(&ShardContent::Model) {
        return Err(format!("the manifest{} names no weights", of_role(role)));
    }
    let Some(run) = run else {
        // Unless optim.use_checkpoint_opt_param_scheduler is set, which no file of the step shows.
        return Ok(vec![StateKind::LrSchedule]);
    };
    let Some(save) = &role.save else {
        return Ok(Vec::new());
    };
    let keys = RoleKeys::of(&role.name);
    if let Some(why) = other_weights(run, save, role, &keys) {
        return Err(why);
    }
    if let Some(why) = other_copies(run, expect.world, save, role) {
        return Err(why);
    }
    let mut lost = Vec::new();
    if run.schedule && !save.schedule {
        lost.push(StateKind::LrSchedule);
    }
    if let Some(then) = save.parallel.filter(|then| *then != run.parallel) {
        // If the step does not say how its optimizer was saved, assume the run's setting.
        let any = run.any_parallel && save.any_parallel.unwrap_or(true);
        if role.contents.contains(&ShardContent::Optimizer) && !any {
            let mut why = shared_otherwise(then, run.parallel, role, &keys);
            if save.any_parallel == Some(true) {
                let switch = format!("{}.dist_ckpt_optim_fully_reshardable=True", keys.engine);
                why.push_str(&format!("; or set {switch}, as it was saved"));
            }
            return Err(why);
        }
        // Random states are stored per position in the parallel layout, so they fit no other layout.
        if role.contents.contains(&ShardContent::Extra) {
            lost.push(StateKind::Rng);
        }
    }
    Ok(lost)
}

/// Why the run does not find weights that were saved this way.
fn other_weights(run: &MegatronSpec, save: &MegatronSave, role: &RoleState, keys: &RoleKeys) -> Option<String> {
    let (of, engine, model) = (of_role(role), keys.engine, keys.model);
    let why = match (save.adapters, run.adapters) {
        (true, false) => format!(
            "only adapters{of} were saved, and this run trains the whole model: set {model}.lora.rank as it was, or let the run start in an empty checkpoint directory"
        ),
        (false, true) => format!(
            "the weights{of} are those of a whole model, and this run loads adapters: leave {model}.lora.rank at 0, or start the run from the exported model in an empty checkpoint directory"
        ),
        (true, true) => return None,
        (false, false) if run.dist && !save.dist => format!(
            "the weights{of} were saved through the bridge (model/huggingface), and this run loads Megatron's own shards: set {engine}.use_dist_checkpointing=False"
        ),
        (false, false) if !run.dist && !save.exported => format!(
            "the weights{of} were saved as Megatron's own shards (model/dist_ckpt), and this run loads through the bridge: set {engine}.use_dist_checkpointing=True"
        ),
        (false, false) => return None,
    };
    Some(why)
}

/// The SFT trainer stores a dataloader state for each copy of the model, so their number must not change.
fn other_copies(run: &MegatronSpec, world: Option<u32>, save: &MegatronSave, role: &RoleState) -> Option<String> {
    if !role.name.is_empty() {
        return None;
    }
    let then = role.world?.checked_div(save.parallel?.ranks()?)?;
    let now = world?.checked_div(run.parallel.ranks()?)?;
    let ranks = then.checked_mul(run.parallel.ranks()?)?;
    (then != now).then(|| {
        format!(
            "the dataloaders of {then} copies of the model were saved, and this run has {now}: give the run {ranks} ranks, or let it start in an empty checkpoint directory"
        )
    })
}

fn shared_otherwise(then: ParallelSizes, now: ParallelSizes, role: &RoleState, keys: &RoleKeys) -> String {
    let (of, engine) = (of_role(role), keys.engine);
    let sizes: Vec<String> = [
        ("tensor_model_parallel_size", then.tensor, now.tensor),
        ("pipeline_model_parallel_size", then.pipeline, now.pipeline),
        ("context_parallel_size", then.context, now.context),
        ("expert_model_parallel_size", then.expert, now.expert),
    ]
    .into_iter()
    .filter(|(_, then, now)| then != now)
    .map(|(key, then, now)| format!("{engine}.{key}={then} (it is {now})"))
    .collect();
    format!(
        "the optimizer{of} was saved by ranks that shared the model in another way, and unless it is both saved and loaded with dist_ckpt_optim_fully_reshardable only the number of data-parallel copies may change: set {}, or let the run start in an empty checkpoint directory",
        sizes.join(", ")
    )
}
