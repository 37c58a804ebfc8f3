//! Where this user's runs are listed, and what a run stores outside its own directory.
//!
//! `$XDG_STATE_HOME`, else `~/.local/state`; without a home (a service, a container, cron) `/var/lib` for root, else
//! `$XDG_RUNTIME_DIR`, else a private directory in `/tmp`. Readers search all of these, so that entries are found from every
//! environment.

use crate::path_access;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use supervise_core::id::RunId;
use supervise_host::io_worker::RegisteredRun;
use supervise_host::system::effective_user;

/// Maximum number of registry files that are read.
const ENTRIES: usize = 10_000;

/// A directory named by a variable, if it is an absolute path.
fn named(name: &str) -> Option<Utf8PathBuf> {
    let dir = std::env::var(name).ok().map(Utf8PathBuf::from)?;
    dir.is_absolute().then_some(dir)
}

/// The directory to write to; `None`: no directory is private to this user.
#[must_use]
pub fn state_dir() -> Option<Utf8PathBuf> {
    at_home().or_else(without_home)
}

fn at_home() -> Option<Utf8PathBuf> {
    let home = || Some(named("HOME").filter(|home| may_write(home))?.join(".local/state"));
    Some(named("XDG_STATE_HOME").or_else(home)?.join("supervise"))
}

/// A service's user may have a home that does not exist and cannot be created.
fn may_write(dir: &Utf8Path) -> bool {
    path_access::may_write(path_access::nearest(dir)).is_ok()
}

fn without_home() -> Option<Utf8PathBuf> {
    if effective_user() == 0 {
        return Some(of_services());
    }
    if let Some(dir) = at_runtime() {
        return Some(dir);
    }
    let dir = in_tmp();
    // It may exist already; its owner is checked.
    let _ = DirBuilder::new().mode(0o700).create(&dir);
    is_private(&dir, effective_user()).then_some(dir)
}

fn of_services() -> Utf8PathBuf {
    Utf8PathBuf::from("/var/lib/supervise")
}

fn at_runtime() -> Option<Utf8PathBuf> {
    named("XDG_RUNTIME_DIR")
        .filter(|dir| is_private(dir, effective_user()))
        .map(|dir| dir.join("supervise"))
}

fn in_tmp() -> Utf8PathBuf {
    Utf8PathBuf::from(format!("/tmp/supervise-{}", effective_user()))
}

/// Returns true for a directory (not a link) that only its owner can enter; in `/tmp` any user may have made it.
fn is_private(dir: &Utf8Path, owner: u32) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == owner && m.mode() & 0o077 == 0)
}

/// Every directory that may hold something of this user's, the one to write to first.
#[must_use]
pub(super) fn state_dirs() -> Vec<Utf8PathBuf> {
    let own = |dir: &Utf8PathBuf| {
        fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == effective_user() && m.mode() & 0o022 == 0)
    };
    let others = [Some(of_services()), at_runtime(), Some(in_tmp())];
    let mut out: Vec<Utf8PathBuf> = at_home().into_iter().collect();
    out.extend(others.into_iter().flatten().filter(own));
    out.dedup();
    out
}

/// The file that lists a run, to write to.
#[must_use]
pub fn registry_file(run: &RunId) -> Option<Utf8PathBuf> {
    // A run stays where it was listed first, so that it is listed only once.
    listed_file(run).or_else(|| Some(state_dir()?.join("runs").join(format!("{run}.json"))))
}

/// The file that lists a run, if it exists.
#[must_use]
pub fn listed_file(run: &RunId) -> Option<Utf8PathBuf> {
    let name = format!("{run}.json");
    state_dirs()
        .into_iter()
        .map(|dir| dir.join("runs").join(&name))
        .find(|file| file.exists())
}

/// This user's runs, by name.
#[must_use]
pub fn listed_runs() -> Vec<RegisteredRun> {
    registry_files()
        .iter()
        .filter_map(|file| RegisteredRun::read(file))
        .collect()
}

/// The searched directories as text, and a home that was skipped.
#[must_use]
pub fn searched() -> String {
    let dirs: Vec<String> = state_dirs().iter().map(|dir| dir.join("runs").to_string()).collect();
    let passed_over = match (at_home(), std::env::var_os("HOME")) {
        (None, Some(home)) => format!(
            "; not below the home directory {}, where this user may not write (set XDG_STATE_HOME to keep the list elsewhere)",
            home.display()
        ),
        (None, None) => "; HOME is not set".to_owned(),
        (Some(_), _) => String::new(),
    };
    let places = match dirs.is_empty() {
        true => "nowhere".to_owned(),
        false => dirs.join(", "),
    };
    format!(
        "looked in {places}{passed_over}; a run that is not listed there is found by its checkpoint root or configuration"
    )
}

/// Why a list of runs cannot be read.
#[must_use]
pub fn unreadable_registry() -> Option<String> {
    let dirs = state_dirs().into_iter().map(|dir| dir.join("runs"));
    let refused = |dir: Utf8PathBuf| match dir.read_dir_utf8() {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Some(format!("{dir}: the list of runs cannot be read: {e}"))
        }
        _ => None,
    };
    dirs.into_iter().find_map(refused)
}

fn registry_files() -> Vec<Utf8PathBuf> {
    let dirs = state_dirs().into_iter().map(|dir| dir.join("runs"));
    let entries = dirs.filter_map(|dir| dir.read_dir_utf8().ok());
    let mut files: Vec<Utf8PathBuf> = entries
        .flat_map(|entries| entries.flatten().take(ENTRIES))
        .map(camino::Utf8DirEntry::into_path)
        .filter(|file| file.extension() == Some("json"))
        .collect();
    files.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    files.dedup_by(|a, b| a.file_name() == b.file_name());
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_place_in_tmp_is_used_only_where_it_is_ours_alone() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let place = dir.join("place");
        let me = effective_user();
        assert!(!is_private(&place, me));
        DirBuilder::new().mode(0o700).create(&place).unwrap();
        assert!(is_private(&place, me));
        assert!(!is_private(&place, me + 1));
        symlink(&place, dir.join("link")).unwrap();
        assert!(!is_private(&dir.join("link"), me));
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!is_private(&place, me));
    }
}
