//! The gang that settings and configuration ask for.

use supervise_config::settings::{LauncherChoice, Settings};
use supervise_core::spec::LauncherKind;
use supervise_trainers::read::ReadOutput;

/// Nodes that a gang is started on.
pub(super) fn nodes(s: &Settings, out: &ReadOutput) -> u32 {
    s.gang.nodes.unwrap_or(out.gang.nodes).max(1)
}

/// One command for each worker, by the settings or else by the command.
pub(super) fn is_gang(settings: &Settings, out: &ReadOutput) -> bool {
    match settings.gang.launcher {
        LauncherChoice::Auto => out.gang.launcher == LauncherKind::Gang,
        LauncherChoice::Driver => false,
        LauncherChoice::Gang => true,
    }
}
