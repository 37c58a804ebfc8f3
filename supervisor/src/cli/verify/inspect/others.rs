//! Checkpoints that no built-in trainer wrote: judged by a declaration that fits, else recognized by their names.

use super::{StepJudge, VerifyOptions, declared};
use crate::declared_files;
use crate::render::verify::PathView;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io;
use std::sync::Arc;
use supervise_core::checkpoint::{EntryKind, FileFact, Verdict};
use supervise_host::io_worker::{fact_of, walk};
use supervise_trainers::declared::{Declaration, DeclaredMatch, presets, recognize};
use supervise_trainers::other_trainers::looks_like;
use supervise_trainers::{ExpectedLayout, StepTracker, registry};

/// Judges a directory by the declaration that fits, if no built-in trainer knows its files. `guessed`: no name decided for
/// the trainer that judged them.
pub(super) fn claim(
    named: &Utf8Path,
    dir: &Utf8Path,
    guessed: bool,
    mut view: PathView,
    look: &mut VerifyOptions<'_>,
) -> io::Result<PathView> {
    let has_sets = !view.sets.is_empty();
    let unknown = !has_sets && view.verdict == Verdict::Unknown && view.steps.iter().all(|s| s.layout == "unknown");
    if matches!(look.judge, Some(StepJudge::Adapter(_))) {
        return Ok(view);
    }
    let user = declared_files::of_user();
    if !has_sets && !unknown {
        let all = user.read.iter().map(|(_, d)| d).chain(presets());
        view.remarks.extend(all.filter_map(|d| other_tracker(dir, d)));
        return Ok(view);
    }
    let broken = user
        .broken
        .iter()
        .map(|b| &b.path)
        .map(|path| format!("{path} does not load: `supervise trainer check {path} {named}` says why"));
    let broken: Vec<String> = broken.collect();
    let all: Vec<&Arc<Declaration>> = user.read.iter().map(|(_, d)| d).chain(presets()).collect();
    let (root, facts) = around(dir, &all);
    let own = recognize(user.read.iter().map(|(_, d)| d), &facts);
    let fitting = match own.is_empty() {
        true => recognize(presets().iter(), &facts),
        false => own,
    };
    match fitting.as_slice() {
        [one] if unknown => {
            let mut judged = declared::judge(named, dir, &one.declaration, look)?;
            let what = format!("judged as a checkpoint of {} ({})", one.declaration.title(), one.by);
            judged.remarks.insert(0, what);
            judged.remarks.extend(broken);
            return Ok(judged);
        }
        [] => {}
        several => view.remarks.push(choose(several, root != dir)),
    }
    if unknown {
        view = neutral(&facts, guessed, fitting.is_empty(), view);
    }
    view.remarks.extend(broken);
    Ok(view)
}

/// The declared trainer that a checkpoint root of no known run belongs to: by its tracker file, or if no built-in trainer
/// names steps like these.
pub(in crate::cli) fn declared_at(root: &Utf8Path) -> Option<Arc<Declaration>> {
    let user = declared_files::of_user();
    let all: Vec<&Arc<Declaration>> = user.read.iter().map(|(_, d)| d).chain(presets()).collect();
    let has_tracker = |d: &&&Arc<Declaration>| {
        let file = d.tracker().tracker_file();
        !file.is_empty() && root.join(file).is_file()
    };
    let tracked: Vec<&Arc<Declaration>> = all.iter().filter(has_tracker).copied().collect();
    let mut entries = root.read_dir_utf8().into_iter().flatten().flatten();
    let among = match entries.any(|e| registry::of_step_name(e.file_name()).is_some()) {
        true => tracked,
        false => all,
    };
    if among.is_empty() {
        return None;
    }
    let mut facts = Vec::new();
    let _ = walk(root, Utf8Path::new(""), &mut facts);
    let own = user
        .read
        .iter()
        .map(|(_, d)| d)
        .filter(|d| among.iter().any(|a| Arc::ptr_eq(a, d)));
    let found = recognize(own, &facts);
    let found = match found.is_empty() {
        true => recognize(
            presets().iter().filter(|d| among.iter().any(|a| Arc::ptr_eq(a, d))),
            &facts,
        ),
        false => found,
    };
    match found.as_slice() {
        [one] => Some(Arc::clone(&one.declaration)),
        _ => None,
    }
}

/// The tracker file of another trainer beside steps that a built-in trainer knows.
fn other_tracker(dir: &Utf8Path, other: &Arc<Declaration>) -> Option<String> {
    let file = other.tracker().tracker_file();
    let own = registry::adapters().any(|a| a.tracker(&ExpectedLayout::default()).tracker_file() == file);
    (!file.is_empty() && !own && dir.join(file).is_file()).then(|| {
        format!(
            "{file} is of {}: `--as {}` judges the steps as its own",
            other.title(),
            other.name()
        )
    })
}

fn choose(fitting: &[DeclaredMatch], is_step: bool) -> String {
    let titles: Vec<&str> = fitting.iter().map(|m| m.declaration.title()).collect();
    let flags: Vec<String> = fitting
        .iter()
        .map(|m| format!("`--as {}`", m.declaration.name()))
        .collect();
    let its = if is_step { "it as a step" } else { "its steps" };
    format!(
        "this looks like a checkpoint of {}: {} judges {its}",
        titles.join(" or of "),
        flags.join(" or ")
    )
}

/// What is said of files that nobody judges.
fn neutral(facts: &[FileFact], guessed: bool, nobody: bool, view: PathView) -> PathView {
    let known = nobody
        .then(|| looks_like(facts.iter().map(|f| f.path.as_str())))
        .flatten();
    let remark = match known {
        Some(other) => format!(
            "this looks like a checkpoint of {other}: `supervise` does not judge its steps; name a single file to check that file"
        ),
        None if guessed && nobody => {
            "no trainer that is known here writes such files: name a single file to check that file".to_owned()
        }
        None => return view,
    };
    PathView {
        steps: Vec::new(),
        files: Vec::new(),
        remarks: vec![remark],
        what: "directory",
        ..view
    }
}

/// The checkpoint root that a directory is, or is a step of, and its facts. What cannot be read is left out: the trainer that
/// judges it says so.
fn around(dir: &Utf8Path, all: &[&Arc<Declaration>]) -> (Utf8PathBuf, Vec<FileFact>) {
    let mut facts = Vec::new();
    let _ = walk(dir, Utf8Path::new(""), &mut facts);
    let fits = !recognize(all.iter().copied(), &facts).is_empty();
    let (Some(parent), Some(name), false) = (dir.parent(), dir.file_name(), fits) else {
        return (dir.to_owned(), facts);
    };
    let mut above = Vec::new();
    let _ = walk(parent, Utf8Path::new(name), &mut above);
    let entries = parent.read_dir_utf8().into_iter().flatten().flatten();
    for entry in entries {
        let Ok(meta) = fs::symlink_metadata(entry.path()) else {
            continue;
        };
        let fact = fact_of(Utf8PathBuf::from(entry.file_name()), &meta);
        if fact.kind == EntryKind::File || entry.file_name() == name {
            above.push(fact);
        }
    }
    match recognize(all.iter().copied(), &above).is_empty() {
        true => (dir.to_owned(), facts),
        false => (parent.to_owned(), above),
    }
}
