//! Checkpoints of trainers that are recognized and not judged.

use crate::render::verify::PathView;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::checkpoint::Verdict;
use supervise_trainers::other_trainers::{DEPTH, looks_like};

/// Paths that are looked at.
const PATHS: usize = 20_000;

/// Adds which other trainer the files look like. `guessed`: no name decided for the trainer that judged them.
pub(super) fn remark(dir: &Utf8Path, guessed: bool, view: PathView) -> PathView {
    let unknown = view.verdict == Verdict::Unknown && view.steps.iter().all(|s| s.layout == "unknown");
    let paths = paths(dir);
    let other = looks_like(paths.iter().map(|p| p.as_str())).filter(|other| unknown || other.by_tracker);
    match other {
        Some(other) if unknown => PathView {
            steps: Vec::new(),
            files: Vec::new(),
            remarks: vec![format!(
                "this looks like a checkpoint of {other}: `supervise` does not judge its steps; name a single file to check that file"
            )],
            what: "directory",
            ..view
        },
        Some(other) => {
            let mut view = view;
            view.remarks.push(format!("it also looks like a checkpoint of {other}"));
            view
        }
        None if unknown && guessed => PathView {
            steps: Vec::new(),
            remarks: vec![
                "no trainer that is known here writes such files: name a single file to check that file".to_owned(),
            ],
            what: "directory",
            ..view
        },
        None => view,
    }
}

/// Paths of entries, relative to the directory. What cannot be read is left out: the trainer that judges it says so.
fn paths(dir: &Utf8Path) -> Vec<Utf8PathBuf> {
    let mut out = Vec::new();
    let mut dirs = vec![(Utf8PathBuf::new(), 1)];
    while let Some((below, depth)) = dirs.pop() {
        for entry in dir.join(&below).read_dir_utf8().into_iter().flatten().flatten() {
            if out.len() >= PATHS {
                return out;
            }
            let path = below.join(entry.file_name());
            if depth < DEPTH && entry.file_type().is_ok_and(|t| t.is_dir()) {
                dirs.push((path.clone(), depth + 1));
            }
            out.push(path);
        }
    }
    out.sort_unstable();
    out
}
