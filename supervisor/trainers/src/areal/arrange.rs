//! Command and environment of a launch.

use super::RecoverMode;
use super::call;
use super::live::ArealSpec;
use super::ray;
use crate::adapter::{HostFacts, InjectedSetting, LaunchPlan, save_door};
use crate::command;
use crate::job;
use crate::kit::experiment;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::{LauncherKind, RunSpec};

/// Builds the launch. AReaL has no override that names a checkpoint: it resumes from the live set, or starts fresh if
/// there is none, so the resume point has been arranged on disk before.
pub(super) fn arrange(spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason> {
    let mut plan = LaunchPlan::default();
    plan.overrides.extend(host.trainer.settings.iter().cloned());
    plan.overrides.extend(ours(spec, order, host));
    let config = spec.config_file.as_ref().map(|p| p.as_str());
    // Do not repeat what the user wrote verbatim.
    plan.overrides.retain(|o| !spec.command.contains(o));
    plan.argv = command::fill(&spec.command, &plan.overrides, config);
    plan.env = environment(spec, host);
    ray::arrange(&mut plan, spec, order, host);
    // Before the first launch they may belong to a run that we do not know.
    let names = ArealSpec::of(&spec.saves).and_then(|live| live.names);
    plan.stale_names = names.filter(|_| order.attempt.0 > 1);
    if spec.policy.assist.environment {
        plan.help(vec![unbuffered()], spec, host);
    }
    plan.help(save_door::setting(spec, order).into_iter().collect(), spec, host);
    experiment::go_on(&mut plan, &host.trainer.trackers, spec, order, host);
    let by_environment = host.is_set(spec, "PET_MAX_RESTARTS");
    plan.notes
        .extend(command::forbid_restarts(&mut plan.argv, by_environment));
    plan.notes.extend(command::wait_for_job(&mut plan.argv));
    plan.notes
        .extend(job::name(&mut plan.argv, &job::id(&spec.run, order.attempt)));
    let seen = call::arguments(&spec.command).is_some();
    let marked = spec.command.iter().any(|w| w.contains(command::OVERRIDES));
    if !seen && !marked && !plan.overrides.is_empty() {
        plan.notes.push(
            "no Python program is seen in the command: the overrides are at its end, and a script has to pass them on (\"$@\")"
                .to_owned(),
        );
    }
    Ok(plan)
}

/// Overrides that every launch needs, once each. `++` works whether or not the file has the key.
fn ours(spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Vec<String> {
    let mut out = Vec::new();
    let recovers = order.from != StartPoint::AsIs;
    let mode = host.trainer.own.get().and_then(|RecoverMode(mode)| *mode);
    match (recovers, mode) {
        (true, _) => out.push("++recover.mode=auto".to_owned()),
        (false, Some(mode)) => out.push(format!("++recover.mode={mode}")),
        (false, None) => {}
    }
    // Its launchers would restart without the supervisor, even a finished run.
    if recovers && call::launcher(&spec.command).is_some() {
        out.push("++recover.retries=0".to_owned());
    }
    out
}

/// The user's name is part of the checkpoint root: the root must not move, whatever the next term's environment says.
fn environment(spec: &RunSpec, host: &HostFacts) -> Vec<(String, String)> {
    let mut out = Vec::new();
    if let Some(ArealSpec { user, .. }) = ArealSpec::of(&spec.saves) {
        if !host.is_set(spec, "USER") {
            out.push(("USER".to_owned(), user.clone()));
        }
        out.push(("LOGNAME".to_owned(), user));
    }
    let ranks = spec.gang.launcher == LauncherKind::Gang || command::is_torchrun(&spec.command);
    if ranks && !host.is_set(spec, "AREAL_SPMD_MODE") {
        out.push(("AREAL_SPMD_MODE".to_owned(), "1".to_owned()));
    }
    out
}

fn unbuffered() -> InjectedSetting {
    let mut help = InjectedSetting::new("assist.environment", "what goes wrong is told in full, and at once");
    help.set("PYTHONUNBUFFERED", "1");
    help.set("HYDRA_FULL_ERROR", "1");
    help
}
