//! `supervise forget`: takes a run off the list.

use super::target;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare;
use std::fs;
use supervise_core::id::RunId;

pub(super) const EXAMPLES: &str = "  supervise forget grpo
  supervise forget 61e5 7b02          by the starts of their identities
";

pub(super) const EXITS: [SuperviseExitCode; 4] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::LeaseHeld,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Runs by name, identity, checkpoint root or run directory
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let runs = args
        .runs
        .iter()
        .map(|name| listed(name))
        .collect::<Result<Vec<_>, _>>()?;
    for run in &runs {
        let Some(file) = prepare::listed_file(run) else {
            return Err(
                CliError::usage(format!("run {run} is not on the list")).hint("`supervise status` shows the list")
            );
        };
        fs::remove_file(&file).map_err(|e| CliError::environment(format!("{file}: it cannot be deleted: {e}")))?;
        super::print(&format!(
            "run {run}: no longer listed; its files stay, and its next start lists it again\n"
        ))?;
    }
    Ok(SuperviseExitCode::Finished.code())
}

/// The run, which must not be active. The directory of a listed run may be gone.
fn listed(name: &str) -> Result<RunId, CliError> {
    let seen = match target::by_name(name) {
        Some(listed) => {
            let listed = listed?;
            target::look(&listed.run, Some(&listed.run_dir))
        }
        None => target::find(name)?,
    };
    if seen.alive.supervisor.alive || seen.alive.guard.alive || seen.elsewhere.is_some() {
        let text = format!("run {} is active: it stays on the list", seen.run);
        return Err(CliError::lease_held(text).hint(format!("`supervise stop {}` ends it first", seen.run)));
    }
    Ok(seen.run)
}
