//! `supervise hold` and `supervise unhold`: pause and resume recovery while an operator debugs a run.

use super::target::{self, RunInfo};
use super::{remote_request, stopped_run};
use crate::control::{self, ControlReply, ControlRequest};
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::render::terminal;
use std::time::Duration;
use supervise_core::state::RunMode;
use supervise_host::io_worker::requests;

pub(super) const HOLD_EXAMPLES: &str = "  supervise hold ppo.yaml
  supervise hold ppo.yaml --reason 'gdb on rank 3'
";

pub(super) const UNHOLD_EXAMPLES: &str = "  supervise unhold ppo.yaml
";

/// How long a supervisor may take to accept a request.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest stored reason, in characters.
const REASON: usize = 200;

#[derive(Debug, clap::Args)]
pub(super) struct HoldArgs {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    ///
    /// Without it, the only run of this user on this machine.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Reason, which `status` shows
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct UnholdArgs {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    ///
    /// Without it, the only run of this user on this machine.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn hold(args: &HoldArgs) -> Result<u8, CliError> {
    let seen = target::to_act_on(args.run.as_deref())?;
    let request = wish(crate::environment::user(), args.reason.as_deref());
    ask(&seen, &request)?;
    let text = "held: hangs and failures are left as they are, and nothing is launched, until `supervise unhold`";
    told(&seen, true, text, args.json)
}

pub(super) fn unhold(args: &UnholdArgs) -> Result<u8, CliError> {
    let_go(&target::to_act_on(args.run.as_deref())?, args.json)
}

pub(super) fn let_go(seen: &RunInfo, json: bool) -> Result<u8, CliError> {
    let by = crate::environment::user();
    let state = seen.state.as_ref();
    let nobody_lives = !seen.alive.supervisor.alive && seen.elsewhere.is_none();
    if nobody_lives && state.is_some_and(|s| s.requests.held.is_some() && s.mode == RunMode::Finished) {
        // Nobody but the journal has to know.
        stopped_run::let_go_on(seen)?;
        return told(seen, false, "held no more: its next start goes on", json);
    }
    ask(seen, &ControlRequest::Unhold { by })?;
    told(seen, false, "left to its supervisor again", json)
}

/// The request to hold a run, with its reason as one line.
pub(super) fn wish(by: String, reason: Option<&str>) -> ControlRequest {
    let line = reason.map(|text| terminal::line(text.trim()).chars().take(REASON).collect::<String>());
    ControlRequest::Hold {
        by,
        why: line.filter(|text| !text.is_empty()),
    }
}

fn ask(seen: &RunInfo, request: &ControlRequest) -> Result<(), CliError> {
    let run = &seen.run;
    if let Some(RunMode::Finished) = seen.state.as_ref().map(|s| &s.mode) {
        return Err(CliError::environment(format!(
            "run {run} has ended: there is nothing to hold"
        )));
    }
    match control::ask(run, request, ANSWER) {
        Ok(Some(ControlReply::Done)) => Ok(()),
        Ok(Some(ControlReply::Refused(why))) => Err(CliError::environment(format!(
            "the supervisor of run {run} refuses: {why}"
        ))),
        Ok(Some(ControlReply::Status { .. })) => Err(CliError::internal("the supervisor gave an unexpected answer")),
        Ok(None) if seen.elsewhere.is_some() => {
            let holds = matches!(request, ControlRequest::Hold { .. });
            let command = if holds { "hold" } else { "unhold" };
            let is_held = seen.state.as_ref().is_some_and(|s| s.requests.held.is_some());
            // The one that holds it may still wait to be taken.
            if !holds && !is_held && !seen.run_dir.as_deref().is_some_and(requests::any) {
                return Err(CliError::environment(format!("nobody holds run {run}")));
            }
            let done = |now: &RunInfo| now.state.as_ref().is_some_and(|s| s.requests.held.is_some() == holds);
            remote_request::ask((command, seen), request.clone(), Some(remote_request::TAKEN), done).map(drop)
        }
        Ok(None) => {
            Err(CliError::environment(format!("no supervisor of run {run} lives")).hint("`supervise run` begins one"))
        }
        Err(e) => Err(CliError::environment(format!("the supervisor of run {run}: {e}"))),
    }
}

fn told(seen: &RunInfo, held: bool, text: &str, json: bool) -> Result<u8, CliError> {
    match json {
        true => super::print_json(&serde_json::json!({"version": 1, "run": seen.run, "held": held}))?,
        false => super::print(&format!("run {}: {text}\n", seen.run))?,
    }
    Ok(SuperviseExitCode::Finished.code())
}
