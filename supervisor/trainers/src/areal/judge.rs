//! The verdict on a set, and whether this run can resume from it.

use super::Sets;
use super::consistency::{AHEAD, METADATA, SetComparison};
use super::names::{DEFAULT, INFO, state_dir};
use super::set::{CLOCKS, SetFiles, SetReports, shard_mark};
use crate::adapter::ExpectedLayout;
use crate::kit::not_trusted;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::json::StepInfo;
use supervise_checkpoint::set::{SetKind, SetReport};
use supervise_checkpoint::{EarlierStep, Frequencies};
use supervise_core::checkpoint::{
    CheckpointSummary, CkptId, Depth, Finding, FindingLevel, Resumability, StateKind, Verdict,
};
use supervise_core::id::Step;

const FINDINGS: usize = 64;

/// A set to judge, with everything that may be considered.
#[derive(Debug)]
pub(super) struct ArealSetInput<'a> {
    pub(super) id: &'a CkptId,
    pub(super) named: Option<Step>,
    pub(super) files: &'a SetFiles,
    pub(super) reports: SetReports<'a>,
    pub(super) expect: &'a ExpectedLayout,
    pub(super) earlier: &'a [EarlierStep],
}

pub(super) fn judge(case: &ArealSetInput<'_>) -> CheckpointSummary {
    let mut out = crate::kit::unknown_step(case.id);
    out.findings.clear();
    out.resume = Resumability::Exact;
    out.layout = Cow::Borrowed("areal");
    (out.files, out.bytes, out.newest) = case.files.sum();
    out.pins = case.files.pins();
    let parts: Vec<(String, SetReport)> = case
        .files
        .parts()
        .into_iter()
        .map(|(dir, kind, files)| (dir.clone(), case.reports.judge(&dir, kind, &files)))
        .collect();
    let engines = case.files.engines();
    for (dir, part) in &parts {
        out.findings
            .extend(part.findings.iter().cloned().map(|f| inside(dir, f)));
    }
    out.findings.extend(case.files.odd.iter().map(|path| odd(path)));
    out.findings.extend(linked(case));
    missing_engines(case, &engines, &mut out.findings);
    let info = info_of(case);
    out.step = step_of(case, info, &mut out.findings);
    // Whole parts may still come from different saves; if one is not whole, that is reported instead.
    let is_whole = out.findings.iter().all(|f| f.effect() == Verdict::Whole);
    if let Some(info) = info.filter(|_| is_whole) {
        compare(case, info, &engines, &mut out.findings);
    }
    unfinished_background(case, &parts, &mut out.findings);
    stored_frequencies(case, &mut out.findings);
    crate::kit::allow(case.expect, &mut out.findings);
    case.reports.place(&mut out.findings);
    out.unfamiliar = unfamiliar(case);
    out.roles = engines.iter().map(|e| (*e).to_owned()).collect();
    out.holds = holds(case, &parts, &engines);
    out.contents = in_all(&out.holds);
    out.world = case
        .reports
        .of(&format!("{INFO}/dataloader_info.pkl"))
        .and_then(|r| u32::try_from(r.facts.items?).ok());
    out.verdict = out.findings.iter().fold(Verdict::Whole, |v, f| v.worst(f.effect()));
    let depths: Option<Vec<Depth>> = parts.iter().map(|(_, p)| p.proven).collect();
    let proven = depths.and_then(|d| d.into_iter().min()).filter(|_| !engines.is_empty());
    out.proven = proven.filter(|_| out.verdict == Verdict::Whole && !case.reports.is_empty());
    out.save = case.reports.save(case.files).filter(|_| out.proven.is_some());
    out.resume = resumability(case, &out, info);
    out.findings.sort_by_key(|f| std::cmp::Reverse((f.level, f.effect())));
    out.findings.truncate(FINDINGS);
    out
}

/// A set that AReaL would load but that is missing or unreadable.
pub(super) fn no_set(step: Step, finding: Finding) -> CheckpointSummary {
    let mut out = crate::kit::unknown_step(&CkptId(String::new().into()));
    out.step = step;
    out.layout = Cow::Borrowed("areal");
    out.resume = Resumability::Exact;
    out.verdict = finding.verdict;
    out.findings = vec![finding];
    out
}

fn inside(dir: &str, mut finding: Finding) -> Finding {
    finding.file = Some(match finding.file.take() {
        Some(file) => format!("{dir}/{file}").into(),
        None => dir.into(),
    });
    finding
}

fn odd(path: &str) -> Finding {
    let detail = "this is a symbolic link, a socket or a device: it is not followed";
    Finding::error("symlink", Verdict::Unknown, detail).in_file(path)
}

/// A link in place of a directory of the set. Other links do not matter.
fn linked(case: &ArealSetInput<'_>) -> Option<Finding> {
    let wanted = case.expect.roles.iter().flatten().map(|r| r.name.as_str());
    let mut ours = wanted.chain([INFO, DEFAULT]);
    let path = case.files.linked.iter().find(|path| {
        let (head, below) = path
            .split_once('/')
            .map_or((path.as_str(), false), |(head, _)| (head, true));
        below || ours.any(|name| name == head)
    })?;
    let detail = "this is a symbolic link, where a directory of the set belongs: it is not followed";
    Some(Finding::error("linked", Verdict::Unknown, detail).in_file(path))
}

fn info_of(case: &ArealSetInput<'_>) -> Option<StepInfo> {
    case.reports.of(&format!("{INFO}/step_info.json"))?.facts.step_info
}

/// The step that the set claims; a generation's name must agree.
fn step_of(case: &ArealSetInput<'_>, info: Option<StepInfo>, findings: &mut Vec<Finding>) -> Step {
    let said = info.map(|i| Step(i.global_step.saturating_add(1)));
    if let (Some(named), Some(said)) = (case.named, said)
        && named != said
    {
        let detail = format!("the directory is that of step {named}, and it holds step {said}");
        findings
            .push(Finding::error("another_step", Verdict::Damaged, detail).in_file(format!("{INFO}/step_info.json")));
    }
    case.named.or(said).unwrap_or_default()
}

/// Every engine of the run must exist; without a configuration, the one that always does.
fn missing_engines(case: &ArealSetInput<'_>, engines: &BTreeSet<&str>, findings: &mut Vec<Finding>) {
    let wanted: Vec<&str> = match &case.expect.roles {
        Some(roles) if !roles.is_empty() => roles.iter().map(|r| r.name.as_str()).collect(),
        _ => vec![DEFAULT],
    };
    for name in wanted.iter().filter(|name| !engines.contains(**name)) {
        let detail =
            format!("there is no state of {name}: the save broke off, or the directory was made and never filled");
        let mut finding = Finding::error("engine_missing", Verdict::Incomplete, detail).in_file(state_dir(name));
        finding.role = Some((*name).to_owned());
        findings.push(finding);
    }
    for name in engines.iter().filter(|name| !wanted.contains(*name)) {
        let detail = format!("the state of {name} is there, and this run has no such engine: it is not loaded");
        findings.push(Finding::note("engine_not_of_this_run", detail).in_file(state_dir(name)));
    }
}

fn compare(case: &ArealSetInput<'_>, info: StepInfo, engines: &BTreeSet<&str>, findings: &mut Vec<Finding>) {
    let marks = case.reports.marks(case.files);
    let live = Sets::live(case.expect);
    let compared = SetComparison {
        info,
        marks: &marks,
        engines,
        earlier: case.earlier,
        updates_per_step: live.and_then(|l| l.updates_per_step),
        counts_anew: case.expect.counts_anew,
    };
    let mut found = compared.findings();
    found.extend(data_behind(case, info));
    found.extend(engines.iter().filter_map(|engine| after_table(case, &compared, engine)));
    for finding in found.iter_mut().filter(|f| f.code == AHEAD) {
        if case.expect.own.get::<Sets>().is_some_and(|s| s.ahead) {
            finding.level = FindingLevel::Warning;
            finding.verdict = Verdict::Whole;
            finding
                .detail
                .push_str(" (accepted by protect.accept_ahead: what was trained since is trained again)");
        } else {
            finding
                .detail
                .push_str("; to go on from it all the same: protect.accept_ahead: always");
        }
    }
    findings.append(&mut found);
}

/// The table is written after all shards: a newer shard belongs to a later save, unless it is known to be this one's.
fn after_table(case: &ArealSetInput<'_>, compared: &SetComparison<'_>, engine: &str) -> Option<Finding> {
    let mut late = case.files.after_table(engine).into_iter();
    let (shard, by) = late.find(|(shard, _)| {
        let now = compared.marks.counters.get(&shard_mark(engine, shard));
        now.is_none() || compared.recorded(engine, shard).as_ref() != now
    })?;
    let detail = format!(
        "it was written {:.1} s after .metadata, which a save writes last: a later save began and was cut short. If this is a copy that did not keep the times of its files: touch {METADATA}",
        by as f64 / 1e9
    );
    let file = format!("{}/{shard}", state_dir(engine));
    Some(Finding::error("shard_after_metadata", Verdict::Incomplete, detail).in_file(file))
}

/// No batch is trained before it is returned; if batches are fetched far ahead, the count may be that of a new epoch.
/// The dataloader position is written last, by the process that writes the step: an older file belongs to the
/// previous save.
fn data_behind(case: &ArealSetInput<'_>, info: StepInfo) -> Option<Finding> {
    let file = format!("{INFO}/dataloader_info.pkl");
    let given = case.reports.of(&file)?.facts.batches;
    let trained = info.epoch_step.saturating_add(1);
    let behind = given.is_some_and(|given| given < trained);
    let step = case.files.modified(&format!("{INFO}/step_info.json"));
    let older = step
        .zip(case.files.modified(&file))
        .map_or(0, |(step, data)| step.saturating_sub(data));
    if older > CLOCKS || behind && older > 0 {
        let detail = format!(
            "it was written {:.1} s before step_info.json, and a save writes it last: the save was cut short before it was written. If this is a copy that did not keep the times of its files: touch dataloader_info.pkl",
            older as f64 / 1e9
        );
        return Some(Finding::error("info_of_two_saves", Verdict::Incomplete, detail).in_file(file));
    }
    behind.then(|| {
        let given = given.unwrap_or_default();
        let detail = format!(
            "{given} batches of this epoch were given out, and {trained} were trained: the place in the data is older than the rest, so batches may come again"
        );
        Finding::warning("data_behind", detail).in_file(file)
    })
}

/// Megatron can save in the background: AReaL then writes the description of a save before its data. `metadata.json`
/// is written last; if it is older than `.metadata`, it belongs to the previous save. Only file times can tell.
fn unfinished_background(case: &ArealSetInput<'_>, parts: &[(String, SetReport)], findings: &mut Vec<Finding>) {
    if !Sets::live(case.expect).is_some_and(|l| l.async_save) {
        return;
    }
    for (dir, _) in parts.iter().filter(|(_, p)| p.kind == SetKind::MegatronDist) {
        let time = |name: &str| case.files.modified(&format!("{dir}/{name}"));
        if let (Some(last), Some(table)) = (time("metadata.json"), time(".metadata"))
            && last < table
        {
            let detail = "metadata.json is older than .metadata: the save in the background has not ended. If this is a copy that did not keep the times of its files: touch metadata.json";
            findings.push(
                Finding::error("background_save", Verdict::Incomplete, detail).in_file(format!("{dir}/metadata.json")),
            );
        }
    }
}

/// A resume restores how often AReaL acted when it saved.
fn stored_frequencies(case: &ArealSetInput<'_>, findings: &mut Vec<Finding>) {
    for (name, wanted) in Sets::live(case.expect).into_iter().flat_map(|l| &l.frequencies) {
        let file = format!("{INFO}/{name}");
        let stored = case.reports.of(&file).and_then(|r| r.facts.frequencies);
        if let Some(stored) = stored.filter(|s| s != wanted) {
            let detail = format!(
                "AReaL would go on by what is stored here ({}), not by the configuration ({})",
                words(stored),
                words(*wanted)
            );
            findings.push(Finding::warning("frequency_stored", detail).in_file(file));
        }
    }
}

fn words(f: Frequencies) -> String {
    let parts = [("epochs", f.epochs), ("steps", f.steps), ("seconds", f.secs)];
    let said: Vec<String> = parts
        .iter()
        .filter_map(|(what, n)| Some(format!("every {} {what}", (*n)?)))
        .collect();
    if said.is_empty() {
        return "never".to_owned();
    }
    said.join(", ")
}

fn unfamiliar(case: &ArealSetInput<'_>) -> Vec<String> {
    let needs = case.files.needs();
    let facts = needs
        .iter()
        .filter_map(|n| case.reports.of(n.path.as_str())?.facts.torch.as_ref());
    not_trusted(case.expect, facts)
}

fn holds(
    case: &ArealSetInput<'_>,
    parts: &[(String, SetReport)],
    engines: &BTreeSet<&str>,
) -> BTreeMap<String, Vec<String>> {
    let of = |engine: &str| {
        let dir = state_dir(engine);
        let kind = parts.iter().find(|(d, _)| *d == dir).map(|(_, p)| p.kind);
        let heads = case
            .reports
            .of(&format!("{dir}/.metadata"))
            .and_then(|r| r.facts.dcp.as_ref())
            .map(|d| &d.heads);
        let any = |test: fn(&str) -> bool| heads.is_some_and(|h| h.iter().any(|w| test(w)));
        let mut out = vec!["model".to_owned()];
        out.extend(any(|w| w.starts_with("optim")).then(|| "optimizer".to_owned()));
        let rng = kind == Some(SetKind::MegatronDist) && any(|w| w.starts_with("rng"));
        out.extend(rng.then(|| "extra".to_owned()));
        out
    };
    engines.iter().map(|e| ((*e).to_owned(), of(e))).collect()
}

fn in_all(holds: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut lists = holds.values();
    let first = lists.next().cloned().unwrap_or_default();
    first
        .into_iter()
        .filter(|c| holds.values().all(|l| l.contains(c)))
        .collect()
}

/// Refuses state saved by Megatron for FSDP or Archon, and the reverse: the files differ.
fn other_writer(case: &ArealSetInput<'_>) -> Option<String> {
    let parts = case.files.parts();
    let mut roles = case.expect.roles.iter().flatten();
    roles.find_map(|role| {
        let dir = state_dir(&role.name);
        let (_, kind, _) = parts.iter().find(|(d, ..)| *d == dir)?;
        let (was, now) = match (*kind == SetKind::MegatronDist, role.megatron.is_some()) {
            (true, false) => ("by Megatron", "FSDP or Archon"),
            (false, true) => ("by FSDP or Archon, not by Megatron", "Megatron"),
            _ => return None,
        };
        Some(format!(
            "the state of {} was saved {was}, and this run loads it with {now}, which would fail: choose the backend that saved it, or another trial_name",
            role.name
        ))
    })
}

fn resumability(case: &ArealSetInput<'_>, c: &CheckpointSummary, info: Option<StepInfo>) -> Resumability {
    let live = Sets::live(case.expect);
    if let (Some(wrote), Some(ranks)) = (c.world, live.and_then(|l| l.data_ranks))
        && wrote != ranks
    {
        let why = format!(
            "{wrote} processes wrote their place in the data, and {ranks} of this run would load it: AReaL would start from scratch without a word; start it with {wrote} processes again, or choose another trial_name and start from scratch"
        );
        return Resumability::Not { why };
    }
    if let Some(why) = other_writer(case) {
        return Resumability::Not { why };
    }
    for role in case.expect.roles.iter().flatten() {
        let held = c.holds.get(&role.name);
        let lacks = |what: &str| held.is_some_and(|h| !h.iter().any(|x| x == what));
        if role.load_contents.iter().any(|l| l == "optimizer") && lacks("optimizer") && !case.reports.is_empty() {
            let why = format!(
                "the state of {} holds no optimizer, and AReaL would fail to load one: set recover.no_load_optim=true",
                role.name
            );
            return Resumability::Not { why };
        }
    }
    // AReaL restarts the data order at each start, so that only the first epoch, including a resume at its very end,
    // is exact.
    let later = info.is_some_and(|i| i.global_step.saturating_add(1) > i.steps_per_epoch);
    let ahead = c.findings.iter().any(|f| f.code == AHEAD);
    match later || ahead {
        true => Resumability::Degraded {
            lost: vec![StateKind::DataOrder],
        },
        false => Resumability::Exact,
    }
}
