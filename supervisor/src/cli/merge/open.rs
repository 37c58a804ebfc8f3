//! The files of a model, looked into and open.

use super::source::Found;
use crate::error::CliError;
use crate::prepare::proof_memory;
use std::io;
use supervise_checkpoint::{FileKind, Limits, inspect};
use supervise_core::checkpoint::Verdict;
use supervise_host::io_worker::FileSource;
use supervise_weights::fsdp::{Shard, gather};
use supervise_weights::{Bytes, Problem, Weights};

/// A model and its open files, in the order of [`Weights::files`].
pub(super) struct Model {
    pub(super) weights: Weights,
    pub(super) sources: Vec<Box<Bytes>>,
}

/// Opens and looks into all shards.
pub(super) fn model(found: &Found) -> Result<Model, CliError> {
    let memory = proof_memory()?;
    let limits = Limits {
        memory: usize::try_from(memory).unwrap_or(usize::MAX),
        ..Limits::default()
    };
    let mut sources: Vec<Box<Bytes>> = Vec::with_capacity(found.shards.len());
    let mut shards = Vec::with_capacity(found.shards.len());
    for name in &found.shards {
        let source = FileSource::open(&found.dir.join(name)).map_err(|e| unreadable(found, name, &e))?;
        shards.push(Shard {
            path: name.into(),
            found: inspect(FileKind::TorchZip, &source, &limits),
        });
        sources.push(Box::new(source));
    }
    let weights = gather(&shards).map_err(|e| at(found, e))?;
    Ok(Model { weights, sources })
}

fn unreadable(found: &Found, name: &str, e: &io::Error) -> CliError {
    CliError::checkpoint(Verdict::Unreadable, format!("{}/{name}: {e}", found.dir))
}

/// A problem with the directory it is in.
pub(super) fn at(found: &Found, problem: Problem) -> CliError {
    CliError::checkpoint(problem.verdict, format!("{}: {problem}", found.dir)).hint(format!(
        "`supervise verify {} --depth full` looks at every byte of it",
        found.dir
    ))
}
