//! Finds the roles to convert, and ensures that no other process works on them.

use crate::cli::target;
use crate::error::CliError;
use crate::prepare;
use camino::{Utf8Path, Utf8PathBuf};
use std::time::Duration;
use supervise_core::id::{Ms, Term};
use supervise_host::io_worker::{IoAnswer, IoClient, IoQuestion, IoWorkerError, RUN_DIR_NAME, lease_dir, own_claim};
use supervise_trainers::verl::migrate::{MigrateRole, role_of};

/// How long a holder on another machine may be silent, in seconds.
const SILENT: u64 = 60;
/// Timeout for taking the lease, including a slow file system.
const TAKING: Duration = Duration::from_secs(90);

#[derive(Debug, Clone)]
pub(super) struct MigrateTarget {
    pub(super) role: MigrateRole,
    pub(super) dir: Utf8PathBuf,
}

/// The roles in a directory, or the role that it is, with the checkpoint root.
pub(super) fn of_checkpoint(named: &Utf8Path) -> Result<(Utf8PathBuf, Vec<MigrateTarget>), CliError> {
    let dir = real(named)?;
    let above = dir.parent().and_then(Utf8Path::file_name);
    let role = dir.file_name().and_then(|name| role_of(name, above)).ok_or_else(|| {
        CliError::usage(format!("{named}: neither a step (global_step_N) nor a role of one (actor, critic)")).hint(
            "the manifest names role and step, and both are known by the directories' names; for all steps of a run: --checkpoint-root DIR --all-steps",
        )
    })?;
    let step = if role.name.is_empty() {
        Some(dir.as_path())
    } else {
        dir.parent()
    };
    let root = step.and_then(Utf8Path::parent).unwrap_or(&dir).to_owned();
    let targets = match role.name.is_empty() {
        true => of_step(&dir, role),
        false => vec![MigrateTarget { role, dir }],
    };
    Ok((root, targets))
}

/// Every role of every step below a root, oldest first.
pub(super) fn below(named: &Utf8Path) -> Result<(Utf8PathBuf, Vec<MigrateTarget>), CliError> {
    let root = real(named)?;
    let unreadable = |e: std::io::Error| CliError::environment(format!("{root} cannot be read: {e}"));
    let mut steps = Vec::new();
    for entry in root.read_dir_utf8().map_err(unreadable)? {
        let entry = match entry {
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => continue,
            entry => entry.map_err(unreadable)?,
        };
        let is_dir = entry.file_type().is_ok_and(|t| t.is_dir());
        let role = role_of(entry.file_name(), None).filter(|_| is_dir);
        steps.extend(role.map(|role| (role, entry.into_path())));
    }
    if steps.is_empty() {
        return Err(CliError::usage(format!(
            "{named}: there is no step (global_step_N) in it"
        )));
    }
    steps.sort_by_key(|(role, _)| role.step);
    let targets = steps.into_iter().flat_map(|(role, dir)| of_step(&dir, role)).collect();
    Ok((root, targets))
}

/// The roles of a step; the step itself if it has none.
fn of_step(dir: &Utf8Path, itself: MigrateRole) -> Vec<MigrateTarget> {
    let target = |name: &str| MigrateTarget {
        role: MigrateRole {
            name: name.to_owned(),
            step: itself.step,
        },
        dir: dir.join(name),
    };
    let roles: Vec<MigrateTarget> = ["actor", "critic"]
        .map(target)
        .into_iter()
        .filter(|t| t.dir.is_dir())
        .collect();
    match roles.is_empty() {
        true => vec![MigrateTarget {
            role: itself,
            dir: dir.to_owned(),
        }],
        false => roles,
    }
}

fn real(named: &Utf8Path) -> Result<Utf8PathBuf, CliError> {
    match named.canonicalize_utf8() {
        Ok(dir) if dir.is_dir() => Ok(dir),
        Ok(_) => Err(CliError::usage(format!("{named}: not a directory"))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(CliError::usage(format!("{named}: there is no such directory")))
        }
        Err(e) => Err(CliError::environment(format!("{named} cannot be read: {e}"))),
    }
}

/// A term of this command on the root, so that no supervisor starts there meanwhile. Released when dropped.
pub(super) struct MigrateLease {
    io_worker: IoClient,
}

impl MigrateLease {
    /// Takes the lease.
    ///
    /// # Errors
    /// A supervisor, or what is left of one, is running there.
    pub(super) fn take(root: &Utf8Path) -> Result<Self, CliError> {
        let run_dir = root.join(RUN_DIR_NAME);
        for run in prepare::run_ids_at(root) {
            let seen = target::look(&run, Some(&run_dir));
            let busy = seen.alive.supervisor.alive || seen.alive.guard.alive;
            if busy || seen.left_behind().is_some() {
                return Err(CliError::lease_held(format!("run {run} is at work in {root}"))
                    .hint("`supervise stop` ends it; run this again then"));
            }
        }
        let broken = |e: IoWorkerError| CliError::environment(e.to_string());
        let mut io_worker = target::io_worker().map_err(broken)?;
        let ask = IoQuestion::TakeLease {
            dir: lease_dir(None, &run_dir),
            claim: Box::new(own_claim(Ms::secs(SILENT), Ms::secs(SILENT), Term(0))),
            identity: None,
        };
        match io_worker.ask(ask, TAKING) {
            Ok(IoAnswer::Term(_)) => Ok(Self { io_worker }),
            Ok(IoAnswer::Held(who)) => Err(CliError::lease_held(format!("{root}: somebody holds the lease: {who}"))),
            Ok(_) => Err(CliError::internal("I/O worker: unexpected answer")),
            Err(e) => Err(broken(e)),
        }
    }
}

impl Drop for MigrateLease {
    fn drop(&mut self) {
        // A lease that is not released ends with this process.
        let _ = self.io_worker.ask(IoQuestion::Release, target::PATIENCE);
    }
}
