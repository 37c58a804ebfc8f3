//! Command and environment of a launch.

use crate::adapter::{HostFacts, LaunchPlan};
use crate::command;
use supervise_core::reason::Reason;
use supervise_core::record::LaunchOrder;
use supervise_core::spec::RunSpec;

/// What is started. AReaL has no override that names a checkpoint: it resumes from the live set, or from nothing where that is
/// not there, so where it starts was arranged on disk before.
pub(super) fn arrange(spec: &RunSpec, _order: &LaunchOrder, _host: &HostFacts) -> Result<LaunchPlan, Reason> {
    let overrides = vec!["++recover.mode=auto".to_owned()];
    let config = spec.config_file.as_ref().map(|p| p.as_str());
    Ok(LaunchPlan {
        argv: command::fill(&spec.command, &overrides, config),
        overrides,
        ..LaunchPlan::default()
    })
}
