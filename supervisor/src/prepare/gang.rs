//! The gang that settings and configuration ask for.

use supervise_config::settings::{LauncherChoice, Settings};
use supervise_core::spec::LauncherKind;
use supervise_trainers::RayMode;
use supervise_trainers::read::ReadOutput;

/// Nodes that a gang is started on.
pub(super) fn nodes(s: &Settings, out: &ReadOutput) -> u32 {
    s.gang.nodes.unwrap_or(out.gang.nodes).max(1)
}

/// Nodes that something is started on by us: ranks, or Ray.
pub(super) fn over_nodes(settings: &Settings, out: &ReadOutput) -> u32 {
    match &out.facts.ray {
        _ if is_gang(settings, out) => nodes(settings, out),
        RayMode::Started { nodes, .. } => *nodes,
        _ => 1,
    }
}

/// In a job of Slurm's a cluster that nobody names would be ours to start.
pub(super) fn would_start_ray(settings: &Settings, out: &ReadOutput, is_script: bool) -> bool {
    let is_nobodys = matches!(&out.facts.ray, RayMode::Cluster { address: None, .. });
    settings.gang.launcher == LauncherChoice::Auto && !is_script && is_nobodys
}

/// One command for each worker, by the settings or else by the command.
pub(super) fn is_gang(settings: &Settings, out: &ReadOutput) -> bool {
    match settings.gang.launcher {
        LauncherChoice::Auto => out.gang.launcher == LauncherKind::Gang,
        LauncherChoice::Driver | LauncherChoice::Ray => false,
        LauncherChoice::Gang => true,
    }
}
