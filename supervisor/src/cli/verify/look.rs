//! Files and directories as the readers and the trainers' judges see them.
//!
//! A directory of any name is judged as a step by giving its entries a step's name; what is found is told under the
//! names that are really there.

use crate::printer::Meter;
use crate::render::verify::{FileView, PathView};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use supervise_checkpoint::{FileKind, FileReport, Limits, SweepOptions, inspect, judge_file, sweep, unreadable_file};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, Finding, Resumability, Verdict};
use supervise_core::spec::TrainerKind;
use supervise_host::lane::{FileSource, fact_of, walk};
use supervise_trainers::{Expectation, StepTracker, adapter};

const STEP: &str = "global_step_";

/// What a directory is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Root,
    Step,
    Role,
}

/// Judges a directory.
pub(super) fn directory(named: &Utf8Path, dir: &Utf8Path, depth: Depth, meter: &mut Meter) -> io::Result<PathView> {
    let names = entries(dir)?;
    let kind = kind_of(dir, &names);
    let mut tracker = adapter(TrainerKind::VerlPpo).tracker(&Expectation::default());
    let mut places: BTreeMap<Utf8PathBuf, Utf8PathBuf> = BTreeMap::new();
    if kind == Kind::Root {
        for name in names.iter().filter(|n| n.starts_with(STEP)) {
            note(&mut *tracker, Utf8Path::new(name), &dir.join(name))?;
            places.insert(name.into(), dir.join(name));
        }
    } else {
        let id = Utf8PathBuf::from(match number(dir) {
            Some(n) if kind == Kind::Step => format!("{STEP}{n}"),
            _ => format!("{STEP}1"),
        });
        note(&mut *tracker, &id, dir)?;
        places.insert(id, dir.to_owned());
    }
    let what = match kind {
        Kind::Root => "root",
        Kind::Step => "step",
        Kind::Role => "role",
    };
    let mut view = PathView {
        path: named.to_string(),
        what,
        verdict: Verdict::Whole,
        steps: Vec::new(),
        files: Vec::new(),
        remarks: tracker.remarks(),
    };
    for (id, _) in tracker.steps() {
        let place = places.get(&id.0).cloned().unwrap_or_else(|| dir.join(&id.0));
        step(&mut *tracker, &id, &place, kind, depth, meter, &mut view);
    }
    if view.steps.is_empty() {
        view.verdict = Verdict::Unknown;
        view.remarks
            .push("there is no step in it that is known here".to_owned());
    }
    Ok(view)
}

fn entries(dir: &Utf8Path) -> io::Result<Vec<String>> {
    dir.read_dir_utf8()?
        .map(|e| e.map(|e| e.file_name().to_owned()))
        .collect()
}

fn kind_of(dir: &Utf8Path, names: &[String]) -> Kind {
    let holds_shards = names.iter().any(|n| n.contains("_world_size_") && n.ends_with(".pt"));
    let in_step = dir
        .parent()
        .and_then(Utf8Path::file_name)
        .is_some_and(|n| n.starts_with(STEP));
    match () {
        () if names.iter().any(|n| n.starts_with(STEP)) => Kind::Root,
        () if holds_shards && in_step => Kind::Role,
        () => Kind::Step,
    }
}

fn number(dir: &Utf8Path) -> Option<u64> {
    dir.file_name()?.strip_prefix(STEP)?.parse().ok()
}

/// Gives the tracker a directory's entries under a step's name.
fn note(tracker: &mut dyn StepTracker, id: &Utf8Path, dir: &Utf8Path) -> io::Result<()> {
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

/// Judges one step and adds what was found to the view.
fn step(
    tracker: &mut dyn StepTracker,
    id: &CkptId,
    place: &Utf8Path,
    kind: Kind,
    depth: Depth,
    meter: &mut Meter,
    view: &mut PathView,
) {
    let mut reports = BTreeMap::new();
    for (path, file_kind) in tracker.needs(id, depth) {
        let inside = path.strip_prefix(&id.0).unwrap_or(&path).to_owned();
        let report = read(&place.join(&inside), file_kind, depth, meter);
        let shown = if kind == Kind::Root { path.clone() } else { inside };
        view.files.push(file_view(shown.as_str(), &report));
        reports.insert(path, report);
    }
    let mut summary = tracker.judge(id, depth, &reports);
    if kind != Kind::Root {
        rename(&mut summary, place);
    }
    if kind == Kind::Role {
        as_role(&mut summary);
    }
    if !summary.husk {
        view.verdict = view.verdict.worst(summary.verdict);
    }
    view.steps.push(summary);
}

/// Findings under the names that are really there.
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

/// A role has no dataloader state of its own: that it is missing says nothing.
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

/// Judges a single file.
pub(super) fn file(named: &Utf8Path, path: &Utf8Path, depth: Depth, meter: &mut Meter) -> PathView {
    let name = path.file_name().unwrap_or_default();
    let kind = match FileKind::of(name) {
        FileKind::Opaque if name.ends_with(".bin") => FileKind::TorchZip,
        kind => kind,
    };
    let mut report = read(path, kind, depth, meter);
    if kind == FileKind::Opaque && report.verdict == Verdict::Whole {
        let detail = "no format that is known by this name: only its bytes were looked at";
        report.add(Finding::error("unknown_format", Verdict::Unknown, detail));
    }
    PathView {
        path: named.to_string(),
        what: "file",
        verdict: report.verdict,
        steps: Vec::new(),
        remarks: vec![file_meaning(report.verdict).to_owned()],
        files: vec![file_view(name, &report)],
    }
}

fn file_meaning(v: Verdict) -> &'static str {
    match v {
        Verdict::Whole => {
            "nothing in it keeps a resume from loading it; whether its step is whole, `supervise verify STEP` tells"
        }
        Verdict::Unknown => "no trainer that is known here loads such a file",
        Verdict::Incomplete | Verdict::Damaged => "a step that needs it is not resumed from",
        Verdict::Unsafe => "it is not loaded: that would run what stands in it",
        Verdict::Unreadable => "nothing is said about its bytes",
    }
}

fn file_view(path: &str, report: &FileReport) -> FileView {
    FileView {
        path: path.to_owned(),
        kind: report.kind,
        verdict: report.verdict,
        checked: report.proven,
        bytes: report.bytes,
        findings: report.findings.clone(),
    }
}

/// The three calls of a proof.
fn read(path: &Utf8Path, kind: FileKind, depth: Depth, meter: &mut Meter) -> FileReport {
    let source = match FileSource::open(path) {
        Ok(source) => source,
        Err(e) => return unreadable_file(kind, e),
    };
    let inspected = inspect(kind, &source, &Limits::default());
    if depth == Depth::Structure || inspected.read_all {
        return judge_file(&inspected, &[]);
    }
    let before = meter.total();
    let mut tell = |p: supervise_checkpoint::Progress| {
        meter.tell(before.saturating_add(p.done));
        ControlFlow::Continue(())
    };
    match sweep(&source, &inspected.plan, SweepOptions::default(), &mut tell) {
        Ok(results) => judge_file(&inspected, &results),
        Err(e) => {
            let mut report = judge_file(&inspected, &[]);
            if let Some(finding) = e.finding() {
                report.add(finding);
            }
            report
        }
    }
}
