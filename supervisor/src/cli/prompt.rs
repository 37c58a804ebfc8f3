//! Questions to the operator, and checks of options, shared by several commands.

use super::target::RunInfo;
use crate::error::CliError;
pub(super) use crate::printer::confirm;
use crate::run_order::PreparedRun;
use supervise_core::checkpoint::{CheckpointSummary, Depth, Resumability, Verdict};
use supervise_core::spec::RunSpec;
use supervise_host::io_worker::{RunCheckpoints, look_at_run};

/// Refuses a step that does not exist or cannot be resumed, before anything starts.
///
/// # Errors
/// There is no such step, or it is not whole; lists those that can be resumed.
pub(super) fn check_from(p: &PreparedRun) -> Result<(), CliError> {
    let (Some(from), Some(place)) = (p.order.spec.policy.start.from, RunCheckpoints::of(&p.order.spec)) else {
        return Ok(());
    };
    let scan = look_at_run(&place, Depth::Structure, &mut |_| true);
    let steps = scan.resumable();
    let mut named = scan.steps.iter().filter(|c| c.step == from);
    // What was not read may be whole (another user's step is only read if it is named), and what does not fit may be resharded.
    let may_be = |c: &CheckpointSummary| {
        let is_unread = c.verdict == Verdict::Unreadable || c.other_owner.is_some();
        is_unread || c.part.is_some() || p.order.spec.policy.elastic && c.reshard.is_some()
    };
    if scan.unreadable.is_some() || steps.contains(&from) || named.clone().any(may_be) {
        return Ok(());
    }
    let what = match named.next() {
        None => format!("no such step in {}", place.root),
        Some(c) => match (&c.resume, c.why()) {
            (Resumability::Not { why }, _) if c.verdict == Verdict::Whole => {
                format!("{} does not fit this run: {why}", c.id)
            }
            (_, Some(finding)) => format!("{} is {}: {finding}", c.id, c.verdict),
            (_, None) if c.husk => format!("{} is a pruned remnant", c.id),
            (_, None) => format!("{} is {}", c.id, c.verdict),
        },
    };
    let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
    let hint = match steps.is_empty() {
        true => "no step can be resumed".to_owned(),
        false => format!("steps that can be resumed: {}", steps.join(", ")),
    };
    Err(CliError::usage(format!("--from {from}: {what}"))
        .hint(hint)
        .hint("`supervise checkpoints` shows all steps"))
}

/// Refuses `--fresh` if it could not be obeyed. It moves steps aside before the launch; if the trainer is only seen while it runs,
/// its root is known only from an earlier start.
///
/// # Errors
/// The root is unknown, or its steps are left alone.
pub(super) fn check_fresh(
    p: &PreparedRun,
    look: impl FnOnce(&RunSpec) -> Result<RunInfo, CliError>,
) -> Result<(), CliError> {
    let spec = &p.order.spec;
    if !spec.policy.start.fresh || spec.root.is_some() || p.order.hook(spec, &spec.command).is_none() {
        return Ok(());
    }
    let seen = look(spec)?.state.and_then(|state| state.seen);
    let why = match seen {
        Some(trainer) => match trainer.watched {
            None => return Ok(()),
            Some(why) => format!("the steps in {} are left alone, because {why}", trainer.root),
        },
        None => "where this command saves is only seen while it runs, and it was never seen".to_owned(),
    };
    Err(CliError::usage(format!("--fresh: {why}"))
        .hint("move its checkpoints away yourself, or let it save into another directory, and leave --fresh out"))
}

/// Refuses options that only a launch can obey if workers are still running: they are taken over as they were launched. Checks the
/// run only if there is such an option.
///
/// # Errors
/// There is such an option, and such workers.
pub(super) fn check_taken(
    spec: &RunSpec,
    look: impl FnOnce(&RunSpec) -> Result<RunInfo, CliError>,
) -> Result<(), CliError> {
    let policy = &spec.policy;
    let wish = match (policy.start.fresh, policy.start.from, policy.start.observe) {
        (true, ..) => "--fresh".to_owned(),
        (_, Some(step), _) => format!("--from {step}"),
        (.., true) => "--observe".to_owned(),
        _ => return Ok(()),
    };
    let alive = look(spec)?.alive;
    if alive.supervisor.alive || !alive.guard.alive {
        return Ok(());
    }
    let run = &spec.run;
    Err(CliError::usage(format!(
        "{wish}: workers of this run are still running without a supervisor, and it would not affect them"
    ))
    .hint(format!(
        "`supervise stop {run}` ends them first; without {wish}, `supervise run` takes them over"
    )))
}
