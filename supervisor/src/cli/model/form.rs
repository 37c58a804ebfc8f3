//! How weights are kept, by what stands in a directory.

use super::listing::names;
use super::zero;
use crate::error::CliError;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use supervise_checkpoint::{FileKind, InspectLimits, inspect, small_files};
use supervise_core::checkpoint::Verdict;
use supervise_core::id::Step;
use supervise_host::io_worker::FileSource;
use supervise_host::model_folder::ModelFolder;

/// Directory of configuration and tokenizer, as verl names it.
const HUGGINGFACE: &str = "huggingface";
/// File of transformers' Trainer, in each of its checkpoints.
const STATE: &str = "trainer_state.json";
/// File that tells how many ranks of FSDP saved a role.
const FSDP_CONFIG: &str = "fsdp_config.json";
const METADATA: &str = ".metadata";
const END: &str = ".safetensors";
const MODEL: &str = "model.safetensors";
/// An adapter as peft names it.
const ALONE: &str = "adapter_model.safetensors";
const ADAPTER: &str = "lora_adapter/adapter_model.safetensors";
/// The checkpoint that areal overwrites.
const RECOVER: &str = "recover_checkpoint";
/// The model in a checkpoint of transformers' Trainer under FSDP, as accelerate names it.
const SHARDED: &str = "pytorch_model_fsdp_0";
/// Directories below a role's that hold a checkpoint of `torch.distributed.checkpoint`: that of verl's Megatron trainers, the same
/// up to verl 0.7, areal's.
const BELOW: [&str; 3] = ["model/dist_ckpt", "dist_ckpt", RECOVER];
/// Directories below a role's where a Megatron trainer may have written the model for Hugging Face's libraries.
const WRITTEN: [&str; 2] = ["model/huggingface", HUGGINGFACE];

/// Files of one model.
#[derive(Debug)]
pub(in crate::cli) struct FoundModel {
    /// Directory that was named, in which they are: a link in it may lead to another place in it, and nowhere else.
    pub(in crate::cli) root: Utf8PathBuf,
    /// Directory that they are in.
    pub(in crate::cli) dir: Utf8PathBuf,
    /// Step, where its directory tells.
    pub(in crate::cli) step: Option<Step>,
    /// Role, where the step has roles.
    pub(in crate::cli) role: Option<String>,
    /// Directory that configuration and tokenizer are in, if they are there.
    pub(in crate::cli) beside: Utf8PathBuf,
    /// Its files.
    pub(in crate::cli) files: WeightFiles,
}

/// Files that hold the weights, by their names.
#[derive(Debug)]
pub(in crate::cli) enum WeightFiles {
    /// Shards of FSDP, in the order of the ranks.
    Fsdp(Vec<String>),
    /// A checkpoint of `torch.distributed.checkpoint`, in this directory below.
    Distributed(&'static str),
    /// Files of DeepSpeed: states of the model, then those of the optimizer, each kind in the order of the ranks.
    Zero {
        /// How many of them hold states of the model.
        models: usize,
        names: Vec<String>,
    },
    /// Files of safetensors that are whole.
    Safetensors(Vec<String>),
}

/// Returns true for a model in a checkpoint of transformers' Trainer, beside what only the trainer needs.
pub(in crate::cli) fn is_of_trainer(found: &FoundModel) -> bool {
    found.dir.join(STATE).is_file()
}

/// Step of a checkpoint of transformers' Trainer, by its name.
pub(in crate::cli) fn trainers_step(dir: &Utf8Path) -> Option<Step> {
    let absolute = camino::absolute_utf8(dir).ok()?;
    let number = absolute.file_name()?.strip_prefix("checkpoint-")?.parse().ok()?;
    dir.join(STATE).is_file().then_some(Step(number))
}

/// The file of an adapter that lies beside a model.
pub(in crate::cli) fn adapter(found: &FoundModel) -> Option<&str> {
    match &found.files {
        WeightFiles::Safetensors(names) => {
            let own = (!names.iter().any(|n| n == ALONE) && found.dir.join(ALONE).is_file()).then_some(ALONE);
            names.iter().map(String::as_str).find(|n| *n == ADAPTER).or(own)
        }
        _ => None,
    }
}

/// Content of a directory with these names, without step and role; none where that is no weights.
pub(super) fn of(dir: &Utf8Path, inside: &[String]) -> Result<Option<FoundModel>, CliError> {
    let found = |files: WeightFiles| FoundModel {
        beside: beside(dir, &files),
        root: dir.to_owned(),
        dir: dir.to_owned(),
        step: trainers_step(dir),
        role: None,
        files,
    };
    if let Some(shards) = shards(dir, inside)? {
        return Ok(Some(found(WeightFiles::Fsdp(shards))));
    }
    let has = |name: &str| inside.iter().any(|n| n == name);
    if has(METADATA) {
        return Ok(Some(found(WeightFiles::Distributed(""))));
    }
    if has(STATE)
        && let Some(model) = exported(dir.as_str())?
    {
        return Ok(Some(model));
    }
    if has(SHARDED) && dir.join(SHARDED).join(METADATA).is_file() {
        return Ok(Some(found(WeightFiles::Distributed(SHARDED))));
    }
    if let Some(below) = zero::dir_of(dir, inside)? {
        let (models, names) = zero::files(dir, &below)?;
        return Ok(Some(found(WeightFiles::Zero { models, names })));
    }
    if !["model", "dist_ckpt", RECOVER].iter().any(|name| has(name)) {
        return Ok(None);
    }
    // A checkpoint beside them holds the state of random numbers alone.
    for written in WRITTEN {
        if let Some(model) = exported(dir.join(written).as_str())? {
            return Ok(Some(model));
        }
    }
    let whole = |below: &&&str| dir.join(below).join(METADATA).is_file();
    Ok(BELOW
        .iter()
        .find(whole)
        .map(|below| found(WeightFiles::Distributed(below))))
}

/// Directory of the files that belong to the weights in `dir`.
fn beside(dir: &Utf8Path, files: &WeightFiles) -> Utf8PathBuf {
    let own = dir.file_name().unwrap_or_default();
    let has_config = |dir: &Utf8Path| dir.join("config.json").is_file();
    let parent = dir.parent().unwrap_or(dir);
    match files {
        // Trainer writes them beside the directory with DeepSpeed's files.
        WeightFiles::Zero { names, .. } if names.iter().any(|n| n.contains('/')) => dir.to_owned(),
        WeightFiles::Zero { .. } => parent.to_owned(),
        WeightFiles::Distributed(SHARDED) => dir.to_owned(),
        // As `convert` writes it, whatever its name is.
        WeightFiles::Distributed("") if dir.join(HUGGINGFACE).is_dir() => dir.join(HUGGINGFACE),
        WeightFiles::Distributed(RECOVER) => export(dir),
        WeightFiles::Distributed("") if own == RECOVER => export(parent),
        WeightFiles::Distributed("") if own == "dist_ckpt" => parent.join(HUGGINGFACE),
        WeightFiles::Distributed("model/dist_ckpt") => dir.join(WRITTEN[0]),
        // verl 0.4.0 and older keep them beside the shards.
        WeightFiles::Fsdp(_) if has_config(dir) && !has_config(&dir.join(HUGGINGFACE)) => dir.to_owned(),
        _ => dir.join(HUGGINGFACE),
    }
}

/// The newest of the models that areal writes beside its checkpoint: all have the same configuration and tokenizer.
pub(super) fn export(dir: &Utf8Path) -> Utf8PathBuf {
    let step = |name: &str| name.split_once("globalstep")?.1.parse::<u64>().ok();
    let there = names(dir).ok().flatten().unwrap_or_default();
    let newest = there.iter().filter_map(|name| Some((step(name)?, name))).max();
    newest.map_or_else(|| dir.join(HUGGINGFACE), |(_, name)| dir.join(name))
}

/// Weights that are whole: a file of safetensors, or a directory of a model.
pub(in crate::cli) fn exported(name: &str) -> Result<Option<FoundModel>, CliError> {
    crate::cli::not_empty(name, "RUN|DIR")?;
    let path = Utf8Path::new(name);
    let found = |dir: &Utf8Path, files| FoundModel {
        root: dir.to_owned(),
        dir: dir.to_owned(),
        step: trainers_step(dir),
        role: None,
        beside: dir.to_owned(),
        files: WeightFiles::Safetensors(files),
    };
    if let (Some(name), true) = (path.file_name(), path.as_str().ends_with(END) && path.is_file()) {
        let dir = path
            .parent()
            .filter(|d| !d.as_str().is_empty())
            .unwrap_or(Utf8Path::new("."));
        return Ok(Some(found(dir, vec![name.to_owned()])));
    }
    let Some(names) = names(path)? else { return Ok(None) };
    let mut files: Vec<String> = match names.iter().find(|n| n.ends_with(".safetensors.index.json")) {
        Some(index) => {
            let folder = ModelFolder::named(path).map_err(|e| super::not_opened(path, e))?;
            let name = Utf8Path::new(index);
            let index = path.join(index);
            let source = FileSource::from(folder.open(name).map_err(|e| super::not_opened(&index, e))?);
            let looked = inspect(FileKind::SafetensorsIndex, &source, &super::limits()?);
            if let Some(bad) = looked.findings.iter().find(|f| f.effect() != Verdict::Whole) {
                return Err(CliError::checkpoint(bad.effect(), format!("{index}: {bad}")));
            }
            looked.facts.shards
        }
        // Some models have the same weights again under another name beside it.
        None if names.iter().any(|n| n == MODEL) => vec![MODEL.to_owned()],
        None => names.into_iter().filter(|n| n.ends_with(END)).collect(),
    };
    files.sort();
    // An adapter belongs to the model that it lies beside.
    if path.join(ADAPTER).is_file() {
        files.push(ADAPTER.to_owned());
    }
    Ok((!files.is_empty()).then(|| found(path, files)))
}

/// The shards of the model among these names, in the order of the ranks.
fn shards(dir: &Utf8Path, names: &[String]) -> Result<Option<Vec<String>>, CliError> {
    let mut worlds: BTreeMap<u64, BTreeMap<u64, &String>> = BTreeMap::new();
    for name in names {
        if let Some((world, rank)) = shard(name) {
            worlds.entry(world).or_default().insert(rank, name);
        }
    }
    let world = match worlds.len() {
        0 => return Ok(None),
        1 => worlds.keys().next().copied().unwrap_or_default(),
        _ => said_world(dir).filter(|w| worlds.contains_key(w)).ok_or_else(|| {
            let sizes: BTreeSet<u64> = worlds.keys().copied().collect();
            CliError::checkpoint(
                Verdict::Unknown,
                format!("{dir}: it holds shards of several world sizes ({sizes:?}), and fsdp_config.json does not tell which count"),
            )
        })?,
    };
    let ranks = worlds.remove(&world).unwrap_or_default();
    if let Some(gone) = (0..world).find(|r| !ranks.contains_key(r)) {
        let text = format!("{dir}: model_world_size_{world}_rank_{gone}.pt is missing");
        return Err(CliError::checkpoint(Verdict::Incomplete, text));
    }
    Ok(Some(ranks.range(..world).map(|(_, name)| (*name).clone()).collect()))
}

/// World size and rank of a shard's name.
fn shard(name: &str) -> Option<(u64, u64)> {
    let (world, rank) = name
        .strip_prefix("model_world_size_")?
        .strip_suffix(".pt")?
        .split_once("_rank_")?;
    Some((world.parse().ok()?, rank.parse().ok()?))
}

/// World size of the file that verl writes beside its shards.
fn said_world(dir: &Utf8Path) -> Option<u64> {
    let source = FileSource::open(&dir.join(FSDP_CONFIG)).ok()?;
    let said = small_files::read_fsdp_config(&source, &InspectLimits::default()).ok()?;
    Some(said.world_size.into())
}

/// Refuses shards of FSDP whose own file says something else of them, as a proof does. Releases before 0.5 wrote none.
pub(super) fn is_as_said(dir: &Utf8Path, ranks: usize) -> Result<(), CliError> {
    let path = dir.join(FSDP_CONFIG);
    let refused = |verdict, what: String| {
        let hint = format!("`supervise verify {dir}` tells more");
        Err(CliError::checkpoint(verdict, format!("{path}: {what}")).hint(hint))
    };
    let source = match FileSource::open(&path) {
        Ok(source) => source,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        // As in a proof: what is no file is not followed, and the file is not there.
        Err(_) if path.symlink_metadata().is_ok_and(|m| !m.is_file()) => {
            return refused(
                Verdict::Incomplete,
                "it is a link, or no file: it is not followed".to_owned(),
            );
        }
        Err(e) => return refused(Verdict::Unreadable, e.to_string()),
    };
    match small_files::read_fsdp_config(&source, &super::limits()?) {
        Err(finding) => refused(finding.effect(), finding.to_string()),
        Ok(said) if said.world_size as usize != ranks => {
            let what = format!(
                "it says that {} ranks saved the role, and the shards are those of {ranks}",
                said.world_size
            );
            refused(Verdict::Incomplete, what)
        }
        Ok(_) => Ok(()),
    }
}
