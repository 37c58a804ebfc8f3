//! The verdict on one step of a declared trainer.
//!
//! A step is judged by what it holds itself and by what finished neighbours hold, never by the day's configuration.

use super::Declaration;
use super::entry::{self, DeclaredStepDir, FoundPart, PartSet};
use super::pattern::Placeholder;
use super::schema::{FinishMark, PartNeed, StepNames};
use crate::adapter::ExpectedLayout;
use camino::Utf8Path;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::{FileReport, set};
use supervise_core::checkpoint::{
    CheckpointSummary, CkptId, Depth, EntryKind, Finding, FindingLevel, Resumability, StateKind, Verdict,
};
use supervise_core::event::TrackerState;
use supervise_core::id::{Step, WallMs};

const FINDINGS: usize = 64;
/// Missing ranks that are named.
const NAMED: usize = 4;

/// What a finished neighbour holds, by part and role.
#[derive(Debug, Default)]
pub(super) struct SiblingParts {
    /// Number of files.
    pub(super) files: BTreeMap<(usize, String), usize>,
    pub(super) heads: BTreeMap<(usize, String), BTreeSet<String>>,
}

#[derive(Debug)]
pub(super) struct DeclaredStepInput<'a> {
    pub(super) of: &'a Declaration,
    pub(super) ckpt: &'a CkptId,
    pub(super) entry: &'a DeclaredStepDir,
    pub(super) siblings: Vec<SiblingParts>,
    pub(super) pointer: &'a TrackerState,
    pub(super) expect: &'a ExpectedLayout,
    /// What no step holds is known of the run, and no loss of this step.
    pub(super) in_run: bool,
    pub(super) depth: Depth,
    /// By path inside the step.
    pub(super) reports: &'a BTreeMap<&'a str, &'a FileReport>,
}

#[derive(Debug)]
pub(super) struct JudgedStep {
    pub(super) summary: CheckpointSummary,
    pub(super) heads: BTreeMap<(usize, String), BTreeSet<String>>,
}

pub(super) fn judge(case: &DeclaredStepInput<'_>) -> JudgedStep {
    let entry = case.entry;
    let mut summary = crate::kit::blank(case.ckpt.clone(), Step(entry.step));
    summary.layout = Cow::Owned(case.of.name.clone());
    summary.pins = entry.pins();
    summary.bytes = entry.regular().map(|(_, f)| f.size).sum();
    summary.files = u32::try_from(entry.regular().count()).unwrap_or(u32::MAX);
    summary.newest = WallMs(entry.regular().map(|(_, f)| f.mtime).max().unwrap_or(0) / 1_000_000);
    if let Some(finding) = not_a_step(case) {
        summary.layout = Cow::Borrowed("unknown");
        summary.verdict = finding.effect();
        summary.resume = Resumability::Not {
            why: finding.detail.clone(),
        };
        summary.findings.push(finding);
        return JudgedStep {
            summary,
            heads: BTreeMap::new(),
        };
    }
    let parts = entry::find(case.of, entry);
    let mut check = DeclaredPartCheck {
        case,
        findings: Vec::new(),
        heads: BTreeMap::new(),
        told: None,
    };
    for part in &parts {
        check.part(part, &parts);
    }
    check.finish_mark();
    check.odd();
    let DeclaredPartCheck {
        mut findings,
        heads,
        told,
        ..
    } = check;
    summary.step = told.unwrap_or(summary.step);
    crate::kit::allow(case.expect, &mut findings);
    summary.roles = roles(&parts);
    summary.world = parts.iter().find_map(world);
    let mut contents: Vec<String> = parts
        .iter()
        .filter(|p| p.is_there())
        .map(|p| p.part.name.clone())
        .collect();
    contents.dedup();
    summary.contents = contents;
    summary.verdict = verdict(&findings);
    let depths = parts.iter().flat_map(FoundPart::needs).map(|need| {
        let report = case.reports.get(need.path.as_str())?;
        Some(report.proven.min(case.depth))
    });
    let proven = depths.collect::<Option<Vec<Depth>>>().and_then(|d| d.into_iter().min());
    summary.proven = proven.filter(|_| summary.verdict == Verdict::Whole);
    // A trainer that overwrites its checkpoint saves a step again where it resumes: one step is one save.
    if matches!(case.of.steps.names, StepNames::InPlace(_)) && summary.proven.is_some() {
        summary.save = Some(summary.step.to_string());
    }
    summary.resume = resume(&parts, case.in_run);
    let facts = case.reports.values().filter_map(|r| r.facts.torch.as_ref());
    summary.unfamiliar = crate::kit::not_trusted(case.expect, facts);
    findings.sort_by_key(|f| std::cmp::Reverse((f.level, f.effect())));
    let more = findings.len().saturating_sub(FINDINGS);
    findings.truncate(FINDINGS);
    if more > 0 {
        findings.push(Finding::note(
            "more_findings",
            format!("{more} more findings are not listed"),
        ));
    }
    summary.findings = findings;
    JudgedStep { summary, heads }
}

fn verdict(findings: &[Finding]) -> Verdict {
    findings.iter().fold(Verdict::Whole, |v, f| v.worst(f.effect()))
}

fn not_a_step(case: &DeclaredStepInput<'_>) -> Option<Finding> {
    let is_file = matches!(&case.of.steps.names, StepNames::InPlace(file) if case.ckpt.0 == *file);
    let wanted = if is_file { EntryKind::File } else { EntryKind::Dir };
    match case.entry.kind() {
        kind if kind == wanted || kind == EntryKind::Gone => {}
        EntryKind::Symlink => {
            let detail = "the step is a symbolic link: it is not followed";
            return Some(Finding::error("symlink", Verdict::Unknown, detail));
        }
        _ if is_file => return Some(set::not_a_file()),
        _ => return Some(Finding::error("not_a_directory", Verdict::Unknown, "not a directory")),
    }
    if case.entry.regular().next().is_none() && case.entry.odd().next().is_none() {
        return Some(Finding::error(
            "nothing_saved",
            Verdict::Incomplete,
            "nothing was saved here yet",
        ));
    }
    let parts = entry::find(case.of, case.entry);
    (!parts.iter().any(|part| part.is_there() || part.is_linked)).then(|| {
        let detail = format!("no file here is one that {} writes", case.of.title);
        Finding::error("layout_unknown", Verdict::Unknown, detail)
    })
}

fn roles(parts: &[FoundPart<'_>]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for part in parts.iter().filter(|p| p.is_there() && !p.role.is_empty()) {
        if !out.iter().any(|role| role == part.role) {
            out.push(part.role.to_owned());
        }
    }
    out
}

fn world(part: &FoundPart<'_>) -> Option<u32> {
    let told = part.files.iter().find_map(|f| f.numbers.get(&Placeholder::World));
    u32::try_from(*told?).ok()
}

/// What a resume from here does not bring back: parts that are not there although they could be, and what is never saved.
fn resume(parts: &[FoundPart<'_>], in_run: bool) -> Resumability {
    let never = parts.iter().filter(|_| !in_run);
    let mut lost: BTreeSet<StateKind> = never.flat_map(|p| p.part.never_saved.iter().copied()).collect();
    let gone = parts.iter().filter(|p| !p.is_there() && !p.optional);
    lost.extend(gone.flat_map(|p| p.part.lost.iter().copied()));
    match lost.is_empty() {
        true => Resumability::Exact,
        false => Resumability::Degraded {
            lost: lost.into_iter().collect(),
        },
    }
}

struct DeclaredPartCheck<'a> {
    case: &'a DeclaredStepInput<'a>,
    findings: Vec<Finding>,
    heads: BTreeMap<(usize, String), BTreeSet<String>>,
    /// The step that a file says, if the name does not say it.
    told: Option<Step>,
}

impl DeclaredPartCheck<'_> {
    fn say(&mut self, role: &str, finding: Finding) {
        let mut finding = finding;
        finding.role = (!role.is_empty()).then(|| role.to_owned());
        self.findings.push(finding);
    }

    fn part(&mut self, part: &FoundPart<'_>, all: &[FoundPart<'_>]) {
        if !part.is_there() {
            // A link is reported as what it is.
            if self.is_needed(part, all) && !part.is_linked {
                let detail = format!("no file of {} is here: {}", part.words(), part.part.missing.words());
                self.say(part.role, Finding::error("part_missing", Verdict::Incomplete, detail));
            }
            return;
        }
        self.ranks(part);
        for file in &part.files {
            self.file(part, file.path);
        }
        for set in &part.sets {
            self.set(part, set);
        }
    }

    fn is_needed(&self, part: &FoundPart<'_>, all: &[FoundPart<'_>]) -> bool {
        if part.is_always() {
            return true;
        }
        let of_role = |other: &FoundPart<'_>| !part.role.is_empty() && other.role == part.role && other.is_there();
        let in_begun_role = part.optional && part.part.need == PartNeed::Always && all.iter().any(of_role);
        let key = part.key();
        let in_sibling = || self.case.siblings.iter().any(|s| s.files.contains_key(&key));
        in_begun_role || part.part.need != PartNeed::Optional && in_sibling()
    }

    /// Checks that no rank is missing. Fewer ranks than in another step may be a smaller machine.
    fn ranks(&mut self, part: &FoundPart<'_>) {
        let of = |place: Placeholder| -> BTreeSet<u64> {
            part.files
                .iter()
                .filter_map(|f| f.numbers.get(&place).copied())
                .collect()
        };
        let worlds = of(Placeholder::World);
        if worlds.len() > 1 {
            let some: Vec<String> = worlds.iter().take(NAMED).map(u64::to_string).collect();
            let detail = format!(
                "{}: files of {} ranks are here, and nothing says which of them count",
                part.words(),
                some.join(" and of ")
            );
            self.say(part.role, Finding::error("world_sizes_mixed", Verdict::Unknown, detail));
            return;
        }
        let world = worlds.first().copied();
        for place in [
            Placeholder::Rank,
            Placeholder::Tp,
            Placeholder::Pp,
            Placeholder::Ep,
            Placeholder::Mp,
            Placeholder::N,
        ] {
            let there = of(place);
            let Some(last) = there.last().copied() else { continue };
            let count = world
                .filter(|_| place == Placeholder::Rank)
                .unwrap_or(last.saturating_add(1));
            if last >= count {
                let detail = format!(
                    "{}: a file of {} {last} is here, and there are {count}",
                    part.words(),
                    place.word()
                );
                self.say(part.role, Finding::error("rank_missing", Verdict::Unknown, detail));
                continue;
            }
            let missing = count.saturating_sub(there.len() as u64);
            if missing == 0 || part.is_linked {
                continue;
            }
            let mut named: Vec<String> = Vec::new();
            let mut next = 0;
            for rank in there.iter().copied().chain([count]) {
                for gap in (next..rank).take(NAMED - named.len().min(NAMED)) {
                    named.push(gap.to_string());
                }
                next = rank.saturating_add(1);
            }
            let more = if missing > named.len() as u64 { ", …" } else { "" };
            let detail = format!(
                "{}: {missing} of {count} files are missing, {} {}{more}",
                part.words(),
                place.word(),
                named.join(", ")
            );
            self.say(part.role, Finding::error("rank_missing", Verdict::Incomplete, detail));
        }
        let most = self.case.siblings.iter().filter_map(|s| s.files.get(&part.key())).max();
        if let Some(most) = most.filter(|most| world.is_none() && **most > part.files.len()) {
            let detail = format!(
                "{}: {} files, and another step has {most}: fewer ranks saved it, or the last ones are missing",
                part.words(),
                part.files.len()
            );
            self.say(part.role, Finding::note("fewer_ranks", detail));
        }
    }

    fn file(&mut self, part: &FoundPart<'_>, path: &str) {
        let shown = if path.is_empty() {
            self.case.ckpt.0.as_str()
        } else {
            path
        };
        let is_empty = self.case.entry.below.get(path).is_some_and(|f| f.size == 0);
        let Some(report) = self.case.reports.get(path).copied() else {
            if is_empty {
                let finding = Finding::error("file_empty", Verdict::Incomplete, "the file is empty");
                self.say(part.role, finding.in_file(shown));
            }
            return;
        };
        let mut found: Vec<Finding> = report.findings.clone();
        if report.verdict != Verdict::Whole && !found.iter().any(|f| f.level == FindingLevel::Error) {
            let detail = format!("the file is {}", report.verdict);
            found.push(Finding::error("file_not_whole", report.verdict, detail));
        }
        // Of a torn file, nothing is known that it lacks.
        if let Some(torch) = report.facts.torch.as_ref().filter(|_| report.verdict == Verdict::Whole) {
            found.extend(self.step_differs(part, torch));
            for held in part.part.holds.iter().filter(|held| !held.optional) {
                if !torch.keys.contains(&held.name) && torch.names_all_keys() {
                    let detail = format!("it holds no `{}`: it was not saved for a resume", held.name);
                    found.push(Finding::error("content_missing", Verdict::Incomplete, detail));
                }
            }
        }
        for finding in found {
            self.say(part.role, finding.in_file(shown));
        }
    }

    fn step_differs(
        &mut self,
        part: &FoundPart<'_>,
        torch: &supervise_checkpoint::torch::TorchFacts,
    ) -> Option<Finding> {
        let key = part.part.step_key.as_ref()?;
        let told = torch.numbers.get(key).copied()?;
        if matches!(self.case.of.steps.names, StepNames::InPlace(_)) {
            self.told = Some(Step(told));
            return None;
        }
        let own = self.case.entry.step;
        (told != own).then(|| {
            let detail = format!("it says step {told}, and the directory is that of step {own}");
            Finding::error("step_differs", Verdict::Damaged, detail)
        })
    }

    fn set(&mut self, part: &FoundPart<'_>, set: &PartSet) {
        let below = |path: &str| -> Option<String> {
            let name = match set.dir.as_str() {
                "" => path,
                dir => path.strip_prefix(dir)?.strip_prefix('/')?,
            };
            (!name.contains('/')).then(|| name.to_owned())
        };
        let reports: BTreeMap<String, FileReport> = self
            .case
            .reports
            .iter()
            .filter_map(|(path, report)| Some((below(path)?, (*report).clone())))
            .collect();
        let judged = set::judge(set.kind, &set.files, &reports);
        for mut finding in judged.findings {
            finding.file = finding.file.map(|file| Utf8Path::new(&set.dir).join(file));
            self.say(part.role, finding);
        }
        let heads: BTreeSet<String> = reports
            .values()
            .filter_map(|r| r.facts.dcp.as_ref())
            .flat_map(|dcp| dcp.heads.iter().cloned())
            .collect();
        if heads.is_empty() {
            return;
        }
        let key = part.key();
        let declared = part
            .part
            .holds
            .iter()
            .filter(|held| !held.optional)
            .map(|held| held.name.clone());
        let of_siblings = self.case.siblings.iter().find_map(|s| s.heads.get(&key));
        let of_siblings = of_siblings
            .filter(|_| part.part.as_sibling)
            .into_iter()
            .flatten()
            .cloned();
        let missing: BTreeSet<String> = declared
            .chain(of_siblings)
            .filter(|name| !heads.contains(name))
            .collect();
        if !missing.is_empty() {
            let names: Vec<String> = missing
                .into_iter()
                .take(NAMED)
                .map(|name| format!("`{name}`"))
                .collect();
            let detail = format!(
                "{} holds no {}: it was not saved for a resume",
                part.words(),
                names.join(", no ")
            );
            self.say(
                part.role,
                Finding::error("content_missing", Verdict::Incomplete, detail),
            );
        }
        self.heads.insert(key, heads);
    }

    fn finish_mark(&mut self) {
        let finding = match &self.case.of.finish {
            FinishMark::File(name) if !self.case.entry.below.contains_key(name) => {
                let detail = "it is written last and is not there: the save goes on, or was killed";
                Finding::error("unfinished", Verdict::Incomplete, detail).in_file(name.as_str())
            }
            FinishMark::Tracker => match self.case.pointer {
                TrackerState::Step(at) if at.0 < self.case.entry.step => {
                    let detail =
                        format!("the tracker still names step {at}: the save of this step goes on, or was killed");
                    Finding::error("unfinished", Verdict::Incomplete, detail)
                }
                _ => return,
            },
            FinishMark::File(_) | FinishMark::Rename | FinishMark::Parts => return,
        };
        self.say("", finding);
    }

    /// Links are not followed, and never replace a part.
    fn odd(&mut self) {
        for path in self.case.entry.odd() {
            let detail =
                "a symbolic link or special file: it is not followed, and a resume would load what it leads to";
            let finding = Finding::error("symlink", Verdict::Unknown, detail);
            self.say("", finding.in_file(path));
        }
    }
}
