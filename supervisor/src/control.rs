//! The control socket of a running supervisor: an abstract address, one JSON line each way.
//!
//! Abstract names need no file system, so that requests are answered while a mount hangs, and they vanish with their process (see
//! [`supervise_host::address`]).

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};
use supervise_core::id::{RunId, Term};
use supervise_core::ledger::TimeLedger;
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;
use supervise_host::address::{self, SocketRole};
use supervise_host::wire;

/// Longest request, in bytes, including the newline.
pub const REQUEST_LIMIT: usize = 64 << 10;
/// Longest reply, in bytes: a state with its last scan.
pub const REPLY_LIMIT: usize = 64 << 20;

/// Requests to a running supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlRequest {
    /// The state of the run.
    Status,
    /// Stop the run.
    Stop {
        /// At the next proven step.
        after_save: bool,
        /// Without a grace period.
        now: bool,
        /// Who asks, if not `supervise stop`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Save at the next step boundary, and go on.
    Save {
        /// The user who asks.
        by: String,
    },
    /// Hold the run.
    Hold {
        /// The user who asks.
        by: String,
        /// The purpose, as the user gave it.
        why: Option<String>,
    },
    /// Release the run.
    Unhold {
        /// The user who asks.
        by: String,
    },
}

/// A request left in the run directory, for a supervisor that cannot be reached from there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftRequest {
    /// The supervisor's term: the next one must not obey it.
    pub term: Term,
    pub request: ControlRequest,
}

/// Replies of a supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlReply {
    /// The state of the run.
    Status {
        state: Box<RunState>,
        /// The specification of this term.
        spec: Box<RunSpec>,
        /// Empty from a supervisor of an older release.
        #[serde(default)]
        ledger: Box<TimeLedger>,
    },
    /// The request will be obeyed.
    Done,
    /// The request is refused, for this reason.
    Refused(String),
}

/// Listens for requests about a run.
///
/// # Errors
/// `AddrInUse`: another supervisor of the run is running.
pub fn bind(run: &RunId) -> io::Result<UnixListener> {
    // Two supervisors that start at the same time may both get here; the lease decides.
    if lives(run) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    address::listen(&address::fresh(run, SocketRole::Control)?)
}

/// Returns true if a supervisor of the run is running on this machine.
#[must_use]
pub fn lives(run: &RunId) -> bool {
    address::lives(run, SocketRole::Control)
}

/// Returns true if any process of the run listens on this machine.
#[must_use]
pub fn anybody(run: &RunId) -> bool {
    address::anybody(run)
}

/// Returns true if a guard of the run is running on this machine.
#[must_use]
pub fn guard_lives(run: &RunId) -> bool {
    address::lives(run, SocketRole::Guard)
}

/// Sends a request and waits at most `timeout`; `None` if no supervisor listens.
///
/// # Errors
/// No reply in time (`TimedOut`), or an invalid one.
pub fn ask(run: &RunId, request: &ControlRequest, timeout: Duration) -> io::Result<Option<ControlReply>> {
    let Some((_, mut stream)) = address::find(run, SocketRole::Control)? else {
        return Ok(None);
    };
    stream.set_nonblocking(false)?;
    let until = Instant::now() + timeout;
    stream.set_write_timeout(Some(timeout.max(Duration::from_millis(1))))?;
    stream.write_all(&wire::encode(request)?)?;
    let mut line = Vec::new();
    let mut chunk = vec![0_u8; 64 << 10];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        stream.set_read_timeout(Some(left))?;
        let n = match stream.read(&mut chunk) {
            // It exited before it replied: the same as no supervisor.
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

#[must_use]
pub fn supervisor_pid(run: &RunId) -> Option<i32> {
    let (_, stream) = address::find(run, SocketRole::Control).ok().flatten()?;
    address::peer(&stream)
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
        assert!(!lives(&run("nobody")));
    }

    #[test]
    fn a_question_is_answered_and_a_second_supervisor_is_refused() {
        let id = run("answers");
        let listener = bind(&id).unwrap();
        assert!(lives(&id));
        assert_eq!(bind(&id).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let server = std::thread::spawn(move || {
            // A client that only checks for a supervisor connects and sends nothing.
            let (stream, line) = std::iter::repeat_with(|| {
                let (stream, _) = listener.accept().unwrap();
                assert!(address::is_trusted(&stream));
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                (stream, line)
            })
            .find(|(_, line)| !line.is_empty())
            .unwrap();
            let reply = ControlReply::Refused(line.trim().to_owned());
            (&stream).write_all(&wire::encode(&reply).unwrap()).unwrap();
        });
        let stop = ControlRequest::Stop {
            by: None,
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
