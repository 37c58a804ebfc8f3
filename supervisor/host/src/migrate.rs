//! Performs what a conversion of a role needs on the disk. Each change is durable before the next.

use camino::{Utf8Path, Utf8PathBuf};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use supervise_trainers::verl::migrate::{Link, Op};

/// Performs one change below `role`. What only proves does nothing here.
///
/// # Errors
/// The file system refuses: nothing that was there before is lost, and the same plan can be made again.
pub fn perform(role: &Utf8Path, op: &Op) -> io::Result<()> {
    match op {
        Op::RemoveTree(path) => remove_tree(&role.join(path)),
        Op::RemoveEmpty(path) => remove_empty(&role.join(path)),
        Op::MakeDir(path) => fs::create_dir_all(role.join(path)),
        Op::Clone { from, to, link } => clone(&role.join(from), &role.join(to), *link),
        Op::SyncDir(path) => sync_up(role, Utf8Path::new(path)),
        Op::Rename { from, to } => {
            fs::rename(role.join(from), role.join(to))?;
            for path in [from, to] {
                sync_dir(role.join(path).parent().unwrap_or(role))?;
            }
            Ok(())
        }
        Op::Write { path, text } => write(role, path, text),
        Op::Prove(_) | Op::Judge => Ok(()),
    }
}

fn remove_tree(path: &Utf8Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
        Ok(m) if m.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    removed?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Fails where a file is in it.
fn remove_empty(path: &Utf8Path) -> io::Result<()> {
    let entries = match path.read_dir_utf8() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty(entry.path())?;
        }
    }
    fs::remove_dir(path)
}

fn clone(from: &Utf8Path, to: &Utf8Path, link: Link) -> io::Result<()> {
    if link == Link::Hard {
        return fs::hard_link(from, to);
    }
    let mut source = File::open(from)?;
    let meta = source.metadata()?;
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(meta.mode() & 0o7777)
        .open(to)?;
    match link {
        Link::Reflink => rustix::fs::ioctl_ficlone(&target, &source)?,
        Link::Copy | Link::Hard => {
            io::copy(&mut source, &mut target)?;
        }
    }
    // In the order in which they were written: a copy is no later save.
    target.set_times(FileTimes::new().set_modified(meta.modified()?))?;
    target.sync_all()
}

/// A directory and those above it, up to the role.
fn sync_up(role: &Utf8Path, path: &Utf8Path) -> io::Result<()> {
    path.ancestors().try_for_each(|dir| sync_dir(&role.join(dir)))
}

fn write(role: &Utf8Path, path: &str, text: &str) -> io::Result<()> {
    let tmp = Utf8PathBuf::from(format!("{}.tmp", role.join(path)));
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&tmp)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    drop(file);
    fs::rename(&tmp, role.join(path))?;
    sync_dir(role)
}

fn sync_dir(dir: &Utf8Path) -> io::Result<()> {
    match File::open(dir)?.sync_all() {
        // Some network file systems refuse to sync a directory; a rename is as durable as they make it.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other,
    }
}
