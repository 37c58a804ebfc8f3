//! The verdict on one verl step, and separately whether this run can resume from it.
//!
//! A step is judged by its own world size and contents, never by the current configuration; only the required roles
//! come from outside. Whether it fits the run (world size, layout, contents) is the second answer and does not change
//! the verdict.

use super::Layouts;
use super::compatibility;
use super::data;
use super::degraded;
use super::evidence::StepReports;
use super::finished::FinishRule;
use super::lineage::Lineage;
use super::marks::{SCHEDULE, marks};
use super::megatron::{self, layout_v1};
use super::names::{self, ShardContent};
use super::required_files;
use super::role::{RoleState, judge_role};
use super::step_files::{ForeignLayout, RoleFiles, StepFiles};
use super::steps::{Neighbours, VerlStepDir};
use super::trust;
use crate::adapter::ExpectedLayout;
use crate::kit::blank;
use camino::Utf8PathBuf;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::{FileReport, StepCounters};
use supervise_core::checkpoint::{
    CheckpointSummary, CkptId, Depth, EntryKind, Finding, FindingLevel, Resumability, Verdict,
};
use supervise_core::event::TrackerState;
use supervise_core::id::Step;
use supervise_core::spec::RoleSpec;

const FINDINGS: usize = 64;

#[derive(Debug)]
pub(crate) struct VerlStepInput<'a> {
    pub(crate) lineage: Lineage<'a>,
    pub(crate) step: Step,
    pub(crate) entry: &'a VerlStepDir,
    pub(crate) neighbours: Neighbours<'a>,
    pub(crate) expect: &'a ExpectedLayout,
    pub(crate) pointer: &'a TrackerState,
    pub(crate) depth: Depth,
    pub(crate) reports: &'a BTreeMap<Utf8PathBuf, FileReport>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerlLayout {
    Ppo,
    Sft,
    Unknown,
}

impl VerlLayout {
    fn name(self, by: Writer) -> &'static str {
        match (self, by) {
            (Self::Ppo, Writer::Fsdp) => "verl_fsdp_ppo",
            (Self::Sft, Writer::Fsdp) => "verl_fsdp_sft",
            (Self::Ppo, Writer::Megatron) => "verl_megatron_ppo",
            (Self::Sft, Writer::Megatron) => "verl_megatron_sft",
            (Self::Ppo, Writer::FirstMegatron) => "verl_megatron_v1_ppo",
            (Self::Sft, Writer::FirstMegatron) => "verl_megatron_v1_sft",
            (Self::Unknown, _) => "unknown",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    Fsdp,
    Megatron,
    FirstMegatron,
}

impl Writer {
    fn of(survey: &StepFiles<'_>) -> Self {
        let roles = || survey.roles.values();
        match (
            roles().any(RoleFiles::is_first_megatron),
            roles().any(RoleFiles::is_megatron),
        ) {
            (true, _) => Self::FirstMegatron,
            (false, true) => Self::Megatron,
            (false, false) => Self::Fsdp,
        }
    }
}

/// Judges a step; a proven step also returns its counters.
pub(crate) fn judge(case: &VerlStepInput<'_>) -> (CheckpointSummary, Option<StepCounters>) {
    let dir = names::step_dir(case.step);
    let survey = case.entry.survey(StepReports::below(&dir, case.reports));
    let mut summary = blank(CkptId(dir.clone().into()), case.step);
    summary.pins = case.entry.pins();
    summary.bytes = survey.bytes;
    summary.files = survey.files;
    summary.newest = survey.newest;

    let layout = layout_of(&survey, Layouts::of(case.expect).sft);
    summary.layout = Cow::Borrowed(layout.name(Writer::of(&survey)));
    if let Some(finding) = not_a_step(case.entry.kind(), &survey, layout) {
        summary.husk = finding.code == "husk";
        summary.resume = Resumability::Not {
            why: finding.detail.clone(),
        };
        summary.verdict = finding.effect();
        summary.findings.push(finding);
        return (summary, None);
    }
    let roles = judge_roles(case, &survey, layout, &mut summary.findings);
    let one_file = Layouts::of(case.expect).one_data_file;
    let data = data::judge_data(
        (case.expect, case.step),
        &survey,
        layout,
        one_file,
        &roles,
        &case.neighbours,
        &mut summary.findings,
    );
    let run = expected(case, layout, "");
    let ranks = run.and_then(|run| case.expect.world?.checked_div(run.sequence?));
    if let Some(ranks) = ranks.filter(|ranks| layout == VerlLayout::Sft && !data.fits(*ranks)) {
        let detail = format!(
            "the dataloader's state is not that of {ranks} data-parallel ranks, as this run has them (trainer ranks by engine.ulysses_sequence_parallel_size): after a resume samples are skipped or trained again"
        );
        summary.findings.push(Finding::warning("data_ranks_differ", detail));
    }
    summary.findings.extend(odd_entries(&survey));
    let marks = survey.proofs.then(|| marks(&survey));
    if let Some(marks) = &marks {
        summary.findings.extend(case.lineage.findings(case.step, marks));
        summary.findings.extend(counter_differs(case.step, layout, marks));
    }
    crate::kit::allow(case.expect, &mut summary.findings);
    summary.unfamiliar = trust::unfamiliar(case.expect, &survey);
    finish(case, &mut summary, &survey, layout, &roles, data);
    let marks = marks.filter(|_| summary.proven.is_some());
    (summary, marks)
}

/// The SFT trainer's schedule advances once per step; a resume that does not load it shifts the count.
fn counter_differs(step: Step, layout: VerlLayout, marks: &StepCounters) -> Option<Finding> {
    let count = marks.counters.get(SCHEDULE).filter(|_| layout == VerlLayout::Sft)?;
    (*count != step.0).then(|| {
        let detail =
            format!("the learning-rate schedule has taken {count} steps, and the directory is that of step {step}");
        Finding::warning("counter_differs", detail)
    })
}

/// Determines the layout from the files; if both are possible, the configuration decides.
fn layout_of(survey: &StepFiles<'_>, sft: Option<bool>) -> VerlLayout {
    // Older Megatron layouts have exported weights alone, too.
    let foreign = !survey.foreign.is_empty();
    let older = |r: &RoleFiles<'_>| {
        foreign && r.shards.is_empty() && r.fsdp_config.is_none() && !r.megatron.has_marks() && !r.is_first_megatron()
    };
    let marks = |name: &str| survey.roles.get(name).is_some_and(|r| r.has_marks() && !older(r));
    let roles = marks("actor") || marks("critic");
    // The older SFT trainer uses PPO's name for the dataloader state.
    let data_alone = survey.data.is_some() && !foreign && !marks("") && (survey.strange.is_none() || survey.role_dirs);
    let ppo = roles || data_alone;
    let flat = marks("") || !survey.data_parts.is_empty() && !foreign;
    match (ppo, flat, sft) {
        (false, false, _) => VerlLayout::Unknown,
        (true, true, Some(true)) | (false, true, _) => VerlLayout::Sft,
        (true, _, _) => VerlLayout::Ppo,
    }
}

/// Cases in which there is no save to judge.
fn not_a_step(kind: EntryKind, survey: &StepFiles<'_>, layout: VerlLayout) -> Option<Finding> {
    let condemned = |code, verdict, detail: &str| Some(Finding::error(code, verdict, detail));
    match kind {
        EntryKind::Symlink => {
            return condemned(
                "symlink",
                Verdict::Unknown,
                "the step is a symbolic link: it is not followed",
            );
        }
        EntryKind::File | EntryKind::Other => return condemned("not_a_directory", Verdict::Unknown, "not a directory"),
        EntryKind::Dir | EntryKind::Gone => {}
    }
    match layout {
        VerlLayout::Ppo if is_husk(survey) => condemned(
            "husk",
            Verdict::Incomplete,
            "only data.pt is left: the trainer's own retention deleted the rest",
        ),
        VerlLayout::Unknown if !survey.foreign.is_empty() => {
            condemned("layout_unknown", Verdict::Unknown, &foreign_words(survey))
        }
        VerlLayout::Unknown if !survey.role_dirs && survey.strange.is_some() => {
            let path = survey.strange.unwrap_or_default();
            condemned(
                "layout_unknown",
                Verdict::Unknown,
                &format!("verl writes no `{path}`: another trainer saved this step, and it is not judged here"),
            )
        }
        VerlLayout::Unknown if survey.other > 0 && only_exported(survey) => condemned(
            "layout_unknown",
            Verdict::Unknown,
            "no file here is one that verl's FSDP save writes: weights that were only exported, as by the SFT trainer of verl 0.4, cannot be resumed from",
        ),
        VerlLayout::Unknown if !survey.odd.is_empty() => condemned(
            "symlink",
            Verdict::Unknown,
            "only symbolic links are here: they are not followed",
        ),
        VerlLayout::Unknown => condemned("nothing_saved", Verdict::Incomplete, "nothing was saved here yet"),
        VerlLayout::Ppo | VerlLayout::Sft => None,
    }
}

fn only_exported(survey: &StepFiles<'_>) -> bool {
    !survey.role_dirs && !survey.roles.values().any(RoleFiles::has_marks)
}

/// Names a foreign layout and the paths it was recognized by.
fn foreign_words(survey: &StepFiles<'_>) -> String {
    let layouts: BTreeSet<ForeignLayout> = survey.foreign.iter().map(|(_, layout)| *layout).collect();
    let layouts: Vec<&str> = layouts.into_iter().map(ForeignLayout::words).collect();
    let paths: Vec<&str> = survey.foreign.iter().take(4).map(|(path, _)| *path).collect();
    let paths: String = paths.join(", ").chars().take(200).collect();
    let what = layouts.join(" or ");
    let ancient =
        |(_, layout): &(&str, ForeignLayout)| matches!(layout, ForeignLayout::Megatron03 | ForeignLayout::Megatron04);
    if survey.foreign.iter().any(ancient) {
        return format!(
            "this looks like {what} ({paths}): only that release reads it, no later one does and nothing converts it; go on with that release, or start in an empty checkpoint directory"
        );
    }
    format!("this looks like {what} ({paths}): it is not read here")
}

/// verl's retention deletes the role directories and leaves the rest. A role directory without files is a save that
/// has just started.
fn is_husk(survey: &StepFiles<'_>) -> bool {
    survey.roles.is_empty() && !survey.role_dirs && !survey.odd.iter().any(|path| matters(path))
}

fn judge_roles(
    case: &VerlStepInput<'_>,
    survey: &StepFiles<'_>,
    layout: VerlLayout,
    findings: &mut Vec<Finding>,
) -> Vec<RoleState> {
    let finished = survey.data.is_some() || !survey.data_parts.is_empty();
    let version = case.expect.version.as_deref();
    let rule = FinishRule::of(version, case.neighbours.are_marked(), case.pointer, case.step, survey);
    let mut roles = Vec::new();
    for name in expected_roles(case, survey, layout) {
        let files = survey.roles.get(name.as_str());
        if files.is_none_or(|f| !f.has_marks()) {
            findings.push(role_missing(&name, layout));
        }
        let hf = expected(case, layout, &name).is_some_and(|r| r.save_contents.iter().any(|c| c == "hf_model"));
        match files {
            None => {}
            Some(files) if files.is_megatron() => {
                roles.push(megatron::judge_role(&name, case.step, &files.megatron));
            }
            Some(files) if files.is_first_megatron() => roles.push(layout_v1::judge_role(&name, case.step, files)),
            Some(files) => {
                roles.push(judge_role(&name, files, rule, hf, finished));
                findings.extend(files.is_mixed().then(|| two_layouts(&name)));
            }
        }
    }
    for (name, files) in &survey.roles {
        if !name.is_empty() && files.has_marks() && !roles.iter().any(|r| r.name == *name) {
            findings.push(Finding::note(
                "role_not_used",
                format!("`{name}` is here, and this run does not load it"),
            ));
        }
    }
    for role in &mut roles {
        findings.append(&mut role.findings);
    }
    roles
}

fn two_layouts(name: &str) -> Finding {
    let detail = "both FSDP's and Megatron's manager wrote here: which of them counts is not known";
    let mut finding = Finding::error("layouts_mixed", Verdict::Unknown, detail);
    finding.role = (!name.is_empty()).then(|| name.to_owned());
    finding
}

fn role_missing(name: &str, layout: VerlLayout) -> Finding {
    let detail = match layout {
        VerlLayout::Sft => "no shard of the model is here".to_owned(),
        VerlLayout::Ppo | VerlLayout::Unknown => format!("nothing of `{name}` is here"),
    };
    let mut finding = Finding::error("role_missing", Verdict::Incomplete, detail);
    finding.role = (!name.is_empty()).then(|| name.to_owned());
    finding
}

/// The required roles: those of the run; without a run `actor`, what exists, and what finished neighbours have.
fn expected_roles(case: &VerlStepInput<'_>, survey: &StepFiles<'_>, layout: VerlLayout) -> Vec<String> {
    match (layout, &case.expect.roles, Layouts::of(case.expect).sft) {
        (VerlLayout::Sft, _, _) => vec![String::new()],
        (_, Some(roles), Some(false) | None) => roles.iter().map(|r| r.name.clone()).collect(),
        _ => {
            let critic = survey.roles.contains_key("critic") || case.neighbours.have_critic();
            let mut names = vec!["actor".to_owned()];
            names.extend(critic.then(|| "critic".to_owned()));
            names
        }
    }
}

/// The run's configuration of a role, if the layout is the run's.
pub(crate) fn expected<'a>(case: &'a VerlStepInput<'_>, layout: VerlLayout, name: &str) -> Option<&'a RoleSpec> {
    let fits = Layouts::of(case.expect)
        .sft
        .is_none_or(|sft| sft == (layout == VerlLayout::Sft));
    case.expect
        .roles
        .as_deref()
        .filter(|_| fits)?
        .iter()
        .find(|r| r.name == name)
}

fn odd_entries(survey: &StepFiles<'_>) -> Vec<Finding> {
    let mut out = Vec::new();
    for path in &survey.odd {
        let finding = if matters(path) {
            Finding::error(
                "symlink",
                Verdict::Unknown,
                "a symbolic link or special file stands in for a part of the state: it is not followed",
            )
        } else {
            Finding::warning("symlink", "a symbolic link or special file: it is not followed")
        };
        out.push(finding.in_file(*path));
    }
    out.extend(
        survey
            .misplaced
            .iter()
            .map(|path| supervise_checkpoint::set::not_a_file().in_file(*path)),
    );
    out.extend(
        survey
            .leftovers
            .iter()
            .map(|p| Finding::note("leftover", "left over from a write that was killed").in_file(*p)),
    );
    out
}

/// Returns true if a load reads this path, or a directory that would contain such a file.
fn matters(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    names::shard(name).is_some()
        || names::data_part(name).is_some()
        || matches!(
            name,
            "data.pt" | "fsdp_config.json" | "actor" | "critic" | "transfer_queue" | "huggingface" | "config.json"
        )
}

fn finish(
    case: &VerlStepInput<'_>,
    summary: &mut CheckpointSummary,
    survey: &StepFiles<'_>,
    layout: VerlLayout,
    roles: &[RoleState],
    data: data::DataState,
) {
    summary.roles = roles.iter().map(|r| r.name.clone()).collect();
    summary.world = roles.first().and_then(|r| r.world);
    summary.contents = contents_of(roles);
    summary.verdict = summary
        .findings
        .iter()
        .map(Finding::effect)
        .fold(Verdict::Whole, Verdict::worst);
    let whole = summary.verdict == Verdict::Whole;
    summary.proven = proof_of(survey, case.depth).filter(|_| whole);
    summary.resume = compatibility::resume(case, layout, roles, data);
    summary.reshard = compatibility::reshard(case, layout, roles, data).filter(|_| whole);
    summary.holds = holds_of(roles, &summary.contents);
    summary.part = degraded::left(case, summary, survey, roles);
    summary.husk = is_remnant(case, survey, &summary.findings);
    order(&mut summary.findings);
}

/// Retention deletes whole roles of older steps and leaves the rest: a role that a newer step has is missing, and the
/// dataloader state, which is written after all roles, exists. Nothing else may be wrong.
fn is_remnant(case: &VerlStepInput<'_>, survey: &StepFiles<'_>, findings: &[Finding]) -> bool {
    let mut errors = findings.iter().filter(|f| f.level == FindingLevel::Error).peekable();
    let deleted = |f: &Finding| {
        f.code == "role_missing"
            && f.role
                .as_deref()
                .is_some_and(|role| !survey.has_role_dir(role) && case.neighbours.newer_has_role(role))
    };
    survey.data.is_some() && errors.peek().is_some() && errors.all(deleted)
}

/// How deep the least proven file was inspected; `None` if one was not.
fn proof_of(survey: &StepFiles<'_>, depth: Depth) -> Option<Depth> {
    let mut least = depth;
    required_files::each(survey, &mut |wanted| {
        least = least.min(wanted.file.report?.proven);
        Some(())
    })?;
    Some(least)
}

fn contents_of(roles: &[RoleState]) -> Vec<String> {
    let everywhere = |c: &ShardContent| !roles.is_empty() && roles.iter().all(|r| r.contents.contains(c));
    let mut out: Vec<String> = ShardContent::ALL
        .iter()
        .filter(|c| everywhere(c))
        .map(|c| c.word().to_owned())
        .collect();
    if !roles.is_empty() && roles.iter().all(|r| r.hf_model) {
        out.push("hf_model".to_owned());
    }
    out
}

fn holds_of(roles: &[RoleState], everywhere: &[String]) -> BTreeMap<String, Vec<String>> {
    let all: BTreeMap<String, Vec<String>> = roles.iter().map(|r| (r.name.clone(), r.words())).collect();
    let differ = all.values().any(|list| list != everywhere);
    if differ { all } else { BTreeMap::new() }
}

/// Sorts the worst first and truncates the list.
fn order(findings: &mut Vec<Finding>) {
    findings.sort_by_key(|f| std::cmp::Reverse((f.level, f.effect())));
    let more = findings.len().saturating_sub(FINDINGS);
    if more > 0 {
        findings.truncate(FINDINGS);
        let level = findings.last().map_or(FindingLevel::Note, |f| f.level);
        let verdict = findings.last().map_or(Verdict::Whole, |f| f.verdict);
        let mut rest = Finding::note("more_findings", format!("{more} more findings are not listed"));
        rest.level = level;
        rest.verdict = verdict;
        findings.push(rest);
    }
}
