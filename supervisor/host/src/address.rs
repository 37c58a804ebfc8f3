//! Abstract addresses: how the processes of a run find each other without a file system.
//!
//! A name is `supervise/<uid>/<run>/<role>/<random>`. It cannot be guessed, so no other process can take it
//! beforehand; it is found in the kernel's socket table, which everyone can read. Abstract names have no permissions,
//! so both ends check their peer's user, and a name like ours that belongs to another user is skipped.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, socket, sockopt::PeerCredentials};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use supervise_core::id::RunId;

const RANDOM: usize = 8;
/// The kernel's flag for a listening socket (`__SO_ACCEPTCON`).
const LISTENS: &str = "00010000";

/// What the listening process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketRole {
    /// The supervisor, for the operator's commands.
    Control,
    /// A guard, for a later term.
    Guard,
    /// The keeper of a guard; the socket only shows that it is running.
    Keeper,
    /// The launcher of a gang's nodes, for its relays.
    Nodes,
}

impl SocketRole {
    fn word(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Guard => "guard",
            Self::Keeper => "keeper",
            Self::Nodes => "nodes",
        }
    }
}

fn prefix(run: &RunId, role: SocketRole) -> String {
    format!("supervise/{}/{run}/{}", nix::unistd::geteuid(), role.word())
}

/// A new name that no other process knows yet.
///
/// # Errors
/// The system provides no random numbers.
pub fn fresh(run: &RunId, role: SocketRole) -> io::Result<String> {
    let mut bytes = [0; RANDOM];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let random: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    Ok(format!("{}/{random}", prefix(run, role)))
}

/// Listens under a name.
///
/// # Errors
/// `AddrInUse`: the name is taken.
pub fn listen(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Connects to a name without blocking; `None` if there is no listener. The stream is non-blocking.
///
/// # Errors
/// The listener accepts no connections now (`WouldBlock`), or belongs to another user (`PermissionDenied`).
pub fn connect(name: &str) -> io::Result<Option<UnixStream>> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match nix::sys::socket::connect(fd.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?) {
        Ok(()) => {}
        Err(Errno::ECONNREFUSED) => return Ok(None),
        Err(e) => return Err(e.into()),
    }
    if !is_trusted(&fd) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the socket belongs to another user",
        ));
    }
    Ok(Some(UnixStream::from(fd)))
}

/// Finds the listener for a run in this role; those of other users are skipped.
///
/// # Errors
/// There is a listener that accepts no connections now (`WouldBlock`), so its user is unknown.
pub fn find(run: &RunId, role: SocketRole) -> io::Result<Option<(String, UnixStream)>> {
    let mut silent = None;
    for name in names(run, role) {
        match connect(&name) {
            Ok(Some(stream)) => return Ok(Some((name, stream))),
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => silent = Some(e),
        }
    }
    silent.map_or(Ok(None), Err)
}

/// Returns true if a process listens for a run in this role, even if it accepts no connections now.
#[must_use]
pub fn lives(run: &RunId, role: SocketRole) -> bool {
    !matches!(find(run, role), Ok(None))
}

/// Returns true if a process listens for a run, in any role.
#[must_use]
pub fn anybody(run: &RunId) -> bool {
    !names_of(&format!("supervise/{}/{run}", nix::unistd::geteuid())).is_empty()
}

const RUNS: usize = 256;

/// This user's runs with a listener on this machine.
#[must_use]
pub fn runs() -> BTreeSet<RunId> {
    let prefix = format!("supervise/{}", nix::unistd::geteuid());
    let run = |name: &String| {
        let rest = name.strip_prefix(&prefix)?.strip_prefix('/')?;
        rest.split('/').next().map(|run| RunId(run.to_owned()))
    };
    // Any user may listen under such names, so each is connected to.
    names_of(&prefix).iter().filter_map(run).take(RUNS).collect()
}

/// The process that listens at the other end.
#[must_use]
pub fn peer(stream: &impl AsFd) -> Option<i32> {
    let pid = getsockopt(stream, PeerCredentials).ok()?.pid();
    // A process outside of our PID namespace has the number 0.
    (pid > 0).then_some(pid)
}

/// Returns true if the other end is the same user or root.
#[must_use]
pub fn is_trusted(stream: &impl AsFd) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

fn names(run: &RunId, role: SocketRole) -> BTreeSet<String> {
    names_of(&prefix(run, role))
}

fn names_of(prefix: &str) -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    // Usually there is none, and the table is long on a machine with many users.
    match table.contains(prefix) {
        true => names_in(&table, prefix),
        false => BTreeSet::new(),
    }
}

fn names_in(table: &str, prefix: &str) -> BTreeSet<String> {
    let ours = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let listens = fields.nth(3) == Some(LISTENS);
        let name = fields.nth(3)?.strip_prefix('@')?;
        let rest = name.strip_prefix(prefix)?;
        // An older supervisor's name ends here.
        (listens && (rest.is_empty() || rest.starts_with('/'))).then(|| name.to_owned())
    };
    table.lines().filter_map(ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn run(name: &str) -> RunId {
        RunId(format!("address-{}-{name}", std::process::id()))
    }

    #[test]
    fn two_names_of_one_role_differ_and_are_found() {
        let run = run("found");
        let (a, b) = (
            fresh(&run, SocketRole::Guard).unwrap(),
            fresh(&run, SocketRole::Guard).unwrap(),
        );
        assert_ne!(a, b);
        assert!(!lives(&run, SocketRole::Guard));
        let listener = listen(&a).unwrap();
        let (name, stream) = find(&run, SocketRole::Guard).unwrap().unwrap();
        assert_eq!(name, a);
        assert_eq!(peer(&stream), i32::try_from(std::process::id()).ok());
        assert!(!lives(&run, SocketRole::Control));
        drop(listener);
        // A child that another test has just forked holds a copy until it executes its program.
        let end = Instant::now() + Duration::from_secs(60);
        while lives(&run, SocketRole::Guard) {
            assert!(Instant::now() < end, "somebody listens still");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn only_what_listens_under_the_prefix_counts() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000: 00000002 00000000 00010000 0001 01 1 @supervise/0/r/guard/ab\n\
            0000: 00000003 00000000 00000000 0001 03 2 @supervise/0/r/guard/cd\n\
            0000: 00000002 00000000 00010000 0001 01 3 @supervise/0/r/guardian\n\
            0000: 00000002 00000000 00010000 0001 01 4 /supervise/0/r/guard/ef\n\
            0000: 00000002 00000000 00010000 0001 01 5 @supervise/0/r/guard\n\
            0000: 00000002 00000000 00010000 0001 01 6\n";
        let found: Vec<String> = names_in(table, "supervise/0/r/guard").into_iter().collect();
        assert_eq!(found, ["supervise/0/r/guard", "supervise/0/r/guard/ab"]);
    }
}
