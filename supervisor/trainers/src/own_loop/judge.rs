//! The verdict on one reported checkpoint: as many files and bytes as reported, and each file whole by its format.

use super::entry::{LoopEntry, LoopMark};
use crate::adapter::ExpectedLayout;
use std::borrow::Cow;
use std::collections::BTreeMap;
use supervise_checkpoint::{FileKind, FileReport, RequiredFile, SetKind, set};
use supervise_core::checkpoint::{
    CheckpointSummary, CkptId, Depth, EntryKind, Finding, FindingLevel, Resumability, Verdict,
};
use supervise_core::id::WallMs;

const FINDINGS: usize = 64;
/// Beginnings of `.bin` files that `torch.save` wrote.
const TORCH_PARTS: [&str; 5] = [
    "training_args",
    "optimizer",
    "scheduler",
    "sampler",
    "custom_checkpoint",
];

pub(super) struct LoopStepInput<'a> {
    pub(super) ckpt: &'a CkptId,
    pub(super) entry: &'a LoopEntry,
    pub(super) mark: &'a LoopMark,
    pub(super) expect: &'a ExpectedLayout,
    pub(super) depth: Depth,
    /// By path in the checkpoint.
    pub(super) reports: &'a BTreeMap<&'a str, &'a FileReport>,
}

pub(super) fn judge(case: &LoopStepInput<'_>) -> CheckpointSummary {
    let entry = case.entry;
    let mut summary = crate::kit::blank(case.ckpt.clone(), case.mark.says.step);
    let (files, bytes) = entry.size();
    summary.layout = Cow::Borrowed("loop");
    summary.pins = crate::kit::pins(entry.files());
    summary.bytes = bytes;
    summary.files = u32::try_from(files).unwrap_or(u32::MAX);
    summary.newest = WallMs(entry.files().map(|(_, f)| f.mtime).max().unwrap_or(0) / 1_000_000);
    let mut findings: Vec<Finding> = shape(case).into_iter().collect();
    let needs = needs(case.ckpt, entry, case.expect);
    if findings.is_empty() {
        findings = contents(case);
        crate::kit::allow(case.expect, &mut findings);
    }
    summary.verdict = findings.iter().fold(Verdict::Whole, |v, f| v.worst(f.effect()));
    let depths = needs
        .iter()
        .map(|need| Some(case.reports.get(need.path.as_str())?.proven.min(case.depth)));
    let proven = depths.collect::<Option<Vec<Depth>>>().and_then(|d| d.into_iter().min());
    summary.proven = proven.filter(|_| summary.verdict == Verdict::Whole);
    summary.resume = Resumability::Exact;
    let torch = case.reports.values().filter_map(|r| r.facts.torch.as_ref());
    summary.unfamiliar = crate::kit::not_trusted(case.expect, torch);
    findings.sort_by_key(|f| std::cmp::Reverse((f.level, f.effect())));
    findings.truncate(FINDINGS);
    summary.findings = findings;
    summary
}

/// What keeps it from being looked into.
fn shape(case: &LoopStepInput<'_>) -> Option<Finding> {
    match case.entry.own.as_ref().map(|own| own.kind) {
        Some(EntryKind::File | EntryKind::Dir) => {}
        Some(EntryKind::Symlink) => {
            let detail = "the step is a symbolic link: it is not followed";
            return Some(Finding::error("symlink", Verdict::Unknown, detail));
        }
        _ => return Some(set::not_a_file()),
    }
    let (files, bytes) = case.entry.size();
    let mark = &case.mark.says;
    let detail = match () {
        () if files != mark.files || bytes != mark.bytes => format!(
            "{} bytes in {} were reported as saved, and {bytes} bytes in {} are here: it was changed since, or a later save was killed",
            mark.bytes,
            files_of(mark.files),
            files_of(files)
        ),
        () if case.entry.is_written_again(case.mark) => format!(
            "it was written again after it was reported as step {0}, and the later save was not reported: what it holds is not known to be step {0}",
            mark.step
        ),
        () => return None,
    };
    Some(Finding::error("saved_differs", Verdict::Incomplete, detail))
}

fn contents(case: &LoopStepInput<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (dir, group) in groups(case.entry) {
        let Some(kind) = set::recognize(group.keys().map(String::as_str)) else {
            continue;
        };
        let reports: BTreeMap<String, FileReport> = group
            .keys()
            .filter_map(|name| Some((name.clone(), (*case.reports.get(join(dir, name).as_str())?).clone())))
            .collect();
        let judged = set::judge(kind, &group, &reports);
        findings.extend(judged.findings.into_iter().map(|mut finding| {
            finding.file = finding.file.map(|file| join(dir, file.as_str()).into());
            finding
        }));
    }
    let in_sets = in_sets(case.entry);
    let single = |path: &str| !in_sets.contains_key(path);
    for (path, _) in case.entry.files().filter(|(path, _)| single(path)) {
        let name = if path.is_empty() { case.ckpt.0.as_str() } else { path };
        if kind_of(name) == FileKind::Opaque {
            let what = "its format is not one that supervise reads: the step is reported, not proven";
            if !case.expect.trust_reported {
                let detail = format!(
                    "{what}. If the loop notices a damaged file by itself: --set supervisor.proof.trust_reported=true"
                );
                findings.push(Finding::error("reported_only", Verdict::Unknown, detail).in_file(name));
                continue;
            }
            findings.push(Finding::note("reported_only", what).in_file(name));
        }
        let Some(report) = case.reports.get(path) else {
            continue;
        };
        let mut found = report.findings.clone();
        if report.verdict != Verdict::Whole && !found.iter().any(|f| f.level == FindingLevel::Error) {
            let detail = format!("the file is {}", report.verdict);
            found.push(Finding::error("file_not_whole", report.verdict, detail));
        }
        findings.extend(found.into_iter().map(|finding| finding.in_file(name)));
    }
    findings
}

/// The files to inspect, by path in the checkpoint.
pub(super) fn needs(ckpt: &CkptId, entry: &LoopEntry, expect: &ExpectedLayout) -> Vec<RequiredFile> {
    let in_sets = in_sets(entry);
    // What describes others comes first.
    let (described, mut out): (Vec<RequiredFile>, Vec<RequiredFile>) =
        in_sets.values().cloned().partition(|need| need.described_by.is_some());
    out.extend(described);
    for (path, _) in entry.files().filter(|(path, _)| !in_sets.contains_key(*path)) {
        let kind = kind_of(if path.is_empty() { ckpt.0.as_str() } else { path });
        if kind != FileKind::Opaque || expect.trust_reported {
            out.push(RequiredFile::new(path, kind));
        }
    }
    out
}

fn files_of(n: u64) -> String {
    match n {
        1 => "1 file".to_owned(),
        n => format!("{n} files"),
    }
}

/// Many loops name what `torch.save` wrote `.ckpt` or `.tar`; Trainer and accelerate name parts of the state `.bin`.
fn kind_of(path: &str) -> FileKind {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_torch = [".ckpt", ".tar"].iter().any(|end| name.ends_with(end));
    let is_part = name.ends_with(".bin") && TORCH_PARTS.iter().any(|part| name.starts_with(part));
    match FileKind::of(path) {
        FileKind::Opaque if is_torch || is_part => FileKind::TorchZip,
        FileKind::Json => FileKind::AnyJson,
        kind => kind,
    }
}

/// Names and sizes of the files of each directory, by its path in the checkpoint.
fn groups(entry: &LoopEntry) -> BTreeMap<&str, BTreeMap<String, u64>> {
    let mut out: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
    for (path, fact) in entry.files().filter(|(path, _)| !path.is_empty()) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        out.entry(dir).or_default().insert(name.to_owned(), fact.size);
    }
    out
}

/// Files that belong to a set, by path.
fn in_sets(entry: &LoopEntry) -> BTreeMap<String, RequiredFile> {
    let mut out = BTreeMap::new();
    for (dir, group) in groups(entry) {
        let kind: Option<SetKind> = set::recognize(group.keys().map(String::as_str));
        let needs = kind.map(|kind| set::needs(kind, group.keys().map(String::as_str)));
        for mut need in needs.into_iter().flatten() {
            need.path = join(dir, need.path.as_str()).into();
            need.described_by = need.described_by.map(|by| join(dir, by.as_str()).into());
            out.insert(need.path.to_string(), need);
        }
    }
    out
}

fn join(dir: &str, name: &str) -> String {
    match dir {
        "" => name.to_owned(),
        dir => format!("{dir}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::LoopStepTracker;
    use super::*;
    use crate::adapter::StepTracker;
    use supervise_core::checkpoint::FileFact;
    use supervise_core::id::Step;

    fn fact(path: &str, kind: EntryKind, size: u64) -> FileFact {
        FileFact {
            path: path.into(),
            kind,
            size,
            dev: 1,
            ino: 1,
            mtime: 1,
            ctime: 1,
            uid: 0,
        }
    }

    fn tracker(trusted: bool, facts: &[(&str, EntryKind, u64)]) -> LoopStepTracker {
        let mut tracker = LoopStepTracker::new(ExpectedLayout {
            trust_reported: trusted,
            ..ExpectedLayout::default()
        });
        for (path, kind, size) in facts {
            tracker.note(&fact(path, *kind, *size));
        }
        tracker
    }

    fn verdict(tracker: &mut LoopStepTracker, name: &str) -> (Verdict, Option<String>) {
        let summary = tracker.judge(&CkptId(name.into()), Depth::Full, &BTreeMap::new());
        assert_eq!(summary.proven, None, "nothing was read");
        (summary.verdict, summary.findings.first().map(|f| f.code.to_string()))
    }

    #[test]
    fn only_a_marked_entry_is_a_step_and_it_is_what_was_reported() {
        let mut t = tracker(
            false,
            &[
                ("ckpt_20", EntryKind::Dir, 0),
                ("ckpt_20/model.pt", EntryKind::File, 70),
                ("ckpt_20/optim.pt", EntryKind::File, 30),
                ("saved.ckpt_20.20-2-100", EntryKind::File, 0),
                ("ckpt_30", EntryKind::Dir, 0),
                ("ckpt_30/model.pt", EntryKind::File, 70),
                ("saved.ckpt_40.40-2-100", EntryKind::File, 0),
            ],
        );
        assert_eq!(t.steps(), [(CkptId("ckpt_20".into()), Step(20))]);
        assert_eq!(verdict(&mut t, "ckpt_20"), (Verdict::Whole, None));
        assert_eq!(t.needs(&CkptId("ckpt_20".into()), Depth::Full).len(), 2);
        t.note(&fact("ckpt_20/optim.pt", EntryKind::Gone, 0));
        assert_eq!(
            verdict(&mut t, "ckpt_20"),
            (Verdict::Incomplete, Some("saved_differs".into()))
        );
        t.note(&fact("saved.ckpt_20.21-1-70", EntryKind::File, 0));
        assert_eq!(
            t.steps(),
            [(CkptId("ckpt_20".into()), Step(21))],
            "the mark that fits counts"
        );
        t.forget(&CkptId("ckpt_20".into()));
        assert!(t.steps().is_empty());
    }

    #[test]
    fn an_unknown_format_counts_only_if_the_user_says_so() {
        let facts = [
            ("state.msgpack", EntryKind::File, 9),
            ("saved.state.msgpack.5-1-9", EntryKind::File, 0),
        ];
        let mut t = tracker(false, &facts);
        let told = verdict(&mut t, "state.msgpack");
        assert_eq!(told, (Verdict::Unknown, Some("reported_only".into())));
        assert!(t.needs(&CkptId("state.msgpack".into()), Depth::Full).is_empty());
        let mut t = tracker(true, &facts);
        assert_eq!(verdict(&mut t, "state.msgpack").0, Verdict::Whole);
        assert_eq!(t.needs(&CkptId("state.msgpack".into()), Depth::Full).len(), 1);
    }

    #[test]
    fn a_file_that_was_written_again_is_not_the_step_that_was_reported() {
        let mark = "saved.a.pt.5-1-9-40";
        let at = |path: &str, mtime| FileFact {
            mtime,
            ..fact(path, EntryKind::File, 9)
        };
        let mut t = tracker(false, &[]);
        t.note(&at("a.pt", 40));
        t.note(&at(mark, 40));
        assert_eq!(verdict(&mut t, "a.pt"), (Verdict::Whole, None));
        t.note(&at("a.pt", 41));
        assert_eq!(
            verdict(&mut t, "a.pt"),
            (Verdict::Incomplete, Some("saved_differs".into()))
        );
        // A copy has other times, in any order.
        t.note(&at(mark, 39));
        assert_eq!(verdict(&mut t, "a.pt"), (Verdict::Whole, None));
        // The save that was reported after all.
        t.note(&at("saved.a.pt.6-1-9-41", 41));
        assert_eq!(t.steps(), [(CkptId("a.pt".into()), Step(6))]);
    }

    #[test]
    fn a_link_is_not_followed() {
        let mut t = tracker(
            true,
            &[
                ("latest", EntryKind::Symlink, 9),
                ("saved.latest.5-1-9", EntryKind::File, 0),
            ],
        );
        assert_eq!(verdict(&mut t, "latest"), (Verdict::Unknown, Some("symlink".into())));
    }
}
