//! A name on a file system that does not answer: what is known about its run without accessing it.

use super::{PATIENCE, RegisteredRun, RunInfo, absolute, io_worker, look};
use crate::error::CliError;
use crate::prepare::listed_runs;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_host::io_worker::{IoQuestion, IoWorkerError, RUN_DIR_NAME};

/// `None`: the file system answers. A process that accesses a hanging mount cannot be killed, so an I/O worker tries first.
pub(super) fn unanswered(name: &Utf8Path) -> Option<Result<RunInfo, CliError>> {
    let path = absolute(name).ok()?;
    let listed: Vec<RegisteredRun> = listed_runs().into_iter().filter(|l| is_meant(l, &path)).collect();
    let of_runs = listed.iter().map(|l| l.run_dir.clone());
    let hung = first_hung([path.clone()].into_iter().chain(of_runs))?;
    // If the name itself can be read, it decides as usual which of several runs is meant.
    let run = listed.iter().find(|l| l.run_dir == hung).or_else(|| listed.first());
    Some(match run {
        Some(l) => Ok(look(&l.run, Some(&l.run_dir))),
        None => Err(
            CliError::environment(format!("the file system under {hung} does not answer")).hint(
                "name the run by its identity (`supervise status` lists them): what lives of it can be told then",
            ),
        ),
    })
}

fn is_meant(l: &RegisteredRun, path: &Utf8Path) -> bool {
    let root = l.root.as_deref();
    let own = root.map(|root| root.join(RUN_DIR_NAME));
    [l.config.as_deref(), root, own.as_deref(), Some(l.run_dir.as_path())].contains(&Some(path))
}

fn first_hung(mut places: impl Iterator<Item = Utf8PathBuf>) -> Option<Utf8PathBuf> {
    let mut io_worker = io_worker().ok()?;
    places.find(|place| {
        // A name that was never looked up is in no cache.
        let run_dir = place.join(format!(".supervise-probe-{}", std::process::id()));
        matches!(
            io_worker.ask(IoQuestion::Peek { run_dir }, PATIENCE),
            Err(IoWorkerError::Stalled(_))
        )
    })
}
