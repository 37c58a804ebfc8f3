//! Declarations of trainers: presets, a file that is named, and the user's own in `supervise.trainers/`.

use crate::error::CliError;
use crate::path_access;
use crate::render::shown_command;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use supervise_host::ownership::{DistrustReason, PathTrust};
use supervise_trainers::declared::{Declaration, LARGEST, presets};
use supervise_trainers::registry;

/// Directory of declarations next to where a command runs, and in the user's configuration.
const BESIDE: &str = "supervise.trainers";
const AT_HOME: &str = "supervise/trainers";
/// Files that are looked at in each.
const FILES: usize = 100;

/// Declarations of the user, and what is wrong with those that do not load.
#[derive(Debug, Default)]
pub(crate) struct UserDeclarations {
    pub(crate) read: Vec<(Utf8PathBuf, Arc<Declaration>)>,
    pub(crate) broken: Vec<BrokenDeclaration>,
}

/// A file that does not load.
#[derive(Debug)]
pub(crate) struct BrokenDeclaration {
    pub(crate) path: Utf8PathBuf,
    /// The name that it seems to declare.
    name: Option<String>,
    pub(crate) error: CliError,
}

impl UserDeclarations {
    /// All mistakes in files that do not load, as one error; `None`: all load.
    pub(crate) fn mistakes(&self) -> Option<CliError> {
        let (first, others) = self.broken.split_first()?;
        let e = &first.error;
        let more = others.iter().flat_map(|other| {
            let own = std::iter::once(other.error.message.clone());
            own.chain(other.error.lines.iter().cloned())
        });
        let lines = e.lines.iter().cloned().chain(more);
        let all = CliError::config(e.message.clone()).with_lines(lines.collect::<Vec<_>>());
        let hints = self.broken.iter().flat_map(|b| &b.error.hints);
        Some(hints.fold(all, |all, hint| all.hint(hint.clone())))
    }
}

/// A declaration, and its file unless it is built in.
#[derive(Debug, Clone)]
pub(crate) struct FoundDeclaration {
    pub(crate) file: Option<Utf8PathBuf>,
    pub(crate) declaration: Arc<Declaration>,
}

impl FoundDeclaration {
    /// Which trainer it is, and what to do if it is another one. `is_found`: nobody named it.
    pub(crate) fn note(&self, is_found: bool) -> String {
        let (title, name) = (self.declaration.title(), self.declaration.name());
        let by = match &self.file {
            Some(file) => format!("{file} declares it"),
            None => format!("`supervise trainer show {name}` prints what is known of it"),
        };
        match is_found {
            true => format!("the trainer is {title}: {by}; if it is another one: --set supervisor.trainer=plain"),
            false => format!("the trainer is {title}: {by}"),
        }
    }
}

/// Reads the declarations in the user's directories. A file that another user could have written does not load.
pub(crate) fn of_user() -> UserDeclarations {
    let mut out = UserDeclarations::default();
    for path in dirs().iter().flat_map(|dir| files(dir)) {
        match text_of(&path, false) {
            Ok(text) => match parsed(&path, &text) {
                Ok(declaration) => out.read.push((path, declaration)),
                Err(error) => out.broken.push(BrokenDeclaration {
                    name: Declaration::name_in(&text),
                    path,
                    error,
                }),
            },
            Err(error) => out.broken.push(BrokenDeclaration {
                path,
                name: None,
                error,
            }),
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
pub(crate) fn read(path: &Utf8Path) -> Result<Arc<Declaration>, CliError> {
    parsed(path, &text_of(path, true)?)
}

fn text_of(path: &Utf8Path, is_named: bool) -> Result<String, CliError> {
    let place = absolute(path);
    let (text, exact, trust) = path_access::read_judged(&place, LARGEST as u64 + 1).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => CliError::usage(format!("{path}: there is no such file")),
        _ => CliError::environment(format!("{path}: it cannot be read: {e}")),
    })?;
    check_writers(path, trust, is_named)?;
    match exact {
        true => Ok(text),
        false => Err(CliError::config(format!("{path}: it is not UTF-8")).hint("save it as UTF-8")),
    }
}

/// Refuses a declaration that others may write: it adds words to the command. One of another user counts if it is named.
fn check_writers(path: &Utf8Path, trust: PathTrust, is_named: bool) -> Result<(), CliError> {
    let who = match trust {
        PathTrust::Trusted => return Ok(()),
        PathTrust::GroupWritable(_) => "its group",
        PathTrust::Refused(why) if why.why == DistrustReason::OtherOwner => {
            if is_named {
                return Ok(());
            }
            let what = format!("{why}: a declaration that nobody named counts only if it is this user's or root's");
            return Err(CliError::config(what).hint(format!(
                "to use it all the same: --set supervisor.trainer_file={path}, or `supervise verify --as {path}`"
            )));
        }
        PathTrust::Refused(_) => "everybody",
    };
    let what = format!("{path}: {who} may write this declaration, and so choose what a run executes");
    let chmod = ["chmod", "go-w", path.as_str()].map(str::to_owned);
    Err(CliError::config(what).hint(format!("if what it says is yours: {}", shown_command(&chmod))))
}

fn parsed(path: &Utf8Path, text: &str) -> Result<Arc<Declaration>, CliError> {
    Declaration::parse(text, &registry::taken_names())
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
pub(crate) fn named(word: &str) -> Result<Option<Arc<Declaration>>, CliError> {
    if word.contains('/') || word.ends_with(".toml") {
        return read(Utf8Path::new(word)).map(Some);
    }
    Ok(of_name(word)?.map(|found| found.declaration))
}

/// The declaration of this name: a user's own, or a preset.
pub(crate) fn of_name(name: &str) -> Result<Option<FoundDeclaration>, CliError> {
    let mut user = of_user();
    let own: Vec<_> = user.read.iter().filter(|(_, d)| d.name() == name).collect();
    if let [(a, _), (b, _), ..] = own.as_slice() {
        return Err(CliError::config(format!("`{name}` is declared in {a} and in {b}"))
            .hint("give one of them another name, or name the file"));
    }
    if let Some((file, declaration)) = own.first() {
        return Ok(Some(FoundDeclaration {
            file: Some(absolute(file)),
            declaration: Arc::clone(declaration),
        }));
    }
    // A file that may declare this trainer and does not load is not passed over.
    let is_it = |b: &BrokenDeclaration| b.path.file_stem() == Some(name) || b.name.as_deref() == Some(name);
    if let Some(at) = user.broken.iter().position(is_it) {
        return Err(user.broken.swap_remove(at).error);
    }
    let preset = presets().iter().find(|d| d.name() == name);
    if preset.is_none()
        && let Some(e) = user.mistakes()
    {
        return Err(e.hint(format!(
            "no declaration that loads is called `{name}`: mend this one, or name another"
        )));
    }
    Ok(preset.map(|declaration| FoundDeclaration {
        file: None,
        declaration: Arc::clone(declaration),
    }))
}

/// The I/O worker need not run in this directory.
pub(crate) fn absolute(path: &Utf8Path) -> Utf8PathBuf {
    camino::absolute_utf8(path).unwrap_or_else(|_| path.to_owned())
}

/// The names of all declarations, the user's first.
pub(crate) fn names() -> Vec<String> {
    let user = of_user().read.into_iter().map(|(_, d)| d.name().to_owned());
    let mut out: Vec<String> = user.chain(presets().iter().map(|d| d.name().to_owned())).collect();
    let mut seen = BTreeSet::new();
    out.retain(|name| seen.insert(name.clone()));
    out
}
