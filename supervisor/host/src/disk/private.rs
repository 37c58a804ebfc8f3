//! Files and directories under names that another user could have taken first.
//!
//! A checkpoint root may be writable by others. A new file in it gets an unpredictable name, is never created through
//! a link, and is opened relative to its directory's descriptor. An existing directory of ours is checked before use.

use super::sync_dir;
use crate::ownership::OwnIds;
use crate::system::effective_user;
use camino::{Utf8Path, Utf8PathBuf};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fchmod, fstat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};

const RANDOM: usize = 8;
/// Write permissions of others.
const BY_OTHERS: u32 = 0o022;
/// Any user may write, and may remove only their own entries.
const STICKY: u32 = 0o1000;
/// Entries that are checked in a directory that others could write to; one of ours has fewer.
const ENTRIES: usize = 100_000;
const DEPTH: usize = 2;

/// This many random bytes, as hexadecimal digits.
pub(crate) fn random(bytes: usize) -> io::Result<String> {
    let mut drawn = vec![0; bytes];
    File::open("/dev/urandom")?.read_exact(&mut drawn)?;
    Ok(drawn.iter().map(|b| format!("{b:02x}")).collect())
}

fn open_dir(path: &Utf8Path, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    Ok(openat(CWD, path.as_std_path(), flags, Mode::empty())?)
}

fn create_in(dir: &OwnedFd, name: &str, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(dir, name, flags, Mode::from_raw_mode(mode))?))
}

/// Writes a file atomically: a reader sees the old or the new contents, even after a power loss.
///
/// # Errors
/// The file system refuses.
pub fn write_whole(path: &Utf8Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    write(path, bytes, mode, true)
}

/// Like [`write_whole`], without waiting for the disk: for files that nothing depends on, or that are rewritten
/// before they are needed. After a power loss the file may be torn, empty or missing.
///
/// # Errors
/// The file system refuses.
pub(crate) fn write_passing(path: &Utf8Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    write(path, bytes, mode, false)
}

fn write(path: &Utf8Path, bytes: &[u8], mode: u32, durable: bool) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{path:?} names no file"),
        ));
    };
    let above = if above.as_str().is_empty() {
        Utf8Path::new(".")
    } else {
        above
    };
    let dir = open_dir(above, OFlags::empty())?;
    let draft = format!("{name}.supervise-tmp-");
    remove_drafts(above, &dir, &draft);
    let tmp = format!("{draft}{}", random(RANDOM)?);
    let mut file = create_in(&dir, &tmp, mode)?;
    let written = file.write_all(bytes).and_then(|()| match durable {
        true => file.sync_all(),
        false => Ok(()),
    });
    drop(file);
    let done = written.and_then(|()| Ok(renameat(&dir, tmp.as_str(), &dir, name)?));
    if done.is_err() {
        // A draft that cannot be removed does no harm.
        let _ = unlinkat(&dir, tmp.as_str(), AtFlags::empty());
        return done;
    }
    if durable { sync_dir(above) } else { Ok(()) }
}

/// Removes drafts of killed writers: each of our files has one writer at a time.
fn remove_drafts(above: &Utf8Path, dir: &OwnedFd, draft: &str) {
    let is_draft = |name: &str| {
        name.strip_prefix(draft)
            .is_some_and(|rest| rest.len() == 2 * RANDOM && rest.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    for entry in above.read_dir_utf8().into_iter().flatten().flatten() {
        if is_draft(entry.file_name()) {
            let _ = unlinkat(dir, entry.file_name(), AtFlags::empty());
        }
    }
}

/// Creates a directory that only the owner may enter.
pub(crate) fn make_dir(dir: &Utf8Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        Err(e) if matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory) => {
            let taken = |p: &&Utf8Path| fs::metadata(p).is_ok_and(|m| !m.is_dir());
            let what = dir.ancestors().find(taken).unwrap_or(dir);
            Err(io::Error::new(
                e.kind(),
                format!("{what} is in the way: a directory was expected there; look whose it is and move it away"),
            ))
        }
        made => made,
    }
}

/// Creates a file in a directory and removes it again. Returns the file's owner: a network file system may give it to
/// another user than its creator.
///
/// # Errors
/// The file system refuses.
pub fn write_test(dir: &Utf8Path) -> io::Result<u32> {
    let at = open_dir(dir, OFlags::empty())?;
    let name = format!(".supervise-write-test-{}", random(RANDOM)?);
    let file = create_in(&at, &name, 0o600)?;
    let owner = file.metadata().map(|m| m.uid());
    unlinkat(&at, name.as_str(), AtFlags::empty())?;
    owner
}

/// This process as a directory's file system sees it: creates a file there and removes it again.
#[must_use]
pub fn own_ids(dir: &Utf8Path) -> OwnIds {
    OwnIds::new(effective_user(), write_test(dir).ok())
}

/// Creates a directory of ours, or checks an existing one: not a link, owned by us, not writable by others. Corrects
/// the permissions. `Some`: a note about what was done.
pub(crate) fn own_dir(path: &Utf8Path) -> io::Result<Option<String>> {
    if let Some(above) = path.parent() {
        make_dir(above)?;
    }
    match mkdirat(CWD, path.as_std_path(), Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let dir = match open_dir(path, OFlags::NOFOLLOW) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR)) => return Err(no_dir(path)),
        dir => dir?,
    };
    let stat = fstat(&dir)?;
    check_owner(path, path, stat.st_uid)?;
    let mode = stat.st_mode & 0o7777;
    if mode & BY_OTHERS == 0 {
        return Ok(None);
    }
    check_contents(path, 0, &mut 0)?;
    mend(path, &dir, &stat).map(Some)
}

/// Creates a directory in the user's own location (such as `…/supervise/runs`), or checks it as [`own_dir`] does, and
/// its parent too. A parent that is a link is followed if the link is ours.
///
/// # Errors
/// One of the two is not ours, or the file system refuses.
pub fn own_place(path: &Utf8Path) -> io::Result<()> {
    if let Some(above) = path.parent() {
        match fs::symlink_metadata(above) {
            Ok(link) if link.is_symlink() => {
                check_owner(above, above, link.uid())?;
                own_dir(&above.canonicalize_utf8()?)?;
            }
            // We must not change the permissions of a directory shared by all users.
            Ok(dir) if dir.mode() & STICKY != 0 => {
                return Err(io::Error::other(format!(
                    "{above} is shared by users: nothing of ours is kept in it"
                )));
            }
            _ => drop(own_dir(above)?),
        }
    }
    own_dir(path).map(drop)
}

/// Opens a file in a directory of ours for appending. It is created for us alone; a link or another user's file is
/// refused.
///
/// # Errors
/// It is not ours, or the file system refuses.
pub fn open_log(path: &Utf8Path) -> io::Result<File> {
    open_own(path, fs::OpenOptions::new().create(true).append(true).mode(0o600))
}

/// Reads a whole small file of ours, at most `limit` bytes. Refuses links and other users' files, and never blocks.
///
/// # Errors
/// It is not ours, longer, or the file system refuses.
pub fn read_own(path: &Utf8Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_own(path, fs::OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    match file.take(limit + 1).read_to_end(&mut bytes)? as u64 > limit {
        true => Err(io::Error::other(format!("{path} is longer than {limit} bytes"))),
        false => Ok(bytes),
    }
}

fn open_own(path: &Utf8Path, options: &mut fs::OpenOptions) -> io::Result<File> {
    // Opening anything other than a file must not block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match options.custom_flags(flags).open(path) {
        Err(e) if e.raw_os_error() == Some(libc::ELOOP) => return Err(no_file(path)),
        file => file?,
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(no_file(path));
    }
    check_owner(path, path.parent().unwrap_or(path), meta.uid())?;
    Ok(file)
}

fn no_file(path: &Utf8Path) -> io::Error {
    io::Error::other(format!(
        "{path} is not a plain file: it is not used. Look who made it and remove it"
    ))
}

fn no_dir(path: &Utf8Path) -> io::Error {
    let what = match fs::read_link(path) {
        Ok(to) => format!("a symbolic link to {}", to.display()),
        Err(_) => "a file".to_owned(),
    };
    io::Error::other(format!(
        "{path} is {what}, and a directory of our own was expected: it is not used. Look who made it and remove it; another place can be set (supervisor.run_dir, XDG_STATE_HOME)"
    ))
}

/// Accepts files of our own user, and of the user that the file system gives our files in `dir` to.
fn check_owner(path: &Utf8Path, dir: &Utf8Path, owner: u32) -> io::Result<()> {
    if OwnIds::here().owns(owner) || own_ids(dir).owns(owner) {
        return Ok(());
    }
    let own = effective_user();
    Err(io::Error::other(format!(
        "{path} belongs to user {owner}, and this runs as user {own}: what somebody else made is not used. Look who made it and remove it, run as its owner, or give it to user {own} (chown -R)"
    )))
}

/// Checks that nothing of other users came in while they could write here: no link, and no file of another owner.
fn check_contents(dir: &Utf8Path, depth: usize, seen: &mut usize) -> io::Result<()> {
    for entry in dir.read_dir_utf8()? {
        let path: Utf8PathBuf = entry?.into_path();
        let meta = fs::symlink_metadata(&path)?;
        *seen += 1;
        if meta.is_symlink() || *seen > ENTRIES {
            return Err(no_dir_of_ours(dir, &path));
        }
        check_owner(&path, dir, meta.uid())?;
        if meta.is_dir() && depth + 1 < DEPTH {
            check_contents(&path, depth + 1, seen)?;
        }
    }
    Ok(())
}

fn no_dir_of_ours(dir: &Utf8Path, path: &Utf8Path) -> io::Error {
    io::Error::other(format!(
        "{dir} could be written by others, and {path} in it was not made by us: look who made it and remove it"
    ))
}

fn mend(path: &Utf8Path, dir: &OwnedFd, stat: &Stat) -> io::Result<String> {
    let mode = stat.st_mode & 0o7777;
    // Some file systems do not store permissions and show the same ones for everything.
    let mended = fchmod(dir, Mode::from_raw_mode(mode & !BY_OTHERS)).is_ok()
        && fstat(dir).is_ok_and(|now| FileType::from_raw_mode(now.st_mode).is_dir() && now.st_mode & BY_OTHERS == 0);
    Ok(match mended {
        true => format!("others could write in {path} (mode {mode:o}): that was taken back"),
        false => {
            format!(
                "WARNING: others may be able to write in {path} (mode {mode:o}), and this file system does not change it"
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn temp_dir() -> (tempfile::TempDir, Utf8PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(dir.path().to_owned()).unwrap();
        (dir, path)
    }

    fn mode(path: &Utf8Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn drafts_of_killed_writers_do_not_pile_up() {
        let (_keep, dir) = temp_dir();
        let left = dir.join(format!("file.supervise-tmp-{}", random(RANDOM).unwrap()));
        let others = ["file.supervise-tmp-mine", "other.supervise-tmp-0123456789abcdef"].map(|n| dir.join(n));
        others.iter().chain([&left]).for_each(|p| fs::write(p, "x").unwrap());
        write_whole(&dir.join("file"), b"whole", 0o600).unwrap();
        assert!(!left.exists() && others.iter().all(|p| p.exists()));
    }

    #[test]
    fn a_planted_link_is_never_written_through() {
        let (_keep, dir) = temp_dir();
        let victim = dir.join("victim");
        fs::write(&victim, "precious").unwrap();
        // Temporary names that older releases used.
        symlink(&victim, dir.join("file.supervise-tmp")).unwrap();
        symlink(
            &victim,
            dir.join(format!(".supervise-write-test-{}", std::process::id())),
        )
        .unwrap();
        symlink(&victim, dir.join("file")).unwrap();
        write_whole(&dir.join("file"), b"new", 0o600).unwrap();
        write_test(&dir).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "new");
        assert!(!fs::symlink_metadata(dir.join("file")).unwrap().is_symlink());
        assert_eq!(mode(&dir.join("file")), 0o600);
    }

    #[test]
    fn nothing_is_left_of_a_write_that_failed() {
        let (_keep, dir) = temp_dir();
        fs::create_dir_all(dir.join("taken/by")).unwrap();
        assert!(write_whole(&dir.join("taken"), b"x", 0o600).is_err());
        assert_eq!(dir.read_dir_utf8().unwrap().count(), 1);
        assert!(write_whole(&dir.join("none/file"), b"x", 0o600).is_err());
    }

    #[test]
    fn a_directory_of_ours_is_made_once_and_used_again() {
        let (_keep, dir) = temp_dir();
        let own = dir.join("a/b");
        for _ in 0..2 {
            assert_eq!(own_dir(&own).unwrap(), None);
        }
        assert_eq!(mode(&own), 0o700);
    }

    #[test]
    fn a_link_or_a_file_in_its_place_is_refused() {
        let (_keep, dir) = temp_dir();
        fs::create_dir(dir.join("elsewhere")).unwrap();
        symlink(dir.join("elsewhere"), dir.join("link")).unwrap();
        fs::write(dir.join("file"), "").unwrap();
        for (name, what) in [("link", "symbolic link to"), ("file", "a file")] {
            let said = own_dir(&dir.join(name)).unwrap_err().to_string();
            assert!(said.contains(what) && said.contains(name), "{said}");
        }
        let said = make_dir(&dir.join("file/below")).unwrap_err().to_string();
        assert!(said.contains("file is in the way"), "{said}");
    }

    #[test]
    fn what_others_could_write_is_mended_unless_they_did() {
        let (_keep, dir) = temp_dir();
        let own = dir.join("own");
        own_dir(&own).unwrap();
        fs::create_dir(own.join("lease")).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        let said = own_dir(&own).unwrap().unwrap();
        assert!(said.contains("mode 777"), "{said}");
        assert_eq!(mode(&own), 0o755);
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        symlink("/etc", own.join("lease/7")).unwrap();
        let said = own_dir(&own).unwrap_err().to_string();
        assert!(said.contains("lease/7 in it was not made by us"), "{said}");
    }

    #[test]
    fn a_directory_of_another_owner_is_refused() {
        let (_keep, dir) = temp_dir();
        let own = dir.join("own");
        fs::create_dir(&own).unwrap();
        if std::os::unix::fs::chown(&own, Some(12_345), None).is_err() {
            // Only root can give directories away.
            return;
        }
        let said = own_dir(&own).unwrap_err().to_string();
        assert!(said.contains("belongs to user 12345"), "{said}");
    }

    #[test]
    fn a_place_of_the_user_is_followed_where_its_link_is_ours_and_nothing_below_it_is() {
        let (_keep, dir) = temp_dir();
        fs::create_dir(dir.join("disk")).unwrap();
        symlink(dir.join("disk"), dir.join("supervise")).unwrap();
        own_place(&dir.join("supervise/runs")).unwrap();
        assert_eq!(mode(&dir.join("disk/runs")), 0o700);
        symlink("/etc", dir.join("disk/detached")).unwrap();
        let said = own_place(&dir.join("supervise/detached")).unwrap_err().to_string();
        assert!(said.contains("symbolic link"), "{said}");
        std::os::unix::fs::lchown(dir.join("supervise"), Some(12_345), None)
            .ok()
            .inspect(|()| {
                let said = own_place(&dir.join("supervise/runs")).unwrap_err().to_string();
                assert!(said.contains("belongs to user 12345"), "{said}");
            });
    }

    #[test]
    fn a_log_is_never_written_through_a_link_or_into_what_is_no_file() {
        let (_keep, dir) = temp_dir();
        fs::write(dir.join("victim"), "precious").unwrap();
        symlink(dir.join("victim"), dir.join("link.log")).unwrap();
        nix::unistd::mkfifo(dir.join("pipe.log").as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["link.log", "pipe.log"] {
            assert!(open_log(&dir.join(name)).is_err(), "{name}");
        }
        for word in ["one ", "two"] {
            open_log(&dir.join("own.log"))
                .unwrap()
                .write_all(word.as_bytes())
                .unwrap();
        }
        assert_eq!(fs::read_to_string(dir.join("own.log")).unwrap(), "one two");
        assert_eq!(mode(&dir.join("own.log")), 0o600);
        assert_eq!(fs::read_to_string(dir.join("victim")).unwrap(), "precious");
    }
}
