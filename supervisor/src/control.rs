//! The control socket of a living supervisor: an abstract address, one JSON line each way.
//!
//! The name is `supervise/<uid>/<run>/control`. Abstract names need no file system, so that a question is answered
//! while a mount hangs, and vanish with their process. They have no permissions either: both ends look at who the
//! other one is.

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, socket, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};
use supervise_core::id::RunId;
use supervise_core::spec::RunSpec;
use supervise_core::state::State;

/// Longest question, in bytes, newline included.
pub const REQUEST_LIMIT: usize = 64 << 10;
/// Longest answer: a state with its last scan.
pub const REPLY_LIMIT: usize = 64 << 20;

/// What can be asked of a living supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlRequest {
    /// How the run is.
    Status,
    /// End the run.
    Stop {
        /// At the next proven step.
        after_save: bool,
        /// Without grace.
        now: bool,
    },
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlReply {
    /// How the run is.
    Status {
        /// The state.
        state: Box<State>,
        /// The specification of this term.
        spec: Box<RunSpec>,
    },
    /// It will be done.
    Done,
    /// It will not, for this reason.
    Refused(String),
}

/// The abstract name of a run's control socket.
#[must_use]
pub fn socket_name(run: &RunId) -> String {
    format!("supervise/{}/{run}/control", geteuid())
}

/// Listens for questions about a run.
///
/// # Errors
/// `AddrInUse`: another supervisor lives here.
pub fn bind(run: &RunId) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(socket_name(run))?)
}

/// Whether the other end is the same user or root.
#[must_use]
pub fn peer_is_trusted(stream: &impl AsFd) -> bool {
    let own = geteuid().as_raw();
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

/// A message as one line.
///
/// # Errors
/// A value that JSON cannot express (none is known).
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Asks a living supervisor and waits at most `timeout`; `None` where nobody listens.
///
/// # Errors
/// It does not answer in time (`TimedOut`), belongs to another user (`PermissionDenied`), or speaks otherwise.
pub fn ask(run: &RunId, request: &ControlRequest, timeout: Duration) -> io::Result<Option<ControlReply>> {
    let Some(mut stream) = connect(&socket_name(run))? else {
        return Ok(None);
    };
    let until = Instant::now() + timeout;
    stream.set_write_timeout(Some(timeout.max(Duration::from_millis(1))))?;
    stream.write_all(&encode(request)?)?;
    let mut line = Vec::new();
    let mut chunk = vec![0_u8; 64 << 10];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        stream.set_read_timeout(Some(left))?;
        let n = match stream.read(&mut chunk) {
            // It ended between our question and its answer: the same as if nobody had listened.
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(late()),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(e) => return Err(e),
        };
        let bytes = chunk.get(..n).unwrap_or(&[]);
        if let Some(at) = bytes.iter().position(|b| *b == b'\n') {
            line.extend_from_slice(bytes.get(..at).unwrap_or(&[]));
            return Ok(Some(serde_json::from_slice(&line)?));
        }
        line.extend_from_slice(bytes);
        if line.len() > REPLY_LIMIT {
            return Err(io::Error::other("its answer is too long"));
        }
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it does not answer")
}

/// The process that listens on a run's control socket.
#[must_use]
pub fn supervisor_pid(run: &RunId) -> Option<i32> {
    let stream = connect(&socket_name(run)).ok().flatten()?;
    getsockopt(&stream, PeerCredentials).ok().map(|peer| peer.pid())
}

/// Whether somebody listens on an abstract name; asks the kernel's table, so that nobody is disturbed.
#[must_use]
pub fn listens(name: &str) -> bool {
    let wanted = format!("@{name}");
    std::fs::read_to_string("/proc/net/unix").is_ok_and(|table| {
        table
            .lines()
            .any(|l| l.split_ascii_whitespace().nth(7) == Some(wanted.as_str()))
    })
}

/// Connects without waiting: a full queue is an error, not a reason to hang.
fn connect(name: &str) -> io::Result<Option<UnixStream>> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match nix::sys::socket::connect(fd.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?) {
        Ok(()) => {}
        Err(nix::errno::Errno::ECONNREFUSED) => return Ok(None),
        Err(e) => return Err(e.into()),
    }
    if !peer_is_trusted(&fd) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the socket belongs to another user",
        ));
    }
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(Some(stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    fn run(name: &str) -> RunId {
        RunId(format!("test-{name}-{}", std::process::id()))
    }

    #[test]
    fn nobody_listens() {
        assert_eq!(
            ask(&run("nobody"), &ControlRequest::Status, Duration::from_secs(5)).unwrap(),
            None
        );
        assert!(!listens(&socket_name(&run("nobody"))));
    }

    #[test]
    fn a_question_is_answered_and_a_second_supervisor_is_refused() {
        let id = run("answers");
        let listener = bind(&id).unwrap();
        assert!(listens(&socket_name(&id)));
        assert_eq!(bind(&id).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            assert!(peer_is_trusted(&stream));
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let reply = ControlReply::Refused(line.trim().to_owned());
            (&stream).write_all(&encode(&reply).unwrap()).unwrap();
        });
        let stop = ControlRequest::Stop {
            after_save: true,
            now: false,
        };
        let said = ask(&id, &stop, Duration::from_secs(30)).unwrap();
        let Some(ControlReply::Refused(line)) = said else {
            panic!("{said:?}");
        };
        assert_eq!(serde_json::from_str::<ControlRequest>(&line).unwrap(), stop);
        server.join().unwrap();
    }

    #[test]
    fn a_silent_supervisor_is_not_waited_for_longer_than_asked() {
        let id = run("silent");
        let listener = bind(&id).unwrap();
        let e = ask(&id, &ControlRequest::Status, Duration::from_millis(50)).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::TimedOut);
        assert_eq!(supervisor_pid(&id), i32::try_from(std::process::id()).ok());
        drop(listener);
    }
}
