//! Performs the disk changes of a role's conversion. Each is durable before the next.

use crate::disk::{CloneMode, clone_file, remove_empty, remove_tree, sync_dir, write_whole};
use camino::Utf8Path;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use supervise_trainers::verl::migrate::{LinkMode, MigrateOp};

/// Performs one change below `role`. Operations that only check do nothing here.
///
/// # Errors
/// The file system refuses: nothing that existed before is lost, and the same plan can be made again.
pub fn perform(role: &Utf8Path, op: &MigrateOp) -> io::Result<()> {
    match op {
        MigrateOp::RemoveTree(path) => remove_tree(&role.join(path)),
        MigrateOp::RemoveEmpty(path) => remove_empty(&role.join(path)),
        MigrateOp::MakeDir(path) => fs::create_dir_all(role.join(path)),
        MigrateOp::Clone { from, to, link } => clone(&role.join(from), &role.join(to), *link),
        MigrateOp::SyncDir(path) => sync_up(role, Utf8Path::new(path)),
        MigrateOp::Rename { from, to } => {
            fs::rename(role.join(from), role.join(to))?;
            for path in [from, to] {
                sync_dir(role.join(path).parent().unwrap_or(role))?;
            }
            Ok(())
        }
        MigrateOp::Write { path, text } => write(role, path, text),
        MigrateOp::Prove(_) | MigrateOp::Judge => Ok(()),
    }
}

fn clone(from: &Utf8Path, to: &Utf8Path, link: LinkMode) -> io::Result<()> {
    let how = match link {
        LinkMode::Hard => return fs::hard_link(from, to),
        LinkMode::Reflink => CloneMode::Reflink,
        LinkMode::Copy => CloneMode::Bytes,
    };
    // The plan contains no links: one that is there now was created meanwhile.
    let mut source = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(from)?;
    clone_file(&mut source, to, how, &mut |_| Ok(()))
}

fn sync_up(role: &Utf8Path, path: &Utf8Path) -> io::Result<()> {
    path.ancestors().try_for_each(|dir| sync_dir(&role.join(dir)))
}

fn write(role: &Utf8Path, path: &str, text: &str) -> io::Result<()> {
    write_whole(&role.join(path), text.as_bytes(), 0o666)?;
    sync_dir(role)
}
