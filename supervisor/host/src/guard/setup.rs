//! Setup shared by guard and node workers: signals as input, pipes, the mark.

use crate::guard::log_queue::set_nonblocking;
use crate::guard::protocol::GuardOrder;
use crate::process::ATTEMPT_VARIABLE;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use std::os::fd::OwnedFd;

/// Capacity of a worker's output pipe, so that a guard that is not scheduled for a moment does not block the worker.
const OUTPUT_PIPE: i32 = 256 << 10;

/// Keeps setproctitle from overwriting the environment, and with it the attempt's mark.
pub(crate) const KEEP_ENVIRONMENT: (&str, &str) = ("SPT_NOENV", "1");

/// Signals that operators and schedulers send.
pub(crate) const ASKED: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
];

/// Receives these and one more as input, so that none of them ends the process.
pub(crate) fn signals_and(one: Signal) -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.extend(ASKED.into_iter().chain([one]));
    set.thread_block()?;
    Ok(SignalFd::with_flags(
        &set,
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )?)
}

pub(crate) fn signals() -> io::Result<SignalFd> {
    signals_and(Signal::SIGCHLD)
}

pub(crate) fn marks(order: &GuardOrder) -> Vec<(String, String)> {
    let mark = format!("{}/{}/{}", order.run, order.term, order.attempt);
    vec![
        (ATTEMPT_VARIABLE.to_owned(), mark),
        (KEEP_ENVIRONMENT.0.to_owned(), KEEP_ENVIRONMENT.1.to_owned()),
    ]
}

/// A pipe with a non-blocking reading end; the writing end blocks, as programs expect.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    set_nonblocking(&reader)?;
    // A user near the limit for pipe buffers gets the default size.
    let _ = fcntl(&reader, FcntlArg::F_SETPIPE_SZ(OUTPUT_PIPE));
    Ok((reader, writer))
}
