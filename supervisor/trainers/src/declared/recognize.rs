//! Which declared trainer wrote a checkpoint, by its tracker and its parts, never by the names of its steps alone.

use super::Declaration;
use crate::adapter::StepTracker;
use std::sync::Arc;
use supervise_core::checkpoint::{EntryKind, FileFact};

/// A declaration that fits a checkpoint root.
#[derive(Debug, Clone)]
pub struct DeclaredMatch {
    pub declaration: Arc<Declaration>,
    /// The tracker file or the step that showed it.
    pub by: String,
    pub by_tracker: bool,
}

/// The declarations that fit a checkpoint root, the most certain first. `facts`: its entries and all files below them.
pub fn recognize<'a>(among: impl Iterator<Item = &'a Arc<Declaration>>, facts: &[FileFact]) -> Vec<DeclaredMatch> {
    let mut out: Vec<DeclaredMatch> = among.filter_map(|d| fit(d, facts)).collect();
    out.sort_by_key(|found| !found.by_tracker);
    out
}

fn fit(declaration: &Arc<Declaration>, facts: &[FileFact]) -> Option<DeclaredMatch> {
    let mut tracker = declaration.tracker();
    for fact in facts {
        tracker.note(fact);
    }
    let steps = tracker.steps();
    let has_mark = |dir: &str| {
        let mark = declaration.steps.recognized_by.as_ref();
        mark.is_none_or(|mark| facts.iter().any(|f| f.path == format!("{dir}/{mark}")))
    };
    let whole = steps
        .iter()
        .find(|(ckpt, _)| tracker.has_needed(ckpt) && has_mark(ckpt.0.as_str()));
    let is_there = |name: &str| facts.iter().any(|f| f.path == name && f.kind == EntryKind::File);
    let file = declaration
        .tracker
        .as_ref()
        .map(|t| t.file)
        .filter(|name| is_there(name));
    let has_part = || steps.iter().any(|(ckpt, _)| !tracker.parts(ckpt).is_empty());
    let by = match file.filter(|_| has_part()) {
        Some(file) => file.to_owned(),
        None => whole?.0.to_string(),
    };
    Some(DeclaredMatch {
        declaration: Arc::clone(declaration),
        by_tracker: file.is_some(),
        by,
    })
}

/// Returns true if a word matches a pattern in which `*` matches any characters.
#[must_use]
pub fn fits_word(pattern: &str, word: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == word;
    };
    let Some(mut left) = word.strip_prefix(head) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(tail)
}
