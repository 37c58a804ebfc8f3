//! The user's registry entry of a run, so that it is found from anywhere.

use super::files::read_small;
use super::own_place;
use super::write::write_passing;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::time::SystemTime;
use supervise_core::id::RunId;
use supervise_core::spec::RunSpec;
use supervise_core::spec::script;

/// Longest entry, in bytes; a command has a far lower limit.
const LIMIT: u64 = 4 << 20;

/// A run as the registry lists it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RegisteredRun {
    pub run: RunId,
    pub run_dir: Utf8PathBuf,
    /// What its configuration calls it.
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub root: Option<Utf8PathBuf>,
    #[serde(default)]
    pub config: Option<Utf8PathBuf>,
    /// The script, if its command is one: see [`script::key`].
    #[serde(default)]
    pub script: Option<String>,
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub cwd: Utf8PathBuf,
    /// A file declares its trainer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
    #[serde(skip)]
    pub at: Option<SystemTime>,
}

impl RegisteredRun {
    pub(super) fn of(spec: &RunSpec, run_dir: &Utf8Path) -> Self {
        Self {
            run: spec.run.clone(),
            run_dir: run_dir.to_owned(),
            name: spec.name.clone(),
            root: spec.root.clone(),
            config: spec.config_file.clone(),
            script: spec.learnt.as_ref().map(|_| script::key(&spec.cwd, &spec.command)),
            command: spec.command.clone(),
            cwd: spec.cwd.clone(),
            declared: spec.declared.is_some(),
            at: None,
        }
    }

    /// Reads an entry; `None`: there is none, or it is not ours.
    #[must_use]
    pub fn read(file: &Utf8Path) -> Option<Self> {
        let listed = serde_json::from_slice(&read_small(file, LIMIT).ok()?).ok()?;
        let at = fs::metadata(file).and_then(|m| m.modified()).ok();
        Some(Self { at, ..listed })
    }

    /// Writes the entry, readable by this user only. Not synced: each start writes it again, and a torn entry counts
    /// as none.
    pub(super) fn write(&self, file: &Utf8Path) -> io::Result<()> {
        let Some(dir) = file.parent() else { return Ok(()) };
        own_place(dir)?;
        write_passing(file, &serde_json::to_vec(self)?, 0o600)
    }
}
