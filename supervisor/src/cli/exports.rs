//! Exported weights that a trainer writes next to its only checkpoint; nothing resumes from them.

use crate::printer::ByteMeter;
use crate::render::checkpoints::Export;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use supervise_checkpoint::SweepOptions;
use supervise_checkpoint::latest_file::{GENERATIONS, generation_step};
use supervise_checkpoint::set::{self, SetKind};
use supervise_core::checkpoint::{Depth, EntryKind, Finding, Verdict};
use supervise_host::io_worker::{FileProver, RunCheckpoints, live_dir, walk};
use supervise_trainers::{ExpectedLayout, InPlaceLayout, TrainerAdapter, registry};

/// Every export below a root, newest first. `memory`: bytes to use for reading them.
pub(super) fn below(root: &Utf8Path, depth: Depth, memory: u64, meter: &mut ByteMeter) -> Vec<Export> {
    let number = |path: &Utf8PathBuf| path.file_name().and_then(step).unwrap_or_default();
    let mut out: Vec<Export> = dirs_below(root)
        .into_iter()
        .map(|path| {
            let files = FileProver::new(&root.join(&path)).with_memory(memory);
            judge(root, path.clone(), number(&path), depth, &files, meter)
        })
        .collect();
    out.sort_by_key(|e| (std::cmp::Reverse(e.step), e.path.clone()));
    out
}

/// Their directories, relative to the root.
pub(super) fn dirs_below(root: &Utf8Path) -> Vec<Utf8PathBuf> {
    let of = |engine: &String| {
        let names = dirs(&root.join(engine)).into_iter().filter(|name| step(name).is_some());
        names.map(|name| Utf8Path::new(engine).join(name)).collect::<Vec<_>>()
    };
    dirs(root).iter().flat_map(of).collect()
}

fn dirs(dir: &Utf8Path) -> Vec<String> {
    let Ok(entries) = dir.read_dir_utf8() else {
        return Vec::new();
    };
    let is_dir = |e: &camino::Utf8DirEntry| e.file_type().is_ok_and(|t| t.is_dir());
    entries
        .flatten()
        .filter(is_dir)
        .map(|e| e.file_name().to_owned())
        .collect()
}

/// `epochEepochstepSglobalstepG`, maybe followed by `.tmp`: all numbers start at 0.
fn step(name: &str) -> Option<u64> {
    let plain = name.strip_suffix(".tmp").unwrap_or(name);
    let (_, global) = plain.strip_prefix("epoch")?.split_once("globalstep")?;
    global.parse::<u64>().ok()?.checked_add(1)
}

fn judge(
    root: &Utf8Path,
    path: Utf8PathBuf,
    step: u64,
    depth: Depth,
    prover: &FileProver,
    meter: &mut ByteMeter,
) -> Export {
    let dir = root.join(&path);
    let mut facts = Vec::new();
    let walked = walk(&dir, Utf8Path::new(""), &mut facts);
    let files: BTreeMap<String, u64> = facts
        .iter()
        .filter(|f| f.kind == EntryKind::File)
        .map(|f| (f.path.to_string(), f.size))
        .collect();
    let needs = set::needs(SetKind::Weights, files.keys().map(String::as_str));
    let options = SweepOptions {
        zero: true,
        finite: false,
    };
    let reports = prover.prove(&needs, depth, options, &mut |p| {
        meter.tell(p.done, Some(p.of));
        ControlFlow::Continue(())
    });
    let reports = reports
        .into_iter()
        .map(|(path, report)| (path.into_string(), report))
        .collect();
    let mut judged = set::judge(SetKind::Weights, &files, &reports);
    let broken = match (walked, files.is_empty(), path.as_str().ends_with(".tmp")) {
        (Err(e), ..) => Some(Finding::error(
            "unreadable",
            Verdict::Unreadable,
            format!("it cannot be read: {e}"),
        )),
        (_, _, true) => Some(Finding::error(
            "export_unfinished",
            Verdict::Incomplete,
            "its save did not end: it was never renamed",
        )),
        (_, true, _) => Some(Finding::error(
            "export_empty",
            Verdict::Incomplete,
            "the directory is made first: its save goes on, or was killed",
        )),
        _ => None,
    };
    judged.findings.extend(broken);
    let verdict = judged.findings.iter().fold(judged.verdict, |v, f| v.worst(f.effect()));
    Export {
        path,
        step,
        verdict,
        proven: judged.proven.filter(|_| verdict == Verdict::Whole),
        bytes: files.values().sum(),
        resumable: false,
        findings: judged.findings,
    }
}

/// A checkpoint root of no known run, for the trainer that its layout suggests. `memory`: bytes to use for reading it.
pub(super) fn unknown_run(root: &Utf8Path, memory: u64) -> RunCheckpoints {
    let in_place = in_place_at(root);
    RunCheckpoints {
        root: root.to_owned(),
        trainer: in_place.unwrap_or_else(|| owner_of(root)),
        expect: ExpectedLayout {
            memory,
            ..ExpectedLayout::default()
        },
        store: in_place.map(|_| store_of(root)),
    }
}

/// The trainer whose steps are under a root, by its marks or by their names; a trainer with steps if there are none.
pub(super) fn owner_of(root: &Utf8Path) -> &'static dyn TrainerAdapter {
    let entries = root.read_dir_utf8().into_iter().flatten().flatten();
    let names: Vec<String> = entries.map(|e| e.file_name().to_owned()).collect();
    let named = || names.iter().find_map(|n| registry::of_step_name(n));
    registry::of_marks(&names).unwrap_or_else(|| named().unwrap_or_else(registry::first_with_steps).0)
}

/// The trainer that keeps its only checkpoint here.
pub(super) fn in_place_at(root: &Utf8Path) -> Option<&'static dyn TrainerAdapter> {
    // Other trainers have a LATEST, too: it has to name a generation.
    let own = root.join(GENERATIONS).is_dir() || live_dir(root) != root;
    let generation = root.file_name().and_then(generation_step).is_some();
    let has_state = |layout: &dyn InPlaceLayout| {
        let mut engines = dirs(root).into_iter();
        engines.any(|engine| root.join(engine).join(layout.state()).is_dir())
    };
    let is_here =
        |layout: &dyn InPlaceLayout| own || generation || root.join(layout.info()).is_dir() || has_state(layout);
    registry::adapters().find(|a| a.in_place().is_some_and(is_here))
}

/// Directory of a root's generations: next to `checkpoints`, under the same names.
fn store_of(root: &Utf8Path) -> Utf8PathBuf {
    let whole = camino::absolute_utf8(root).unwrap_or_else(|_| root.to_owned());
    let mut parts: Vec<&str> = whole.iter().collect();
    let at = parts.len().checked_sub(4);
    match at.and_then(|at| parts.get_mut(at)) {
        Some(part) if *part == "checkpoints" => *part = "supervise",
        _ => return whole.join(".no-generations-known"),
    }
    parts.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_exports_are_read() {
        for (name, number) in [
            ("epoch0epochstep1globalstep1", Some(2)),
            ("epoch12epochstep0globalstep480", Some(481)),
            ("epoch0epochstep1globalstep1.tmp", Some(2)),
            ("weight_update_v3", None),
            ("recover_checkpoint", None),
            ("epoch0", None),
        ] {
            assert_eq!(step(name), number, "{name}");
        }
    }

    #[test]
    fn generations_stand_beside_the_checkpoints() {
        assert_eq!(store_of(Utf8Path::new("/f/checkpoints/me/e/t")), "/f/supervise/me/e/t");
    }
}
