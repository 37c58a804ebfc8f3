//! What should not be done unasked: a second root for one file.

use super::{Configured, registry_files};
use crate::error::CliError;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use supervise_trainers::read::ReadOutput;
use supervise_trainers::{Adapter, adapter};

/// The same file was run with another root, which holds steps, while this one holds none: a relative root and another
/// working directory, most likely. Starting from nothing there would look like a resume.
///
/// # Errors
/// Names the other root.
pub(super) fn check_other_root(
    configured: &Configured,
    out: &ReadOutput,
    root: Option<&Utf8Path>,
) -> Result<(), CliError> {
    let (Some(file), Some(root)) = (&configured.file, root) else {
        return Ok(());
    };
    let Ok(relative) = root.strip_prefix(&configured.cwd) else {
        return Ok(());
    };
    let trainer = adapter(out.kind);
    let has_steps = |root: &Utf8Path| has_steps(trainer, root);
    if has_steps(root) || relative.as_str().is_empty() {
        return Ok(());
    }
    let file = plain(file);
    let is_same =
        |(config, other): &(Utf8PathBuf, Utf8PathBuf)| *config == file && other != root && other.ends_with(relative);
    let others = entries().into_iter().filter(is_same);
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

/// The path without links and `..`, where it exists.
pub(super) fn plain(path: &Utf8Path) -> Utf8PathBuf {
    path.canonicalize_utf8().unwrap_or_else(|_| path.to_owned())
}

/// Whether there are directories of steps in a root.
pub(super) fn has_steps(trainer: &dyn Adapter, root: &Utf8Path) -> bool {
    let Some(prefix) = trainer.step_prefix() else {
        return false;
    };
    root.read_dir_utf8()
        .is_ok_and(|mut entries| entries.any(|e| e.is_ok_and(|e| e.file_name().starts_with(prefix))))
}

/// Configuration file and root of every run that is listed.
pub(super) fn entries() -> Vec<(Utf8PathBuf, Utf8PathBuf)> {
    let read = |path: &Utf8Path| -> Option<(Utf8PathBuf, Utf8PathBuf)> {
        let entry: serde_json::Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        Some((
            entry.get("config")?.as_str()?.into(),
            entry.get("root")?.as_str()?.into(),
        ))
    };
    registry_files().iter().filter_map(|f| read(f)).collect()
}
