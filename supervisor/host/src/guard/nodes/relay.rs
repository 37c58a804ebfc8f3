//! `supervise __relay`: stands for a rank that runs on another node. It prints what the rank prints, hands on signals, and ends as it.

use super::lines::Splitter;
use crate::address;
use crate::guard::setup::signals_and;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use supervise_core::event::ExitStatus;

/// First byte of a message of the launcher's; four bytes with the length of what follows come after it.
pub(crate) const OUTPUT: u8 = b'o';
pub(crate) const CODE: u8 = b'c';
pub(crate) const SIGNAL: u8 = b's';
const HEAD: usize = 5;
/// The longest message.
const BODY: usize = 64 << 10;

/// A message for a relay.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(0);
    [&[kind][..], &length.to_le_bytes(), body].concat()
}

/// The end of a rank, for its relay.
pub(crate) fn end(status: ExitStatus) -> Vec<u8> {
    let (kind, value) = match status {
        ExitStatus::Code(code) => (CODE, code),
        ExitStatus::Signal(signal) => (SIGNAL, signal),
        ExitStatus::Unknown => (CODE, 70),
    };
    message(kind, &value.to_le_bytes())
}

/// First line of a relay.
pub(crate) fn hello(rank: u32) -> String {
    format!("rank {rank}\n")
}

/// Runs until the rank has ended; returns its exit code. Arguments: the rank, the launcher's address.
#[must_use]
pub fn main(args: &[OsString]) -> i32 {
    let mut args = args.iter().filter_map(|a| a.to_str());
    let (rank, name) = (args.next().and_then(|r| r.parse().ok()), args.next());
    let (Some(rank), Some(name)) = (rank, name) else {
        return 70;
    };
    match relay(rank, name) {
        Ok(ExitStatus::Code(code)) => code,
        Ok(ExitStatus::Signal(signal)) => die_of(signal),
        Ok(ExitStatus::Unknown) => 70,
        Err(e) => {
            let words = format!("\nsupervise: the launcher of the nodes is gone: {e}\n");
            // A guard that is gone reads nothing.
            let _ = io::stdout().write_all(words.as_bytes());
            70
        }
    }
}

fn relay(rank: u32, name: &str) -> io::Result<ExitStatus> {
    // All but those that cannot be caught and those that tell of this process itself.
    let signals = signals_and(Signal::SIGABRT)?;
    let stream = address::connect(name)?.ok_or_else(|| io::Error::other("nobody listens"))?;
    stream.set_nonblocking(false)?;
    (&stream).write_all(hello(rank).as_bytes())?;
    let mut held = Vec::new();
    let mut buffer = vec![0_u8; BODY];
    loop {
        let mut fds = [stream.as_fd(), signals.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let _ = poll(&mut fds, PollTimeout::NONE);
        let [has_words, has_signals] = fds.map(|fd| fd.any().unwrap_or(true));
        if has_signals {
            hand_on(&signals, &stream)?;
        }
        if has_words {
            let n = (&stream).read(&mut buffer)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            held.extend_from_slice(buffer.get(..n).unwrap_or(&[]));
            if let Some(status) = take(&mut held)? {
                return Ok(status);
            }
        }
    }
}

fn hand_on(signals: &SignalFd, mut stream: &UnixStream) -> io::Result<()> {
    while let Ok(Some(info)) = signals.read_signal() {
        stream.write_all(format!("signal {}\n", info.ssi_signo).as_bytes())?;
    }
    Ok(())
}

/// Does what whole messages say. `Some`: the rank has ended.
fn take(held: &mut Vec<u8>) -> io::Result<Option<ExitStatus>> {
    let mut out = io::stdout().lock();
    let mut done = 0;
    let mut status = None;
    while let Some([kind, a, b, c, d]) = held.get(done..done + HEAD) {
        let length = usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX);
        if length > BODY {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let from = done + HEAD;
        let Some(body) = held.get(from..from + length) else {
            break;
        };
        done = from + length;
        match (*kind, <[u8; 4]>::try_from(body)) {
            (OUTPUT, _) => out.write_all(body)?,
            (CODE, Ok(value)) => status = Some(ExitStatus::Code(i32::from_le_bytes(value))),
            (SIGNAL, Ok(value)) => status = Some(ExitStatus::Signal(i32::from_le_bytes(value))),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    out.flush()?;
    held.drain(..done);
    Ok(status)
}

/// Ends by the signal that ended the rank, without a second core file.
pub(super) fn die_of(signal: i32) -> i32 {
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    let _ = SigSet::all().thread_unblock();
    let _ = crate::process::kill::signal_process(crate::process::own_ref(), signal);
    // One that this process ignores.
    128 + signal
}

/// Lines of a relay, as the launcher reads them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FromRelay {
    Rank(u32),
    Signal(i32),
}

impl FromRelay {
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        let (verb, number) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        match verb {
            "rank" => number.parse().ok().map(Self::Rank),
            "signal" => number.parse().ok().map(Self::Signal),
            _ => None,
        }
    }

    /// Longest line.
    pub(crate) fn splitter() -> Splitter {
        Splitter::new(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_come_in_pieces_are_taken_whole() {
        let all = [message(OUTPUT, b""), end(ExitStatus::Signal(9))].concat();
        let (first, rest) = all.split_at(7);
        let mut held = first.to_vec();
        assert_eq!(take(&mut held).unwrap(), None);
        held.extend_from_slice(rest);
        assert_eq!(take(&mut held).unwrap(), Some(ExitStatus::Signal(9)));
        assert!(take(&mut vec![OUTPUT, 255, 255, 255, 255]).is_err());
        assert_eq!(FromRelay::read(b"signal 15"), Some(FromRelay::Signal(15)));
        assert_eq!(FromRelay::read(b"rank x"), None);
    }
}
