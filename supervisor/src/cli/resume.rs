//! `supervise resume`: a run that ended until somebody looked at it may go on.

use super::{at_rest, hold, target};
use crate::environment;
use crate::error::CliError;
use crate::exit::Exit;
use crate::render::resume::ResumeView;
use supervise_core::event::{EventKind, Request};
use supervise_core::record::Outcome;

pub(super) const EXAMPLES: &str = "  supervise resume ppo.yaml && systemctl --user start supervise-ppo
  supervise resume ppo.yaml && sbatch ppo.sbatch
";

pub(super) const EXITS: [Exit; 5] = [
    Exit::Finished,
    Exit::LeaseHeld,
    Exit::Usage,
    Exit::Environment,
    Exit::Journal,
];

const THEN: &str = "it goes on by itself";

/// After an end that needs a person (3, 4, 6), once the cause is mended: the next start goes on, whoever makes it: a unit of
/// systemd, a job of Slurm, `supervise run`. It is what `run --again` says, without a start. The retries are whole again, and
/// steps that failed to load are tried again. A run that lives and is held is left to its supervisor, as by `unhold`
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Trainer YAML, checkpoint root, run directory or identity; none: the only run of this user
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
    let run = &seen.run;
    let state = seen.state.clone().unwrap_or_default();
    let is_held = state.held.is_some();
    let lives = seen.alive.supervisor.alive || seen.elsewhere.is_some();
    if lives && is_held {
        return hold::let_go(&seen, args.json);
    }
    at_rest::check(&seen, THEN)?;
    if seen.state.is_none() {
        return Err(CliError::environment(format!("run {run}: its journal cannot be read")));
    }
    let was = state.outcome.clone();
    if let Some(Outcome::Finished { .. }) = was {
        return Err(
            CliError::usage(format!("run {run} is finished: there is nothing to go on with"))
                .hint("where it is to train on, raise the trainer's number of steps: `supervise run` goes on then"),
        );
    }
    let needs = is_held || was.as_ref().is_some_and(Outcome::needs_a_person);
    if needs {
        let by = environment::user();
        let unheld = is_held.then(|| Request::Unhold { by: by.clone() });
        let asked: Vec<EventKind> = unheld
            .into_iter()
            .chain([Request::Resume { by }])
            .map(EventKind::Operator)
            .collect();
        at_rest::write_down(&seen, THEN, &asked)?;
    }
    let view = ResumeView::of(&run.0, was.as_ref(), needs);
    match args.json {
        true => super::print_json(&view)?,
        false => super::print(&view.text())?,
    }
    Ok(Exit::Finished.code())
}
