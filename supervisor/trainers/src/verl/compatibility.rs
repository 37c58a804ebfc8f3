//! Whether a run can resume from a step, which is a separate question from whether the step is whole.
//!
//! A step that does not fit the run is still whole. Losses are reported by kind of state; if nothing can be loaded,
//! the reason says what to change.

mod megatron;

use super::Layouts;
use super::data;
use super::judge::{VerlLayout, VerlStepInput, expected};
use super::names::ShardContent;
use super::role::RoleState;
use supervise_core::checkpoint::{ReshardOffer, Resumability, StateKind};
use supervise_core::spec::RoleSpec;

pub(crate) fn resume(
    case: &VerlStepInput<'_>,
    layout: VerlLayout,
    roles: &[RoleState],
    data: data::DataState,
) -> Resumability {
    fits(case, layout, roles, data, case.expect.world)
}

/// How to reshard a step whose only mismatch is the number of ranks; `None` if it fits or differs in more.
pub(crate) fn reshard(
    case: &VerlStepInput<'_>,
    layout: VerlLayout,
    roles: &[RoleState],
    data: data::DataState,
) -> Option<ReshardOffer> {
    let to = case.expect.world?;
    let from = roles.first()?.world.filter(|from| *from != to)?;
    let is_cut = |role: &RoleState| {
        // With a single rank FSDP1 saves in another format.
        let other_form = role.first_fsdp && (from == 1 || to == 1);
        // A run with several copies of the model wants a mesh that we do not reshard to.
        let size = expected(case, layout, &role.name).and_then(|run| run.fsdp_size);
        let one_copy = size.is_none_or(|size| size < 1 || size >= i64::from(to));
        !role.megatron && !other_form && one_copy && role.world == Some(from) && role.mesh.len() == 1
    };
    if !roles.iter().all(is_cut) {
        return None;
    }
    let lost = match fits(case, layout, roles, data, Some(from)) {
        Resumability::Exact => Vec::new(),
        Resumability::Degraded { lost } => lost,
        Resumability::Not { .. } => return None,
    };
    Some(ReshardOffer { from, to, lost })
}

fn fits(
    case: &VerlStepInput<'_>,
    layout: VerlLayout,
    roles: &[RoleState],
    data: data::DataState,
    world: Option<u32>,
) -> Resumability {
    if let Some(sft) = Layouts::of(case.expect).sft
        && sft != (layout == VerlLayout::Sft)
    {
        let (is, run) = if sft { ("PPO", "SFT") } else { ("SFT", "PPO") };
        return Resumability::Not {
            why: format!("this step was written by verl's {is} trainer, and the run is {run}"),
        };
    }
    let mut lost = Vec::new();
    for role in roles {
        let run = expected(case, layout, &role.name);
        if let Some(why) = run.and_then(|run| other_strategy(role, run)) {
            return Resumability::Not { why };
        }
        if role.megatron {
            match megatron::loss(run.and_then(|r| r.megatron.as_ref()), case.expect, case.step, role) {
                Ok(kinds) => lost.extend(kinds),
                Err(why) => return Resumability::Not { why },
            }
        } else if let Some(why) = cannot_load(role, world).or_else(|| other_mesh(role, run?.fsdp_size?)) {
            return Resumability::Not { why };
        }
        let groups = run.and_then(|run| world?.checked_div(run.sequence?));
        if groups.is_some_and(|ranks| !data.fits(ranks)) {
            lost.push(StateKind::DataOrder);
        }
        let saved = |c: ShardContent| match run {
            Some(spec) => spec.save_contents.iter().any(|s| s == c.word()),
            None => true,
        };
        for (content, kinds) in kept_in(role.megatron) {
            if saved(content) && !role.contents.contains(&content) {
                lost.extend_from_slice(kinds);
            }
        }
    }
    lost.extend_from_slice(data.lost());
    lost.sort_unstable();
    lost.dedup();
    if lost.is_empty() {
        Resumability::Exact
    } else {
        Resumability::Degraded { lost }
    }
}

/// State stored in the optimizer and the extra shards. Megatron stores the schedule with the optimizer.
pub(crate) fn kept_in(megatron: bool) -> [(ShardContent, &'static [StateKind]); 2] {
    use StateKind::{LrSchedule, Optimizer, Rng};
    if megatron {
        [
            (ShardContent::Optimizer, &[Optimizer, LrSchedule]),
            (ShardContent::Extra, &[Rng]),
        ]
    } else {
        [
            (ShardContent::Optimizer, &[Optimizer]),
            (ShardContent::Extra, &[LrSchedule, Rng]),
        ]
    }
}

/// Refuses a role written by one strategy and loaded by another.
fn other_strategy(role: &RoleState, run: &RoleSpec) -> Option<String> {
    let of = of_role(role);
    let go_on = "choose the strategy that wrote it, or let the run start in an empty checkpoint directory";
    match (role.megatron, run.megatron) {
        (true, None) => Some(format!(
            "the state{of} was written by Megatron's manager, and this run loads the shards of FSDP: {go_on}"
        )),
        (false, Some(_)) => Some(format!(
            "the state{of} was written as shards of FSDP, and this run loads it with Megatron: {go_on}"
        )),
        _ => None,
    }
}

fn of_role(role: &RoleState) -> String {
    if role.name.is_empty() {
        String::new()
    } else {
        format!(" of `{}`", role.name)
    }
}

fn cannot_load(role: &RoleState, run: Option<u32>) -> Option<String> {
    let of = of_role(role);
    if let (Some(world), Some(run)) = (role.world, run)
        && world != run
    {
        return Some(format!(
            "the shards{of} were written by {world} ranks and this run has {run}: verl's FSDP loads only its own number of ranks; give the run {world} ranks (trainer.nnodes times trainer.n_gpus_per_node), cut the step anew (`supervise reshard STEP --world-size {run} --target DIR`) or let it start in an empty checkpoint directory"
        ));
    }
    if !role.contents.contains(&ShardContent::Model) {
        return Some(format!(
            "no complete set of model shards{of}: verl's FSDP loads weights from shards only, exported weights (hf_model) are not read at a resume"
        ));
    }
    None
}

/// With the same ranks but another mesh, the shards are cut differently: a rank cannot load its own file.
fn other_mesh(role: &RoleState, fsdp_size: i64) -> Option<String> {
    let world = u64::from(role.world.filter(|_| !role.mesh.is_empty())?);
    let wanted = match u64::try_from(fsdp_size) {
        Ok(size) if size > 0 && size < world => vec![world / size, size],
        _ => vec![world],
    };
    let ranks = role.mesh.iter().product::<u64>();
    if ranks != world || role.mesh.len() > 2 || role.mesh == wanted {
        return None;
    }
    let of = of_role(role);
    let was = match role.mesh.as_slice() {
        [_, size] => i64::try_from(*size).unwrap_or(-1),
        _ => -1,
    };
    Some(format!(
        "the shards{of} were written on a device mesh {:?} and this run has {wanted:?}: FSDP loads only shards of its own mesh; set fsdp_size={was}, or let the run start in an empty checkpoint directory",
        role.mesh
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_is_compared_only_where_the_shards_tell_it() {
        let differs = |world: u32, mesh: &[u64], fsdp_size: i64| {
            let mut role = RoleState::new("actor");
            role.world = Some(world);
            role.mesh = mesh.to_vec();
            other_mesh(&role, fsdp_size).is_some()
        };
        for (world, mesh, size) in [
            (1, &[][..], -1),
            (2, &[], 1),
            (1, &[1], -1),
            (1, &[1], 1),
            (2, &[2], 0),
            (4, &[2, 2], 2),
            // Another number of ranks is reported elsewhere.
            (4, &[2], -1),
        ] {
            assert!(!differs(world, mesh, size), "{world} {mesh:?} {size}");
        }
        assert!(differs(2, &[2], 1) && differs(2, &[2, 1], -1) && differs(4, &[2, 2], 1));
    }
}
