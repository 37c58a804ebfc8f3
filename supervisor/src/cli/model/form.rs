//! How weights are stored, judging by the names in a directory.

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
/// File in each checkpoint of transformers' Trainer.
const STATE: &str = "trainer_state.json";
/// File with the number of FSDP ranks that saved a role.
const FSDP_CONFIG: &str = "fsdp_config.json";
const METADATA: &str = ".metadata";
const END: &str = ".safetensors";
const MODEL: &str = "model.safetensors";
/// An adapter, as peft names it.
const ALONE: &str = "adapter_model.safetensors";
const ADAPTER: &str = "lora_adapter/adapter_model.safetensors";
/// The checkpoint that AReaL overwrites.
const RECOVER: &str = "recover_checkpoint";
/// The model in a Trainer checkpoint under FSDP, as accelerate names it.
const SHARDED: &str = "pytorch_model_fsdp_0";
/// Subdirectories of a role that may hold a `torch.distributed.checkpoint`: of verl's Megatron trainers, of verl up to 0.7, of
/// AReaL.
const BELOW: [&str; 3] = ["model/dist_ckpt", "dist_ckpt", RECOVER];
/// Subdirectories of a role in which a Megatron trainer may have written a Hugging Face model.
const WRITTEN: [&str; 2] = ["model/huggingface", HUGGINGFACE];

#[derive(Debug)]
pub(in crate::cli) struct FoundModel {
    /// The named directory: a link inside it may lead to another place inside it, but not out of it.
    pub(in crate::cli) root: Utf8PathBuf,
    pub(in crate::cli) dir: Utf8PathBuf,
    /// The step, if the name of its directory shows it.
    pub(in crate::cli) step: Option<Step>,
    pub(in crate::cli) role: Option<String>,
    pub(in crate::cli) beside: Utf8PathBuf,
    pub(in crate::cli) files: WeightFiles,
}

/// The files with the weights, by name.
#[derive(Debug)]
pub(in crate::cli) enum WeightFiles {
    /// Shards of FSDP in rank order.
    Fsdp(Vec<String>),
    /// A `torch.distributed.checkpoint` in this subdirectory.
    Distributed(&'static str),
    /// Files of DeepSpeed: first model states, then optimizer states, each in rank order.
    Zero {
        /// How many of them hold model states.
        models: usize,
        names: Vec<String>,
    },
    /// Complete safetensors files.
    Safetensors(Vec<String>),
}

/// Returns true for a model in a checkpoint of transformers' Trainer.
pub(in crate::cli) fn is_of_trainer(found: &FoundModel) -> bool {
    found.dir.join(STATE).is_file()
}

pub(in crate::cli) fn trainers_step(dir: &Utf8Path) -> Option<Step> {
    let absolute = camino::absolute_utf8(dir).ok()?;
    let number = absolute.file_name()?.strip_prefix("checkpoint-")?.parse().ok()?;
    dir.join(STATE).is_file().then_some(Step(number))
}

pub(in crate::cli) fn adapter(found: &FoundModel) -> Option<&str> {
    match &found.files {
        WeightFiles::Safetensors(names) => {
            let own = (!names.iter().any(|n| n == ALONE) && found.dir.join(ALONE).is_file()).then_some(ALONE);
            names.iter().map(String::as_str).find(|n| *n == ADAPTER).or(own)
        }
        _ => None,
    }
}

/// The model in a directory with these names, without step and role; `None` if there are no weights.
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
    // The checkpoint next to them then holds only random states.
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
        // Trainer writes them next to the directory with DeepSpeed's files.
        WeightFiles::Zero { names, .. } if names.iter().any(|n| n.contains('/')) => dir.to_owned(),
        WeightFiles::Zero { .. } => parent.to_owned(),
        WeightFiles::Distributed(SHARDED) => dir.to_owned(),
        // As written by `convert`, whatever its name.
        WeightFiles::Distributed("") if dir.join(HUGGINGFACE).is_dir() => dir.join(HUGGINGFACE),
        WeightFiles::Distributed(RECOVER) => export(dir),
        WeightFiles::Distributed("") if own == RECOVER => export(parent),
        WeightFiles::Distributed("") if own == "dist_ckpt" => parent.join(HUGGINGFACE),
        WeightFiles::Distributed("model/dist_ckpt") => dir.join(WRITTEN[0]),
        // verl up to 0.4.0 writes them next to the shards.
        WeightFiles::Fsdp(_) if has_config(dir) && !has_config(&dir.join(HUGGINGFACE)) => dir.to_owned(),
        _ => dir.join(HUGGINGFACE),
    }
}

/// The newest model that AReaL exported next to its checkpoint: all have the same configuration and tokenizer.
pub(super) fn export(dir: &Utf8Path) -> Utf8PathBuf {
    let step = |name: &str| name.split_once("globalstep")?.1.parse::<u64>().ok();
    let there = names(dir).ok().flatten().unwrap_or_default();
    let newest = there.iter().filter_map(|name| Some((step(name)?, name))).max();
    newest.map_or_else(|| dir.join(HUGGINGFACE), |(_, name)| dir.join(name))
}

/// Complete weights: a safetensors file, or the directory of a model.
pub(in crate::cli) fn exported(name: &str) -> Result<Option<FoundModel>, CliError> {
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
        // Some models have the same weights under a second name next to it.
        None if names.iter().any(|n| n == MODEL) => vec![MODEL.to_owned()],
        None => names.into_iter().filter(|n| n.ends_with(END)).collect(),
    };
    files.sort();
    // An adapter belongs to the model next to it.
    if path.join(ADAPTER).is_file() {
        files.push(ADAPTER.to_owned());
    }
    Ok((!files.is_empty()).then(|| found(path, files)))
}

/// The model's shards among these names, in rank order.
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

/// World size and rank in a shard's name.
fn shard(name: &str) -> Option<(u64, u64)> {
    let (world, rank) = name
        .strip_prefix("model_world_size_")?
        .strip_suffix(".pt")?
        .split_once("_rank_")?;
    Some((world.parse().ok()?, rank.parse().ok()?))
}

/// World size in the file that verl writes next to its shards.
fn said_world(dir: &Utf8Path) -> Option<u64> {
    let source = FileSource::open(&dir.join(FSDP_CONFIG)).ok()?;
    let said = small_files::read_fsdp_config(&source, &InspectLimits::default()).ok()?;
    Some(said.world_size.into())
}

/// Refuses FSDP shards that contradict the file next to them, as a proof does. verl before 0.5 wrote none.
pub(super) fn is_as_said(dir: &Utf8Path, ranks: usize) -> Result<(), CliError> {
    let path = dir.join(FSDP_CONFIG);
    let refused = |verdict, what: String| {
        let hint = format!("`supervise verify {dir}` tells more");
        Err(CliError::checkpoint(verdict, format!("{path}: {what}")).hint(hint))
    };
    let source = match FileSource::open(&path) {
        Ok(source) => source,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        // As in a proof: anything but a file is not followed, and counts as missing.
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
