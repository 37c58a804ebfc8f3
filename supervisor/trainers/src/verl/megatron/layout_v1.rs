//! A role in the first layout of Megatron's checkpoint manager (verl 0.4.1 to 0.8): one `dist_ckpt/` for all of
//! Megatron's state.
//!
//! There is no manifest, so the archive's own table shows what was saved. The write order is known: the archive, then
//! weights, configuration and tokenizer in `huggingface/`, then `transformer_config.json`. verl 0.9 refuses to load
//! it.

use super::{FilesByPath, common, set_needs, together};
use crate::verl::evidence::StepFile;
use crate::verl::names::ShardContent;
use crate::verl::required_files::{VerlRequiredFile, weights};
use crate::verl::role::{MegatronSave, RoleState, judge_config, judge_weights};
use crate::verl::step_files::RoleFiles;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::set::SetKind;
use supervise_checkpoint::{FileKind, FileReport};
use supervise_core::checkpoint::{Finding, Verdict};
use supervise_core::id::Step;

pub(crate) const ARCHIVE: &str = "dist_ckpt";

/// The command that converts a role, for messages.
pub(crate) fn command(role: &str, step: Step) -> String {
    let slash = if role.is_empty() { "" } else { "/" };
    format!("`supervise migrate --checkpoint global_step_{step}{slash}{role}`")
}

/// Visits the files to inspect, describing files first.
pub(crate) fn each<'a>(files: &RoleFiles<'a>, visit: &mut dyn FnMut(VerlRequiredFile<'a>) -> Option<()>) -> Option<()> {
    set_needs(&files.megatron.archive, ARCHIVE, SetKind::MegatronDist, visit)?;
    for file in [files.megatron.config, files.hf_config].into_iter().flatten() {
        visit(VerlRequiredFile::new(file, FileKind::of(file.path)))?;
    }
    for file in &files.megatron.adapters {
        visit(VerlRequiredFile::new(*file, FileKind::of(file.path)))?;
    }
    weights(files, visit)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ArchiveContents {
    pub(crate) model: bool,
    pub(crate) optimizer: bool,
    pub(crate) rng: bool,
    /// The schedule, which is stored in the common file.
    pub(crate) schedule: bool,
}

impl ArchiveContents {
    /// Reads the table of the archive in `dir`; `None` if it was not inspected.
    pub(crate) fn of(parts: &FilesByPath<'_>, dir: &str) -> Option<Self> {
        Self::told(&|name| parts.get(format!("{dir}/{name}").as_str())?.report)
    }

    pub(crate) fn in_report(reports: &BTreeMap<Utf8PathBuf, FileReport>, dir: &Utf8Path) -> Option<Self> {
        Self::told(&|name| reports.get(&dir.join(name)))
    }

    fn told<'r>(find: &dyn Fn(&str) -> Option<&'r FileReport>) -> Option<Self> {
        let heads: &BTreeSet<String> = &find(".metadata")?.facts.dcp.as_ref()?.heads;
        let optimizer = |head: &str| head == "optimizer" || head.starts_with("chained_");
        let rng = |head: &str| head == "rng_state";
        let common = find("common.pt").and_then(|report| report.facts.torch.as_ref());
        Some(Self {
            model: heads.iter().any(|h| !optimizer(h) && !rng(h)),
            optimizer: heads.iter().any(|h| optimizer(h)),
            rng: heads.iter().any(|h| rng(h)),
            schedule: common.is_some_and(|t| t.has_lr_scheduler),
        })
    }
}

pub(crate) fn judge_role(name: &str, step: Step, files: &RoleFiles<'_>) -> RoleState {
    let role = Utf8Path::new(name);
    let (archive, exported) = (&files.megatron.archive, !files.weights.is_empty());
    let mut state = RoleState::new(name);
    state.megatron = true;
    state.newest_shard = archive.values().map(|file| file.fact.mtime).max();
    state.hf_model = exported;
    state.findings.push(told(name, step));
    if archive.is_empty() {
        state.findings.push(without_archive(role, exported));
    }
    let all = together(archive, role, ARCHIVE, SetKind::MegatronDist);
    state.findings.extend(all);
    judge_config(role, files, false, &mut state.findings);
    judge_weights(role, files, false, true, &mut state.findings);
    let singles = files.megatron.config.iter().chain(&files.megatron.adapters);
    state.findings.extend(singles.flat_map(StepFile::findings));

    let kept = kept(files);
    let adapters = !files.megatron.adapters.is_empty();
    for (content, there) in [
        (ShardContent::Model, kept.model || exported || adapters),
        (ShardContent::Optimizer, kept.optimizer),
        (ShardContent::Extra, kept.rng),
    ] {
        state.contents.extend(there.then_some(content));
    }
    state.findings.extend(cut_short(role, files, kept));
    let sharding = common(archive, ARCHIVE).and_then(|t| t.optimizer_sharding.as_deref());
    state.save = Some(MegatronSave {
        dist: kept.model,
        exported,
        adapters,
        any_parallel: sharding.map(|s| matches!(s, "fully_reshardable" | "fully_sharded_model_space")),
        schedule: kept.schedule,
        first_layout: true,
        parallel: files.megatron.config.and_then(|f| f.report?.facts.parallel),
    });
    for finding in &mut state.findings {
        finding.role = (!name.is_empty()).then(|| name.to_owned());
    }
    state
}

/// An archive that was not inspected is assumed to hold the usual contents.
fn kept(files: &RoleFiles<'_>) -> ArchiveContents {
    let archive = &files.megatron.archive;
    let all = !archive.is_empty();
    ArchiveContents::of(archive, ARCHIVE).unwrap_or(ArchiveContents {
        model: all && files.weights.is_empty(),
        optimizer: all,
        rng: all,
        schedule: all,
    })
}

fn told(name: &str, step: Step) -> Finding {
    let detail = format!(
        "Megatron's first layout (verl 0.4.1 to 0.8), which verl 0.9 refuses to load: {} converts it in place",
        command(name, step)
    );
    Finding::note("megatron_v1_layout", detail)
}

/// verl 0.5 saved nothing but weights if they went through the bridge.
fn without_archive(role: &Utf8Path, exported: bool) -> Finding {
    let finding = if exported {
        let detail = "there is no optimizer, schedule or random state: verl 0.5 saves weights only where they go through the bridge";
        Finding::warning("weights_only", detail)
    } else {
        let detail = "neither Megatron's archive nor exported weights are here: the save was not finished";
        Finding::error("dist_missing", Verdict::Incomplete, detail)
    };
    finding.in_file(role.join(ARCHIVE))
}

/// Files written after the archive, required by its contents.
fn cut_short(role: &Utf8Path, files: &RoleFiles<'_>, kept: ArchiveContents) -> Vec<Finding> {
    let mut out = Vec::new();
    let unfinished = "it is written after what is here: the save was not finished";
    if files.hf_config.is_none() && (kept.model || !files.weights.is_empty()) {
        let finding = Finding::error("hf_config_missing", Verdict::Incomplete, unfinished);
        out.push(finding.in_file(role.join("huggingface/config.json")));
    }
    if files.megatron.config.is_none() && kept.rng {
        let finding = Finding::error("transformer_config_missing", Verdict::Incomplete, unfinished);
        out.push(finding.in_file(role.join("transformer_config.json")));
    }
    out
}
