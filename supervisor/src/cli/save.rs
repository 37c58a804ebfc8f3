//! `supervise save`: asks the trainer to save at its next step boundary.

use super::remote_request;
use super::target::{self, RunInfo};
use crate::control::{self, ControlReply, ControlRequest};
use crate::error::{CliError, ErrorKind};
use crate::exit::SuperviseExitCode;
use crate::render::status::SaveRequestView;
use serde_json::json;
use std::time::Duration;
use supervise_core::decide::save_requests::cannot_save;
use supervise_core::state::{AttemptSaves, RunMode, RunState};

pub(super) const EXAMPLES: &str = "  supervise save ppo.yaml
  supervise save ppo.yaml --wait            until its step is proven
";

pub(super) const EXITS: [SuperviseExitCode; 4] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::NoProof,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
];

/// How long a supervisor may take to accept a request.
const ANSWER: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    ///
    /// Without it, the only run of this user on this machine.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Wait until the step is proven
    #[arg(long)]
    wait: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is known of the requests before another one.
struct Before {
    attempt: u32,
    newest: u64,
    /// One under way: another request adds nothing to it.
    open: Option<u64>,
}

impl Before {
    fn of(s: &RunState) -> Self {
        let open = saves(s).and_then(AttemptSaves::open);
        Self {
            attempt: s.attempts.0,
            newest: s.requests.saves,
            open: open.map(|r| r.order.id),
        }
    }

    /// The request that was made or joined, once there is one.
    fn made(&self, s: &RunState) -> Option<SaveRequestView> {
        let least = self.open.unwrap_or(self.newest.saturating_add(1));
        let asked = saves(s)?.asked.as_ref()?;
        (asked.order.id >= least).then(|| SaveRequestView::of(asked))
    }

    fn is_accepted(&self, s: &RunState) -> bool {
        self.made(s).is_some() || saves(s).is_some_and(|saves| saves.wished_by.is_some())
    }
}

fn saves(s: &RunState) -> Option<&AttemptSaves> {
    s.attempt.as_ref().map(|a| &a.saves)
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::to_act_on(args.run.as_deref())?;
    let refused = |why: &str| CliError::environment(format!("run {}: no save can be asked for: {why}", seen.run));
    let nobody = || {
        let text = format!("no supervisor of run {} lives", seen.run);
        CliError::environment(text).hint("`supervise run` begins one")
    };
    let state = seen.state.as_ref().ok_or_else(nobody)?;
    if state.mode == RunMode::Finished {
        return Err(refused("it has ended"));
    }
    if let Some(why) = seen.spec.as_ref().and_then(|spec| cannot_save(state, spec)) {
        return Err(refused(&why));
    }
    let before = Before::of(state);
    let by = crate::environment::user();
    match control::ask(&seen.run, &ControlRequest::Save { by: by.clone() }, ANSWER) {
        Ok(Some(ControlReply::Done)) => {}
        Ok(Some(ControlReply::Refused(why))) => return Err(refused(&why)),
        Ok(Some(ControlReply::Status { .. })) => {
            return Err(CliError::internal("the supervisor gave an unexpected answer"));
        }
        Ok(None) if seen.elsewhere.is_some() => {
            let done = |now: &RunInfo| now.state.as_ref().is_some_and(|s| before.is_accepted(s));
            let request = ControlRequest::Save { by };
            remote_request::ask(("save", &seen), request, Some(remote_request::TAKEN), done)?;
        }
        Ok(None) => return Err(nobody()),
        Err(e) => {
            return Err(CliError::environment(format!(
                "the supervisor of run {}: {e}",
                seen.run
            )));
        }
    }
    if args.wait {
        return wait(args, &seen, &before);
    }
    told(
        args,
        &seen,
        None,
        "a save is asked for; the trainer saves at the end of its step",
    )
}

/// Waits until the request is over, which the supervisor limits.
fn wait(args: &Args, seen: &RunInfo, before: &Before) -> Result<u8, CliError> {
    let failed = |text: &str| CliError::new(ErrorKind::NoProof, format!("run {}: {text}", seen.run));
    loop {
        std::thread::sleep(LOOK);
        let now = target::look(&seen.run, seen.run_dir.as_deref());
        let Some(s) = now.state.as_ref() else { continue };
        let made = before.made(s);
        let state = made.as_ref().map_or("", |r| r.state);
        match (state, made.as_ref().and_then(|r| r.proven)) {
            ("proven", Some(step)) => return told(args, seen, made.as_ref(), &format!("step {step} is proven")),
            ("unanswered", _) => {
                let text = "the trainer did not answer; it saves at its own interval, and a late answer still counts";
                return Err(failed(text));
            }
            ("unproven", _) => return Err(failed("the trainer answered, but no step was proven in time")),
            ("failed", _) => return Err(failed("the request could not be written: `supervise journal` says why")),
            _ => {}
        }
        let is_over = s.attempts.0 != before.attempt || s.live().is_none();
        if is_over || s.mode == RunMode::Finished {
            return Err(failed("the attempt ended before the step was proven"));
        }
        if !now.alive.supervisor.alive && now.elsewhere.is_none() {
            let text = format!(
                "run {}: its supervisor is gone; its next one says what was saved",
                seen.run
            );
            return Err(CliError::environment(text));
        }
    }
}

fn told(args: &Args, seen: &RunInfo, request: Option<&SaveRequestView>, text: &str) -> Result<u8, CliError> {
    match args.json {
        true => super::print_json(&json!({"version": 1, "run": seen.run, "asked": true, "request": request}))?,
        false => super::print(&format!("run {}: {text}\n", seen.run))?,
    }
    Ok(SuperviseExitCode::Finished.code())
}
