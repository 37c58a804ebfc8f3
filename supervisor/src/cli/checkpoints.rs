//! `supervise checkpoints`: every step with its verdict.

use super::exports::{self, unknown_run};
use super::target;
use super::verify::declared_at;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::{PrepareRequest, discover, proof_memory};
use crate::printer::{self, ByteMeter};
use crate::render::checkpoints::{CheckpointsView, text};
use camino::{Utf8Path, Utf8PathBuf};
use supervise_host::io_worker::{RunCheckpoints, look_at_run};
use supervise_trainers::registry;

pub(super) const EXAMPLES: &str = "  supervise checkpoints ppo.yaml
  supervise checkpoints /ckpt/my-run --depth full
  supervise checkpoints /any/directory --json
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run (trainer YAML, run directory, identity) or any checkpoint root
    #[arg(value_name = "RUN|DIR")]
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show how each step was proven, and what the tracker file says
    #[arg(long, short)]
    verbose: bool,
    /// How much to read of each file
    #[arg(long, value_enum, default_value = "structure")]
    depth: super::DepthArg,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let mut place = place(&args.name)?;
    let mut meter = ByteMeter::new();
    let mut look = |place: &RunCheckpoints| {
        look_at_run(place, args.depth.into(), &mut |read| {
            meter.tell(read, None);
            true
        })
    };
    let mut scan = look(&place);
    if scan.steps.is_empty()
        && let Some(root) = root_of_step(&place.root)
    {
        printer::note(&format!("{} is a step; these are all steps of {root}", place.root));
        place = unknown_run(&root, place.expect.memory);
        scan = look(&place);
    }
    let root = &place.root;
    let exports = match place.store {
        Some(_) => exports::below(root, args.depth.into(), place.expect.memory, &mut meter),
        None => Vec::new(),
    };
    meter.end();
    if args.json {
        super::print_json(&CheckpointsView::of(root.as_str(), &scan, &exports))?;
    } else {
        super::print(&text(root.as_str(), &scan, &exports, args.verbose))?;
    }
    match &scan.unreadable {
        Some(_) => Ok(SuperviseExitCode::Environment.code()),
        None => Ok(SuperviseExitCode::Finished.code()),
    }
}

/// The root of a directory that is a step by its name.
fn root_of_step(dir: &Utf8Path) -> Option<Utf8PathBuf> {
    let dir = dir.canonicalize_utf8().ok()?;
    registry::of_step_name(dir.file_name()?)?;
    dir.parent().map(Utf8Path::to_owned)
}

/// The directory to read and the expected layout: from a run's own specification, or else from what is there.
pub(super) fn place(name: &str) -> Result<RunCheckpoints, CliError> {
    let found = target::find(name);
    if let Ok(seen) = &found
        && let Some(problem) = &seen.problem
    {
        return Err(CliError::environment(problem.clone()));
    }
    if let Ok(seen) = &found
        && let Some(place) = seen.spec_as_seen().as_ref().and_then(RunCheckpoints::of)
    {
        return Ok(place);
    }
    let path = Utf8Path::new(name);
    if matches!(path.extension(), Some("yaml" | "yml")) && path.is_file() {
        return never_started(path);
    }
    match path.metadata() {
        Ok(m) if m.is_dir() => Ok(of_directory(path, proof_memory()?)),
        Ok(_) => match found {
            Ok(_) => Err(no_root(name)),
            Err(e) => Err(e),
        },
        Err(_) if found.is_ok() => Err(no_root(name)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(CliError::usage(format!(
            "{name}: there is no such directory, and no run of this name"
        ))),
        Err(e) => Err(CliError::environment(format!("{name}: {e}"))),
    }
}

/// A directory of no known run.
fn of_directory(root: &Utf8Path, memory: u64) -> RunCheckpoints {
    let place = unknown_run(root, memory);
    let declared = place.store.is_none().then(|| declared_at(root)).flatten();
    match declared.map(|declaration| registry::declare(&declaration)) {
        Some(trainer) => RunCheckpoints { trainer, ..place },
        None => place,
    }
}

fn no_root(name: &str) -> CliError {
    CliError::usage(format!("{name}: this run has no checkpoint root"))
}

/// The root of a configuration with which no run was started yet.
fn never_started(path: &Utf8Path) -> Result<RunCheckpoints, CliError> {
    let request = PrepareRequest {
        config: Some(path.to_owned()),
        ..PrepareRequest::default()
    };
    let run = discover(request)?.identify()?;
    let root = run.root.ok_or_else(|| no_root(path.as_str()))?;
    Ok(unknown_run(&root, run.memory))
}
