//! The gang that settings and configuration request.

use supervise_config::settings::{LauncherChoice, Settings};
use supervise_core::spec::LauncherKind;
use supervise_trainers::RayMode;
use supervise_trainers::read::ReadOutput;

/// Nodes on which a gang is started.
pub(super) fn nodes(s: &Settings, out: &ReadOutput) -> u32 {
    s.gang.nodes.unwrap_or(out.gang.nodes).max(1)
}

/// Nodes on which this program starts ranks or Ray.
pub(super) fn over_nodes(settings: &Settings, out: &ReadOutput) -> u32 {
    match &out.facts.ray {
        _ if is_gang(settings, out) => nodes(settings, out),
        RayMode::Started { nodes, .. } => *nodes,
        _ => 1,
    }
}

/// In a Slurm job, this program would start Ray unless a cluster is named.
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
