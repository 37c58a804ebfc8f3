//! Names a run: its identity, checkpoint root and run directory.

use crate::error::CliError;
use crate::path_access;
use crate::prepare::path::{absolute, canonical};
use crate::prepare::state_dir::{state_dir, state_dirs};
use camino::{Utf8Path, Utf8PathBuf};
use supervise_config::settings::Settings;
use supervise_core::id::{RunId, fnv64};
use supervise_core::spec::{SavePolicy, TrainerKind};
use supervise_host::io_worker::RUN_DIR_NAME;
use supervise_trainers::declared::presets;
use supervise_trainers::read::ReadOutput;
use supervise_trainers::registry::adapters;
use supervise_trainers::{TrainerAdapter, adapter};

/// Longest owner file of a run directory, in bytes.
const OWNER_LIMIT: u64 = 1 << 20;

/// The run that a run directory belongs to.
#[derive(Debug, serde::Deserialize)]
pub(in crate::prepare) struct RunDirOwner {
    pub(in crate::prepare) run: RunId,
    pub(in crate::prepare) root: Option<Utf8PathBuf>,
}

impl RunDirOwner {
    /// Reads its `run.id`.
    pub(in crate::prepare) fn of(run_dir: &Utf8Path) -> Option<Self> {
        let (text, _) = path_access::read_small(&run_dir.join("run.id"), OWNER_LIMIT).ok()?;
        serde_json::from_slice(text.as_bytes()).ok()
    }
}

/// Identifies a run. A run directory that is set explicitly tells two runs of one plain command apart.
pub(super) fn identify(
    settings: &Settings,
    kind: TrainerKind,
    root: Option<&Utf8Path>,
    cwd: &Utf8Path,
    command: &[String],
) -> Result<RunId, CliError> {
    let run = run_id(kind, root, cwd, command);
    let (None, Some(dir)) = (root, named_run_dir(settings, cwd)?) else {
        return Ok(run);
    };
    // An older release identified it without its directory.
    if RunDirOwner::of(&dir).is_some_and(|owner| owner.run == run) {
        return Ok(run);
    }
    let text = format!("{run}\0{dir}");
    Ok(RunId(format!("{:016x}", fnv64(text.as_bytes()))))
}

/// A run's identity: trainer and root; for a plain command, working directory and command.
#[must_use]
fn run_id(kind: TrainerKind, root: Option<&Utf8Path>, cwd: &Utf8Path, command: &[String]) -> RunId {
    let text = match root {
        Some(root) => format!("{kind}\0{root}"),
        None => format!("{kind}\0{cwd}\0{}", command.join("\0")),
    };
    RunId(format!("{:016x}", fnv64(text.as_bytes())))
}

/// The identities of a run with this root, one for each possible trainer.
#[must_use]
pub fn run_ids_at(root: &Utf8Path) -> Vec<RunId> {
    let built_in = adapters().filter(|a| a.has_steps()).map(TrainerAdapter::kind);
    let kinds = built_in.chain(presets().iter().map(|d| d.kind()));
    kinds.map(|kind| run_id(kind, Some(root), root, &[])).collect()
}

/// Directory of generations, with all links resolved as in the root's own path.
/// For a root that holds steps: the directory outside of it, if the trainer bears none of ours in it.
pub(super) fn store(out: &mut ReadOutput, root: Option<&Utf8Path>) -> Result<Option<Utf8PathBuf>, CliError> {
    let trainer = adapter(out.kind);
    let outside = root
        .filter(|_| trainer.is_declared())
        .and_then(|root| trainer.store_of(root));
    let SavePolicy::InPlace(place) = &mut out.saves else {
        return Ok(outside);
    };
    if let (true, Some(root)) = (place.store.as_str().is_empty(), root) {
        place.store = outside.unwrap_or_else(|| root.join(RUN_DIR_NAME));
    }
    place.store = canonical("directory for copies", &place.store)?;
    Ok(Some(place.store.clone()))
}

pub(super) fn run_dir(
    settings: &Settings,
    root: Option<&Utf8Path>,
    store: Option<&Utf8Path>,
    run: &RunId,
    cwd: &Utf8Path,
) -> Result<Utf8PathBuf, CliError> {
    match (named_run_dir(settings, cwd)?, store.or(root)) {
        (Some(dir), _) => Ok(dir),
        (None, Some(dir)) if store.is_some() => Ok(dir.to_owned()),
        (None, Some(root)) => Ok(root.join(RUN_DIR_NAME)),
        (None, None) => {
            let plain = |dir: Utf8PathBuf| dir.join("plain").join(&run.0);
            // It may have been started in another environment.
            let begun = state_dirs().into_iter().map(plain).find(|dir| path_access::exists(dir));
            begun.or_else(|| state_dir().map(plain)).ok_or_else(|| {
                CliError::environment("there is no place of this user's own for the journal: XDG_STATE_HOME and HOME are not set, and in /tmp a directory of that name is somebody else's")
                    .hint("set supervisor.run_dir or XDG_STATE_HOME")
            })
        }
    }
}

fn named_run_dir(settings: &Settings, cwd: &Utf8Path) -> Result<Option<Utf8PathBuf>, CliError> {
    let dir = settings.run_dir.as_ref();
    dir.map(|dir| canonical("run directory", &absolute(cwd, Utf8Path::new(dir))))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_of_trainer_and_root() {
        let root = Utf8Path::new("/a/b");
        let ids = run_ids_at(root);
        let of = |kind| run_id(kind, Some(root), Utf8Path::new("/x"), &["y".into()]);
        let (ppo, sft) = (of(supervise_trainers::verl::PPO), of(supervise_trainers::verl::SFT));
        assert_ne!(ppo, sft);
        assert_eq!(ppo.0.len(), 16);
        assert!(ids.contains(&ppo) && ids.contains(&sft), "{ids:?}");
    }
}
