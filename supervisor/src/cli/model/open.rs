//! Opens the files of a model.

use super::form::{self, FoundModel, WeightFiles};
use crate::error::CliError;
use crate::prepare::proof_memory;
use crate::render::merge::LinkedFile;
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use supervise_checkpoint::{FileKind, InspectLimits, InspectedFile, inspect, inspect_described};
use supervise_core::checkpoint::Verdict;
use supervise_host::io_worker::FileSource;
use supervise_host::model_folder::ModelFolder;
use supervise_weights::fsdp::{self, FsdpShard};
use supervise_weights::hf::{self, HfPlan, ModelConfig, Options};
use supervise_weights::{ModelError, ModelWeights, SharedSource, dcp, deepspeed, megatron, safetensors};

/// A model and its open files, in the order of `ModelWeights::files`.
pub(in crate::cli) struct OpenModel {
    pub(in crate::cli) weights: ModelWeights,
    pub(in crate::cli) sources: Vec<Box<SharedSource>>,
    is_megatron: bool,
    /// Notes on other contents of the checkpoint.
    pub(in crate::cli) notes: Vec<String>,
    pub(in crate::cli) links: Vec<LinkedFile>,
}

impl OpenModel {
    /// Combines two models: the other's tensors are added to its own.
    pub(in crate::cli) fn beside(mut self, other: Self) -> Self {
        let first = self.weights.files.len();
        self.weights.files.extend(other.weights.files);
        self.sources.extend(other.sources);
        self.notes.extend(other.notes);
        self.links.extend(other.links);
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

#[derive(Default, Clone, Copy)]
pub(in crate::cli) struct ModelOpenOptions<'a> {
    /// Prefix of the model's names, if it is not to be detected.
    pub(in crate::cli) prefix: Option<&'a str>,
    /// Compare replicas of several FSDP ranks.
    pub(in crate::cli) replicas: bool,
    /// Set if something is made of the weights: links are followed only as far as this directory allows.
    pub(in crate::cli) folder: Option<&'a ModelFolder>,
}

pub(in crate::cli) fn open(found: &FoundModel, how: ModelOpenOptions<'_>) -> Result<OpenModel, CliError> {
    let ModelOpenOptions {
        prefix,
        replicas,
        folder,
    } = how;
    let model = |weights: ModelWeights, sources| OpenModel {
        weights,
        sources,
        is_megatron: false,
        notes: Vec::new(),
        links: Vec::new(),
    };
    if prefix.is_some() && !matches!(found.files, WeightFiles::Distributed(_)) {
        let text = format!(
            "--prefix: {} is no checkpoint of torch.distributed.checkpoint",
            found.dir
        );
        return Err(CliError::usage(text));
    }
    match &found.files {
        WeightFiles::Fsdp(names) => {
            form::is_as_said(&found.dir, names.len())?;
            let open = shards(&found.dir, names)?;
            let weights = match replicas {
                true => fsdp::gather_replicas(&open.shards),
                false => fsdp::gather(&open.shards),
            };
            Ok(model(weights.map_err(|e| at(found, &e))?, open.sources))
        }
        WeightFiles::Distributed(below) => distributed(found, below, prefix),
        WeightFiles::Zero { models, names } => {
            let open = shards(&found.dir, names)?;
            let source = deepspeed::ZeroSource {
                shards: &open.shards,
                sources: &open.sources,
                models: *models,
                limits: &open.limits,
            };
            let weights = deepspeed::gather(source).map_err(|e| at(found, &e))?;
            Ok(model(weights, open.sources))
        }
        WeightFiles::Safetensors(names) => {
            let looked = OpenModelFiles::at(found, names, folder)?;
            let weights = safetensors::gather(&looked.files).map_err(|e| at(found, &e))?;
            Ok(OpenModel {
                links: looked.links,
                ..model(weights, looked.sources)
            })
        }
    }
}

/// The tensors with their written names.
pub(in crate::cli) fn plan(model: &OpenModel, config: &ModelConfig, options: Options) -> Result<HfPlan, ModelError> {
    match model.is_megatron && !options.keep_names {
        true => megatron::plan(&model.weights, config, options),
        false => hf::plan(&model.weights, config, options),
    }
}

/// Opens the table, then the files with chunks of the model.
fn distributed(found: &FoundModel, below: &str, prefix: Option<&str>) -> Result<OpenModel, CliError> {
    let limits = InspectLimits {
        // Every chunk must be found.
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
    let (mut sources, mut shards): (Vec<Box<SharedSource>>, Vec<FsdpShard>) = Default::default();
    for name in choice.files(table) {
        let source = opened(&dir.join(name))?;
        shards.push(FsdpShard {
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
    Ok(OpenModel {
        weights,
        sources,
        is_megatron,
        notes: if left.is_empty() { Vec::new() } else { vec![note] },
        links: Vec::new(),
    })
}

pub(in crate::cli) fn limits() -> Result<InspectLimits, CliError> {
    Ok(InspectLimits {
        memory: usize::try_from(proof_memory()?).unwrap_or(usize::MAX),
        ..InspectLimits::default()
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

/// `torch.save` files of all ranks in one directory.
struct OpenShards {
    shards: Vec<FsdpShard>,
    sources: Vec<Box<SharedSource>>,
    limits: InspectLimits,
}

fn shards(dir: &Utf8Path, names: &[String]) -> Result<OpenShards, CliError> {
    let limits = limits()?;
    let mut out = OpenShards {
        shards: Vec::with_capacity(names.len()),
        sources: Vec::with_capacity(names.len()),
        limits,
    };
    for name in names {
        let source = opened(&dir.join(name))?;
        out.shards.push(FsdpShard {
            path: name.into(),
            found: inspect(FileKind::TorchZip, &source, &out.limits),
        });
        out.sources.push(Box::new(source));
    }
    Ok(out)
}

struct OpenModelFiles {
    files: Vec<(Utf8PathBuf, InspectedFile)>,
    sources: Vec<Box<SharedSource>>,
    links: Vec<LinkedFile>,
}

impl OpenModelFiles {
    /// Opens and reads them. Without a folder every link is followed, because nothing is written from it.
    fn at(found: &FoundModel, names: &[String], folder: Option<&ModelFolder>) -> Result<Self, CliError> {
        let limits = limits()?;
        let mut out = Self {
            files: Vec::with_capacity(names.len()),
            sources: Vec::with_capacity(names.len()),
            links: Vec::new(),
        };
        for name in names {
            let path = found.dir.join(name);
            let source = match folder {
                Some(folder) => {
                    let opened = folder.open(Utf8Path::new(name));
                    let opened = opened.map_err(|e| super::not_opened(&path, e))?;
                    out.links.extend(super::linked(name, &opened));
                    FileSource::from(opened)
                }
                None => opened(&path.canonicalize_utf8().unwrap_or(path))?,
            };
            out.files
                .push((name.into(), inspect(FileKind::Safetensors, &source, &limits)));
            out.sources.push(Box::new(source));
        }
        Ok(out)
    }
}

fn at(found: &FoundModel, problem: &ModelError) -> CliError {
    CliError::checkpoint(problem.verdict, format!("{}: {problem}", found.dir)).hint(format!(
        "`supervise verify {} --depth full` looks at every byte of it",
        found.dir
    ))
}
