//! A role written by Megatron's checkpoint manager in its second layout (verl 0.9): a manifest, and one distributed
//! checkpoint each for model, optimizer and extra state.
//!
//! `ckpt_contents.json` is written last, under a temporary name first: it shows that the save finished and says what
//! must exist. Directories prove nothing: all four exist after every save, used or not. What the manifest does not
//! list is not judged.

pub(crate) mod layout_v1;

use super::evidence::StepFile;
use super::marks::{OPTIMIZER, name_of};
use super::names::ShardContent;
use super::required_files::VerlRequiredFile;
use super::role::{MegatronSave, RoleState};
use super::step_files::{FilesByPath, MegatronFiles};
use camino::Utf8Path;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::megatron::stays_below;
use supervise_checkpoint::set::{self, SetKind};
use supervise_checkpoint::torch::TorchFacts;
use supervise_checkpoint::{DistManifest, FileKind, FileReport, ManifestEntry};
use supervise_core::checkpoint::{Finding, Verdict};
use supervise_core::id::Step;

/// Directories of Megatron's own writer.
const DIST: [&str; 3] = ["model/dist_ckpt", "optimizer/dist_ckpt", "extra/dist_ckpt"];
const EXPORT: &str = "model/huggingface";
const ADAPTER: &str = "model/huggingface/adapter";

/// Visits the files to inspect, describing files first.
pub(crate) fn each<'a>(
    files: &MegatronFiles<'a>,
    visit: &mut dyn FnMut(VerlRequiredFile<'a>) -> Option<()>,
) -> Option<()> {
    if let Some(manifest) = files.manifest {
        visit(VerlRequiredFile::new(manifest, FileKind::CkptContents))?;
    }
    if let Some(config) = files.config {
        visit(VerlRequiredFile::new(config, FileKind::of(config.path)))?;
    }
    for dir in DIST {
        set_needs(&files.parts, dir, SetKind::MegatronDist, visit)?;
    }
    for path in [
        "model/huggingface/config.json",
        "model/huggingface/adapter/adapter_config.json",
    ] {
        if let Some(file) = files.parts.get(path) {
            visit(VerlRequiredFile::new(*file, FileKind::of(path)))?;
        }
    }
    for dir in [EXPORT, ADAPTER] {
        set_needs(&files.parts, dir, SetKind::Weights, visit)?;
    }
    // With weights they belong to the set.
    if set::needs(SetKind::Weights, names(&files.parts, EXPORT)).is_empty() {
        for (_, file) in beside(&files.parts) {
            visit(VerlRequiredFile::new(file, FileKind::of(file.path)))?;
        }
    }
    Some(())
}

fn set_needs<'a>(
    parts: &FilesByPath<'a>,
    dir: &str,
    kind: SetKind,
    visit: &mut dyn FnMut(VerlRequiredFile<'a>) -> Option<()>,
) -> Option<()> {
    let find = |name: &Utf8Path| parts.get(format!("{dir}/{name}").as_str()).copied();
    for need in set::needs(kind, names(parts, dir)) {
        let Some(file) = find(&need.path) else { continue };
        visit(VerlRequiredFile {
            file,
            kind: need.kind,
            described_by: need.described_by.and_then(|other| Some(find(&other)?.path)),
        })?;
    }
    Some(())
}

/// State common to all ranks: in its own file, or in one of the shards.
fn common<'a>(parts: &FilesByPath<'a>, dir: &str) -> Option<&'a TorchFacts> {
    let told = |file: StepFile<'a>| file.torch().filter(|facts| !facts.keys.is_empty());
    let own = parts.get(format!("{dir}/common.pt").as_str()).copied();
    own.and_then(told)
        .or_else(|| below(parts, dir).find_map(|(_, file)| told(file)))
}

fn beside<'f, 'a>(parts: &'f FilesByPath<'a>) -> impl Iterator<Item = (&'f str, StepFile<'a>)> + use<'f, 'a> {
    below(parts, EXPORT).filter(|(name, _)| set::read_with_weights(name))
}

fn names<'f>(parts: &'f FilesByPath<'_>, dir: &'f str) -> impl Iterator<Item = &'f str> {
    below(parts, dir).map(|(name, _)| name)
}

fn below<'f, 'a>(
    parts: &'f FilesByPath<'a>,
    dir: &'f str,
) -> impl Iterator<Item = (&'f str, StepFile<'a>)> + use<'f, 'a> {
    let after = parts.range(dir..).skip_while(move |(path, _)| **path == dir);
    let inside = move |path: &'f str| path.strip_prefix(dir);
    after
        .map_while(move |(path, file)| Some((inside(path)?, *file)))
        .filter_map(|(rest, file)| Some((rest.strip_prefix('/')?, file)))
        .filter(|(name, _)| !name.contains('/'))
}

/// The highest update count among the optimizer's shards. The schedule restarts at a resume unless configured
/// otherwise, so its count says nothing.
pub(crate) fn count(role: &str, files: &MegatronFiles<'_>, counters: &mut BTreeMap<String, u64>) {
    let second = DIST.into_iter().flat_map(|dir| below(&files.parts, dir));
    let reports = second
        .chain(below(&files.archive, layout_v1::ARCHIVE))
        .filter_map(|(_, f)| f.report);
    let steps = reports.flat_map(|report| {
        let common = report.facts.torch.iter().flat_map(|t| t.optimizer_steps.iter());
        report.facts.dcp_steps.values().flatten().chain(common)
    });
    counters.extend(steps.max().map(|n| (name_of(role, OPTIMIZER), *n)));
}

pub(crate) fn judge_role(name: &str, step: Step, files: &MegatronFiles<'_>) -> RoleState {
    let role = MegatronRole { name, files };
    let mut state = RoleState::new(name);
    state.megatron = true;
    state.newest_shard = files.parts.values().map(|file| file.fact.mtime).max();
    let there = |part: &str| {
        files
            .parts
            .keys()
            .any(|path| path.strip_prefix(part).is_some_and(|r| r.starts_with('/')))
    };
    let by_names = |c: &ShardContent| there(c.word());
    match files.manifest {
        None => {
            state.findings.push(no_manifest(name, step, files));
            state.contents = ShardContent::ALL.into_iter().filter(by_names).collect();
        }
        Some(file) => {
            state.findings.extend(file.findings());
            match file.report.map(|report| report.facts.manifest.as_ref()) {
                None => state.contents = ShardContent::ALL.into_iter().filter(by_names).collect(),
                Some(None) => {}
                Some(Some(manifest)) => role.judge(step, file.path, manifest, &mut state),
            }
        }
    }
    if files.hard_links {
        let detail = "its parts share their files: a save into this directory would write into all of them at once; it goes aside before a run that would save this step again";
        state
            .findings
            .push(Finding::note("hard_links", detail).in_file(role.path(super::step_files::HARD_LINKS)));
    }
    for finding in &mut state.findings {
        finding.role = (!name.is_empty()).then(|| name.to_owned());
    }
    state
}

/// Unfinished: a save, or a conversion from the first layout, which leaves the old archive next to the parts.
fn no_manifest(name: &str, step: Step, files: &MegatronFiles<'_>) -> Finding {
    let path = Utf8Path::new(name).join("ckpt_contents.json");
    let command = layout_v1::command(name, step);
    let finding = if files.converting || files.has_first_marks() {
        let detail =
            format!("a conversion from Megatron's first layout was begun and not finished: {command} finishes it");
        Finding::error("migration_unfinished", Verdict::Incomplete, detail)
    } else {
        let detail = format!(
            "the manifest is written last: the save was not finished; where verl's migration script made this, which writes none, {command} proves it and writes the manifest"
        );
        Finding::error("manifest_missing", Verdict::Incomplete, detail)
    };
    finding.in_file(path)
}

struct MegatronRole<'c, 'a> {
    name: &'c str,
    files: &'c MegatronFiles<'a>,
}

impl MegatronRole<'_, '_> {
    fn path(&self, rest: &str) -> camino::Utf8PathBuf {
        Utf8Path::new(self.name).join(rest)
    }

    fn judge(&self, step: Step, file: &str, manifest: &DistManifest, state: &mut RoleState) {
        state.world = manifest.world_size.and_then(|n| u32::try_from(n).ok());
        state.hf_model = manifest.entry("hf_model").is_some();
        let model = manifest.entry("model");
        state.save = Some(MegatronSave {
            dist: model.is_some_and(ManifestEntry::is_dist),
            exported: state.hf_model || model.is_some_and(|e| !e.is_dist()),
            adapters: manifest.backend.peft,
            any_parallel: self.any_parallel(manifest),
            schedule: manifest.entry("lr_scheduler").is_some(),
            first_layout: false,
            parallel: self.files.config.and_then(|f| f.report?.facts.parallel),
        });
        state.findings.extend(
            self.identity(step, manifest)
                .into_iter()
                .chain(promises(manifest))
                .chain(self.contradictions(manifest))
                .map(|f| f.in_file(file)),
        );
        for (content, entry) in [
            (ShardContent::Model, "model"),
            (ShardContent::Optimizer, "optimizer"),
            (ShardContent::Extra, "rng_state"),
        ] {
            if manifest.entry(entry).is_some() {
                state.contents.push(content);
            }
        }
        let followed = |e: &&ManifestEntry| stays_below(&e.path) && e.adapter.as_deref().is_none_or(stays_below);
        let mut seen = BTreeSet::new();
        for entry in manifest.entries.iter().filter(followed) {
            match entry.format.as_str() {
                "json" => state.findings.extend(self.json(&entry.path)),
                "huggingface" => self.exported(entry, &mut seen, &mut state.findings),
                _ if entry.is_dist() && seen.insert(entry.path.clone()) => {
                    state.findings.extend(self.dist(entry, manifest));
                }
                _ => {}
            }
        }
    }

    /// Whether the optimizer was saved for any parallel layout: its common file says how it was sharded.
    fn any_parallel(&self, manifest: &DistManifest) -> Option<bool> {
        let dir = manifest.entry("optimizer")?.path.as_str();
        let sharding = common(&self.files.parts, dir)?.optimizer_sharding.as_deref()?;
        Some(matches!(sharding, "fully_reshardable" | "fully_sharded_model_space"))
    }

    fn identity(&self, step: Step, manifest: &DistManifest) -> Option<Finding> {
        if let Some(other) = manifest.global_step.filter(|n| *n != step.0) {
            let detail = format!("it speaks of step {other}, and the directory is that of step {step}");
            return Some(Finding::error("step_differs", Verdict::Damaged, detail));
        }
        // The SFT trainer calls its model an actor.
        let wanted = if self.name.is_empty() { "actor" } else { self.name };
        if let Some(other) = manifest.role.as_deref().filter(|r| *r != wanted) {
            let detail = format!("it speaks of `{other}`, and the directory is that of `{wanted}`");
            return Some(Finding::error("role_differs", Verdict::Damaged, detail));
        }
        (manifest.framework != "megatron").then(|| {
            Finding::error(
                "layout_unknown",
                Verdict::Unknown,
                "it was not written by Megatron's manager",
            )
        })
    }

    /// Statements of the manifest that its own entries, or the files, contradict.
    fn contradictions(&self, manifest: &DistManifest) -> Vec<Finding> {
        let mut out = Vec::new();
        let mut differs = |detail: String| out.push(Finding::error("manifest_differs", Verdict::Damaged, detail));
        let dist = manifest.entries.iter().any(ManifestEntry::is_dist);
        if let Some(said) = manifest.saved_any_dist_ckpt.filter(|said| *said != dist) {
            let has = if dist { "some" } else { "none" };
            differs(format!(
                "saved_any_dist_ckpt is {said}, and {has} of its entries are of Megatron's own writer"
            ));
        }
        let adapters =
            manifest.entry("peft_adapters").is_some() || manifest.entries.iter().any(|e| e.adapter.is_some());
        let whole = manifest.entry("model").is_some_and(|e| !e.is_dist()) && !adapters;
        if adapters && !manifest.backend.peft || whole && manifest.backend.peft {
            differs(format!(
                "backend.peft is {}, and its entries say the opposite",
                manifest.backend.peft
            ));
        }
        let schedule = manifest.entry("lr_scheduler").filter(|e| e.is_dist());
        let state = schedule.and_then(|e| common(&self.files.parts, &e.path));
        let lacks = |facts: &TorchFacts| facts.names_all_keys() && facts.keys.iter().all(|key| key != "lr_scheduler");
        if state.is_some_and(lacks) {
            differs("it names lr_scheduler, and the common state there has none".to_owned());
        }
        let ranks = || self.files.parts.keys().filter_map(|path| rank_of(path));
        if let Some((world, rank)) = manifest
            .world_size
            .zip(ranks().max())
            .filter(|(world, rank)| rank >= world)
        {
            differs(format!("world_size is {world}, and rank {rank} wrote files"));
        }
        out
    }

    fn json(&self, path: &str) -> Vec<Finding> {
        let file = match path {
            "transformer_config.json" => self.files.config,
            _ => self.files.parts.get(path).copied(),
        };
        match file {
            Some(file) => file.findings(),
            None => vec![self.absent(path)],
        }
    }

    fn absent(&self, path: &str) -> Finding {
        let detail = "the manifest names this file, and it is not there";
        Finding::error("manifest_file_missing", Verdict::Incomplete, detail).in_file(self.path(path))
    }

    fn dist(&self, entry: &ManifestEntry, manifest: &DistManifest) -> Vec<Finding> {
        let dir = entry.path.as_str();
        if names(&self.files.parts, dir).next().is_none() {
            if self.is_combined(manifest) {
                return Vec::new();
            }
            let detail = format!(
                "the manifest says that `{}` is here, and the directory is empty",
                entry.name
            );
            let finding = Finding::error("dist_missing", Verdict::Incomplete, detail);
            return vec![finding.in_file(self.path(dir))];
        }
        self.set(dir, SetKind::MegatronDist)
    }

    /// Megatron-FSDP puts everything into the model's directory, but the manifest still lists the empty ones. Then
    /// the model's shards hold the optimizer's counts.
    fn is_combined(&self, manifest: &DistManifest) -> bool {
        let model = manifest.entry("model").filter(|e| e.is_dist());
        let mut parts = model.into_iter().flat_map(|e| below(&self.files.parts, &e.path));
        parts.any(|(_, file)| file.report.is_some_and(|r| !r.facts.dcp_steps.is_empty()))
    }

    fn exported(&self, entry: &ManifestEntry, seen: &mut BTreeSet<String>, findings: &mut Vec<Finding>) {
        let config = format!("{}/config.json", entry.path);
        match (entry.name.as_str(), entry.adapter.as_deref()) {
            ("tokenizer", _) => {
                if !names(&self.files.parts, &entry.path).any(|n| n.starts_with("tokenizer") || n.starts_with("vocab"))
                {
                    findings.push(self.absent(&format!("{}/tokenizer.json", entry.path)));
                }
                if set::needs(SetKind::Weights, names(&self.files.parts, EXPORT)).is_empty() {
                    findings.extend(beside(&self.files.parts).flat_map(|(_, file)| file.findings()));
                }
            }
            ("hf_config", _) => {
                if seen.insert(config.clone()) {
                    findings.extend(self.json(&config));
                }
            }
            (_, Some(adapter)) => {
                if seen.insert(adapter.to_owned()) {
                    findings.extend(self.json(&format!("{adapter}/adapter_config.json")));
                    findings.extend(self.weights(adapter));
                }
            }
            _ => {
                if seen.insert(config.clone()) {
                    findings.extend(self.json(&config));
                }
                if seen.insert(entry.path.clone()) {
                    findings.extend(self.weights(&entry.path));
                }
            }
        }
    }

    fn weights(&self, dir: &str) -> Vec<Finding> {
        if set::needs(SetKind::Weights, names(&self.files.parts, dir)).is_empty() {
            let detail = "the manifest says that weights are exported here, and there are none";
            let finding = Finding::error("hf_model_missing", Verdict::Incomplete, detail);
            return vec![finding.in_file(self.path(dir))];
        }
        self.set(dir, SetKind::Weights)
    }

    fn set(&self, dir: &str, kind: SetKind) -> Vec<Finding> {
        together(&self.files.parts, Utf8Path::new(self.name), dir, kind)
    }
}

/// Judges the files of a directory as a set; `role` prefixes their paths.
fn together(parts: &FilesByPath<'_>, role: &Utf8Path, dir: &str, kind: SetKind) -> Vec<Finding> {
    let files: Vec<(&str, StepFile<'_>)> = below(parts, dir).collect();
    let sizes: BTreeMap<String, u64> = files
        .iter()
        .map(|(name, f)| ((*name).to_owned(), f.fact.size))
        .collect();
    let report = |(name, f): &(&str, StepFile<'_>)| Some(((*name).to_owned(), f.report?.clone()));
    let reports: BTreeMap<String, FileReport> = files.iter().filter_map(report).collect();
    if reports.is_empty() {
        return Vec::new();
    }
    let judged = set::judge(kind, &sizes, &reports);
    let mut out = judged.findings;
    for finding in &mut out {
        let name = finding.file.take().unwrap_or_default();
        finding.file = Some(role.join(dir).join(name));
    }
    out.extend(files.iter().filter_map(|(_, file)| file.misplaced()));
    if judged.verdict != Verdict::Whole && out.iter().all(|f| f.effect() != judged.verdict) {
        let detail = format!("the directory is {}", judged.verdict);
        out.push(Finding::error("set_not_whole", judged.verdict, detail).in_file(role.join(dir)));
    }
    // The manifest lists the configuration itself: a missing one is reported there.
    out.retain(|f| f.code != "config_missing");
    out
}

/// The rank that wrote `__R_I.distcp`.
fn rank_of(path: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?.strip_prefix("__")?.strip_suffix(".distcp")?;
    name.split_once('_')?.0.parse().ok()
}

/// Contents that should have been saved but are not in the manifest's own list.
fn promises(manifest: &DistManifest) -> Vec<Finding> {
    let listed = |names: &[&str]| names.iter().any(|name| manifest.entry(name).is_some());
    let kept = |content: &str| match content {
        "model" => listed(&["model", "peft_adapters"]),
        "hf_model" => listed(&["hf_model"]),
        "optimizer" => listed(&["optimizer"]),
        "extra" => listed(&["rng_state"]),
        _ => true,
    };
    let absent = manifest.save_contents.iter().filter(|content| !kept(content));
    absent
        .map(|content| {
            let detail = format!("`{content}` was to be saved, and the manifest does not say where it is");
            Finding::error("manifest_incomplete", Verdict::Incomplete, detail)
        })
        .collect()
}
