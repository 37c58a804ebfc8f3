//! Prepares a term from the command line in stages: request, sources, discovery, resolve, preflight, spec. Each stage is a type
//! that consumes the previous one.
//!
//! Reads files and queries the machine, but changes nothing.

mod command;
mod discovery;
mod earlier_run;
mod gang;
mod path;
mod preflight;
mod request;
mod resolve;
mod sources;
mod spec;
mod state_dir;
mod unprotected;

pub use command::GIVE_A_COMMAND;
pub use discovery::DiscoveredCommand;
pub use preflight::{probe, trains_into};
pub use request::{Learning, PrepareRequest};
pub use resolve::{Identified, asked, check_importable, package, run_ids_at};
pub use sources::{RunSources, proof_memory};
pub(crate) use spec::{answers, failure_lines};
pub use state_dir::{listed_file, listed_runs, registry_file, searched, state_dir, unreadable_registry};
pub use unprotected::PLAIN_CODE;

use crate::error::CliError;
use crate::run_order::PreparedRun;
use supervise_config::settings::{GpuChoice, Settings};
use supervise_trainers::MachineCount;

/// Prepares a run.
///
/// # Errors
/// What prevents the run, with its exit code.
pub fn prepare(request: PrepareRequest) -> Result<PreparedRun, CliError> {
    let asked = request.clone();
    let mut prepared = discover(request)?.known()?.resolve()?.check()?.spec()?;
    unprotected::tell(&asked, &mut prepared);
    if asked.planned
        && let Err(e) = check_importable(&prepared)
    {
        spec::refuse(&mut prepared, &e);
    }
    Ok(prepared)
}

/// What a batch system must know about a run.
#[derive(Debug)]
pub struct BatchNeeds {
    /// Number of machines, if the configuration says so.
    pub machines: Option<MachineCount>,
    /// `supervise` itself starts the ranks on the machines.
    pub gang: bool,
    /// Why the command would not start on this machine.
    pub missing: Option<String>,
    pub settings: Settings,
}

/// Finds out what a batch system must know. Does not check this machine: the run will be on another one.
///
/// # Errors
/// Problems of the configuration.
pub fn batch_needs(request: PrepareRequest) -> Result<BatchNeeds, CliError> {
    let resolved = discover(request)?.known()?.resolve()?;
    preflight::several_machines(&resolved.discovered.sources.settings, &resolved.out)?;
    let (settings, out) = (&resolved.discovered.sources.settings, &resolved.out);
    let gang = gang::is_gang(settings, out)
        || gang::over_nodes(settings, out) > 1
        || gang::would_start_ray(settings, out, resolved.discovered.learnt.is_some());
    let sources = resolved.discovered.sources;
    let settings = sources.settings;
    let missing = command::check(&resolved.out.command, &sources.cwd, &settings.env);
    let missing = missing.err().map(|e| e.message);
    let gpus = match &settings.gang.gpus {
        GpuChoice::Auto => None,
        GpuChoice::None => Some(0),
        GpuChoice::List(list) => u32::try_from(list.len()).ok(),
    };
    let nodes = settings.gang.nodes;
    let said = nodes.map(|nodes| MachineCount { nodes, gpus: 0 });
    let machines = resolved.out.machines.or(said).map(|m| MachineCount {
        gpus: gpus.unwrap_or(m.gpus),
        nodes: nodes.unwrap_or(m.nodes),
    });
    Ok(BatchNeeds {
        machines,
        gang,
        missing,
        settings,
    })
}

/// Reads the YAML and all settings, and finds the trainer's call.
///
/// # Errors
/// Problems in them.
pub fn discover(request: PrepareRequest) -> Result<DiscoveredCommand, CliError> {
    RunSources::read(request, None)?.discover()
}
