//! Paths as stored for a run: absolute, with all links resolved.

use crate::error::CliError;
use crate::path_access;
use camino::{Utf8Path, Utf8PathBuf};
use std::io;

pub(super) fn cwd() -> Result<Utf8PathBuf, CliError> {
    let dir =
        std::env::current_dir().map_err(|e| CliError::environment(format!("the working directory is gone: {e}")))?;
    Utf8PathBuf::from_path_buf(dir)
        .map_err(|p| CliError::environment(format!("the working directory {} is not UTF-8", p.display())))
}

/// Makes a path absolute, without `.` and doubled slashes.
pub(super) fn absolute(cwd: &Utf8Path, path: &Utf8Path) -> Utf8PathBuf {
    cwd.join(path).components().collect()
}

/// The path with all links resolved; parts that do not exist yet are appended unchanged. `what` names it in errors.
pub(super) fn canonical(what: &str, path: &Utf8Path) -> Result<Utf8PathBuf, CliError> {
    let refused = |why: String| CliError::environment(format!("the {what} {path} cannot be used: {why}"));
    let mut missing: Vec<&str> = Vec::new();
    let mut here = path;
    loop {
        match path_access::canonical(here) {
            Ok(found) if !path_access::is_dir(&found) => {
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
                if let Ok(target) = path_access::link(here) {
                    let why = format!("{here} is a symbolic link to {target}, which does not exist");
                    return Err(refused(why).hint("create the directory it points to, or remove the link"));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {}
            Err(e) => return Err(refused(format!("{here}: {e}"))),
        }
        let (Some(parent), Some(name)) = (here.parent(), here.file_name()) else {
            return Err(refused("it has no directory above it".to_owned()));
        };
        missing.push(name);
        here = parent;
    }
}

/// The link in a path that leads in a circle.
fn link_in(path: &Utf8Path) -> &Utf8Path {
    path.ancestors()
        .filter(|p| path_access::link(p).is_ok())
        .last()
        .unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
}
