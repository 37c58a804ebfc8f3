//! Declarations of trainers: presets, a file that is named, and the user's own in `supervise.trainers/`.

use crate::error::CliError;
use crate::path_access;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use supervise_trainers::declared::{Declaration, LARGEST, presets};
use supervise_trainers::registry;

/// Directory of declarations next to where a command runs, and in the user's configuration.
const BESIDE: &str = "supervise.trainers";
const AT_HOME: &str = "supervise/trainers";
/// Files that are looked at in each.
const FILES: usize = 100;

/// Declarations of the user, and what is wrong with those that do not load.
#[derive(Debug, Default)]
pub(super) struct UserDeclarations {
    pub(super) read: Vec<(Utf8PathBuf, Arc<Declaration>)>,
    pub(super) broken: Vec<(Utf8PathBuf, CliError)>,
}

/// Reads the declarations in the user's directories. A file that another user could have written does not load.
pub(super) fn of_user() -> UserDeclarations {
    let mut out = UserDeclarations::default();
    for path in dirs().iter().flat_map(|dir| files(dir)) {
        match load(&path, false) {
            Ok(declaration) => out.read.push((path, declaration)),
            Err(e) => out.broken.push((path, e)),
        }
    }
    out
}

fn dirs() -> Vec<Utf8PathBuf> {
    let home = || Some(Utf8PathBuf::from(std::env::var("HOME").ok()?).join(".config"));
    let config = std::env::var("XDG_CONFIG_HOME").ok().filter(|dir| !dir.is_empty());
    let config = config
        .map(Utf8PathBuf::from)
        .or_else(home)
        .filter(|dir| dir.is_absolute());
    let at_home = config.map(|dir| dir.join(AT_HOME));
    [Utf8PathBuf::from(BESIDE)].into_iter().chain(at_home).collect()
}

fn files(dir: &Utf8Path) -> Vec<Utf8PathBuf> {
    let entries = dir.read_dir_utf8().into_iter().flatten().flatten();
    let mut out: Vec<Utf8PathBuf> = entries
        .map(camino::Utf8DirEntry::into_path)
        .filter(|path| path.extension() == Some("toml"))
        .collect();
    out.sort_unstable();
    out.truncate(FILES);
    out
}

/// Reads a file that the user named.
pub(super) fn read(path: &Utf8Path) -> Result<Arc<Declaration>, CliError> {
    load(path, true)
}

fn load(path: &Utf8Path, is_named: bool) -> Result<Arc<Declaration>, CliError> {
    // The I/O worker need not run in this directory.
    let place = camino::absolute_utf8(path).unwrap_or_else(|_| path.to_owned());
    let (text, exact, trust) = path_access::read_judged(&place, LARGEST as u64 + 1).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => CliError::usage(format!("{path}: there is no such file")),
        _ => CliError::environment(format!("{path}: it cannot be read: {e}")),
    })?;
    if let Some(why) = trust.refusal().filter(|_| !is_named) {
        let what = format!("{why}: a declaration that nobody named counts only if it is this user's or root's");
        return Err(CliError::config(what).hint(format!("name it to use it: {path}")));
    }
    if !exact {
        return Err(CliError::config(format!("{path}: it is not UTF-8")).hint("save it as UTF-8"));
    }
    Declaration::parse(&text, &registry::taken_names())
        .map(Arc::new)
        .map_err(|problems| {
            let lines = problems.iter().map(|problem| format!("{path}:{problem}"));
            let count = match problems.len() {
                1 => "1 mistake".to_owned(),
                n => format!("{n} mistakes"),
            };
            CliError::config(format!("{path}: {count} in this declaration of a trainer")).with_lines(lines)
        })
}

/// The declaration that a word names: a file, a user's own, or a preset.
pub(super) fn named(word: &str) -> Result<Option<Arc<Declaration>>, CliError> {
    if word.contains('/') || word.ends_with(".toml") {
        return read(Utf8Path::new(word)).map(Some);
    }
    let user = of_user();
    let own: Vec<_> = user.read.iter().filter(|(_, d)| d.name() == word).collect();
    if let [(a, _), (b, _), ..] = own.as_slice() {
        return Err(CliError::config(format!("`{word}` is declared in {a} and in {b}"))
            .hint("give one of them another name, or name the file"));
    }
    if let Some((_, declaration)) = own.first() {
        return Ok(Some(Arc::clone(declaration)));
    }
    // A file that is named after the trainer and does not load is not passed over.
    if let Some((_, e)) = user.broken.into_iter().find(|(path, _)| path.file_stem() == Some(word)) {
        return Err(e);
    }
    Ok(presets().iter().find(|d| d.name() == word).cloned())
}

/// The names of all declarations, the user's first.
pub(super) fn names() -> Vec<String> {
    let user = of_user().read.into_iter().map(|(_, d)| d.name().to_owned());
    let mut out: Vec<String> = user.chain(presets().iter().map(|d| d.name().to_owned())).collect();
    let mut seen = BTreeSet::new();
    out.retain(|name| seen.insert(name.clone()));
    out
}
