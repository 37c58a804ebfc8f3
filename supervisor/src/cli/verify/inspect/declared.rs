//! Judges the steps of a trainer that is declared in a TOML file.

use super::{VerifyOptions, file_view, prove};
use crate::render::verify::PathView;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io;
use std::sync::Arc;
use supervise_core::checkpoint::{CkptId, EntryKind, FileFact, Verdict};
use supervise_host::io_worker::{fact_of, read_tracker, walk};
use supervise_trainers::StepTracker;
use supervise_trainers::declared::{Declaration, DeclaredStepTracker};

/// Number of nearest steps to compare a single step with.
const BESIDE: usize = 4;

/// Entries of a root and all files in its steps, relative to the root.
pub(in crate::cli) fn facts(root: &Utf8Path, tracker: &DeclaredStepTracker) -> io::Result<Vec<FileFact>> {
    let mut out = Vec::new();
    for entry in root.read_dir_utf8()? {
        let entry = match entry {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => continue,
            entry => entry?,
        };
        let name = Utf8Path::new(entry.file_name());
        let own = fact_of(name.to_owned(), &fs::symlink_metadata(entry.path())?);
        let is_step = own.kind == EntryKind::Dir && tracker.is_step_name(name.as_str());
        out.push(own);
        if is_step {
            walk(root, name, &mut out)?;
        }
    }
    Ok(out)
}

/// Judges a root of steps, or one step.
pub(super) fn judge(
    named: &Utf8Path,
    dir: &Utf8Path,
    declaration: &Arc<Declaration>,
    look: &mut VerifyOptions<'_>,
) -> io::Result<PathView> {
    let mut tracker = declaration.tracker();
    let step = dir.file_name().filter(|name| tracker.is_step_name(name));
    let root = match (step, dir.parent()) {
        (Some(_), Some(parent)) => parent,
        _ => dir,
    };
    let only = (root != dir).then(|| CkptId(Utf8PathBuf::from(step.unwrap_or_default())));
    let all = facts_of(root, only.as_ref(), &tracker)?;
    for fact in &all {
        tracker.note(fact);
    }
    read_tracker(root, &mut tracker);
    let what = if only.is_some() { "step" } else { "root" };
    let mut view = PathView::new(named, what, Verdict::Whole);
    // Oldest first: a step is compared with those before it.
    for (id, _) in tracker.steps().into_iter().rev() {
        let summary = one(
            &mut tracker,
            &id,
            root,
            look,
            only.as_ref().is_none_or(|only| *only == id),
            &mut view,
        );
        if only.as_ref().is_none_or(|only| *only == id) {
            view.verdict = view.verdict.worst(summary.verdict);
            view.steps.push(summary);
        }
    }
    view.steps.reverse();
    // For one step, only the steps near it were read.
    if only.is_none() {
        view.remarks = tracker.remarks();
    }
    if view.steps.is_empty() {
        view.verdict = Verdict::Unknown;
        view.remarks.push(format!("no step of {} is here", declaration.title()));
    }
    Ok(view)
}

/// The facts of a root. For one step only it and the nearest others are walked.
fn facts_of(root: &Utf8Path, only: Option<&CkptId>, tracker: &DeclaredStepTracker) -> io::Result<Vec<FileFact>> {
    let Some(only) = only else {
        return facts(root, tracker);
    };
    let number = |name: &str| -> u64 {
        let digits: String = name.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(u64::MAX)
    };
    let own = number(only.0.as_str());
    let entries = root.read_dir_utf8().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_owned()).collect();
    names.retain(|name| tracker.is_step_name(name) && name.as_str() != only.0.as_str());
    names.sort_by_key(|name| (number(name).abs_diff(own), name.clone()));
    let mut out = Vec::new();
    for name in names.into_iter().take(BESIDE).chain([only.0.to_string()]) {
        let name = Utf8PathBuf::from(name);
        let Ok(meta) = fs::symlink_metadata(root.join(&name)) else {
            continue;
        };
        let fact = fact_of(name.clone(), &meta);
        if fact.kind == EntryKind::Dir {
            walk(root, &name, &mut out)?;
        }
        out.push(fact);
    }
    Ok(out)
}

fn one(
    tracker: &mut DeclaredStepTracker,
    id: &CkptId,
    root: &Utf8Path,
    look: &mut VerifyOptions<'_>,
    is_shown: bool,
    view: &mut PathView,
) -> supervise_core::checkpoint::CheckpointSummary {
    let needs = match is_shown {
        true => tracker.needs(id, look.depth),
        false => Vec::new(),
    };
    let reports = prove(root, &needs, look);
    for (path, report) in &reports {
        view.files.push(file_view(path.as_str(), root, path, report, look));
    }
    let mut summary = tracker.judge(id, look.depth, &reports);
    if is_shown && summary.verdict == Verdict::Whole && root.join(&id.0).is_dir() {
        summary
            .findings
            .extend(super::mixed::doubts(&root.join(&id.0), look.memory));
    }
    summary
}
