//! Judges a trainer's steps: a root, a single step, or a role.
//!
//! A directory of any name is judged as a step by giving its entries a step's name; findings are reported under the real names.

use super::{CheckpointDirKind, StepFamily, VerifyOptions, file_view, prove, prove_own};
use crate::cli::target;
use crate::render::verify::PathView;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use supervise_checkpoint::{FileKind, FileReport, InspectLimits, inspect};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Resumability, Verdict};
use supervise_host::io_worker::{FileSource, RUN_DIR_NAME, fact_of, nested_steps, read_tracker, walk};
use supervise_trainers::{ExpectedLayout, StepTracker};

/// Number of nearest steps to compare with.
const BESIDE: usize = 4;

/// Judges all steps of a root, or the only one.
pub(super) fn judge(
    named: &Utf8Path,
    dir: &Utf8Path,
    kind: CheckpointDirKind,
    owner: StepFamily,
    look: &mut VerifyOptions<'_>,
) -> io::Result<PathView> {
    let prefix = owner.prefix;
    let mut tracker = owner.adapter.tracker(&ExpectedLayout::default());
    let mut places: BTreeMap<Utf8PathBuf, Utf8PathBuf> = BTreeMap::new();
    if kind == CheckpointDirKind::Root {
        for entry in dir.read_dir_utf8()? {
            let entry = match entry {
                Err(e) if e.kind() == io::ErrorKind::InvalidData => continue,
                entry => entry?,
            };
            if entry.file_name().starts_with(prefix) {
                note(&mut *tracker, Utf8Path::new(entry.file_name()), entry.path())?;
                places.insert(entry.file_name().into(), entry.path().to_owned());
            }
        }
    } else {
        let step = number(dir, prefix).or_else(|| told(dir, look.memory)).unwrap_or(1);
        let id = Utf8PathBuf::from(format!("{prefix}{step}"));
        note(&mut *tracker, &id, dir)?;
        places.insert(id, dir.to_owned());
        if kind == CheckpointDirKind::Step {
            siblings(&mut *tracker, dir, prefix);
        }
    }
    let root = match kind {
        CheckpointDirKind::Root => Some(dir),
        CheckpointDirKind::Role => dir.parent().and_then(Utf8Path::parent),
        CheckpointDirKind::Step | CheckpointDirKind::Live | CheckpointDirKind::Set(_) => dir.parent(),
    };
    read_tracker(root.unwrap_or(dir), &mut *tracker);
    let what = match kind {
        CheckpointDirKind::Root => "root",
        CheckpointDirKind::Role => "role",
        CheckpointDirKind::Step | CheckpointDirKind::Live | CheckpointDirKind::Set(_) => "step",
    };
    let mut view = PathView {
        remarks: tracker.remarks(),
        ..PathView::new(named, what, Verdict::Whole)
    };
    view.remarks
        .extend(unlike(dir, prefix).filter(|_| kind == CheckpointDirKind::Step));
    if number(dir, prefix).is_none() && kind != CheckpointDirKind::Role {
        view.remarks
            .extend(nested_steps(dir, &|name| tracker.is_step_name(name)));
    }
    // Oldest first: a step's counters are compared with earlier ones.
    for (id, _) in tracker
        .steps()
        .into_iter()
        .rev()
        .filter(|(id, _)| kind == CheckpointDirKind::Root || places.contains_key(&id.0))
    {
        let place = places.get(&id.0).cloned().unwrap_or_else(|| dir.join(&id.0));
        step(&mut *tracker, &id, &place, kind, look, &mut view);
    }
    view.steps.reverse();
    if view.steps.is_empty() {
        view.verdict = Verdict::Unknown;
        view.remarks
            .push("there is no step in it that is known here".to_owned());
    } else if view.steps.iter().all(|s| s.husk) {
        view.verdict = view.verdict.worst(Verdict::Incomplete);
    }
    Ok(view)
}

/// The finding for a step whose name only resembles one.
fn unlike(dir: &Utf8Path, prefix: &str) -> Option<String> {
    let name = dir.file_name().filter(|name| name.starts_with(prefix))?;
    let step = number(dir, prefix).filter(|step| !is_named(dir, prefix, *step))?;
    Some(format!(
        "{name} is not the name of a step, and no run resumes from it: rename it to {prefix}{step} for that"
    ))
}

/// Reads the neighbors of a single step, which show what it should contain. Unreadable ones are ignored.
fn siblings(tracker: &mut dyn StepTracker, dir: &Utf8Path, prefix: &str) {
    let Some(own) = number(dir, prefix).filter(|n| is_named(dir, prefix, *n)) else {
        return;
    };
    let entries = dir.parent().and_then(|parent| parent.read_dir_utf8().ok());
    // A number with leading zeros is another directory than the step of that number.
    let numbered = |path: &Utf8Path| number(path, prefix).filter(|n| is_named(path, prefix, *n));
    let mut found: Vec<(u64, Utf8PathBuf)> = entries
        .into_iter()
        .flatten()
        .filter_map(|e| Some((numbered(e.as_ref().ok()?.path())?, e.ok()?.into_path())))
        .filter(|(n, _)| *n != own)
        .collect();
    found.sort_unstable_by_key(|(n, _)| (n.abs_diff(own), *n));
    for (n, path) in found.into_iter().take(BESIDE) {
        let _ = note(tracker, Utf8Path::new(&format!("{prefix}{n}")), &path);
    }
}

/// Returns true if the directory has the exact name of a step with this number.
fn is_named(dir: &Utf8Path, prefix: &str, step: u64) -> bool {
    dir.file_name() == Some(&format!("{prefix}{step}"))
}

fn number(dir: &Utf8Path, prefix: &str) -> Option<u64> {
    let name = dir.file_name()?;
    // A role is below the step that has the number.
    let step = match name.strip_prefix(prefix) {
        Some(n) => n,
        None => dir.parent()?.file_name()?.strip_prefix(prefix)?,
    };
    step.parse().ok()
}

/// The step in its manifest: a renamed directory keeps its content.
fn told(dir: &Utf8Path, memory: u64) -> Option<u64> {
    let files = [
        "ckpt_contents.json",
        "actor/ckpt_contents.json",
        "critic/ckpt_contents.json",
        "trainer_state.json",
    ];
    let limits = InspectLimits {
        memory: usize::try_from(memory).unwrap_or(usize::MAX),
        ..InspectLimits::default()
    };
    files.iter().find_map(|name| {
        let source = FileSource::open(&dir.join(name)).ok()?;
        let found = inspect(FileKind::of(name), &source, &limits).facts;
        let by_state = found.trainer_state.map(|state| state.global_step);
        found.manifest.and_then(|m| m.global_step).or(by_state)
    })
}

/// Gives the tracker a directory's entries under a step's name.
pub(super) fn note(tracker: &mut dyn StepTracker, id: &Utf8Path, dir: &Utf8Path) -> io::Result<()> {
    tracker.note(&fact_of(id.to_owned(), &fs::symlink_metadata(dir)?));
    let mut facts = Vec::new();
    if fs::symlink_metadata(dir)?.is_dir() {
        walk(dir, Utf8Path::new(""), &mut facts)?;
    }
    for mut fact in facts {
        fact.path = id.join(&fact.path);
        tracker.note(&fact);
    }
    Ok(())
}

pub(super) fn step(
    tracker: &mut dyn StepTracker,
    id: &CkptId,
    place: &Utf8Path,
    kind: CheckpointDirKind,
    look: &mut VerifyOptions<'_>,
    view: &mut PathView,
) {
    let needs = tracker.needs(id, look.depth);
    let is_file = needs.iter().any(|need| need.path == id.0);
    let base = place.parent().filter(|_| is_file).unwrap_or(place);
    let inside = |path: &Utf8Path| match path.strip_prefix(&id.0) {
        Ok(inside) if !is_file => inside.to_owned(),
        _ => path.to_owned(),
    };
    let needs: Vec<_> = needs
        .into_iter()
        .map(|mut need| {
            need.path = inside(&need.path);
            need.described_by = need.described_by.map(|p| inside(&p));
            need
        })
        .collect();
    let mut reports = BTreeMap::new();
    let mut found = prove(base, &needs, look);
    // A run resumes from what it wrote itself, even if it names the user's own classes. Both commands must agree.
    if names_the_unknown(&found) && is_own(tracker, id, place, kind) {
        found = prove_own(base, &needs, look);
    }
    for (path, report) in found {
        let full = if is_file { path.clone() } else { id.0.join(&path) };
        let shown = if kind == CheckpointDirKind::Root { &full } else { &path };
        view.files.push(file_view(shown.as_str(), base, &path, &report, look));
        reports.insert(full, report);
    }
    let mut summary = tracker.judge(id, look.depth, &reports);
    if kind != CheckpointDirKind::Root {
        rename(&mut summary, place);
    }
    if kind != CheckpointDirKind::Live && summary.verdict == Verdict::Whole {
        summary.findings.extend(super::mixed::doubts(place, look.memory));
    }
    if kind == CheckpointDirKind::Role {
        as_role(&mut summary);
    }
    // Beside other steps, it is what the trainer's retention left.
    if !(summary.husk && kind == CheckpointDirKind::Root) {
        view.verdict = view.verdict.worst(summary.verdict);
    }
    view.steps.push(summary);
}

/// Returns true if a file is unsafe only because of an unknown name.
fn names_the_unknown(reports: &BTreeMap<Utf8PathBuf, FileReport>) -> bool {
    let condemning = reports.values().flat_map(|r| &r.findings);
    let mut condemning = condemning.filter(|f| f.effect() == Verdict::Unsafe).peekable();
    condemning.peek().is_some() && condemning.all(|f| f.code == "unfamiliar_global")
}

/// Returns true if a run of this user wrote the step, according to its journal, and it was not changed since.
fn is_own(tracker: &dyn StepTracker, id: &CkptId, place: &Utf8Path, kind: CheckpointDirKind) -> bool {
    let root = place
        .parent()
        .filter(|_| matches!(kind, CheckpointDirKind::Root | CheckpointDirKind::Step));
    let run_dir = root.map(|root| root.join(RUN_DIR_NAME)).filter(|dir| dir.is_dir());
    let Some(Ok(loaded)) = run_dir.map(|dir| target::peek(&dir)) else {
        return false;
    };
    let known = loaded.state.disk.own.get(place.file_name().unwrap_or_default());
    let is_trusted = loaded.distrust.is_none() && !loaded.copied;
    is_trusted && known.is_some_and(|own| tracker.pins(id) == Some(own.pins))
}

/// Reports findings under the real names.
fn rename(summary: &mut CheckpointSummary, place: &Utf8Path) {
    let id = summary.id.0.clone();
    for finding in &mut summary.findings {
        let inside = finding.file.as_ref().and_then(|f| f.strip_prefix(&id).ok());
        if let Some(inside) = inside {
            finding.file = Some(inside.to_owned());
        }
    }
    summary.id = CkptId(place.file_name().unwrap_or(place.as_str()).into());
}

/// A role has no dataloader state of its own, so a missing one means nothing.
fn as_role(summary: &mut CheckpointSummary) {
    summary.findings.retain(|f| !f.code.contains("data_state"));
    summary.roles = vec![summary.id.to_string()];
    summary.resume = Resumability::Not {
        why: "this is one role of a step; verify the step itself to know".to_owned(),
    };
    let verdict = summary.findings.iter().fold(Verdict::Whole, |v, f| v.worst(f.effect()));
    if summary.verdict == Verdict::Incomplete {
        summary.verdict = verdict;
    }
}
