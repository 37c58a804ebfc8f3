//! Releases of verl that load Megatron's first layout: those that wrote it, and none after them.

use super::of_role;
use crate::adapter::ExpectedLayout;
use crate::verl::ReleaseSeries;
use crate::verl::megatron::layout_v1::command;
use crate::verl::role::RoleState;
use supervise_core::id::Step;

/// Why this run's verl does not load a role. An unknown version does not count against the step: verl 0.9 itself
/// refuses before it loads anything.
pub(super) fn refused(expect: &ExpectedLayout, step: Step, role: &RoleState) -> Option<String> {
    let first = role.save.as_ref().is_some_and(|s| s.first_layout);
    let version = expect.version.as_deref().filter(|_| first)?;
    let (of, command) = (of_role(role), command(&role.name, step));
    match ReleaseSeries::of(version)? {
        // The release before it had another layout, which nothing reads today.
        ReleaseSeries::V0_4 if version.trim().starts_with("0.4.0") => Some(format!(
            "the state{of} is in a Megatron layout that came with verl 0.4.1, and this run has {version}: run it with verl 0.4.1 or later"
        )),
        ReleaseSeries::V0_4 | ReleaseSeries::V0_5 | ReleaseSeries::V0_6 | ReleaseSeries::V0_7 | ReleaseSeries::V0_8 => {
            let alone = role.contents.as_slice() == [crate::verl::names::ShardContent::Model] && role.hf_model;
            alone.then(|| format!(
                "only weights{of} were saved, and verl {version} looks for a `dist_ckpt` beside them before it loads anything: {command} converts the step for verl 0.9, which can go on from weights alone"
            ))
        }
        ReleaseSeries::V0_9 => Some(format!(
            "the state{of} is in Megatron's first layout, which verl {version} refuses to load: {command} converts it in place; verl 0.4.1 to 0.8 load it as it is"
        )),
    }
}
