//! `supervise resume`: clears a final failure.

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

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    ///
    /// Without it, the only run of this user on this machine.
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
