//! Sets of files that are no trainer's step: DCP, Megatron's `torch_dist`, exported weights.

use super::{VerifyOptions, file_view, prove};
use crate::render::verify::{PathView, SetView};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use supervise_checkpoint::set::{self, SetKind};
use supervise_core::checkpoint::{EntryKind, FileFact, Finding, Verdict};
use supervise_host::io_worker::walk;

/// Judges a directory as a set.
pub(super) fn one(
    named: &Utf8Path,
    dir: &Utf8Path,
    kind: SetKind,
    look: &mut VerifyOptions<'_>,
) -> io::Result<PathView> {
    let mut facts = Vec::new();
    walk(dir, Utf8Path::new(""), &mut facts)?;
    let mut view = PathView::new(named, word(kind), Verdict::Whole);
    judge(dir, Utf8Path::new(""), kind, &facts, look, &mut view);
    Ok(view)
}

/// Judges a subdirectory as a set.
pub(super) fn within(
    dir: &Utf8Path,
    place: &Utf8Path,
    kind: SetKind,
    look: &mut VerifyOptions<'_>,
    view: &mut PathView,
) -> io::Result<()> {
    let mut facts = Vec::new();
    walk(dir, place, &mut facts)?;
    judge(dir, place, kind, &facts, look, view);
    Ok(())
}

/// Judges every set below a directory; empty if there is none.
pub(super) fn below(named: &Utf8Path, dir: &Utf8Path, look: &mut VerifyOptions<'_>) -> io::Result<Option<PathView>> {
    let mut facts = Vec::new();
    walk(dir, Utf8Path::new(""), &mut facts)?;
    let mut places: BTreeMap<&Utf8Path, Vec<&str>> = BTreeMap::new();
    for fact in facts.iter().filter(|f| f.kind == EntryKind::File) {
        if let (Some(parent), Some(name)) = (fact.path.parent(), fact.path.file_name()) {
            places.entry(parent).or_default().push(name);
        }
    }
    let mut view = PathView::new(named, "directory", Verdict::Whole);
    for (place, names) in places {
        if let Some(kind) = set::recognize(names.iter().copied()) {
            judge(dir, place, kind, &facts, look, &mut view);
        }
    }
    Ok((!view.sets.is_empty()).then_some(view))
}

/// Names and sizes of the files in and below a directory, relative to it.
fn sizes(facts: &[FileFact], place: &Utf8Path) -> BTreeMap<String, u64> {
    facts
        .iter()
        .filter(|f| f.kind == EntryKind::File)
        .filter_map(|f| Some((f.path.strip_prefix(place).ok()?.to_string(), f.size)))
        .collect()
}

/// Names of entries of these kinds where the set should have files.
fn misplaced(
    facts: &[FileFact],
    place: &Utf8Path,
    kind: SetKind,
    files: &BTreeMap<String, u64>,
    kinds: &[EntryKind],
) -> Vec<String> {
    let odd = facts.iter().filter(|f| kinds.contains(&f.kind));
    let odd: BTreeSet<&str> = odd
        .filter(|f| f.path.parent() == Some(place))
        .filter_map(|f| f.path.file_name())
        .collect();
    if odd.is_empty() {
        return Vec::new();
    }
    let names = files.keys().map(String::as_str).chain(odd.iter().copied());
    let needs = set::needs(kind, names).into_iter();
    needs
        .map(|need| need.path.into_string())
        .filter(|name| odd.contains(name.as_str()))
        .collect()
}

/// Linked files were not read, so they are not reported as whole.
fn link() -> Finding {
    let detail = "it is a symbolic link, which is not followed: nothing is said of the file that it leads to";
    Finding::error("symlink", Verdict::Unknown, detail)
}

fn judge(
    dir: &Utf8Path,
    place: &Utf8Path,
    kind: SetKind,
    facts: &[FileFact],
    look: &mut VerifyOptions<'_>,
    view: &mut PathView,
) {
    let here = dir.join(place);
    let files = &sizes(facts, place);
    let needs = set::needs(kind, files.keys().map(String::as_str));
    let reports: BTreeMap<String, _> = prove(&here, &needs, look)
        .into_iter()
        .map(|(path, report)| (path.into_string(), report))
        .collect();
    for (path, report) in &reports {
        let shown: Utf8PathBuf = place.join(path);
        view.files
            .push(file_view(shown.as_str(), &here, Utf8Path::new(path), report, look));
    }
    let mut judged = set::judge(kind, files, &reports);
    let no_files = misplaced(facts, place, kind, files, &[EntryKind::Dir, EntryKind::Other]).into_iter();
    let links = misplaced(facts, place, kind, files, &[EntryKind::Symlink]).into_iter();
    let no_files = no_files.map(|name| set::not_a_file().in_file(name));
    for finding in no_files.chain(links.map(|name| link().in_file(name))) {
        judged.verdict = judged.verdict.worst(finding.effect());
        judged.findings.insert(0, finding);
    }
    if judged.verdict == Verdict::Whole && kind != SetKind::RecoverInfo {
        judged.findings.extend(super::mixed::doubts(&here, look.memory));
    }
    view.verdict = view.verdict.worst(judged.verdict);
    view.sets.push(SetView {
        path: place.to_string(),
        kind: word(kind),
        verdict: judged.verdict,
        proven: judged.proven,
        bytes: judged.bytes,
        files: files.len() as u64,
        tensors: judged.tensors,
        findings: judged.findings,
    });
}

fn word(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Dcp => "dcp",
        SetKind::MegatronDist => "megatron_dist",
        SetKind::Weights => "weights",
        SetKind::RecoverInfo => "recover_info",
    }
}
