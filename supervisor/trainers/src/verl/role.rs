//! The verdict on one role of a step: its shards, its marker, its configuration.
//!
//! A role is judged by what wrote it: the world size in `fsdp_config.json` (or in shard names, without that file),
//! and the contents that its own ranks left. `fsdp_config.json` proves nothing about other ranks: rank 0 writes it
//! while they may still be writing. It does prove which contents rank 0 meant to save, because it comes after all of
//! rank 0's own shards.

use super::evidence::StepFile;
use super::finished::{FinishRule, MARKER};
use super::names::{self, ShardContent};
use super::ranks::RankSet;
use super::step_files::{RoleFiles, Shards};
use camino::Utf8Path;
use supervise_checkpoint::torch::ShardTotals;
use supervise_core::checkpoint::{Finding, Verdict};
use supervise_core::spec::ParallelSizes;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoleState {
    /// Empty if the step is the role.
    pub(crate) name: String,
    pub(crate) world: Option<u32>,
    /// Contents that every rank left.
    pub(crate) contents: Vec<ShardContent>,
    /// The device mesh that FSDP2's shards name; empty if they do not.
    pub(crate) mesh: Vec<u64>,
    pub(crate) first_fsdp: bool,
    pub(crate) megatron: bool,
    /// How Megatron saved it, if the manifest was inspected.
    pub(crate) save: Option<MegatronSave>,
    /// Weights in Hugging Face format exist.
    pub(crate) hf_model: bool,
    /// Newest modification time among its shards, in nanoseconds.
    pub(crate) newest_shard: Option<i64>,
    pub(crate) findings: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MegatronSave {
    /// The weights are shards of its own writer.
    pub(crate) dist: bool,
    /// The weights exist in Hugging Face format.
    pub(crate) exported: bool,
    /// The weights are adapters only.
    pub(crate) adapters: bool,
    /// Another parallel layout can load the optimizer; `None`: unknown.
    pub(crate) any_parallel: Option<bool>,
    /// The schedule is stored with the optimizer.
    pub(crate) schedule: bool,
    /// In the layout that verl 0.9 refuses.
    pub(crate) first_layout: bool,
    /// How the ranks shared the model.
    pub(crate) parallel: Option<ParallelSizes>,
}

impl RoleState {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            world: None,
            contents: Vec::new(),
            mesh: Vec::new(),
            first_fsdp: false,
            megatron: false,
            save: None,
            hf_model: false,
            newest_shard: None,
            findings: Vec::new(),
        }
    }

    /// Its contents, as spelled in `save_contents`.
    pub(crate) fn words(&self) -> Vec<String> {
        let held = ShardContent::ALL.into_iter().filter(|c| self.contents.contains(c));
        let exported = self.hf_model.then_some("hf_model");
        held.map(ShardContent::word)
            .chain(exported)
            .map(str::to_owned)
            .collect()
    }
}

/// A shard smaller than the median of its kind by this factor is doubtful.
const SMALL_SHARE: u64 = 10;
const NAMED: usize = 3;

/// Judges one role. `expects_hf`: the configuration exports weights; `finished`: later files of the same save exist.
pub(crate) fn judge_role(
    name: &str,
    files: &RoleFiles<'_>,
    rule: FinishRule<'_>,
    expects_hf: bool,
    finished: bool,
) -> RoleState {
    let mut state = RoleState::new(name);
    state.hf_model = !files.weights.is_empty();
    let role = Utf8Path::new(name);
    state.world = world_of(role, files, rule, &mut state.findings);
    state.first_fsdp = files.fsdp_config.is_some_and(|config| config.fsdp_version() == Some(1));
    if let Some(world) = state.world {
        judge_shards(&mut state, files, rule, world);
    }
    judge_config(role, files, rule.is_by_names(), &mut state.findings);
    judge_weights(role, files, expects_hf, finished, &mut state.findings);
    for finding in &mut state.findings {
        if !name.is_empty() {
            finding.role = Some(name.to_owned());
        }
    }
    state
}

fn world_of(role: &Utf8Path, files: &RoleFiles<'_>, rule: FinishRule<'_>, findings: &mut Vec<Finding>) -> Option<u32> {
    if let Some(marker) = files.fsdp_config {
        findings.extend(marker.findings());
        if let Some(world) = marker.world_size() {
            return Some(world);
        }
    } else if let Some(why) = rule.objection(files) {
        findings.push(Finding::error("fsdp_config_missing", Verdict::Incomplete, why).in_file(role.join(MARKER)));
    } else if mixed_worlds(files) {
        findings.push(Finding::error(
            "world_sizes_mixed",
            Verdict::Incomplete,
            "shards of several world sizes, and no fsdp_config.json that says which of them counts",
        ));
    } else if let Some(world) = files.likely_world() {
        findings.push(Finding::note("fsdp_config_not_written", rule.note(files, world)));
    }
    files.likely_world()
}

fn mixed_worlds(files: &RoleFiles<'_>) -> bool {
    let mut worlds = files.shards.keys().map(|(world, _)| world);
    let first = worlds.next();
    worlds.any(|w| Some(w) != first)
}

fn judge_shards(state: &mut RoleState, files: &RoleFiles<'_>, rule: FinishRule<'_>, world: u32) {
    let others = files.of_other_worlds(world);
    if others > 0 {
        state.findings.push(Finding::note(
            "other_world_sizes",
            format!("{others} shards of another world size than {world} are left over: they are not read"),
        ));
    }
    let mut present: Vec<(ShardContent, RankSet)> = Vec::new();
    for content in ShardContent::ALL {
        let Some(ranks) = files.of(world, content) else {
            continue;
        };
        present.push((content, RankSet::of(ranks.iter().map(|(rank, _)| *rank))));
        let mut counts = StepCounts::default();
        for (rank, file) in ranks {
            state.newest_shard = state.newest_shard.max(Some(file.fact.mtime));
            if state.mesh.is_empty()
                && let Some(facts) = file.torch()
            {
                state.mesh.clone_from(&facts.mesh_shape);
            }
            state.findings.extend(shard_findings(*rank, file));
            counts.note(*rank, file);
        }
        state.findings.extend(counts.tiling(content, world));
        state.findings.extend(counts.found);
        state.findings.extend(small_shards(ranks));
    }
    if present.is_empty() && !state.hf_model {
        state.findings.push(Finding::error(
            "shards_missing",
            Verdict::Incomplete,
            format!("no shard of any of the {world} ranks is here"),
        ));
        return;
    }
    let split = split_over_machines(&present, world, files.fsdp_config.is_some(), rule);
    if rule.is_by_names() && files.fsdp_config.is_none() {
        state.findings.extend(kinds_missing(&state.name, &present, rule, world));
    }
    for (content, ranks) in &present {
        if ranks.count() == world {
            state.contents.push(*content);
        } else {
            state.findings.push(missing(&state.name, *content, ranks, world));
        }
    }
    state.findings.extend(split);
}

fn shard_findings(rank: u32, file: &StepFile<'_>) -> Vec<Finding> {
    let mut found = match (file.report, file.fact.size) {
        (Some(_), _) => file.findings(),
        (None, 0) => {
            vec![Finding::error("file_empty", Verdict::Incomplete, "the file is empty").in_file(file.path)]
        }
        (None, _) => Vec::new(),
    };
    for finding in &mut found {
        finding.rank = Some(rank);
    }
    found
}

/// Ranks step together: a shard whose optimizer or schedule has another count than its peers' comes from another
/// save.
#[derive(Default)]
struct StepCounts {
    optimizer: Option<(u32, u64)>,
    schedule: Option<(u32, u64)>,
    found: Option<Finding>,
    /// Number of ranks that describe their sharding, the description of the first, and the elements of all.
    spread: Option<(u32, ShardTotals, u64)>,
    /// The descriptions differ, which is allowed: FSDP1 omits a tensor if a rank holds none of it.
    differently: bool,
}

impl StepCounts {
    fn note(&mut self, rank: u32, file: &StepFile<'_>) {
        let Some(facts) = file.torch() else {
            return;
        };
        if let Some(spread) = facts.spread {
            let (ranks, first, here) = self.spread.get_or_insert((0, spread, 0));
            *ranks += 1;
            *here = here.saturating_add(spread.here);
            self.differently |= (first.tensors, first.everywhere) != (spread.tensors, spread.everywhere);
        }
        let optimizer = facts.optimizer_steps.iter().max().copied();
        for (what, first, steps) in [
            ("optimizer", &mut self.optimizer, optimizer),
            ("schedule", &mut self.schedule, facts.scheduler_steps),
        ] {
            let Some(steps) = steps else { continue };
            let (peer, other) = *first.get_or_insert((rank, steps));
            if other != steps && self.found.is_none() {
                let detail = format!(
                    "its {what} counts {steps} steps, but that of rank {peer} counts {other}: they are of two saves"
                );
                let mut finding = Finding::error("mixed_steps", Verdict::Damaged, detail).in_file(file.path);
                finding.rank = Some(rank);
                self.found = Some(finding);
            }
        }
    }
}

impl StepCounts {
    /// Each rank's part begins where the previous one ends, so all parts together must be as large as the whole.
    fn tiling(&self, content: ShardContent, world: u32) -> Option<Finding> {
        let (_, first, here) = self.spread.filter(|(ranks, ..)| *ranks == world && !self.differently)?;
        (here != first.everywhere).then(|| {
            let detail = format!(
                "the {} shards of all ranks hold {here} elements of {} tensors, which have {}: they do not tile them",
                content.word(),
                first.tensors,
                first.everywhere
            );
            Finding::error("shards_do_not_tile", Verdict::Damaged, detail)
        })
    }
}

fn missing(role: &str, content: ShardContent, present: &RankSet, world: u32) -> Finding {
    let absent = present.missing_of(world);
    let first = absent.first();
    let detail = format!(
        "{} shards of {} of {world} ranks are missing: {absent}",
        content.word(),
        absent.count()
    );
    let mut finding = Finding::error("shards_missing", Verdict::Incomplete, detail);
    if let Some(rank) = first {
        finding = finding.in_file(Utf8Path::new(role).join(content.file(world, rank)));
        finding.rank = Some(rank);
    }
    finding
}

/// A trainer that writes no marker saves all kinds of shards or, if a fork is configured so, the model alone.
fn kinds_missing(role: &str, present: &[(ShardContent, RankSet)], rule: FinishRule<'_>, world: u32) -> Vec<Finding> {
    let has = |content: ShardContent| present.iter().any(|(c, _)| *c == content);
    if present.len() == 1 && has(ShardContent::Model) && !rule.has_all_kinds() {
        return Vec::new();
    }
    let absent = ShardContent::ALL.into_iter().filter(|c| !has(*c));
    absent
        .map(|content| missing(role, content, &RankSet::default(), world))
        .collect()
}

/// If every content lacks the same ranks and the existing ones form one aligned block, each machine has its own disk.
fn split_over_machines(
    present: &[(ShardContent, RankSet)],
    world: u32,
    marker: bool,
    rule: FinishRule<'_>,
) -> Option<Finding> {
    let (_, first) = present.first()?;
    let (from, to) = first.only_block()?;
    let size = to - from + 1;
    let aligned = size < world && world.is_multiple_of(size) && from.is_multiple_of(size);
    let same = present.iter().all(|(_, ranks)| ranks == first);
    let is_rank_0 = marker == (from == 0) || rule.is_by_names();
    (aligned && same && present.len() > 1 && is_rank_0).then(|| {
        Finding::error(
            "not_a_shared_file_system",
            Verdict::Incomplete,
            format!("only ranks {first} of {world} are here, with all their files: the others look to be on another machine's own disk; put trainer.default_local_dir on a file system that all machines share"),
        )
    })
}

fn small_shards(ranks: &Shards<'_>) -> Vec<Finding> {
    let mut order: Vec<u64> = ranks.iter().map(|(_, file)| file.fact.size).collect();
    order.sort_unstable();
    let median = order.get(order.len() / 2).copied().unwrap_or(0);
    ranks
        .iter()
        .filter(|(_, file)| file.fact.size < median / SMALL_SHARE)
        .take(NAMED)
        .map(|(rank, file)| {
            let detail = format!(
                "{} bytes, while the shards of the other ranks have {median}",
                file.fact.size
            );
            let mut finding = Finding::warning("shard_size", detail).in_file(file.path);
            finding.rank = Some(*rank);
            finding
        })
        .collect()
}

pub(super) fn judge_config(role: &Utf8Path, files: &RoleFiles<'_>, required: bool, findings: &mut Vec<Finding>) {
    for file in files.hf_config.iter().chain(&files.beside) {
        findings.extend(file.findings());
    }
    if let (Some(config), None) = (files.root_config, files.fsdp_config) {
        findings.extend(config.findings());
    } else if files.hf_config.is_none() && (files.fsdp_config.is_some() || required) {
        findings.push(
            Finding::error(
                "hf_config_missing",
                Verdict::Incomplete,
                "the model's own configuration is missing",
            )
            .in_file(role.join("huggingface/config.json")),
        );
    }
}

pub(super) fn judge_weights(
    role: &Utf8Path,
    files: &RoleFiles<'_>,
    expected: bool,
    finished: bool,
    findings: &mut Vec<Finding>,
) {
    let dir = role.join("huggingface");
    if files.weights.is_empty() {
        match (expected, finished) {
            (true, false) => findings.push(
                Finding::error(
                    "hf_model_missing",
                    Verdict::Incomplete,
                    "the exported weights are missing: the save was not finished",
                )
                .in_file(dir),
            ),
            (true, true) => findings.push(
                Finding::note(
                    "hf_model_missing",
                    "no exported weights: they were not asked for when this was saved",
                )
                .in_file(dir),
            ),
            (false, _) => {}
        }
        return;
    }
    let index = files.weights_index.map(|(_, file)| file);
    for file in files.weights.values().copied().chain(index) {
        findings.extend(file.findings());
    }
    findings.extend(missing_parts(&dir, files));
    let index = index.map(|file| file.weight_files()).unwrap_or_default();
    let absent = index
        .iter()
        .filter(|name| !files.weights.contains_key(name.as_str()))
        .count();
    if absent > 0 {
        let detail = format!(
            "{absent} of {} files that the index of the exported weights names are missing",
            index.len()
        );
        findings.push(Finding::error("hf_weights_missing", Verdict::Incomplete, detail).in_file(dir));
    }
}

/// Parts that the file names announce, and the index, which is written after them.
fn missing_parts(dir: &Utf8Path, files: &RoleFiles<'_>) -> Option<Finding> {
    let parts: Vec<(u32, u32)> = files
        .weights
        .keys()
        .filter_map(|name| names::weights_part(name))
        .collect();
    let (_, of) = parts.first()?;
    let there = RankSet::of(
        parts
            .iter()
            .filter(|(_, n)| n == of)
            .filter_map(|(part, _)| part.checked_sub(1)),
    );
    if there.count() < *of {
        let detail = format!("{} of {of} parts of the exported weights are there", there.count());
        return Some(Finding::error("hf_weights_missing", Verdict::Incomplete, detail).in_file(dir));
    }
    files.weights_index.is_none().then(|| {
        let detail = "the index of the exported weights is missing: it is written last";
        Finding::error("hf_index_missing", Verdict::Incomplete, detail).in_file(dir)
    })
}
