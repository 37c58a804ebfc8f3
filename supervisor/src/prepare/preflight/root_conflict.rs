//! Refuses a second checkpoint root for one file.

use crate::error::CliError;
use crate::path_access;
use crate::prepare::discovery::{DiscoveredCommand, starts};
use crate::prepare::listed_runs;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_trainers::read::ReadOutput;
use supervise_trainers::{TrainerAdapter, UserPart, adapter};

/// Refuses a root without steps if the same file was run with another root that has steps. Usually the root is relative and the
/// working directory has changed; starting at step 0 there would look like a resume.
///
/// # Errors
/// Names the other root.
pub(super) fn check_other_root(
    d: &DiscoveredCommand,
    out: &ReadOutput,
    root: Option<&Utf8Path>,
) -> Result<(), CliError> {
    let (Some(file), Some(root)) = (&d.sources.file, root) else {
        return Ok(());
    };
    let Ok(relative) = root.strip_prefix(&d.sources.cwd) else {
        return Ok(());
    };
    let trainer = adapter(out.kind);
    let has_steps = |root: &Utf8Path| has_steps(trainer, root);
    if has_steps(root) || relative.as_str().is_empty() {
        return Ok(());
    }
    let file = path_access::plain(file);
    let is_same =
        |(config, other): &(Utf8PathBuf, Utf8PathBuf)| *config == file && other != root && other.ends_with(relative);
    let others = entries().filter(is_same);
    match others.map(|(_, other)| other).find(|other| has_steps(other)) {
        Some(other) => Err(CliError::config(format!(
            "{file} was run before with the checkpoint root {other}, which holds steps; {root} holds none"
        ))
        .hint(format!(
            "run it from the directory it was run from before, or make {} absolute",
            trainer.words().root.first().unwrap_or(&"supervisor.root")
        ))
        .hint("`--fresh` begins anew in this root")),
        None => Ok(()),
    }
}

fn has_steps(trainer: &dyn TrainerAdapter, root: &Utf8Path) -> bool {
    let Some(prefix) = trainer.step_prefix() else {
        return false;
    };
    path_access::names(root, prefix, 1).is_ok_and(|names| !names.is_empty())
}

/// Configuration file and root of every listed run.
fn entries() -> impl Iterator<Item = (Utf8PathBuf, Utf8PathBuf)> {
    listed_runs().into_iter().filter_map(|l| Some((l.config?, l.root?)))
}

/// Refuses to start at step 0 if the user's name is part of the root and the file was run under another name.
pub(super) fn check_other_user(
    d: &DiscoveredCommand,
    out: &ReadOutput,
    root: Option<&Utf8Path>,
) -> Result<(), CliError> {
    let (Some(file), Some(root)) = (&d.sources.file, root) else {
        return Ok(());
    };
    let trainer = adapter(out.kind);
    let is_saved = |part: &UserPart, root: &Utf8Path| part.is_saved(root, path_access::exists);
    let Some(now) = trainer.user_part(root).filter(|part| !is_saved(part, root)) else {
        return Ok(());
    };
    let file = path_access::plain(file);
    let others = entries().filter(|(config, _)| *config == file);
    let mut before = others.filter_map(|(_, other)| Some((trainer.user_part(&other)?, other)));
    let same = before.find(|(p, other)| p.user != now.user && p.place == now.place && is_saved(p, other));
    match same {
        Some((UserPart { user, .. }, other)) => Err(CliError::config(format!(
            "{file} was run before by `{user}`, and its steps are in {other}; now the user's name is `{}`, and nothing is in {root}",
            now.user
        ))
        .hint(format!(
            "{} takes the name from LOGNAME, USER, LNAME or USERNAME: start it with LOGNAME={user}",
            trainer.words().name
        ))
        .hint("`--fresh` begins anew in this root")),
        None => Ok(()),
    }
}

/// Refuses a root without steps if the same script was started with a root that has steps and differs only in its numbers.
pub(super) fn check_moved_root(
    d: &DiscoveredCommand,
    out: &ReadOutput,
    root: Option<&Utf8Path>,
) -> Result<(), CliError> {
    let (Some(_), Some(root)) = (&d.learnt, root) else {
        return Ok(());
    };
    let shape = |path: &Utf8Path| -> String {
        let mut out = String::new();
        for c in path.as_str().chars() {
            match c.is_ascii_digit() {
                true if out.ends_with('#') => {}
                true => out.push('#'),
                false => out.push(c),
            }
        }
        out
    };
    let has_steps = |root: &Utf8Path| has_steps(adapter(out.kind), root);
    if has_steps(root) {
        return Ok(());
    }
    let moved = starts(&d.sources)
        .into_iter()
        .filter_map(|s| s.root)
        .find(|other| other != root && shape(other) == shape(root) && has_steps(other));
    match moved {
        None => Ok(()),
        Some(other) => Err(CliError::config(format!(
            "this script was started before with the checkpoint root {other}, which holds steps; now it names {root}, which holds none: is the time in its name?"
        ))
        .hint(format!("--set supervisor.root={other} goes on there"))
        .hint("--fresh begins anew in the new root")),
    }
}
