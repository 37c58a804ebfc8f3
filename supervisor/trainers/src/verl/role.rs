//! What one role of a step is worth: its shards, its marker, its configuration.
//!
//! A role is judged by what wrote it: the world size in `fsdp_config.json` (names where there is none), and the contents that its own ranks
//! left. `fsdp_config.json` proves nothing about other ranks: rank 0 writes it while they may still be writing. It does prove which
//! contents rank 0 meant to save, because it comes after all of rank 0's own shards.

use super::evidence::Evidence;
use super::names::{self, Content};
use super::needs::shard_file;
use super::ranks::Ranks;
use super::survey::RoleFiles;
use camino::Utf8Path;
use supervise_core::checkpoint::{Finding, Verdict};

/// What is known about one role.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoleState {
    /// Its name; empty where the step is the role.
    pub(crate) name: String,
    /// World size that wrote it.
    pub(crate) world: Option<u32>,
    /// Contents that every rank left.
    pub(crate) contents: Vec<Content>,
    /// Weights in Hugging Face's format are there.
    pub(crate) hf_model: bool,
    /// Newest modification time among its shards, in nanoseconds.
    pub(crate) newest_shard: Option<i64>,
    /// What was found.
    pub(crate) findings: Vec<Finding>,
}

/// A shard below this share of the median of its kind is doubtful.
const SMALL_SHARE: u64 = 10;
/// Doubtful shards named one by one.
const NAMED: usize = 3;

/// Judges one role. `expects_hf`: the configuration says that weights are exported; `finished`: later files of the same save are there.
pub(crate) fn judge_role(
    name: &str,
    files: &RoleFiles<'_>,
    evidence: &Evidence<'_>,
    expects_hf: bool,
    finished: bool,
) -> RoleState {
    let mut state = RoleState {
        name: name.to_owned(),
        world: None,
        contents: Vec::new(),
        hf_model: !files.weights.is_empty(),
        newest_shard: None,
        findings: Vec::new(),
    };
    let role = Utf8Path::new(name);
    state.world = world_of(role, files, evidence, &mut state.findings);
    if let Some(world) = state.world {
        judge_shards(&mut state, files, evidence, world);
    }
    judge_config(role, files, evidence, &mut state.findings);
    judge_weights(role, files, evidence, expects_hf, finished, &mut state.findings);
    for finding in &mut state.findings {
        if !name.is_empty() {
            finding.role = Some(name.to_owned());
        }
    }
    state
}

fn world_of(
    role: &Utf8Path,
    files: &RoleFiles<'_>,
    evidence: &Evidence<'_>,
    findings: &mut Vec<Finding>,
) -> Option<u32> {
    let marker = role.join("fsdp_config.json");
    if files.fsdp_config {
        findings.extend(evidence.findings(&marker));
        if let Some(world) = evidence.world_size(&marker) {
            return Some(world);
        }
    } else if !files.root_config {
        findings.push(
            Finding::error(
                "fsdp_config_missing",
                Verdict::Incomplete,
                "rank 0 writes this file after its shards: the save was not finished",
            )
            .in_file(marker),
        );
    } else if mixed_worlds(files) {
        findings.push(Finding::error(
            "world_sizes_mixed",
            Verdict::Incomplete,
            "shards of several world sizes, and no fsdp_config.json that says which of them counts",
        ));
    }
    files.likely_world()
}

fn mixed_worlds(files: &RoleFiles<'_>) -> bool {
    let mut worlds = files.shards.keys().map(|(world, _)| world);
    let first = worlds.next();
    worlds.any(|w| Some(w) != first)
}

fn judge_shards(state: &mut RoleState, files: &RoleFiles<'_>, evidence: &Evidence<'_>, world: u32) {
    let others = files.of_other_worlds(world);
    if others > 0 {
        state.findings.push(Finding::note(
            "other_world_sizes",
            format!("{others} shards of another world size than {world} are left over: they are not read"),
        ));
    }
    let mut present: Vec<(Content, Ranks)> = Vec::new();
    for content in Content::ALL {
        let Some(ranks) = files.of(world, content) else {
            continue;
        };
        present.push((content, Ranks::of(ranks.keys().copied())));
        for (rank, fact) in ranks {
            state.newest_shard = state.newest_shard.max(Some(fact.mtime));
            state
                .findings
                .extend(shard_findings(&state.name, content, world, *rank, fact.size, evidence));
        }
        state.findings.extend(other_steps(
            &state.name,
            content,
            world,
            ranks.keys().copied(),
            evidence,
        ));
        state.findings.extend(small_shards(
            &state.name,
            content,
            world,
            ranks.iter().map(|(r, f)| (*r, f.size)).collect(),
        ));
    }
    if present.is_empty() && !state.hf_model {
        state.findings.push(Finding::error(
            "shards_missing",
            Verdict::Incomplete,
            format!("no shard of any of the {world} ranks is here"),
        ));
        return;
    }
    let split = split_over_machines(&present, world, files.fsdp_config);
    for (content, ranks) in &present {
        if ranks.count() == world {
            state.contents.push(*content);
        } else {
            state.findings.push(missing(&state.name, *content, ranks, world));
        }
    }
    state.findings.extend(split);
}

/// What is to be said of one shard, with its rank.
fn shard_findings(
    role: &str,
    content: Content,
    world: u32,
    rank: u32,
    size: u64,
    evidence: &Evidence<'_>,
) -> Vec<Finding> {
    let path = shard_file(role, content, world, rank);
    let mut found = match (evidence.of(&path).is_some(), size) {
        (true, _) => evidence.findings(&path),
        (false, 0) => vec![Finding::error("file_empty", Verdict::Incomplete, "the file is empty").in_file(path)],
        (false, _) => Vec::new(),
    };
    for finding in &mut found {
        finding.rank = Some(rank);
    }
    found
}

/// Ranks step together: a shard whose optimizer or schedule counts other steps than its peers' comes from another
/// save.
fn other_steps(
    role: &str,
    content: Content,
    world: u32,
    ranks: impl Iterator<Item = u32>,
    evidence: &Evidence<'_>,
) -> Option<Finding> {
    let mut first: Option<(u32, u64)> = None;
    for rank in ranks {
        let path = shard_file(role, content, world, rank);
        let Some(facts) = evidence.of(&path).and_then(|r| r.facts.torch.as_ref()) else {
            continue;
        };
        let Some(steps) = facts.scheduler_steps.or(facts.optimizer_steps.iter().max().copied()) else {
            continue;
        };
        match first {
            None => first = Some((rank, steps)),
            Some((_, other)) if other == steps => {}
            Some((peer, other)) => {
                let detail = format!("it counts {steps} steps, but rank {peer} counts {other}: they are of two saves");
                let mut finding = Finding::error("mixed_steps", Verdict::Damaged, detail).in_file(path);
                finding.rank = Some(rank);
                return Some(finding);
            }
        }
    }
    None
}

fn missing(role: &str, content: Content, present: &Ranks, world: u32) -> Finding {
    let absent = present.missing_of(world);
    let first = absent.first();
    let detail = format!(
        "{} shards of {} of {world} ranks are missing: {absent}",
        content.word(),
        absent.count()
    );
    let mut finding = Finding::error("shards_missing", Verdict::Incomplete, detail);
    if let Some(rank) = first {
        finding = finding.in_file(shard_file(role, content, world, rank));
        finding.rank = Some(rank);
    }
    finding
}

/// Every content lacks the same ranks, and those that are there form one aligned block: each machine has its own disk.
fn split_over_machines(present: &[(Content, Ranks)], world: u32, marker: bool) -> Option<Finding> {
    let (_, first) = present.first()?;
    let (from, to) = first.only_block()?;
    let size = to - from + 1;
    let aligned = size < world && world.is_multiple_of(size) && from.is_multiple_of(size);
    let same = present.iter().all(|(_, ranks)| ranks == first);
    (aligned && same && present.len() > 1 && marker == (from == 0)).then(|| {
        Finding::error(
            "not_a_shared_file_system",
            Verdict::Incomplete,
            format!("only ranks {first} of {world} are here, with all their files: the others look to be on another machine's own disk; put trainer.default_local_dir on a file system that all machines share"),
        )
    })
}

fn small_shards(role: &str, content: Content, world: u32, mut sizes: Vec<(u32, u64)>) -> Vec<Finding> {
    let mut order: Vec<u64> = sizes.iter().map(|(_, size)| *size).collect();
    order.sort_unstable();
    let median = order.get(order.len() / 2).copied().unwrap_or(0);
    sizes.retain(|(_, size)| *size < median / SMALL_SHARE);
    sizes
        .into_iter()
        .take(NAMED)
        .map(|(rank, size)| {
            let detail = format!("{size} bytes, while the shards of the other ranks have {median}");
            let mut finding = Finding::warning("shard_size", detail).in_file(shard_file(role, content, world, rank));
            finding.rank = Some(rank);
            finding
        })
        .collect()
}

fn judge_config(role: &Utf8Path, files: &RoleFiles<'_>, evidence: &Evidence<'_>, findings: &mut Vec<Finding>) {
    let hf = role.join("huggingface/config.json");
    if files.hf_config {
        findings.extend(evidence.findings(&hf));
    }
    if files.root_config && !files.fsdp_config {
        findings.extend(evidence.findings(&role.join("config.json")));
    } else if !files.hf_config && files.fsdp_config {
        findings.push(
            Finding::error(
                "hf_config_missing",
                Verdict::Incomplete,
                "the model's own configuration is missing",
            )
            .in_file(hf),
        );
    }
}

fn judge_weights(
    role: &Utf8Path,
    files: &RoleFiles<'_>,
    evidence: &Evidence<'_>,
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
    for name in files.weights.keys().copied().chain(files.weights_index) {
        findings.extend(evidence.findings(&dir.join(name)));
    }
    findings.extend(missing_parts(&dir, files));
    let index = files
        .weights_index
        .map(|name| evidence.weight_files(&dir.join(name)))
        .unwrap_or_default();
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

/// Parts that the names themselves announce, and the index, which is written after them.
fn missing_parts(dir: &Utf8Path, files: &RoleFiles<'_>) -> Option<Finding> {
    let parts: Vec<(u32, u32)> = files
        .weights
        .keys()
        .filter_map(|name| names::weights_part(name))
        .collect();
    let (_, of) = parts.first()?;
    let there = Ranks::of(
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
