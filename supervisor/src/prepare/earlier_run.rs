//! What an earlier start of a run left in its run directory.

use camino::Utf8Path;
use std::time::Duration;
use supervise_core::spec::{DeclaredTrainer, TrainerKind};
use supervise_host::io_worker::{IoAnswer, IoClient, IoQuestion, LoadedRun};

/// How long a file system may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The trainer that the last term of a run was declared to have.
pub(super) fn declared_before(run_dir: &Utf8Path) -> Option<(TrainerKind, DeclaredTrainer)> {
    let spec = peek(run_dir)?.spec?;
    Some((spec.trainer, spec.declared?))
}

/// What the last term of a run left; `None`: it cannot be read, or another user wrote it.
pub(super) fn peek(run_dir: &Utf8Path) -> Option<Box<LoadedRun>> {
    let ask = IoQuestion::Peek {
        run_dir: run_dir.to_owned(),
    };
    let mut io_worker = IoClient::start(&std::env::current_exe().ok()?).ok()?;
    match io_worker.ask(ask, PATIENCE) {
        // A directory that another user wrote could name any command.
        Ok(IoAnswer::Loaded(loaded)) => Some(loaded).filter(|l| l.distrust.is_none()),
        _ => None,
    }
}
