//! `supervise resume`: a run that ended until somebody looked at it may go on.

use super::{hold, stopped_run, target};
use crate::error::CliError;
use crate::exit::SuperviseExitCode;

pub(super) const EXAMPLES: &str = "  supervise resume ppo.yaml && systemctl --user start supervise-ppo
  supervise resume ppo.yaml && sbatch ppo.sbatch
";

pub(super) const EXITS: [SuperviseExitCode; 5] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::LeaseHeld,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Journal,
];

/// After an end that needs a person (3, 4, 6), once the cause is mended: the next start goes on, whoever makes it: a unit of
/// systemd, a job of Slurm, `supervise run`. It is what `run --again` says, without a start: the retries are whole again, and
/// steps that failed to load are tried again. What cannot be resumed from is refused as ever. A hold that was not let go ends, too
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
    let seen = target::to_act_on(args.run.as_deref())?;
    let lives = seen.alive.supervisor.alive || seen.elsewhere.is_some();
    if lives && seen.state.as_ref().is_some_and(|s| s.requests.held.is_some()) {
        return hold::let_go(&seen, args.json);
    }
    let view = stopped_run::let_go_on(&seen)?;
    match args.json {
        true => super::print_json(&view)?,
        false => super::print(&view.text())?,
    }
    Ok(SuperviseExitCode::Finished.code())
}
