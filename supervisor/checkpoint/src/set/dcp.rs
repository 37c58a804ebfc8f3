//! Distributed checkpoints: compares `.metadata` with the files next to it.

use super::{BACKEND, COMMON, INTEGRITY, METADATA, METADATA_TMP, SetCheck};
use crate::dcp::DcpFacts;
use crate::detail::FileDescription;
use crate::kind::FileKind;
use std::collections::{BTreeMap, BTreeSet};
use supervise_core::checkpoint::{Finding, Verdict};

/// The most tensors to list.
const TENSORS: usize = 524_288;

/// Judges files that Megatron wrote, which include two more.
pub(super) fn judge_megatron(seen: &mut SetCheck<'_>) {
    seen.belongs(BACKEND);
    integrity(seen);
    let backend = seen.report(BACKEND).and_then(|r| r.facts.dist_backend.as_ref());
    if backend.is_some_and(|b| b.sharded_backend != "torch_dist") {
        // Its report says that this writer's files are not supported.
        return;
    }
    if !seen.has(BACKEND) {
        let detail = "metadata.json, which Megatron writes last, is not there: the save broke off";
        let f = Finding::error("dist_metadata_missing", Verdict::Incomplete, detail);
        seen.say(f.in_file(BACKEND));
    }
    // From 0.19 on, the state common to all ranks is an object among the parts, and a missing part is reported by its offset.
    if seen.has(COMMON) || !has_common_state(seen) {
        seen.belongs(COMMON);
    }
    if !seen.has(COMMON) && !has_common_state(seen) {
        let detail = "common.pt, which Megatron writes first, is not there, and .metadata names no `common_state`, which newer versions write in its place";
        let f = Finding::error("dist_common_missing", Verdict::Incomplete, detail);
        seen.say(f.in_file(COMMON));
    }
    judge(seen);
}

/// Whether `.metadata` names the object that newer versions of Megatron store instead of `common.pt`.
fn has_common_state(seen: &SetCheck<'_>) -> bool {
    let facts = seen.report(METADATA).and_then(|r| r.facts.dcp.as_ref());
    facts.is_some_and(|f| f.heads.contains(crate::dcp::COMMON_STATE))
}

/// Checks that every file with a digest is present; the digests are compared when all bytes are read.
fn integrity(seen: &mut SetCheck<'_>) {
    let Some(report) = seen.report(INTEGRITY).filter(|_| seen.has(INTEGRITY)) else {
        return;
    };
    seen.belongs(INTEGRITY);
    let missing = report
        .facts
        .integrity
        .keys()
        .filter(|name| !seen.has(name))
        .map(|name| {
            let detail = "integrity.json lists the file, and it is not there";
            Finding::error("integrity_file_missing", Verdict::Incomplete, detail).in_file(name.as_str())
        });
    let missing = missing.collect();
    seen.say_each(missing);
}

/// Checks that every file that `.metadata` names is present and long enough, and reports the others.
pub(super) fn judge(seen: &mut SetCheck<'_>) {
    seen.belongs(METADATA);
    unfinished(seen);
    if let Some(report) = seen.report(METADATA) {
        if let Some(facts) = &report.facts.dcp {
            named(seen, facts);
        }
        if let Some(FileDescription::Dcp(dcp)) = report.description.as_deref() {
            seen.inventory = dcp.inventory(TENSORS);
        }
    }
    steps(seen);
}

/// `.metadata` is written under another name and renamed once everything else is written.
fn unfinished(seen: &mut SetCheck<'_>) {
    let (done, tmp) = (seen.has(METADATA), seen.has(METADATA_TMP));
    if !done && seen.files.keys().any(|n| is_rank_table(n)) {
        let detail =
            "each rank kept a table of its own instead of .metadata: whether they fit together is not looked at";
        seen.say(Finding::error("dcp_rank_metadata", Verdict::Unknown, detail));
    } else if !done {
        let parts = seen.files.keys().filter(|n| is_part(n)).count();
        let why = if tmp {
            "only .metadata.tmp is: the save broke off before it was renamed"
        } else {
            "the save broke off before it was written"
        };
        let detail = format!("there are {parts} files with parts, but no .metadata; {why}");
        let f = Finding::error("dcp_metadata_missing", Verdict::Incomplete, detail);
        seen.say(f.in_file(METADATA));
    } else if tmp {
        let detail = "a later save into this directory did not end: .metadata may describe the one before it";
        let f = Finding::warning("dcp_unfinished", detail);
        seen.say(f.in_file(METADATA_TMP));
    }
}

/// Matches `__0.metadata`, which a rank writes if it saves on its own.
fn is_rank_table(name: &str) -> bool {
    let rank = name.strip_prefix("__").and_then(|n| n.strip_suffix(METADATA));
    rank.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn is_part(name: &str) -> bool {
    !name.contains('/') && FileKind::of(name) == FileKind::Distcp
}

fn named<'a>(seen: &mut SetCheck<'a>, facts: &'a DcpFacts) {
    seen.tensors = facts.tensors;
    if facts.files.is_empty() {
        let f = Finding::warning("dcp_empty", "it names no files: nothing was saved");
        seen.say(f.in_file(METADATA));
    }
    let (mut missing, mut short, mut spare) = (Vec::new(), Vec::new(), Vec::new());
    for (name, file) in &facts.files {
        seen.belongs(name);
        let holds = format!("{} values, {} of them parts of tensors", file.parts, file.tensors);
        match seen.files.get(name) {
            None => {
                let detail = format!("the file is not there; it should hold {holds}");
                let f = Finding::error("distcp_missing", Verdict::Incomplete, detail);
                missing.push(f.in_file(name.as_str()));
            }
            Some(len) if *len < file.end && seen.report(name).is_none() => {
                let detail = format!("the file has {len} bytes and should have {} ({holds})", file.end);
                let f = Finding::error("distcp_truncated", Verdict::Incomplete, detail);
                short.push(f.in_file(name.as_str()).at(*len));
            }
            // torch writes nothing after the last part of a file.
            Some(len) if *len > file.end && seen.report(name).is_none() => {
                let detail = format!(
                    "the file has {len} bytes and should end at {} ({holds}): it was written for another .metadata",
                    file.end
                );
                let f = Finding::error("distcp_trailing", Verdict::Damaged, detail);
                short.push(f.in_file(name.as_str()).at(file.end));
            }
            Some(_) => {}
        }
    }
    let unknown = |n: &&String| is_part(n) && !facts.files.contains_key(*n) && seen.report(n).is_none();
    for name in seen.files.keys().filter(unknown).filter(|_| facts.more_files == 0) {
        let detail = "the file .metadata does not name it: it is left over from an earlier save";
        spare.push(Finding::warning("distcp_unreferenced", detail).in_file(name.as_str()));
    }
    for about in [missing, short, spare] {
        seen.say_each(about);
    }
}

/// Checks that the step counts of one optimizer agree. One process writes a whole file, so files without a common count come from two
/// saves; if counts differ inside a file, parameters were frozen for a while.
fn steps(seen: &mut SetCheck<'_>) {
    let mut by_group: BTreeMap<&str, Vec<(&str, BTreeSet<u64>)>> = BTreeMap::new();
    for (name, report) in seen.reports.iter().filter(|(n, _)| seen.files.contains_key(*n)) {
        for (group, counts) in &report.facts.dcp_steps {
            let counts = counts.iter().copied().collect();
            by_group.entry(group).or_default().push((name, counts));
        }
    }
    for (group, files) in by_group {
        let all: BTreeSet<u64> = files.iter().flat_map(|(_, c)| c.iter().copied()).collect();
        if all.len() < 2 {
            continue;
        }
        let optimizer = if group.is_empty() {
            "the optimizer".to_owned()
        } else {
            crate::raw::shown(group)
        };
        let apart = files.iter().find_map(|(name, counts)| {
            let other = files.iter().find(|(_, c)| c.is_disjoint(counts))?;
            Some(((name, counts), other))
        });
        let f = match apart {
            Some(((a, of_a), (b, of_b))) => {
                let detail = format!(
                    "{optimizer} has taken {} steps in {a} and {} in {b}: the files come from two saves",
                    words(of_a),
                    words(of_b)
                );
                Finding::error("mixed_steps", Verdict::Damaged, detail).in_file(*b)
            }
            None => {
                let detail = format!("the parameters of {optimizer} have taken different numbers of steps");
                Finding::note("steps_differ", detail)
            }
        };
        seen.say(f);
    }
}

fn words(counts: &BTreeSet<u64>) -> String {
    let few: Vec<String> = counts.iter().take(4).map(u64::to_string).collect();
    few.join(", ")
}
