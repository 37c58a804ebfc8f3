//! Refuses to act on a journal of a newer release: its decisions are unknown here.

use crate::error::CliError;
use camino::Utf8Path;
use supervise_core::journal::VERSION;
use supervise_host::io_worker::NewerLine;

/// Refuses to act on a run whose journal holds a line of a newer format.
pub(crate) fn newer_journal(run_dir: &Utf8Path, found: &NewerLine) -> CliError {
    let NewerLine { version, term, line } = found;
    let release = env!("CARGO_PKG_VERSION");
    CliError::journal(format!(
        "{run_dir}/journal/{term}.jsonl line {line} has format version {version}, and supervise {release} reads versions up to {VERSION}: a newer release wrote it, and what it decided there is not known. Nothing was started or changed"
    ))
    .hint("use that release, or a newer one, for this run; `supervise status`, `journal` and `checkpoints` of this one show the rest")
    .hint(format!(
        "or begin a new run on the same checkpoints, which forgets retries, holds and excluded steps: mv '{run_dir}' '{run_dir}.newer'"
    ))
}
