//! From the command line to everything a term needs, one stage after the other: request, sources, discovery, resolve,
//! preflight, spec. Each is a type that consumes the one before.
//!
//! Reads files and looks at the machine, changes nothing.

mod command;
mod discovery;
mod path;
mod preflight;
mod request;
mod resolve;
mod sources;
mod spec;
mod state_dir;

pub use discovery::Discovered;
pub use preflight::probe;
pub use request::{Learning, Request};
pub use resolve::{Identified, asked, check_importable, package, run_ids_at};
pub use sources::{Sources, proof_memory};
pub(crate) use spec::answers;
pub use state_dir::{listed_file, listed_runs, registry_file, state_dir};

use crate::error::CliError;
use crate::run_order::Prepared;

/// Prepares a run.
///
/// # Errors
/// The problem, and with which exit code.
pub fn prepare(request: Request) -> Result<Prepared, CliError> {
    discover(request)?.known()?.resolve()?.check()?.spec()
}

/// Reads the YAML and the settings in all their layers, and finds the call that is made.
///
/// # Errors
/// Problems of them.
pub fn discover(request: Request) -> Result<Discovered, CliError> {
    Sources::read(request, None)?.discover()
}
