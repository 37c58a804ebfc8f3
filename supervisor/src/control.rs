//! The control socket of a living supervisor: an abstract address, one JSON line each way.
//!
//! Abstract names need no file system, so that a question is answered while a mount hangs, and vanish with their
//! process (see [`supervise_host::address`]).

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

/// Longest question, in bytes, newline included.
pub const REQUEST_LIMIT: usize = 64 << 10;
/// Longest answer: a state with its last scan.
pub const REPLY_LIMIT: usize = 64 << 20;

/// Questions to a living supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
        /// Whoever asks, where it is not `supervise stop`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Leave the run as it is, whatever it does.
    Hold {
        /// The user who asks.
        by: String,
        /// Its purpose, in their words.
        why: Option<String>,
    },
    /// See to it again.
    Unhold {
        /// The user who asks.
        by: String,
    },
}

/// A request that is left in the run directory, for a supervisor to which nobody can connect from there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftRequest {
    /// The term of that supervisor: the next one is not meant.
    pub term: Term,
    /// The request itself.
    pub request: ControlRequest,
}

/// Its answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlReply {
    /// How the run is.
    Status {
        /// The state.
        state: Box<RunState>,
        /// The specification of this term.
        spec: Box<RunSpec>,
        /// The ledger; nothing of a supervisor of an older release.
        #[serde(default)]
        ledger: Box<TimeLedger>,
    },
    /// It will be done.
    Done,
    /// It will not, for this reason.
    Refused(String),
}

/// Listens for questions about a run.
///
/// # Errors
/// `AddrInUse`: another supervisor lives here.
pub fn bind(run: &RunId) -> io::Result<UnixListener> {
    // Of two that start in the same moment both may get so far: the lease lets one of them go on.
    if lives(run) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    address::listen(&address::fresh(run, SocketRole::Control)?)
}

/// Looks if a supervisor of the run lives on this machine.
#[must_use]
pub fn lives(run: &RunId) -> bool {
    address::lives(run, SocketRole::Control)
}

/// Looks if anything of the run listens on this machine.
#[must_use]
pub fn anybody(run: &RunId) -> bool {
    address::anybody(run)
}

/// Looks if a guard of the run lives on this machine.
#[must_use]
pub fn guard_lives(run: &RunId) -> bool {
    address::lives(run, SocketRole::Guard)
}

/// Asks a living supervisor and waits at most `timeout`; `None` where nobody listens.
///
/// # Errors
/// It does not answer in time (`TimedOut`), or speaks otherwise.
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
            // Whoever only looks whether somebody lives connects too, and asks nothing.
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
