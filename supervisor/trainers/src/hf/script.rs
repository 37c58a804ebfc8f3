//! A script's call of a training: what must stay as learned, and our settings in it.

use super::call::{self, RESUME};
use crate::command;
use crate::script_call::{RewrittenCall, difference};
use std::collections::BTreeMap;
use supervise_core::journal::record::StartPoint;
use supervise_core::spec::script::{CallOrder, LearnedCall};

/// Settings that decide what is saved, where, and by how many ranks.
const WATCHED: [&str; 9] = [
    "config",
    "deepspeed",
    "fsdp",
    "max_steps",
    "num_processes",
    "output_dir",
    "save_only_model",
    "save_steps",
    "save_strategy",
];

pub(super) fn root(words: &[String]) -> String {
    let dir = call::settings(words).remove("output_dir");
    let dir = dir.map(|dir| format!("--output_dir {dir}"));
    dir.or_else(|| call::config_in(words)).unwrap_or_default()
}

/// The expected call of each attempt, and the words to add.
pub(super) fn call_order(learnt: &LearnedCall, ours: &[String], from: &StartPoint) -> CallOrder {
    let key = |word: &String| {
        let name = word.trim_start_matches("--").split('=').next().unwrap_or_default();
        name.replace('-', "_")
    };
    let mut pinned: Vec<String> = ours.iter().map(key).collect();
    // The resume point is ours to decide, unless the run starts as written.
    if *from != StartPoint::AsIs && !pinned.iter().any(|p| p == RESUME) {
        pinned.push(RESUME.to_owned());
    }
    CallOrder {
        entry: call::entry(&learnt.command),
        expect: watched(&learnt.command, &pinned),
        pinned,
        ahead: Vec::new(),
        ours: ours.to_vec(),
        submission: None,
        resume: None,
        root: root(&learnt.command),
    }
}

fn watched(words: &[String], pinned: &[String]) -> BTreeMap<String, String> {
    let said = call::settings(words).into_iter();
    let mut out: BTreeMap<String, String> = said
        .filter(|(key, _)| WATCHED.contains(&key.as_str()) && !pinned.contains(key))
        .collect();
    out.extend(call::config_in(words).map(|file| ("config".to_owned(), file)));
    if let Some(ranks) = command::torchrun_world(words) {
        out.insert("torchrun's ranks".to_owned(), ranks.to_string());
    }
    out
}

/// Appends our words to a call and removes the settings that they replace.
pub(super) fn fill(
    words: &[String],
    order: &CallOrder,
    restarts_by_environment: bool,
) -> Result<RewrittenCall, String> {
    let entry = call::entry(words);
    if entry != order.entry {
        return Err(format!(
            "the script starts {entry}, and {} was learnt of it: one run is one trainer; give each its own script",
            order.entry
        ));
    }
    let now = watched(words, &order.pinned);
    if now != order.expect {
        return Err(format!(
            "the script starts something else than was learnt of it: {}; start the run again to learn it anew",
            difference(&order.expect, &now)
        ));
    }
    let mut out = words.to_vec();
    for key in &order.pinned {
        out = call::without(&out, key);
    }
    out.extend(order.ours.iter().cloned());
    let notes = command::forbid_restarts(&mut out, restarts_by_environment);
    Ok(RewrittenCall {
        words: out,
        notes: notes.into_iter().collect(),
    })
}
