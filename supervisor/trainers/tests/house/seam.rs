//! Places that know a trainer by name: its own folder and the registry. Everybody else asks the adapter.
//!
//! The list below holds the places that may: a command that is one trainer's own, a format of its, names of modules that files import.
//! It only shrinks: a line that names a trainer anywhere else fails here, and so does a place that names fewer than is listed.

use super::{code, sources, top};
use std::collections::BTreeMap;
use std::path::Path;

/// Trainers that are known, as they are written in code.
const NAMES: [&str; 2] = ["verl", "areal"];

/// Trainers' folders.
const FOLDERS: [&str; 4] = ["verl", "areal", "hf", "plain"];

/// Files that import a trainer which is not theirs: the list of all, and one of verl's own that stands beside its folder.
const IMPORTERS: [&str; 2] = ["registry.rs", "rehearsal.rs"];

/// Crates that know no trainer.
const STRANGERS: [&str; 5] = [
    "config/src",
    "supervisor/core/src",
    "supervisor/checkpoint/src",
    "supervisor/host/src",
    "supervisor/src",
];

/// Lines that may name a trainer, by file.
const ALLOWED: &[(&str, usize)] = &[
    ("supervisor/checkpoint/src/pickle/danger/names.rs", 1),
    ("supervisor/checkpoint/src/set/recover.rs", 2),
    ("supervisor/host/src/migrate.rs", 1),
    ("supervisor/src/cli/migrate.rs", 1),
    ("supervisor/src/cli/migrate/convert.rs", 1),
    ("supervisor/src/cli/migrate/target.rs", 1),
    ("supervisor/src/render/migrate.rs", 1),
];

/// Returns true if a line of code names a trainer; comments say what they like.
fn names_trainer(line: &str) -> bool {
    let line = line.trim_start().to_lowercase();
    let begins_word = |at: usize| !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    !line.starts_with("//")
        && NAMES
            .iter()
            .any(|n| line.match_indices(n).any(|(at, _)| begins_word(at)))
}

/// Lines of a file that name a trainer; tests at its end name what they like.
fn count(path: &Path) -> usize {
    let code = code(path);
    // The examples of `--help` are real commands.
    let (before, after) = code.split_once("const EXAMPLES").unwrap_or((&code, ""));
    let after = after.split_once("\";\n").map_or("", |(_, after)| after);
    before
        .lines()
        .chain(after.lines())
        .filter(|line| names_trainer(line))
        .count()
}

#[test]
fn a_trainer_is_named_in_its_own_folder_only() {
    let mut files = Vec::new();
    for krate in STRANGERS {
        sources(&top().join(krate), &mut files);
    }
    assert!(files.len() > 200, "the sources are not where they are looked for");
    let found = files.iter().map(|path| {
        let name = path.strip_prefix(top()).unwrap().to_str().unwrap().to_owned();
        (name, count(path))
    });
    let found: BTreeMap<String, usize> = found.filter(|(_, lines)| *lines > 0).collect();
    let left: BTreeMap<String, usize> = ALLOWED
        .iter()
        .map(|(name, lines)| ((*name).to_owned(), *lines))
        .collect();
    let more = found
        .iter()
        .filter(|(name, lines)| left.get(*name).is_none_or(|l| *lines > l));
    let more: Vec<_> = more.collect();
    assert!(
        more.is_empty(),
        "a trainer is named outside of its folder; ask its adapter: {more:#?}"
    );
    let fewer = left
        .iter()
        .filter(|(name, lines)| found.get(*name).is_none_or(|l| *lines > l));
    let fewer: Vec<_> = fewer.map(|(name, _)| (name, found.get(name))).collect();
    assert!(
        fewer.is_empty(),
        "fewer lines name a trainer than are listed, lower the numbers: {fewer:#?}"
    );
}

/// The core's words are read by users of every trainer.
#[test]
fn no_setting_of_one_trainer_is_named_by_the_core() {
    let mut files = Vec::new();
    sources(&top().join("supervisor/core/src"), &mut files);
    let keys = ["trainer.", "resume_mode", "save_freq", "total_training_steps"];
    for path in files {
        let code = code(&path);
        let strings = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        // What stands between quotes is said.
        for said in strings.flat_map(|line| line.split('"').skip(1).step_by(2)) {
            assert!(!keys.iter().any(|key| said.contains(key)), "{}: {said}", path.display());
        }
    }
}

/// Shared parts of this crate import no trainer; but for what is left, trainers import none but themselves.
#[test]
fn trainers_do_not_import_each_other() {
    let src = top().join("supervisor/trainers/src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut found = Vec::new();
    for path in files {
        let name = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
        let own = name.split(['/', '.']).next().unwrap().to_owned();
        let code = code(&path);
        for other in FOLDERS.iter().filter(|f| **f != own) {
            if code.contains(&format!("crate::{other}::")) || code.contains(&format!("crate::{{{other}")) {
                found.push(name.clone());
            }
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found, IMPORTERS, "a trainer is imported by name");
}

#[test]
fn what_is_a_name_is_seen() {
    for (line, is) in [
        ("use supervise_trainers::verl::migrate;", true),
        ("    TrainerKind::VerlPpo => 1,", true),
        ("fn is_areal() {}", true),
        ("\"AReaL would end\"", true),
        ("\"zip_overlap\"", false),
        ("fn overlong() {}", false),
        ("/// verl does this", false),
    ] {
        assert_eq!(names_trainer(line), is, "{line}");
    }
}
