//! The directory of a demo, which is deleted at the end unless it is to be kept.

use crate::error::CliError;
use camino::{Utf8Path, Utf8PathBuf};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;

pub(super) struct DemoDir {
    path: Utf8PathBuf,
    is_kept: bool,
}

impl DemoDir {
    pub(super) fn kept(path: &Utf8Path) -> Result<Self, CliError> {
        let made = std::fs::create_dir(path).and_then(|()| camino::absolute_utf8(path));
        let path = made.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => {
                CliError::usage(format!("--keep {path}: it exists")).hint("name a directory that does not exist")
            }
            io::ErrorKind::NotFound => {
                CliError::usage(format!("--keep {path}: the directory around it does not exist"))
                    .hint("make that directory first, or name another")
            }
            _ => CliError::environment(format!("--keep {path}: {e}")),
        })?;
        Ok(Self { path, is_kept: true })
    }

    pub(super) fn temporary() -> Result<Self, CliError> {
        let base = std::env::temp_dir();
        let failed = |what: &str| {
            CliError::environment(format!("no temporary directory in {}: {what}", base.display()))
                .hint("set TMPDIR, or name a directory: supervise demo --keep DIR")
        };
        let path = Utf8PathBuf::from_path_buf(base.join(format!("supervise-demo-{}", std::process::id())))
            .map_err(|_| failed("its path is not UTF-8"))?;
        let path = camino::absolute_utf8(&path).map_err(|e| failed(&e.to_string()))?;
        // Fails if the directory exists, because then it is not ours.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| failed(&e.to_string()))?;
        Ok(Self { path, is_kept: false })
    }

    pub(super) fn path(&self) -> &Utf8Path {
        &self.path
    }

    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }
}

impl Drop for DemoDir {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(e) = std::fs::remove_dir_all(&self.path)
        {
            crate::printer::note(&format!("{} cannot be deleted: {e}", self.path));
        }
    }
}
