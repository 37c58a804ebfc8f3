//! Runs the trainer as a child of our shim in a script, so that its exit status is known.
//!
//! Nothing else changes for the script: signals reach the trainer once, whether they are sent to the process or to
//! its group, the trainer dies with the shim, and the shim exits with its exit code or by its signal.

use crate::guard::setup::ASKED;
use crate::process::reap::reap_one;
use crate::process::spawn::dies_with_us;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use nix::unistd::{Pid, getpgrp, getpid, setpgid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use supervise_core::event::ExitStatus;

fn handed_on() -> impl Iterator<Item = Signal> {
    ASKED.into_iter().chain([Signal::SIGCONT])
}

/// Signals that this process reads when it is ready. Create it before any thread, which would receive them otherwise.
pub(super) struct HandedSignals {
    fd: SignalFd,
    before: SigSet,
}

impl HandedSignals {
    /// Blocks them.
    ///
    /// # Errors
    /// The kernel refuses (descriptors).
    pub(super) fn block() -> io::Result<Self> {
        let mut signals: SigSet = handed_on().collect();
        signals.add(Signal::SIGCHLD);
        let before = SigSet::thread_get_mask()?;
        signals.thread_block()?;
        let fd = SignalFd::new(&signals)?;
        Ok(Self { fd, before })
    }
}

/// Runs the trainer to its end.
///
/// # Errors
/// It cannot be started.
pub(super) fn run(mut command: Command, signals: &HandedSignals) -> io::Result<ExitStatus> {
    let leads = getpgrp() == getpid();
    if leads {
        command.process_group(0);
    }
    dies_with_us(&mut command, signals.before);
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    // A signal to the group must only reach the trainer, or it would arrive twice. If this is refused, it does.
    if !leads {
        let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    }
    loop {
        let signal = signals
            .fd
            .read_signal()?
            .and_then(|info| i32::try_from(info.ssi_signo).ok());
        match signal.and_then(|n| Signal::try_from(n).ok()) {
            Some(Signal::SIGCHLD) => {
                while let Some((ended, status)) = reap_one().unwrap_or(None) {
                    if ended == pid {
                        return Ok(status);
                    }
                }
            }
            Some(signal) => drop(nix::sys::signal::kill(Pid::from_raw(pid), signal)),
            None => {}
        }
    }
}

/// Ends this process as the trainer ended; returns the exit code if it did not end by a signal.
pub(super) fn end_like(status: ExitStatus) -> i32 {
    match status {
        ExitStatus::Code(code) => code,
        ExitStatus::Signal(n) => {
            // The trainer has already written its core dump.
            let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
            let _ = SigSet::all().thread_unblock();
            if let Ok(signal) = Signal::try_from(n) {
                let _ = nix::sys::signal::raise(signal);
            }
            128 + n
        }
        ExitStatus::Unknown => 1,
    }
}
