//! Places: the canonical checkpoint root, the run directory, the registry; whether they can be used.

use super::state_dir::{listed_file, state_dir, state_dirs};
use crate::error::CliError;
use camino::{Utf8Path, Utf8PathBuf};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use std::fs;
use std::io;
use supervise_config::settings::Settings;
use supervise_core::id::{RunId, fnv64};
use supervise_core::spec::{ResumeIntent, SavePolicy, TrainerKind};
use supervise_host::lane::{RUN_DIR_NAME, read_small, write_test};
use supervise_trainers::read::ReadOutput;
use supervise_trainers::registry::{adapters, root_keys};
use supervise_trainers::{Adapter, adapter};

/// Longest note of whose a run directory is.
const OWNER_LIMIT: u64 = 1 << 20;
/// The journal's reserve and what a term writes at once.
const JOURNAL_SPACE: u64 = 2 << 20;

/// The working directory.
pub(super) fn cwd() -> Result<Utf8PathBuf, CliError> {
    let dir =
        std::env::current_dir().map_err(|e| CliError::environment(format!("the working directory is gone: {e}")))?;
    Utf8PathBuf::from_path_buf(dir)
        .map_err(|p| CliError::environment(format!("the working directory {} is not UTF-8", p.display())))
}

/// Made absolute, without `.` and doubled slashes.
pub(super) fn absolute(cwd: &Utf8Path, path: &Utf8Path) -> Utf8PathBuf {
    cwd.join(path).components().collect()
}

/// Where the terms of a run are won: on the checkpoint root's own file system.
#[must_use]
pub fn lease_dir(root: Option<&Utf8Path>, saves: &SavePolicy, run_dir: &Utf8Path) -> Utf8PathBuf {
    match (saves, root) {
        (SavePolicy::InPlace(place), _) => place.store.join("lease"),
        (SavePolicy::Steps, Some(root)) => root.join(RUN_DIR_NAME).join("lease"),
        (SavePolicy::Steps, None) => run_dir.join("lease"),
    }
}

/// The name by which the password database knows who runs this.
pub(super) fn user() -> Option<String> {
    let found = nix::unistd::User::from_uid(nix::unistd::getuid());
    found.ok().flatten().map(|u| u.name).filter(|n| !n.is_empty())
}

/// Where generations are kept, with all links followed as in the root's own path.
pub(super) fn store(out: &mut ReadOutput) -> Result<Option<Utf8PathBuf>, CliError> {
    let SavePolicy::InPlace(place) = &mut out.saves else {
        return Ok(None);
    };
    place.store = canonical("directory for copies", &place.store)?;
    Ok(Some(place.store.clone()))
}

/// A run's identity: trainer and root; for a plain command the working directory and the command.
#[must_use]
pub fn run_id(kind: TrainerKind, root: Option<&Utf8Path>, cwd: &Utf8Path, command: &[String]) -> RunId {
    let text = match root {
        Some(root) => format!("{kind}\0{root}"),
        None => format!("{kind}\0{cwd}\0{}", command.join("\0")),
    };
    RunId(format!("{:016x}", fnv64(text.as_bytes())))
}

/// A run that was started from this machine before, and of which nothing is there any more: an empty root is a fresh start, and so
/// is one whose file system is not mounted.
pub(super) fn gone(run: &RunId, run_dir: &Utf8Path) -> Option<String> {
    let known = listed_file(run).is_some();
    (known && !run_dir.exists()).then(|| {
        format!(
            "WARNING: this run was started here before, and {run_dir} is gone: if the file system is not mounted, stop this now; if it was deleted on purpose, all is well"
        )
    })
}

/// The identity of a run that stands at a root, for each trainer it may be of.
#[must_use]
pub fn run_ids_at(root: &Utf8Path) -> Vec<RunId> {
    let kinds = adapters().filter(|a| a.has_steps()).map(Adapter::kind);
    kinds.map(|kind| run_id(kind, Some(root), root, &[])).collect()
}

/// Where the journal and the attempts go.
pub(super) fn run_dir(
    settings: &Settings,
    root: Option<&Utf8Path>,
    store: Option<&Utf8Path>,
    run: &RunId,
    cwd: &Utf8Path,
) -> Result<Utf8PathBuf, CliError> {
    match (&settings.run_dir, store.or(root)) {
        (Some(dir), _) => canonical("run directory", &absolute(cwd, Utf8Path::new(dir))),
        (None, Some(dir)) if store.is_some() => Ok(dir.to_owned()),
        (None, Some(root)) => Ok(root.join(RUN_DIR_NAME)),
        (None, None) => {
            let plain = |dir: Utf8PathBuf| dir.join("plain").join(&run.0);
            // It may have begun in another environment.
            let begun = state_dirs().into_iter().map(plain).find(|dir| dir.exists());
            begun.or_else(|| state_dir().map(plain)).ok_or_else(|| {
                CliError::environment("there is no place of this user's own for the journal: XDG_STATE_HOME and HOME are not set, and in /tmp a directory of that name is somebody else's")
                    .hint("set supervisor.run_dir")
            })
        }
    }
}

/// The path with all links followed; what does not exist yet is appended as it is. `what` is named in errors.
pub(super) fn canonical(what: &str, path: &Utf8Path) -> Result<Utf8PathBuf, CliError> {
    let refused = |why: String| CliError::environment(format!("the {what} {path} cannot be used: {why}"));
    let mut missing: Vec<&str> = Vec::new();
    let mut here = path;
    loop {
        match here.canonicalize_utf8() {
            Ok(found) if !found.is_dir() => {
                return Err(refused(format!("{found} is a file, not a directory")).hint("choose another place"));
            }
            Ok(found) => return Ok(missing.iter().rev().fold(found, |p, name| p.join(name))),
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
                return Err(
                    refused(format!("the symbolic link {} leads in a circle", link_in(here)))
                        .hint("remove the link, or choose another place"),
                );
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if let Ok(target) = fs::read_link(here) {
                    let target = target.display();
                    let why = format!("{here} is a symbolic link to {target}, which does not exist");
                    return Err(refused(why).hint("create the directory it points to, or remove the link"));
                }
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOTDIR) => {}
            Err(e) => return Err(refused(format!("{here}: {e}"))),
        }
        let (Some(parent), Some(name)) = (here.parent(), here.file_name()) else {
            return Err(refused("it has no directory above it".to_owned()));
        };
        missing.push(name);
        here = parent;
    }
}

/// The link among the parts of a path that leads in a circle.
fn link_in(path: &Utf8Path) -> &Utf8Path {
    let is_link = |p: &&Utf8Path| fs::symlink_metadata(p).is_ok_and(|m| m.is_symlink());
    path.ancestors().filter(is_link).last().unwrap_or(path)
}

/// A run directory that was set by hand must not be another run's: its journal would be put out of the way.
pub(super) fn check_owner(run_dir: &Utf8Path, run: &RunId) -> Result<(), CliError> {
    #[derive(serde::Deserialize)]
    struct Owner {
        run: RunId,
        root: Option<Utf8PathBuf>,
    }
    // In the usual place it stands in the root, and a copied or moved root is another matter.
    if run_dir.file_name() == Some(RUN_DIR_NAME) {
        return Ok(());
    }
    let file = run_dir.join("run.id");
    let owner = read_small(&file, OWNER_LIMIT)
        .ok()
        .and_then(|t| serde_json::from_slice::<Owner>(&t).ok());
    match owner {
        Some(owner) if owner.run != *run => {
            let of = owner.root.map(|r| format!(" of {r}")).unwrap_or_default();
            Err(CliError::config(format!(
                "the run directory {run_dir} belongs to another run: {}{of} ({file})",
                owner.run
            ))
            .hint("give each run a supervisor.run_dir of its own, or none"))
        }
        _ => Ok(()),
    }
}

/// The nearest directory that exists already.
fn nearest_existing(path: &Utf8Path) -> &Utf8Path {
    path.ancestors().find(|p| p.exists()).unwrap_or(Utf8Path::new("/"))
}

/// A root that cannot be written to is told before a GPU is touched.
pub(super) fn check_writable(root: &Utf8Path) -> Result<(), CliError> {
    let here = nearest_existing(root);
    access(here.as_std_path(), AccessFlags::W_OK | AccessFlags::X_OK).map_err(|e| not_writable(root, here, &e.desc()))
}

fn not_writable(root: &Utf8Path, here: &Utf8Path, why: &dyn std::fmt::Display) -> CliError {
    let place = if here == root {
        String::new()
    } else {
        format!(" ({here})")
    };
    CliError::environment(format!("the checkpoint root {root} is not writable{place}: {why}")).hint(format!(
        "mend the permissions, or choose another place in the configuration ({})",
        root_keys()
    ))
}

/// Creates the root and writes a file in it: what [`check_writable`] only supposes.
///
/// # Errors
/// The file system refuses.
pub fn probe(root: &Utf8Path) -> Result<(), CliError> {
    fs::create_dir_all(root).map_err(|e| not_writable(root, root, &e))?;
    write_test(root).map(drop).map_err(|e| not_writable(root, root, &e))
}

/// The journal must fit.
pub(super) fn check_space(run_dir: &Utf8Path) -> Result<(), CliError> {
    let here = nearest_existing(run_dir);
    let Ok(fs) = statvfs(here.as_std_path()) else {
        return Ok(());
    };
    // A file system that counts no blocks (some of the kernel's own) tells nothing.
    if fs.blocks() == 0 {
        return Ok(());
    }
    let free = fs.blocks_available().saturating_mul(fs.fragment_size());
    enough(run_dir, here, free)
}

fn enough(run_dir: &Utf8Path, here: &Utf8Path, free: u64) -> Result<(), CliError> {
    if free >= JOURNAL_SPACE {
        return Ok(());
    }
    Err(CliError::environment(format!(
        "no space for the journal in {run_dir}: the file system of {here} has {free} bytes left, {JOURNAL_SPACE} are needed"
    ))
    .hint("free some space, or set supervisor.run_dir to another file system"))
}

/// A step that the configuration names has to be there when the run is taken into care.
pub(super) fn check_resume_path(out: &ReadOutput, run_dir: &Utf8Path) -> Result<(), CliError> {
    let ResumeIntent::Path { path, .. } = &out.resume else {
        return Ok(());
    };
    // Later the wish may be fulfilled long since, and its step gone.
    if run_dir.join("run.id").exists() || path.is_dir() {
        return Ok(());
    }
    let key = adapter(out.kind).words().resume_path.unwrap_or_default();
    let origin = out.tree.get(key).map(|n| format!("{}: ", n.origin)).unwrap_or_default();
    Err(
        CliError::config(format!("{origin}{key}: there is no such step: {path}")).hint(format!(
            "supervise checkpoints {} lists the steps that are there",
            path.parent().unwrap_or(path)
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_with_numbers() {
        let (run, here) = (Utf8Path::new("/a/b"), Utf8Path::new("/a"));
        assert!(enough(run, here, JOURNAL_SPACE).is_ok());
        let e = enough(run, here, 4096).unwrap_err();
        assert_eq!(e.exit_code(), 69);
        assert!(
            e.message.contains("no space for the journal in /a/b") && e.message.contains("4096"),
            "{e}"
        );
    }

    #[test]
    fn links_are_followed_and_what_is_missing_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(dir.path().canonicalize().unwrap()).unwrap();
        fs::create_dir_all(dir.join("real")).unwrap();
        std::os::unix::fs::symlink(dir.join("real"), dir.join("link")).unwrap();
        assert_eq!(canonical("root", &dir.join("link/a/b")).unwrap(), dir.join("real/a/b"));
        std::os::unix::fs::symlink(dir.join("loop"), dir.join("loop")).unwrap();
        assert!(
            canonical("root", &dir.join("loop/a"))
                .unwrap_err()
                .message
                .contains("circle")
        );
        std::os::unix::fs::symlink("nowhere", dir.join("dangling")).unwrap();
        assert!(
            canonical("root", &dir.join("dangling"))
                .unwrap_err()
                .message
                .contains("does not exist")
        );
        fs::write(dir.join("file"), "").unwrap();
        assert!(
            canonical("root", &dir.join("file/a"))
                .unwrap_err()
                .message
                .contains("not a directory")
        );
    }

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
