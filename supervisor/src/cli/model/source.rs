//! Finds the directory of a named model: a role of a step, of a root, of a run.

use super::form::{self, FoundModel, WeightFiles};
use super::listing::{self, names};
use crate::cli::checkpoints;
use crate::error::{CliError, ErrorKind};
use crate::printer::ByteMeter;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_checkpoint::latest_file::GENERATIONS;
use supervise_core::checkpoint::kind::CkptKind;
use supervise_core::checkpoint::{CheckpointSummary, Depth, Verdict};
use supervise_core::id::Step;
use supervise_host::io_worker::{live_dir, look_at_run};

/// Directory of the roles in an AReaL generation.
const PAYLOADS: &str = "payloads";

/// Finds the model that a name on the command line means.
pub(in crate::cli) fn find(
    name: &str,
    step: Option<u64>,
    role: Option<&str>,
    meter: &mut ByteMeter,
) -> Result<FoundModel, CliError> {
    let path = Utf8Path::new(name);
    if let Some(mut found) = in_step(path, role, None)? {
        found.root = path.to_owned();
        return match step {
            Some(n) if found.step != Some(Step(n)) => {
                Err(CliError::usage(format!("{name}: it is one step, and not step {n}"))
                    .hint("name the checkpoint root or the run with --step"))
            }
            _ => Ok(found),
        };
    }
    let (dir, step, root) = chosen(name, step, meter)?;
    let mut found = in_step(&dir, role, Some(step))?.ok_or_else(|| unknown(&dir))?;
    found.root.clone_from(&root);
    // Copies and generations are separate from exports.
    let exports = found.role.as_ref().map(|role| form::export(&root.join(role)));
    if let (Some(exports), false) = (exports.filter(|dir| dir.is_dir()), found.beside.is_dir()) {
        found.beside = exports;
    }
    Ok(found)
}

/// The directory of a step: the named one, or the selected step of a run or root.
pub(in crate::cli) fn step_dir(
    name: &str,
    step: Option<u64>,
    meter: &mut ByteMeter,
) -> Result<(Utf8PathBuf, Step), CliError> {
    match step_of(Utf8Path::new(name)) {
        Some(own) if step.is_none_or(|n| Step(n) == own) => Ok((name.into(), own)),
        Some(_) => Err(CliError::usage(format!(
            "{name}: it is one step, and not step {}",
            step.unwrap_or_default()
        ))),
        None => chosen(name, step, meter).map(|(dir, step, _)| (dir, step)),
    }
}

/// Directory and number of the step, and its root.
fn chosen(name: &str, step: Option<u64>, meter: &mut ByteMeter) -> Result<(Utf8PathBuf, Step, Utf8PathBuf), CliError> {
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
    let dir = match (CkptKind::of(&chosen.id), &place.store) {
        (CkptKind::Live, _) => live_dir(&place.root),
        (CkptKind::Own, _) => place.root.join(GENERATIONS).join(&chosen.id.0),
        (CkptKind::Kept, Some(store)) => store.join("protected").join(&chosen.id.0),
        _ => place.root.join(&chosen.id.0),
    };
    Ok((dir, chosen.step, place.root))
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

/// The model in a role's or a step's directory; `None` if it is neither. `known`: the directory is this step, whatever its name.
fn in_step(dir: &Utf8Path, role: Option<&str>, known: Option<Step>) -> Result<Option<FoundModel>, CliError> {
    let Some(names) = names(dir)? else { return Ok(None) };
    if let Some(found) = form::of(dir, &names)? {
        // The name of a directory that is the checkpoint itself is not a role.
        let bare = matches!(found.files, WeightFiles::Distributed(""));
        let own = dir
            .file_name()
            .filter(|_| step_of(dir).is_none() && found.step.is_none() && !bare);
        let own = own.map(str::to_owned);
        if role.is_some() && role != own.as_deref() {
            let wanted = role.unwrap_or_default();
            return Err(CliError::usage(format!(
                "{dir}: it has no roles, so there is no {wanted} in it"
            )));
        }
        let step = step_of(dir).or_else(|| dir.parent().and_then(step_of));
        let step = step.or(found.step).or(known);
        return Ok(Some(FoundModel {
            step,
            role: own,
            ..found
        }));
    }
    let mut roles = BTreeMap::new();
    // An AReaL generation has its roles one level lower.
    let inner = listing::names(&dir.join(PAYLOADS))?;
    let above = if inner.is_some() {
        dir.join(PAYLOADS)
    } else {
        dir.to_owned()
    };
    let names = inner.unwrap_or(names);
    for name in &names {
        let below = above.join(name);
        if let Some(inside) = listing::names(&below)?
            && let Some(found) = form::of(&below, &inside)?
        {
            roles.insert(name.as_str(), found);
        }
    }
    let step = step_of(dir).or(known);
    if roles.is_empty() || step.is_none() {
        return Ok(None);
    }
    let only = (roles.len() == 1).then(|| roles.keys().copied().next()).flatten();
    // AReaL's name comes first.
    let usual = if roles.contains_key("default") {
        "default"
    } else {
        "actor"
    };
    let wanted = role.or(only).unwrap_or(usual);
    match roles.remove_entry(wanted) {
        Some((role, found)) => Ok(Some(FoundModel {
            step,
            role: Some(role.to_owned()),
            ..found
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

fn unknown(dir: &Utf8Path) -> CliError {
    CliError::checkpoint(
        Verdict::Unknown,
        format!("{dir}: there are no weights in it in a form that is read"),
    )
}
