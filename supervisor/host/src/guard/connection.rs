//! The guard's end of a connection to a supervisor: lines in, lines out, never blocking.
//!
//! Messages that the supervisor does not read are kept in memory, bounded: an unsent progress report is replaced by
//! the next one, with their activity added up, and sightings are dropped at the limit. Exits and ends are few and
//! always kept.

use crate::guard::protocol::{FromGuard, MESSAGE_LIMIT, ToGuard};
use crate::wire;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Unsent bytes at which sightings are dropped.
const SIGHTINGS_LIMIT: usize = 1 << 20;

/// Unsent messages of any other kind; a supervisor that leaves more unread is not working.
const MESSAGES_LIMIT: usize = 4096;

const READ_SIZE: usize = 16 << 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the other end is closed")]
    Closed,
    #[error("a message is longer than {MESSAGE_LIMIT} bytes")]
    TooLong,
    #[error("a message cannot be understood")]
    Unknown(#[source] serde_json::Error),
    #[error("the other end does not read")]
    Unread,
    #[error("the connection failed")]
    Io(#[source] io::Error),
}

#[derive(Debug)]
pub(crate) struct DriverConnection {
    stream: UnixStream,
    unread: Vec<u8>,
    unsent: VecDeque<OutgoingLine>,
    /// Bytes of the first unsent line already sent.
    sent: usize,
    bytes: usize,
}

#[derive(Debug)]
struct OutgoingLine {
    kind: OutgoingKind,
    bytes: Vec<u8>,
}

#[derive(Debug)]
enum OutgoingKind {
    Progress(FromGuard),
    Sighting,
    Other,
}

impl DriverConnection {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            unread: Vec::new(),
            unsent: VecDeque::new(),
            sent: 0,
            bytes: 0,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(crate) fn receive(&mut self) -> (Vec<ToGuard>, Result<(), ConnectionError>) {
        let mut messages = Vec::new();
        let mut chunk = [0_u8; READ_SIZE];
        let end = match self.stream.read(&mut chunk) {
            Ok(0) => Err(ConnectionError::Closed),
            Ok(n) => {
                self.unread.extend(chunk.iter().take(n));
                Ok(())
            }
            Err(e) if is_later(&e) => Ok(()),
            Err(e) => Err(ConnectionError::Io(e)),
        };
        while let Some(at) = memchr::memchr(b'\n', &self.unread) {
            let line: Vec<u8> = self.unread.drain(..=at).collect();
            match serde_json::from_slice(&line) {
                Ok(message) => messages.push(message),
                Err(e) => return (messages, Err(ConnectionError::Unknown(e))),
            }
        }
        if self.unread.len() >= MESSAGE_LIMIT {
            return (messages, Err(ConnectionError::TooLong));
        }
        (messages, end)
    }

    pub(crate) fn send(&mut self, message: FromGuard) -> Result<(), ConnectionError> {
        let kind = match &message {
            FromGuard::Progress { .. } => OutgoingKind::Progress(self.merge(message)),
            FromGuard::Sighted { .. } if self.bytes > SIGHTINGS_LIMIT => return Ok(()),
            FromGuard::Sighted { .. } => {
                let bytes = encode(&message)?;
                return self.queue(OutgoingKind::Sighting, bytes);
            }
            _ => {
                let bytes = encode(&message)?;
                self.make_room();
                return self.queue(OutgoingKind::Other, bytes);
            }
        };
        let bytes = match &kind {
            OutgoingKind::Progress(message) => encode(message)?,
            _ => Vec::new(),
        };
        self.queue(kind, bytes)
    }

    fn queue(&mut self, kind: OutgoingKind, bytes: Vec<u8>) -> Result<(), ConnectionError> {
        if self.unsent.len() >= MESSAGES_LIMIT {
            return Err(ConnectionError::Unread);
        }
        self.bytes += bytes.len();
        self.unsent.push_back(OutgoingLine { kind, bytes });
        self.flush()
    }

    /// Takes an unsent progress report out of the queue and adds its activity to the new one.
    fn merge(&mut self, mut new: FromGuard) -> FromGuard {
        let first_is_partial = usize::from(self.sent > 0);
        let old = self
            .unsent
            .iter()
            .skip(first_is_partial)
            .position(|l| matches!(l.kind, OutgoingKind::Progress(_)));
        let old = old.and_then(|i| self.unsent.remove(i + first_is_partial));
        let Some(OutgoingLine {
            kind: OutgoingKind::Progress(old),
            bytes,
        }) = old
        else {
            return new;
        };
        self.bytes = self.bytes.saturating_sub(bytes.len());
        if let (
            FromGuard::Progress {
                activity: a, files: f, ..
            },
            FromGuard::Progress {
                activity: b, files: g, ..
            },
        ) = (&mut new, &old)
        {
            *f = f.or(*g);
            a.cpu_ms = a.cpu_ms.saturating_add(b.cpu_ms);
            a.output = a.output.saturating_add(b.output);
            a.over_ms = a.over_ms.saturating_add(b.over_ms);
            a.gpu |= b.gpu;
            a.starved |= b.starved;
        }
        new
    }

    fn make_room(&mut self) {
        while self.bytes > SIGHTINGS_LIMIT {
            let first_is_partial = usize::from(self.sent > 0);
            let oldest = self
                .unsent
                .iter()
                .skip(first_is_partial)
                .position(|l| matches!(l.kind, OutgoingKind::Sighting));
            let Some(line) = oldest.and_then(|i| self.unsent.remove(i + first_is_partial)) else {
                return;
            };
            self.bytes = self.bytes.saturating_sub(line.bytes.len());
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), ConnectionError> {
        while let Some(line) = self.unsent.front() {
            match self.stream.write(line.bytes.get(self.sent..).unwrap_or(&[])) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(n) => self.sent += n,
                Err(e) if is_later(&e) => return Ok(()),
                Err(e) => return Err(ConnectionError::Io(e)),
            }
            if self.sent >= line.bytes.len() {
                self.bytes = self.bytes.saturating_sub(line.bytes.len());
                self.sent = 0;
                self.unsent.pop_front();
            }
        }
        Ok(())
    }
}

fn encode(message: &FromGuard) -> Result<Vec<u8>, ConnectionError> {
    wire::encode(message).map_err(ConnectionError::Unknown)
}

fn is_later(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use supervise_core::event::scan::RuleKind;
    use supervise_core::event::{Activity, ExitStatus, Sighting, TrainerPhase};
    use supervise_core::id::{Step, Term, WorkerId};

    fn progress(step: u64) -> FromGuard {
        FromGuard::Progress {
            phase: TrainerPhase::Step,
            step: Some(Step(step)),
            beats: 0,
            risen: 0,
            activity: Activity {
                cpu_ms: 1,
                output: 2,
                over_ms: 3,
                gpu: false,
                starved: false,
            },
            files: None,
        }
    }

    fn sighted() -> FromGuard {
        FromGuard::Sighted {
            kind: RuleKind::Exception,
            sighting: Sighting {
                rule: "x".into(),
                worker: WorkerId(0),
                line: 1,
                text: "y".repeat(4000),
                number: None,
                count: 1,
            },
        }
    }

    fn exited(worker: u32) -> FromGuard {
        FromGuard::Exited {
            worker: WorkerId(worker),
            status: ExitStatus::Code(1),
            first: true,
            step: None,
            lines: Vec::new(),
        }
    }

    fn read_all(stream: UnixStream, connection: &mut DriverConnection) -> Vec<FromGuard> {
        let mut reader = std::io::BufReader::new(stream);
        let mut said = Vec::new();
        while connection.has_unsent() {
            connection.flush().unwrap();
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            said.push(serde_json::from_str(&line).unwrap());
        }
        connection.stream.shutdown(std::net::Shutdown::Write).unwrap();
        said.extend(reader.lines().map(|l| serde_json::from_str(&l.unwrap()).unwrap()));
        said
    }

    #[test]
    fn a_driver_that_does_not_read_costs_bounded_memory_and_misses_no_exit() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut connection = DriverConnection::new(ours).unwrap();
        for step in 0..2000 {
            connection.send(sighted()).unwrap();
            connection.send(progress(step)).unwrap();
        }
        connection.send(exited(7)).unwrap();
        assert!(connection.bytes < 2 * SIGHTINGS_LIMIT);
        let said = read_all(theirs, &mut connection);
        assert!(said.contains(&exited(7)));
        let newest = said.iter().rev().find_map(|m| match m {
            FromGuard::Progress { step, .. } => *step,
            _ => None,
        });
        assert_eq!(newest, Some(Step(1999)));
        let cpu: u64 = said
            .iter()
            .map(|m| match m {
                FromGuard::Progress { activity, .. } => activity.cpu_ms,
                _ => 0,
            })
            .sum();
        assert_eq!(cpu, 2000);
    }

    #[test]
    fn messages_come_in_pieces_and_a_closed_end_is_told() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = DriverConnection::new(ours).unwrap();
        theirs.write_all(b"{\"take\":{\"te").unwrap();
        assert!(connection.receive().0.is_empty());
        theirs.write_all(b"rm\":3}}\n\"bye\"\n").unwrap();
        let (said, end) = connection.receive();
        assert_eq!(said, [ToGuard::Take { term: Term(3) }, ToGuard::Bye]);
        assert!(end.is_ok());
        drop(theirs);
        assert!(matches!(connection.receive().1, Err(ConnectionError::Closed)));
    }

    #[test]
    fn an_endless_message_and_nonsense_end_the_connection() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = DriverConnection::new(ours).unwrap();
        theirs.write_all(b"nonsense\n").unwrap();
        assert!(matches!(connection.receive().1, Err(ConnectionError::Unknown(_))));
        theirs.set_nonblocking(true).unwrap();
        let flood = vec![b'x'; READ_SIZE];
        let end = (0..2 * MESSAGE_LIMIT / READ_SIZE).find_map(|_| {
            let _ = theirs.write(&flood);
            connection.receive().1.err()
        });
        assert!(matches!(end, Some(ConnectionError::TooLong)));
    }
}
