//! The directory that is meant: a role of a step, of a root, of a run.

use crate::cli::checkpoints;
use crate::error::{CliError, ErrorKind};
use crate::printer::Meter;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use supervise_checkpoint::{FileKind, Limits, inspect};
use supervise_core::checkpoint::{CheckpointSummary, Depth, Verdict};
use supervise_core::id::Step;
use supervise_host::io_worker::{FileSource, look_at_run};

const END: &str = ".safetensors";
const MODEL: &str = "model.safetensors";

/// Files of one model.
#[derive(Debug)]
pub(in crate::cli) struct Found {
    /// Directory that they are in.
    pub(in crate::cli) dir: Utf8PathBuf,
    /// Step, where its directory tells.
    pub(in crate::cli) step: Option<Step>,
    /// Role, where the step has roles.
    pub(in crate::cli) role: Option<String>,
    /// Its files.
    pub(in crate::cli) files: Files,
}

/// Files that hold the weights, by their names.
#[derive(Debug)]
pub(in crate::cli) enum Files {
    /// Shards of FSDP, in the order of the ranks.
    Fsdp(Vec<String>),
    /// Files of safetensors that are whole.
    Safetensors(Vec<String>),
}

/// Finds what a name of the command line means.
pub(in crate::cli) fn find(
    name: &str,
    step: Option<u64>,
    role: Option<&str>,
    meter: &mut Meter,
) -> Result<Found, CliError> {
    crate::cli::not_empty(name, "RUN|DIR")?;
    let path = Utf8Path::new(name);
    if let Some(found) = in_step(path, role)? {
        return match step {
            Some(n) if found.step != Some(Step(n)) => {
                Err(CliError::usage(format!("{name}: it is one step, and not step {n}"))
                    .hint("name the checkpoint root or the run with --step"))
            }
            _ => Ok(found),
        };
    }
    let place = checkpoints::place(name)?;
    let scan = look_at_run(&place, Depth::Structure, &mut |read| {
        meter.tell(read, None);
        true
    });
    if let Some(why) = scan.unreadable {
        return Err(CliError::environment(format!("{}: {why}", place.root)));
    }
    let chosen = match step {
        Some(n) => scan.steps.iter().find(|c| c.step == Step(n)),
        None => scan.steps.iter().find(|c| c.is_proven(Depth::Structure)),
    };
    let Some(chosen) = chosen else {
        let what = match step {
            Some(n) => format!("{}: there is no step {n}", place.root),
            None => format!("{}: no step in it is proven", place.root),
        };
        let kind = if step.is_some() {
            ErrorKind::Usage
        } else {
            ErrorKind::NoProof
        };
        return Err(CliError::new(kind, what).hint(format!("`supervise checkpoints {name}` lists what is there")));
    };
    proven(chosen)?;
    let dir = match chosen.id.0.is_absolute() {
        true => chosen.id.0.clone(),
        false => place.root.join(&chosen.id.0),
    };
    in_step(&dir, role)?.ok_or_else(|| unknown(&dir))
}

fn proven(step: &CheckpointSummary) -> Result<(), CliError> {
    if step.verdict == Verdict::Whole {
        return Ok(());
    }
    let why = step.why().map(|f| format!(": {f}")).unwrap_or_default();
    Err(CliError::checkpoint(
        step.verdict,
        format!("{}: it is {}{why}", step.id, step.verdict),
    ))
}

/// A role's directory, or that of a step; none where it is neither.
fn in_step(dir: &Utf8Path, role: Option<&str>) -> Result<Option<Found>, CliError> {
    let Some(names) = names(dir)? else { return Ok(None) };
    let here = shards(dir, &names)?;
    if let Some(shards) = here {
        let own = dir.file_name().filter(|_| step_of(dir).is_none()).map(str::to_owned);
        if role.is_some() && role != own.as_deref() {
            let wanted = role.unwrap_or_default();
            return Err(CliError::usage(format!(
                "{dir}: it has no roles, so there is no {wanted} in it"
            )));
        }
        let step = step_of(dir).or_else(|| dir.parent().and_then(step_of));
        return Ok(Some(Found {
            dir: dir.to_owned(),
            step,
            role: own,
            files: Files::Fsdp(shards),
        }));
    }
    let mut roles = BTreeMap::new();
    for name in &names {
        let below = dir.join(name);
        if let Some(inside) = self::names(&below)?
            && let Some(shards) = shards(&below, &inside)?
        {
            roles.insert(name.as_str(), shards);
        }
    }
    if roles.is_empty() || step_of(dir).is_none() {
        return Ok(None);
    }
    let only = (roles.len() == 1).then(|| roles.keys().copied().next()).flatten();
    let wanted = role.or(only).unwrap_or("actor");
    match roles.remove_entry(wanted) {
        Some((role, shards)) => Ok(Some(Found {
            dir: dir.join(role),
            step: step_of(dir),
            role: Some(role.to_owned()),
            files: Files::Fsdp(shards),
        })),
        None => {
            let there: Vec<&str> = roles.into_keys().collect();
            Err(CliError::usage(format!("{dir}: it has no role {wanted}"))
                .hint(format!("its roles are {}: name one with --role", there.join(", "))))
        }
    }
}

fn step_of(dir: &Utf8Path) -> Option<Step> {
    let absolute = camino::absolute_utf8(dir).ok()?;
    absolute
        .file_name()?
        .strip_prefix("global_step_")?
        .parse()
        .ok()
        .map(Step)
}

/// The names in a directory; none where it is no directory, or nothing of that name is there.
fn names(dir: &Utf8Path) -> Result<Option<Vec<String>>, CliError> {
    let entries = match dir.read_dir_utf8() {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => return Err(CliError::environment(format!("{dir}: {e}"))),
    };
    // A name that is no text is none that a trainer writes.
    let names = entries.filter(|e| !matches!(e, Err(e) if e.kind() == io::ErrorKind::InvalidData));
    let names: io::Result<Vec<String>> = names.map(|e| Ok(e?.file_name().to_owned())).collect();
    names
        .map(Some)
        .map_err(|e| CliError::environment(format!("{dir}: {e}")))
}

/// Weights that are whole: a file of safetensors, or a directory of a model.
pub(in crate::cli) fn exported(name: &str) -> Result<Option<Found>, CliError> {
    crate::cli::not_empty(name, "RUN|DIR")?;
    let path = Utf8Path::new(name);
    let found = |dir: &Utf8Path, files| Found {
        dir: dir.to_owned(),
        step: None,
        role: None,
        files: Files::Safetensors(files),
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
            let index = path.join(index);
            let source = FileSource::open(&index).map_err(|e| CliError::environment(format!("{index}: {e}")))?;
            let looked = inspect(FileKind::SafetensorsIndex, &source, &Limits::default());
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
    let text = supervise_host::io_worker::read_small(&dir.join("fsdp_config.json"), 1 << 20).ok()?;
    let value: serde_json::Value = serde_json::from_slice(&text).ok()?;
    value.get("world_size")?.as_u64()
}

fn unknown(dir: &Utf8Path) -> CliError {
    CliError::checkpoint(Verdict::Unknown, format!("{dir}: there are no shards of FSDP in it"))
}
