//! The files of a model, looked into and open.

use super::form::{Files, Found};
use crate::error::CliError;
use crate::prepare::proof_memory;
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use supervise_checkpoint::{FileKind, Inspected, Limits, inspect, inspect_described};
use supervise_core::checkpoint::Verdict;
use supervise_host::io_worker::FileSource;
use supervise_weights::fsdp::{self, Shard};
use supervise_weights::hf::{self, ModelConfig, Options, Plan};
use supervise_weights::{Bytes, Problem, Weights, dcp, megatron, safetensors, zero};

/// A model and its open files, in the order of [`Weights::files`].
pub(in crate::cli) struct Model {
    pub(in crate::cli) weights: Weights,
    pub(in crate::cli) sources: Vec<Box<Bytes>>,
    /// Its names are Megatron's.
    is_megatron: bool,
    /// Notes on the checkpoint's other content.
    pub(in crate::cli) notes: Vec<String>,
}

impl Model {
    /// Both as one: the tensors of another stand beside its own.
    pub(in crate::cli) fn beside(mut self, other: Self) -> Self {
        let first = self.weights.files.len();
        self.weights.files.extend(other.weights.files);
        self.sources.extend(other.sources);
        self.notes.extend(other.notes);
        self.weights
            .tensors
            .extend(other.weights.tensors.into_iter().map(|mut tensor| {
                for chunk in tensor.chunks.iter_mut().chain(tensor.copies.iter_mut().flatten()) {
                    chunk.file += first;
                }
                tensor
            }));
        self.weights.tensors.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }
}

/// All that is said of how the files are to be read.
#[derive(Default, Clone, Copy)]
pub(in crate::cli) struct Opening<'a> {
    /// Beginning of the model's names, where it is not to be found out.
    pub(in crate::cli) prefix: Option<&'a str>,
    /// Replicas that several ranks of FSDP hold are to be compared.
    pub(in crate::cli) replicas: bool,
}

/// Opens and looks into all files.
pub(in crate::cli) fn open(found: &Found, how: Opening<'_>) -> Result<Model, CliError> {
    let Opening { prefix, replicas } = how;
    let model = |weights: Weights, sources| Model {
        weights,
        sources,
        is_megatron: false,
        notes: Vec::new(),
    };
    if prefix.is_some() && !matches!(found.files, Files::Distributed(_)) {
        let text = format!(
            "--prefix: {} is no checkpoint of torch.distributed.checkpoint",
            found.dir
        );
        return Err(CliError::usage(text));
    }
    match &found.files {
        Files::Fsdp(names) => {
            let (looked, sources) = look(found, FileKind::TorchZip, names)?;
            let shards: Vec<Shard> = looked.into_iter().map(|(path, found)| Shard { path, found }).collect();
            let weights = match replicas {
                true => fsdp::gather_replicas(&shards),
                false => fsdp::gather(&shards),
            };
            Ok(model(weights.map_err(|e| at(found, &e))?, sources))
        }
        Files::Distributed(below) => distributed(found, below, prefix),
        Files::Zero { models, names } => {
            let open = shards(&found.dir, names)?;
            let source = zero::Source {
                shards: &open.shards,
                sources: &open.sources,
                models: *models,
                limits: &open.limits,
            };
            let weights = zero::gather(source).map_err(|e| at(found, &e))?;
            Ok(model(weights, open.sources))
        }
        Files::Safetensors(names) => {
            let (looked, sources) = look(found, FileKind::Safetensors, names)?;
            let weights = safetensors::gather(&looked).map_err(|e| at(found, &e))?;
            Ok(model(weights, sources))
        }
    }
}

/// The tensors under the names that they are written with.
pub(in crate::cli) fn plan(model: &Model, config: &ModelConfig, options: Options) -> Result<Plan, Problem> {
    match model.is_megatron && !options.keep_names {
        true => megatron::plan(&model.weights, config, options),
        false => hf::plan(&model.weights, config, options),
    }
}

/// The table, then the files with chunks of the model.
fn distributed(found: &Found, below: &str, prefix: Option<&str>) -> Result<Model, CliError> {
    let limits = Limits {
        // Each chunk has to be found.
        all_parts: true,
        ..limits()?
    };
    let dir = match below {
        "" => found.dir.clone(),
        _ => found.dir.join(below),
    };
    let metadata = inspect(FileKind::DcpMetadata, &opened(&dir.join(".metadata"))?, &limits);
    let table = dcp::table(&metadata).map_err(|e| at(found, &e))?;
    let is_megatron = prefix.is_none() && dcp::is_megatron(table);
    let choice = match is_megatron {
        true => Ok(dcp::choose_megatron(table)),
        false => dcp::choose(table, prefix),
    };
    let choice = choice.map_err(|e| {
        CliError::checkpoint(e.verdict, format!("{dir}: {e}"))
            .hint("`supervise merge --prefix NAME` says what the model's names begin with, such as `model.`")
    })?;
    let (mut sources, mut shards): (Vec<Box<Bytes>>, Vec<Shard>) = Default::default();
    for name in choice.files(table) {
        let source = opened(&dir.join(name))?;
        shards.push(Shard {
            path: name.into(),
            found: match metadata.description.as_deref() {
                Some(description) => inspect_described(FileKind::Distcp, &source, description, name, &limits),
                None => inspect(FileKind::Distcp, &source, &limits),
            },
        });
        sources.push(Box::new(source));
    }
    let weights = dcp::gather(table, &choice, &shards).map_err(|e| at(found, &e))?;
    let left: Vec<String> = choice
        .left_out
        .iter()
        .map(|(head, n)| format!("{head} ({n})"))
        .collect();
    let note = format!("tensors that are not the model's: {}", left.join(", "));
    Ok(Model {
        weights,
        sources,
        is_megatron,
        notes: if left.is_empty() { Vec::new() } else { vec![note] },
    })
}

/// Bounds on what is looked into.
pub(in crate::cli) fn limits() -> Result<Limits, CliError> {
    Ok(Limits {
        memory: usize::try_from(proof_memory()?).unwrap_or(usize::MAX),
        ..Limits::default()
    })
}

fn opened(path: &Utf8Path) -> Result<FileSource, CliError> {
    FileSource::open(path).map_err(|e| {
        if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
            return CliError::environment(format!("{path}: {e}"))
                .hint("it takes one open file for each file of the checkpoint: raise the hard limit (`ulimit -Hn`)");
        }
        let verdict = match e.kind() {
            io::ErrorKind::NotFound => Verdict::Incomplete,
            _ => Verdict::Unreadable,
        };
        CliError::checkpoint(verdict, format!("{path}: {e}"))
    })
}

/// Files of `torch.save` of all ranks of one directory.
struct Shards {
    shards: Vec<Shard>,
    sources: Vec<Box<Bytes>>,
    limits: Limits,
}

/// Opens and looks into them.
fn shards(dir: &Utf8Path, names: &[String]) -> Result<Shards, CliError> {
    let limits = limits()?;
    let mut out = Shards {
        shards: Vec::with_capacity(names.len()),
        sources: Vec::with_capacity(names.len()),
        limits,
    };
    for name in names {
        let source = opened(&dir.join(name))?;
        out.shards.push(Shard {
            path: name.into(),
            found: inspect(FileKind::TorchZip, &source, &out.limits),
        });
        out.sources.push(Box::new(source));
    }
    Ok(out)
}

type Looked = Vec<(Utf8PathBuf, Inspected)>;

fn look(found: &Found, kind: FileKind, names: &[String]) -> Result<(Looked, Vec<Box<Bytes>>), CliError> {
    let limits = limits()?;
    let mut sources: Vec<Box<Bytes>> = Vec::with_capacity(names.len());
    let mut looked = Vec::with_capacity(names.len());
    for name in names {
        let path = found.dir.join(name);
        // Files of a cache of models are links into it; a trainer writes none.
        let path = match kind {
            FileKind::Safetensors => path.canonicalize_utf8().unwrap_or(path),
            _ => path,
        };
        let source = opened(&path)?;
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
