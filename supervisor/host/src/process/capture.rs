//! Runs a short program for its output: with a deadline, with limits, and without leaving processes behind.
//!
//! It leads its own session, reads the given input, and dies with its creator. Whatever happens (its exit, the
//! deadline, a stop descriptor), its whole group is killed before it is reaped, so that no child of it survives under
//! its process group id. Blocks until then: do not call it in an event loop.

use crate::process::boottime_ms;
use crate::process::kill::signal_group;
use crate::process::spawn::{REFUSAL_LEN, SpawnError, SpawnProgram, SpawnStage, SpawnWiring, start};
use crate::process::stat::proc_stat;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::pipe2;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use supervise_core::event::ExitStatus;
use supervise_core::id::ProcRef;

/// How long a killed process may take to exit; one that hangs in the kernel is abandoned.
const DYING: Duration = Duration::from_secs(2);

/// The program to run.
#[derive(Debug, Clone, Copy)]
pub struct CaptureCommand<'a> {
    pub input: &'a [u8],
    pub argv: &'a [String],
    /// Its complete environment.
    pub env: &'a [(String, String)],
    pub cwd: &'a str,
    pub limit: Duration,
    /// Most bytes of standard output; with more, the result is an error.
    pub output: usize,
    pub errors: usize,
    /// It is killed once this is readable or closed.
    pub stop: Option<BorrowedFd<'a>>,
}

/// Its exit status and what it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedOutput {
    pub status: ExitStatus,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
}

/// Why there is no usable output.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("it cannot be started: {0}")]
    Start(io::Error),
    #[error("its directory cannot be entered: {0}")]
    Directory(io::Error),
    #[error("it did not end within {} s", .0.as_secs())]
    Late(Duration),
    #[error("it printed more than {0} bytes")]
    TooMuch(usize),
    #[error("nobody waits for it any more")]
    Stopped,
}

/// Runs a program to its end.
///
/// # Errors
/// It could not be started, took too long, printed too much, or was stopped.
pub fn capture(errand: &CaptureCommand<'_>) -> Result<CapturedOutput, CaptureError> {
    let program = SpawnProgram::new(errand.argv, errand.env, Some(errand.cwd)).map_err(CaptureError::Start)?;
    let mut running = Running::start(&program, errand.input).map_err(CaptureError::Start)?;
    let ended = running.follow(errand);
    // Before it is reaped: as long as it is at least a zombie, its group id is not reused.
    let _ = signal_group(running.leader, libc::SIGKILL);
    let status = running.reap();
    ended?;
    if running.output.bytes.len() > errand.output {
        return Err(CaptureError::TooMuch(errand.output));
    }
    if let Some(refusal) = running.refusal() {
        return Err(match refusal.stage {
            SpawnStage::Directory => CaptureError::Directory(refusal.error()),
            SpawnStage::Execute | SpawnStage::Setup => CaptureError::Start(refusal.error()),
        });
    }
    running.errors.keep_last(errand.errors);
    Ok(CapturedOutput {
        status,
        output: running.output.bytes,
        errors: running.errors.bytes,
    })
}

struct Pipe {
    file: Option<File>,
    bytes: Vec<u8>,
}

impl Pipe {
    fn new(end: OwnedFd) -> Self {
        Self {
            file: Some(end.into()),
            bytes: Vec::new(),
        }
    }

    fn drain(&mut self) {
        let mut buffer = [0_u8; 16 << 10];
        while let Some(file) = &mut self.file {
            match file.read(&mut buffer) {
                Ok(n) if n > 0 => self.bytes.extend_from_slice(buffer.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                _ => self.file = None,
            }
            // A program that prints endlessly must not keep us here.
            if self.bytes.len() > 64 << 20 {
                return;
            }
        }
    }

    fn keep_last(&mut self, limit: usize) {
        let over = self.bytes.len().saturating_sub(limit);
        self.bytes.drain(..over);
    }
}

struct Running {
    leader: ProcRef,
    pidfd: Option<OwnedFd>,
    output: Pipe,
    errors: Pipe,
    report: File,
}

impl Running {
    fn start(program: &SpawnProgram, text: &[u8]) -> io::Result<Self> {
        // In memory, not through a pipe, so that nothing blocks if the program does not read it.
        let mut input = File::from(memfd_create("input", MFdFlags::MFD_CLOEXEC)?);
        input.write_all(text)?;
        input.rewind()?;
        let (out_reader, out_writer) = pipe2(OFlag::O_CLOEXEC)?;
        let (err_reader, err_writer) = pipe2(OFlag::O_CLOEXEC)?;
        for reader in [&out_reader, &err_reader] {
            nix::fcntl::fcntl(reader, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let wiring = SpawnWiring {
            input: input.as_fd(),
            output: out_writer.as_fd(),
            errors: err_writer.as_fd(),
            cgroup: None,
            dies_with_creator: true,
            gate: None,
        };
        let started = start(program, &wiring)?;
        Ok(Self {
            leader: ProcRef {
                pid: started.pid,
                start: proc_stat(started.pid).map_or(0, |s| s.start),
            },
            pidfd: Pid::from_raw(started.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            output: Pipe::new(out_reader),
            errors: Pipe::new(err_reader),
            report: started.report.into(),
        })
    }

    /// Reads until it has exited. Later output of its children is not waited for.
    fn follow(&mut self, errand: &CaptureCommand<'_>) -> Result<(), CaptureError> {
        let limit = u64::try_from(errand.limit.as_millis()).unwrap_or(u64::MAX);
        let end = boottime_ms().saturating_add(limit);
        loop {
            let has_ended = proc_stat(self.leader.pid).is_none_or(|s| !s.is_running());
            self.output.drain();
            self.errors.drain();
            if self.errors.bytes.len() > 2 * errand.errors {
                self.errors.keep_last(errand.errors);
            }
            if has_ended {
                return Ok(());
            }
            if self.output.bytes.len() > errand.output {
                return Err(CaptureError::TooMuch(errand.output));
            }
            let left = end.saturating_sub(boottime_ms());
            if left == 0 {
                return Err(CaptureError::Late(errand.limit));
            }
            if self.wait(errand.stop, left) {
                return Err(CaptureError::Stopped);
            }
        }
    }

    /// Waits for an event; returns true if the result is no longer wanted.
    fn wait(&self, stop: Option<BorrowedFd<'_>>, left: u64) -> bool {
        let pipes = [&self.output, &self.errors].into_iter().filter_map(|p| p.file.as_ref());
        let ends: Vec<BorrowedFd<'_>> = pipes
            .map(AsFd::as_fd)
            .chain(self.pidfd.as_ref().map(AsFd::as_fd))
            .collect();
        let watched = stop.iter().copied().chain(ends);
        let mut fds: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Without a pidfd, its exit is polled for.
        let at_most = if self.pidfd.is_some() { 60_000 } else { 50 };
        let timeout = u16::try_from(left.min(at_most)).map_or(PollTimeout::MAX, PollTimeout::from);
        if poll(&mut fds, timeout).is_err() {
            return false;
        }
        let first = fds.first().and_then(PollFd::revents);
        stop.is_some() && first.is_some_and(|found| !found.is_empty())
    }

    fn refusal(&mut self) -> Option<SpawnError> {
        let mut bytes = [0_u8; REFUSAL_LEN];
        match self.report.read(&mut bytes) {
            Ok(REFUSAL_LEN) => Some(SpawnError::parse(bytes)),
            _ => None,
        }
    }

    fn reap(&self) -> ExitStatus {
        let pid = nix::unistd::Pid::from_raw(self.leader.pid);
        let end = boottime_ms().saturating_add(u64::try_from(DYING.as_millis()).unwrap_or(u64::MAX));
        loop {
            match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(_, code)) => return ExitStatus::Code(code),
                Ok(WaitStatus::Signaled(_, signal, _)) => return ExitStatus::Signal(signal as i32),
                Ok(_) if boottime_ms() < end => {
                    self.wait(None, 20);
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return ExitStatus::Unknown,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::is_alive;

    fn shell(script: &str, limit: Duration, stop: Option<BorrowedFd<'_>>) -> Result<CapturedOutput, CaptureError> {
        let argv = ["sh", "-c", script].map(str::to_owned);
        let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        capture(&CaptureCommand {
            input: &[],
            argv: &argv,
            env: &env,
            cwd: "/",
            limit,
            output: 1000,
            errors: 8,
            stop,
        })
    }

    fn long() -> Duration {
        Duration::from_secs(60)
    }

    fn ends(pid: &str) {
        let pid: i32 = pid.trim().parse().unwrap();
        let end = boottime_ms() + 20_000;
        while proc_stat(pid).is_some_and(|s| is_alive(s.proc_ref())) {
            assert!(boottime_ms() < end, "process {pid} lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_it_prints_and_how_it_ends_is_told() {
        let said = shell("echo here; echo 0123456789 >&2; exit 3", long(), None).unwrap();
        assert_eq!(said.output, b"here\n");
        assert_eq!(said.errors, b"3456789\n");
        assert_eq!(said.status, ExitStatus::Code(3));
        let said = shell("kill -9 $$", long(), None).unwrap();
        assert_eq!(said.status, ExitStatus::Signal(9));
    }

    #[test]
    fn children_that_hold_its_output_are_not_waited_for_and_do_not_stay() {
        let said = shell("sleep 1000 & echo $!", long(), None).unwrap();
        ends(&String::from_utf8(said.output).unwrap());
    }

    #[test]
    fn one_that_takes_too_long_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("trap '' TERM INT HUP; sleep 1000 & echo $! > {}; wait", file.display());
        let late = shell(&script, Duration::from_millis(300), None);
        assert!(matches!(late, Err(CaptureError::Late(_))), "{late:?}");
        // If the machine was too busy to get this far, there is no child.
        if let Ok(pid) = std::fs::read_to_string(file) {
            ends(&pid);
        }
    }

    #[test]
    fn one_that_nobody_wants_any_more_is_ended() {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
        drop(writer);
        let stopped = shell("sleep 1000", long(), Some(reader.as_fd()));
        assert!(matches!(stopped, Err(CaptureError::Stopped)), "{stopped:?}");
    }

    #[test]
    fn more_than_can_be_taken_is_no_answer() {
        let much = shell("yes", long(), None);
        assert!(matches!(much, Err(CaptureError::TooMuch(1000))), "{much:?}");
        let argv = ["no-such-program".to_owned()];
        let errand = CaptureCommand {
            input: &[],
            argv: &argv,
            env: &[],
            cwd: "/",
            limit: long(),
            output: 1,
            errors: 1,
            stop: None,
        };
        assert!(matches!(capture(&errand), Err(CaptureError::Start(_))));
        let elsewhere = CaptureCommand {
            cwd: "/no/such",
            ..errand
        };
        assert!(matches!(capture(&elsewhere), Err(CaptureError::Directory(_))));
    }
}
