//! The files of a model, looked into and open.

use super::source::{Files, Found};
use crate::error::CliError;
use crate::prepare::proof_memory;
use camino::Utf8PathBuf;
use std::io;
use supervise_checkpoint::{FileKind, Inspected, Limits, inspect};
use supervise_core::checkpoint::Verdict;
use supervise_host::io_worker::FileSource;
use supervise_weights::fsdp::{self, Shard};
use supervise_weights::{Bytes, Problem, Weights, safetensors};

/// A model and its open files, in the order of [`Weights::files`].
pub(in crate::cli) struct Model {
    pub(in crate::cli) weights: Weights,
    pub(in crate::cli) sources: Vec<Box<Bytes>>,
}

/// Opens and looks into all files.
pub(in crate::cli) fn open(found: &Found) -> Result<Model, CliError> {
    match &found.files {
        Files::Fsdp(names) => {
            let (looked, sources) = look(found, FileKind::TorchZip, names)?;
            let shards: Vec<Shard> = looked.into_iter().map(|(path, found)| Shard { path, found }).collect();
            let weights = fsdp::gather(&shards).map_err(|e| at(found, &e))?;
            Ok(Model { weights, sources })
        }
        Files::Safetensors(names) => {
            let (looked, sources) = look(found, FileKind::Safetensors, names)?;
            let weights = safetensors::gather(&looked).map_err(|e| at(found, &e))?;
            Ok(Model { weights, sources })
        }
    }
}

type Looked = Vec<(Utf8PathBuf, Inspected)>;

fn look(found: &Found, kind: FileKind, names: &[String]) -> Result<(Looked, Vec<Box<Bytes>>), CliError> {
    let limits = Limits {
        memory: usize::try_from(proof_memory()?).unwrap_or(usize::MAX),
        ..Limits::default()
    };
    let mut sources: Vec<Box<Bytes>> = Vec::with_capacity(names.len());
    let mut looked = Vec::with_capacity(names.len());
    for name in names {
        let path = found.dir.join(name);
        // Files of a cache of models are links into it; a trainer writes none.
        let path = match kind {
            FileKind::Safetensors => path.canonicalize_utf8().unwrap_or(path),
            _ => path,
        };
        let source = FileSource::open(&path).map_err(|e| {
            let verdict = match e.kind() {
                io::ErrorKind::NotFound => Verdict::Incomplete,
                _ => Verdict::Unreadable,
            };
            CliError::checkpoint(verdict, format!("{path}: {e}"))
        })?;
        looked.push((name.into(), inspect(kind, &source, &limits)));
        sources.push(Box::new(source));
    }
    Ok((looked, sources))
}

/// A problem with the directory it is in.
fn at(found: &Found, problem: &Problem) -> CliError {
    CliError::checkpoint(problem.verdict, format!("{}: {problem}", found.dir)).hint(format!(
        "`supervise verify {} --depth full` looks at every byte of it",
        found.dir
    ))
}
