//! The verdict on one step of Hugging Face's `Trainer`, and what a resume from it would lose.
//!
//! A resume fails without `trainer_state.json` or weights, but silently continues without anything else: with a fresh
//! optimizer, or a schedule from its start. So a step that lacks something it was saved with is not whole, whatever
//! `Trainer` would do with it.

use super::entry::{HfStepDir, Siblings};
use super::groups::{StatePart, StepListing};
use super::names::{self, HfRootName};
use super::parts::{self, HfSaveFormat, HfStepParts};
use super::ranks::NodeRanks;
use crate::adapter::ExpectedLayout;
use camino::Utf8PathBuf;
use std::borrow::Cow;
use std::collections::BTreeMap;
use supervise_checkpoint::FileReport;
use supervise_core::checkpoint::{
    CheckpointSummary, CkptId, Depth, EntryKind, Finding, FindingLevel, PartialStep, Resumability, StateKind,
    TrainerNote, Verdict,
};
use supervise_core::id::{Step, WallMs};

const FINDINGS: usize = 64;
/// State that `Trainer` silently resumes without.
const SILENT: [StatePart; 3] = [StatePart::Optimizer, StatePart::Schedule, StatePart::Rng];

const CONTENTS: [StatePart; 7] = [
    StatePart::Weights,
    StatePart::Optimizer,
    StatePart::Schedule,
    StatePart::Rng,
    StatePart::Rollout,
    StatePart::Entropy,
    StatePart::Data,
];

#[derive(Debug)]
pub(crate) struct HfStepInput<'a> {
    pub(crate) step: Step,
    pub(crate) entry: &'a HfStepDir,
    pub(crate) siblings: Siblings,
    pub(crate) expect: &'a ExpectedLayout,
    pub(crate) depth: Depth,
    pub(crate) reports: &'a BTreeMap<Utf8PathBuf, FileReport>,
}

pub(crate) fn judge(case: &HfStepInput<'_>) -> CheckpointSummary {
    let dir = names::step_dir(case.step);
    let mut summary = crate::kit::unknown_step(&CkptId(dir.clone().into()));
    summary.findings.clear();
    summary.step = case.step;
    summary.resume = Resumability::Exact;
    summary.pins = case.entry.pins();
    summary.bytes = case.entry.regular().map(|(_, f)| f.size).sum();
    summary.files = u32::try_from(case.entry.regular().count()).unwrap_or(u32::MAX);
    summary.newest = WallMs(case.entry.regular().map(|(_, f)| f.mtime).max().unwrap_or(0) / 1_000_000);
    let files = case.entry.files();
    let parts = HfStepParts::of(&files);
    if let Some(finding) = not_a_step(case, &parts) {
        summary.verdict = finding.effect();
        summary.resume = Resumability::Not {
            why: finding.detail.clone(),
        };
        summary.findings.push(finding);
        return summary;
    }
    let reports = below(&dir, case.reports);
    let seen = HfStepCheck {
        case,
        files,
        parts,
        reports,
    };
    seen.into_summary(summary)
}

fn not_a_step(case: &HfStepInput<'_>, parts: &HfStepParts) -> Option<Finding> {
    match case.entry.kind() {
        EntryKind::Dir => {}
        EntryKind::Symlink => {
            let detail = "a symbolic link: it is not followed";
            return Some(Finding::error("symlink", Verdict::Unknown, detail));
        }
        _ => {
            return Some(Finding::error(
                "not_a_directory",
                Verdict::Unknown,
                "it is no directory",
            ));
        }
    }
    if case.entry.regular().next().is_none() {
        let detail = "the directory is empty: its save was killed, or has just begun";
        return Some(Finding::error("unfinished", Verdict::Incomplete, detail));
    }
    if parts.is_foreign() {
        let detail = "nothing in it is a file that Hugging Face's Trainer writes";
        return Some(Finding::error("unknown_layout", Verdict::Unknown, detail));
    }
    let detail = match parts.form {
        HfSaveFormat::LocalShards => {
            "FSDP saved a file a rank (LOCAL_STATE_DICT): whether all are there and fit is not known here"
        }
        HfSaveFormat::Accelerate => {
            "accelerate's save_state wrote it, no Trainer: whether all is there is known to the program that saved it"
        }
        HfSaveFormat::Plain | HfSaveFormat::Fsdp | HfSaveFormat::DeepSpeed | HfSaveFormat::V1 => return None,
    };
    Some(Finding::error("unknown_layout", Verdict::Unknown, detail))
}

pub(super) fn below<'a>(
    dir: &str,
    reports: &'a BTreeMap<Utf8PathBuf, FileReport>,
) -> BTreeMap<&'a str, &'a FileReport> {
    let inside = |path: &'a Utf8PathBuf| path.as_str().strip_prefix(dir)?.strip_prefix('/');
    reports
        .iter()
        .filter_map(|(path, report)| Some((inside(path)?, report)))
        .collect()
}

struct HfStepCheck<'a> {
    case: &'a HfStepInput<'a>,
    files: StepListing<'a>,
    parts: HfStepParts,
    reports: BTreeMap<&'a str, &'a FileReport>,
}

impl HfStepCheck<'_> {
    fn into_summary(self, mut summary: CheckpointSummary) -> CheckpointSummary {
        let mut by_part: BTreeMap<StatePart, Vec<Finding>> = BTreeMap::new();
        for (what, group) in &self.parts.groups {
            let found = by_part.entry(*what).or_default();
            for need in &group.needs {
                found.extend(self.of_file(need.path.as_str()));
            }
            found.extend(group.compare(&self.files, &self.reports));
            crate::kit::allow(self.case.expect, found);
        }
        for (what, finding) in self.missing() {
            by_part.entry(what).or_default().push(finding);
        }
        let saved = SILENT.iter().any(|w| self.parts.has(*w));
        summary.layout = Cow::Borrowed(match self.parts.form {
            HfSaveFormat::DeepSpeed => "hf_deepspeed",
            HfSaveFormat::Fsdp => "hf_fsdp",
            HfSaveFormat::V1 => "llamafactory_v1",
            HfSaveFormat::Plain | HfSaveFormat::LocalShards | HfSaveFormat::Accelerate => "hf_trainer",
        });
        summary.world = self.world();
        let whole =
            |what: StatePart| self.parts.has(what) && by_part.get(&what).is_none_or(|f| verdict(f) == Verdict::Whole);
        summary.contents = CONTENTS
            .into_iter()
            .filter(|w| self.parts.has(*w))
            .map(|w| w.word().to_owned())
            .collect();
        summary.resume = self.resume(saved);
        summary.part = self.part(&whole);
        summary.findings.extend(self.odd());
        summary.findings.extend(by_part.into_values().flatten());
        summary.verdict = verdict(&summary.findings);
        let depths = self
            .parts
            .groups
            .values()
            .map(|g| g.proven(self.case.depth, &self.reports));
        let proven = depths.collect::<Option<Vec<Depth>>>().and_then(|d| d.into_iter().min());
        summary.proven = proven.filter(|_| summary.verdict == Verdict::Whole);
        let state = self.reports.values().find_map(|r| r.facts.trainer_state);
        let note = state.map(|s| TrainerNote {
            best: s.best.map(Step),
            ends: s.ends,
            save_every: s.save_steps,
            planned: (s.max_steps > 0).then_some(Step(s.max_steps)),
        });
        summary.trainer_note = note.filter(|n| *n != TrainerNote::default());
        let facts = self.reports.values().filter_map(|r| r.facts.torch.as_ref());
        summary.unfamiliar = crate::kit::not_trusted(self.case.expect, facts);
        order(&mut summary.findings);
        summary
    }

    fn of_file(&self, path: &str) -> Vec<Finding> {
        let Some(report) = self.reports.get(path) else {
            return Vec::new();
        };
        let mut out: Vec<Finding> = report.findings.clone();
        out.extend(self.step_differs(report));
        out.extend(parts::misplaced(path, report));
        if self.parts.form == HfSaveFormat::V1 {
            out.extend(super::v1::odd_content(path, report));
        }
        if report.verdict != Verdict::Whole && !out.iter().any(|f| f.level == FindingLevel::Error) {
            let detail = format!("the file is {}", report.verdict);
            out.push(Finding::error("file_not_whole", report.verdict, detail));
        }
        out.into_iter().map(|f| f.in_file(path)).collect()
    }

    fn step_differs(&self, report: &FileReport) -> Option<Finding> {
        let told = report.facts.trainer_state?.global_step;
        (told != self.case.step.0).then(|| {
            let detail = format!(
                "it says step {told}, and the directory is that of step {}",
                self.case.step
            );
            Finding::error("step_differs", Verdict::Damaged, detail)
        })
    }

    /// Contents that the step was saved with but does not have.
    fn missing(&self) -> Vec<(StatePart, Finding)> {
        let mut out = Vec::new();
        let mut say = |what, file: &str, finding: Finding| out.push((what, finding.in_file(file)));
        let lacks = Verdict::Incomplete;
        let parts = &self.parts;
        if parts.form == HfSaveFormat::V1 {
            if !self.files.has(names::V1_COMPLETE) {
                let detail = "it is written last and is not there: the save goes on, or was killed; LLaMA-Factory passes the step over";
                let finding = Finding::error("unfinished", lacks, detail);
                say(StatePart::State, names::V1_COMPLETE, finding);
            }
            if !parts.has(StatePart::State) {
                let detail = "it is not there: every resume from here would fail";
                say(
                    StatePart::State,
                    names::V1_STATE,
                    Finding::error("unfinished", lacks, detail),
                );
            }
        } else if parts.sentinel {
            let detail = "a save on demand did not end";
            say(
                StatePart::State,
                names::SENTINEL,
                Finding::error("unfinished", lacks, detail),
            );
        } else if !parts.has(StatePart::State) {
            let detail = "it is written last and is not there: the save goes on, or was killed; every resume from here would fail";
            say(
                StatePart::State,
                names::STATE,
                Finding::error("unfinished", lacks, detail),
            );
        }
        if let Some(finding) = self.pointer() {
            say(StatePart::Weights, names::LATEST, finding);
        }
        let loads = names::WEIGHTS.iter().any(|n| self.files.by_path.contains_key(n));
        if !parts.has(StatePart::Weights) || parts.form == HfSaveFormat::Plain && !loads && !self.has_adapters() {
            let detail = "no weights that a resume loads are there";
            say(
                StatePart::Weights,
                "model.safetensors",
                Finding::error("weights_missing", lacks, detail),
            );
        }
        let siblings = &self.case.siblings;
        let saved = SILENT.iter().any(|w| parts.has(*w)) || siblings.optimizer;
        if saved && !parts.has(StatePart::Optimizer) && parts.form != HfSaveFormat::DeepSpeed {
            let detail = "the optimizer's state is not there: a resume would begin with a fresh one and say nothing";
            let file = match parts.form {
                HfSaveFormat::V1 => super::v1::STATE_DICT,
                _ => "optimizer.pt",
            };
            say(
                StatePart::Optimizer,
                file,
                Finding::error("optimizer_missing", lacks, detail),
            );
        }
        // DeepSpeed may have a schedule of its own, in its own files.
        let schedule = siblings.schedule || saved && parts.form != HfSaveFormat::DeepSpeed;
        if schedule && !parts.has(StatePart::Schedule) {
            let detail = "the learning-rate schedule is not there: a resume would begin it and the optimizer anew and say nothing";
            say(
                StatePart::Schedule,
                names::SCHEDULE,
                Finding::error("schedule_missing", lacks, detail),
            );
        }
        if siblings.scaler && !parts.has(StatePart::Scaler) {
            let detail = "the loss scale is not there, and other steps have it";
            say(
                StatePart::Scaler,
                names::SCALER,
                Finding::error("scaler_missing", lacks, detail),
            );
        }
        for (what, file, wanted) in [
            (StatePart::Rollout, names::ROLLOUT, siblings.rollout),
            (StatePart::Entropy, names::ENTROPY, siblings.entropy),
        ] {
            if wanted && !parts.has(what) {
                let detail = "the step before it has this file: a resume would begin this state anew and say nothing";
                say(what, file, Finding::error("state_missing", lacks, detail));
            }
        }
        if let Some((rank, lost, of)) = self.lost_ranks().filter(|_| saved) {
            let detail = format!("the random states of {lost} of {of} ranks are not there, the first is rank {rank}");
            let file = match parts.form {
                HfSaveFormat::V1 => format!("{}/rank_{rank}.pt", names::V1_RNG),
                _ => format!("rng_state_{rank}.pth"),
            };
            say(StatePart::Rng, &file, Finding::error("rng_missing", lacks, detail));
        } else if saved && parts.world().is_none() {
            say(
                StatePart::Rng,
                names::RNG,
                Finding::error("rng_missing", lacks, "the random states are not there"),
            );
        }
        out
    }

    /// DeepSpeed loads the directory that its pointer names.
    fn pointer(&self) -> Option<Finding> {
        let told = self.reports.get(names::LATEST)?.facts.text.as_deref()?;
        let tag = self.parts.tag.as_deref().filter(|tag| *tag != told)?;
        Some(match self.files.has_dir(told) && !told.is_empty() {
            true => Finding::error(
                "deepspeed_steps",
                Verdict::Unknown,
                format!("it names {told}, whose form is not read here, and not {tag}"),
            ),
            false => Finding::error(
                "latest_missing",
                Verdict::Damaged,
                format!("it names {told}, which is not there: nothing would be loaded"),
            ),
        })
    }

    fn has_adapters(&self) -> bool {
        self.files
            .by_path
            .keys()
            .any(|p| p.ends_with("/adapter_model.safetensors"))
    }

    /// The first rank whose random states are missing, how many are missing, and of how many ranks. Numbered states
    /// are written if there is more than one rank; beyond those found, only the configuration says how many there
    /// were.
    fn lost_ranks(&self) -> Option<(u32, u32, u32)> {
        let ranks = &self.parts.ranks;
        if let Some(node) = self.node_ranks().filter(|_| !ranks.is_empty()) {
            let lost = (node.first..node.end).filter(|r| !ranks.contains(r));
            let count = u32::try_from(lost.clone().count()).unwrap_or(u32::MAX);
            return lost.min().map(|first| (first, count, node.end - node.first));
        }
        let of = self.parts.world().filter(|_| !ranks.is_empty())?;
        let of = of.max(if self.parts.form == HfSaveFormat::V1 { 1 } else { 2 });
        let first = (0..of).find(|r| !ranks.contains(r))?;
        let there = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        Some((first, of.saturating_sub(there), of))
    }

    /// The ranks of this node, if other nodes save elsewhere.
    fn node_ranks(&self) -> Option<NodeRanks> {
        let node = self.case.expect.own.get::<Option<NodeRanks>>().copied().flatten()?;
        // A directory shared by all nodes has files of all ranks.
        let others = |rank: &u32| !(node.first..node.end).contains(rank);
        (!self.parts.ranks.iter().any(others)).then_some(node)
    }

    fn world(&self) -> Option<u32> {
        self.node_ranks()
            .map_or_else(|| self.parts.world(), |node| Some(node.world))
    }

    fn resume(&self, saved: bool) -> Resumability {
        use StateKind::{DataOrder, LrSchedule, Optimizer, Rng};
        let lost = match (self.case.expect.world, self.world()) {
            (Some(run), Some(step)) if run != step && self.parts.form == HfSaveFormat::DeepSpeed => {
                return Resumability::Not {
                    why: format!(
                        "{step} ranks saved it with DeepSpeed, which loads ZeRO's states with no other number, and the run has {run}: start it with {step} ranks, or convert the step with ds_to_universal"
                    ),
                };
            }
            _ if !saved => vec![Optimizer, LrSchedule, Rng],
            (Some(run), Some(step)) if run != step => vec![Rng, DataOrder],
            _ => return Resumability::Exact,
        };
        Resumability::Degraded { lost }
    }

    /// The usable rest, if only state is missing or torn that `Trainer` can resume without, once it is moved aside.
    fn part(&self, whole: &dyn Fn(StatePart) -> bool) -> Option<PartialStep> {
        let torn = |what: &StatePart| self.parts.has(*what) && !whole(*what);
        if [StatePart::Rollout, StatePart::Entropy, StatePart::Data]
            .iter()
            .any(torn)
        {
            return None;
        }
        let (optimizer, rng) = (
            whole(StatePart::Optimizer) && whole(StatePart::Schedule),
            whole(StatePart::Rng),
        );
        let scaler = !self.parts.has(StatePart::Scaler) || whole(StatePart::Scaler);
        let all = optimizer && rng && scaler;
        if all || !whole(StatePart::State) || !whole(StatePart::Weights) || self.parts.form != HfSaveFormat::Plain {
            return None;
        }
        let mut lost = Vec::new();
        if !optimizer {
            lost.extend([StateKind::Optimizer, StateKind::LrSchedule]);
        }
        if !rng {
            lost.push(StateKind::Rng);
        }
        let is_lost = |what: &StatePart| match what {
            StatePart::State | StatePart::Weights => false,
            StatePart::Optimizer | StatePart::Schedule => !optimizer,
            StatePart::Scaler => !scaler,
            StatePart::Rng => !rng,
            StatePart::Rollout | StatePart::Entropy | StatePart::Data => false,
        };
        let (gone, left): (Vec<_>, Vec<_>) = self.parts.groups.iter().partition(|(what, _)| is_lost(what));
        let aside: Vec<Utf8PathBuf> = gone
            .iter()
            .flat_map(|(_, g)| g.needs.iter().map(|n| n.path.clone()))
            .collect();
        let depths = left.iter().map(|(_, g)| g.proven(self.case.depth, &self.reports));
        let held = left.iter().map(|(what, _)| what.word().to_owned()).collect();
        Some(PartialStep {
            lost,
            holds: BTreeMap::from([(String::new(), held)]),
            proven: depths.collect::<Option<Vec<Depth>>>().and_then(|d| d.into_iter().min()),
            pins: self.case.entry.pins_without(&aside),
            aside,
        })
    }

    /// Links are not followed, and never replace what a resume would silently load; a directory cannot be loaded as a
    /// file.
    fn odd(&self) -> Vec<Finding> {
        let is_state = |path: &str| {
            let alone = BTreeMap::from([(path, 0)]);
            !HfStepParts::of(&StepListing { by_path: alone }).is_foreign()
        };
        let odd = self.case.entry.odd().map(|path| {
            let finding = if is_state(path) || names::is_state_dir(path) {
                let detail =
                    "a symbolic link or special file: it is not followed, and a resume would load what it leads to";
                Finding::error("symlink", Verdict::Unknown, detail)
            } else {
                Finding::warning("symlink", "a symbolic link or special file: it is not followed")
            };
            finding.in_file(path)
        });
        let misplaced = self
            .case
            .entry
            .dirs()
            .filter(|path| !path.contains('/') && is_state(path));
        odd.chain(misplaced.map(|path| supervise_checkpoint::set::not_a_file().in_file(path)))
            .collect()
    }
}

fn verdict(findings: &[Finding]) -> Verdict {
    findings.iter().fold(Verdict::Whole, |v, f| v.worst(f.effect()))
}

/// Sorts the worst first and truncates the list.
fn order(findings: &mut Vec<Finding>) {
    findings.sort_by_key(|f| std::cmp::Reverse((f.level, f.effect())));
    let more = findings.len().saturating_sub(FINDINGS);
    if more > 0 {
        findings.truncate(FINDINGS);
        findings.push(Finding::note(
            "more_findings",
            format!("{more} more findings are not listed"),
        ));
    }
}

pub(crate) fn step_of(ckpt: &CkptId) -> Option<Step> {
    match names::root_name(ckpt.0.as_str()) {
        HfRootName::Step(step) => Some(step),
        _ => None,
    }
}
