//! Small system calls for other crates: each a function with a name.

use camino::Utf8Path;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statfs::statfs;
use nix::sys::statvfs::statvfs;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, Uid, User, geteuid, getuid, setsid};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsFd;

/// The effective user id.
#[must_use]
pub fn effective_user() -> u32 {
    geteuid().as_raw()
}

/// The current user's name in the password database.
#[must_use]
pub fn user_name() -> Option<String> {
    user_of(getuid().as_raw())
}

/// The name of a user, if the password database has one.
#[must_use]
pub fn user_of(uid: u32) -> Option<String> {
    let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    found.map(|u| u.name).filter(|name| !name.is_empty())
}

/// Below these ports there are services that a trainer's machine may run, and above them those of Kubernetes begin.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A free port at that address. The program that will use it listens only after seconds of imports, so the port is
/// one that the kernel does not give to connections meanwhile, if its range (`ip_local_port_range`) leaves one.
///
/// # Errors
/// No port is free.
pub fn free_port(at: IpAddr) -> io::Result<u16> {
    const TRIES: u64 = 64;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let free = |port: &u16| TcpListener::bind((at, *port)).is_ok();
    let random = RandomState::new();
    let mut tries = (0..TRIES).filter_map(|n| port_outside(&range, random.hash_one(n)));
    match tries.find(free) {
        Some(port) => Ok(port),
        None => Ok(TcpListener::bind((at, 0))?.local_addr()?.port()),
    }
}

fn port_outside(range: &str, random: u64) -> Option<u16> {
    let mut ends = range.split_whitespace().map_while(|n| n.parse::<u16>().ok());
    let (low, high) = (ends.next()?, ends.next()?);
    let below = PORTS.start..low.clamp(PORTS.start, PORTS.end);
    let above = high.saturating_add(1).clamp(PORTS.start, PORTS.end)..PORTS.end;
    let wider = if below.len() >= above.len() { below } else { above };
    let at = u16::try_from(random % u64::try_from(wider.len()).ok().filter(|n| *n > 0)?).ok()?;
    wider.start.checked_add(at)
}

/// Leaves the terminal's session. A session leader stays in it.
pub fn leave_session() {
    let _ = setsid();
}

/// Makes this process a subreaper, so that it adopts orphans among its descendants.
///
/// # Errors
/// The kernel refuses.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Reaps one child, if it has exited.
pub fn reap_child(pid: i32) {
    let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
}

/// The kernel's release, such as `6.1.0-13-amd64`.
#[must_use]
pub fn kernel_release() -> Option<String> {
    let name = nix::sys::utsname::uname().ok()?;
    Some(name.release().to_string_lossy().into_owned())
}

/// Writes some of the bytes at once, bypassing the standard library's buffers. Returns how many.
///
/// # Errors
/// The system's.
pub fn write_some(to: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(nix::unistd::write(to, bytes)?)
}

/// A file that exists only in memory.
///
/// # Errors
/// The system's.
pub fn memory_file(name: &str) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?))
}

/// Space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsSpace {
    /// Total bytes; 0: it reports no blocks, as some of the kernel's own do, so nothing is known.
    pub size: u64,
    /// Bytes available to us.
    pub free: u64,
    /// Files that we may create; `None`: it does not count them.
    pub files: Option<u64>,
}

/// The space of a path's file system.
///
/// # Errors
/// The system's.
pub fn space(path: &Utf8Path) -> io::Result<FsSpace> {
    let fs = statvfs(path.as_std_path())?;
    Ok(FsSpace {
        size: fs.blocks().saturating_mul(fs.fragment_size()),
        free: fs.blocks_available().saturating_mul(fs.fragment_size()),
        files: (fs.files() > 0).then(|| fs.files_available()),
    })
}

/// Raises the limit of open files as far as allowed: a checkpoint of many ranks needs several for each.
pub fn raise_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // If this is refused, opening one file too many reports it.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The magic number of a path's file system.
///
/// # Errors
/// The system's.
pub fn fs_magic(path: &Utf8Path) -> io::Result<i64> {
    // Some kinds have their highest bit set and are returned as negative numbers.
    Ok(statfs(path.as_std_path())?.filesystem_type().0 & 0xffff_ffff)
}

/// Ignores signals: those that reach a helper through its group, terminal or scheduler are meant for its parent, and
/// it exits with that.
pub fn ignore_signals() {
    use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
    let mut set = SigSet::empty();
    set.extend([
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ]);
    // Cannot fail with a valid set.
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    #[test]
    fn a_file_in_memory_is_written_past_buffers() {
        let mut file = memory_file("test").unwrap();
        assert_eq!(write_some(&file, b"abc").unwrap(), 3);
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
    }

    #[test]
    fn file_systems_tell_their_space_and_the_kernels_own_none() {
        let root = space(Utf8Path::new("/")).unwrap();
        assert!(root.size >= root.free && root.size > 0);
        assert_eq!(space(Utf8Path::new("/proc")).unwrap().size, 0);
        assert_eq!(fs_magic(Utf8Path::new("/proc")).unwrap(), 0x9fa0);
        assert!(space(Utf8Path::new("/no/such")).is_err() && kernel_release().is_some());
    }

    #[test]
    fn a_free_port_is_none_that_the_kernel_gives_to_connections() {
        let ports = |range: &str| {
            let found: Vec<u16> = (0..40_000).filter_map(|n| port_outside(range, n)).collect();
            found.iter().min().copied().zip(found.iter().max().copied())
        };
        assert_eq!(ports("32768\t60999\n"), Some((20_000, 29_999)));
        assert_eq!(ports("25000 65535"), Some((20_000, 24_999)));
        assert_eq!(ports("1024 22000"), Some((22_001, 29_999)));
        for none in ["1024 65535", "", "x y", "32768"] {
            assert_eq!(ports(none), None, "{none}");
        }
        let at = IpAddr::from([127, 0, 0, 1]);
        let port = free_port(at).unwrap();
        assert!(TcpListener::bind((at, port)).is_ok());
    }
}
