//! `supervise __relay`: stands for a rank that runs on another node. It forwards signals and exits as the rank does;
//! the launcher writes the rank's output to this process's standard output.

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

const LINE: usize = 64;

pub(crate) fn end(status: ExitStatus) -> String {
    match status {
        ExitStatus::Code(code) => format!("code {code}\n"),
        ExitStatus::Signal(signal) => format!("signal {signal}\n"),
        ExitStatus::Unknown => "code 70\n".to_owned(),
    }
}

fn read_end(line: &[u8]) -> Option<ExitStatus> {
    let (kind, number) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    match kind {
        "code" => number.parse().ok().map(ExitStatus::Code),
        "signal" => number.parse().ok().map(ExitStatus::Signal),
        _ => None,
    }
}

pub(crate) fn hello(rank: u32) -> String {
    format!("rank {rank}\n")
}

/// Runs until the rank has exited; returns its exit code. Arguments: the rank, the launcher's address.
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
            // A guard that has exited reads nothing.
            let _ = io::stdout().write_all(words.as_bytes());
            70
        }
    }
}

fn relay(rank: u32, name: &str) -> io::Result<ExitStatus> {
    // All signals except those that cannot be caught and those about this process itself.
    let signals = signals_and(Signal::SIGABRT)?;
    let stream = address::connect(name)?.ok_or_else(|| io::Error::other("nobody listens"))?;
    stream.set_nonblocking(false)?;
    (&stream).write_all(hello(rank).as_bytes())?;
    let mut lines = Splitter::new(LINE);
    let mut buffer = [0; LINE];
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
            if let Some(line) = lines.push(buffer.get(..n).unwrap_or(&[])).first() {
                return read_end(line).ok_or_else(|| io::ErrorKind::InvalidData.into());
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

/// Ends by the signal that ended the rank, without a second core dump.
pub(super) fn die_of(signal: i32) -> i32 {
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    let _ = SigSet::all().thread_unblock();
    let _ = crate::process::kill::signal_process(crate::process::own_ref(), signal);
    // This process ignores that signal.
    128 + signal
}

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

    pub(crate) fn splitter() -> Splitter {
        Splitter::new(LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_between_launcher_and_relay_come_back() {
        for status in [ExitStatus::Code(0), ExitStatus::Code(-1), ExitStatus::Signal(9)] {
            assert_eq!(read_end(end(status).trim_end().as_bytes()), Some(status));
        }
        assert_eq!(read_end(b"code"), None);
        assert_eq!(read_end(b"o 3"), None);
        assert_eq!(FromRelay::read(b"signal 15"), Some(FromRelay::Signal(15)));
        assert_eq!(FromRelay::read(b"rank x"), None);
    }
}
