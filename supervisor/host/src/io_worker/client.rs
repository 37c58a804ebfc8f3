//! Sends one request at a time to a private I/O worker, with a deadline: for commands other than the supervisor.

use super::protocol::{IoAnswer, IoQuestion, IoReply, IoRequest};
use crate::process::own_program;
use crate::wire;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use supervise_core::event::ActError;
use thiserror::Error;

/// Why an I/O worker gave no answer.
#[derive(Debug, Error)]
pub enum IoWorkerError {
    #[error("the I/O worker cannot be used: {0}")]
    Io(#[from] std::io::Error),
    #[error("the file system did not answer within {0} s")]
    Stalled(u64),
    #[error("{}", .0.what)]
    Refused(ActError),
}

/// An I/O worker and the two ends of its pipes.
#[derive(Debug)]
pub struct IoClient {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    buffer: Vec<u8>,
    /// Bytes already searched for a newline without finding one.
    searched: usize,
    partly: Option<IoReply>,
    next: u64,
    /// Result of a copy that ended before its request was answered.
    kept: Option<Result<(), ActError>>,
}

/// A request that was sent.
#[derive(Debug)]
#[must_use = "its answer must be fetched before the next request is sent"]
pub struct PendingRequest(u64);

impl IoClient {
    /// Starts an I/O worker from our own program.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(exe: &Path) -> Result<Self, IoWorkerError> {
        let mut child = Command::new(own_program(exe))
            .arg0(exe)
            .arg("__io_worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // An abandoned I/O worker must not keep our standard error open.
            .stderr(Stdio::null())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or_else(|| std::io::Error::other("no pipe"))?;
        Ok(Self {
            child,
            input,
            output,
            buffer: Vec::new(),
            searched: 0,
            partly: None,
            next: 1,
            kept: None,
        })
    }

    /// Sends a request and waits for the answer; progress reports extend the deadline.
    ///
    /// # Errors
    /// No answer in time, or an answer that is an error.
    pub fn ask(&mut self, ask: IoQuestion, limit: Duration) -> Result<IoAnswer, IoWorkerError> {
        self.ask_telling(ask, limit, &mut |_, _| ())
    }

    /// Like [`Self::ask`]; `tell` receives the bytes read and the total (0 if unknown).
    ///
    /// # Errors
    /// No progress in time, or an answer that is an error.
    pub fn ask_telling(
        &mut self,
        ask: IoQuestion,
        limit: Duration,
        tell: &mut dyn FnMut(u64, u64),
    ) -> Result<IoAnswer, IoWorkerError> {
        let asked = self.send(ask)?;
        self.answer(asked, limit, tell)
    }

    /// Sends a request without waiting. Fetch its answer before sending the next request.
    ///
    /// # Errors
    /// The I/O worker cannot be written to.
    pub fn send(&mut self, ask: IoQuestion) -> Result<PendingRequest, IoWorkerError> {
        let id = self.next;
        self.next += 1;
        let line = wire::encode(&IoRequest { id, ask }).map_err(std::io::Error::other)?;
        match &mut self.input {
            Some(input) => input.write_all(&line)?,
            None => return Err(IoWorkerError::Io(std::io::Error::other("the I/O worker was closed"))),
        }
        Ok(PendingRequest(id))
    }

    /// Waits for the answer to a request; `tell` receives the bytes read and the total.
    ///
    /// # Errors
    /// No progress in time, or an answer that is an error.
    pub fn answer(
        &mut self,
        PendingRequest(id): PendingRequest,
        limit: Duration,
        tell: &mut dyn FnMut(u64, u64),
    ) -> Result<IoAnswer, IoWorkerError> {
        let mut until = Instant::now() + limit;
        loop {
            let Some(reply) = self.reply(until, limit)? else {
                continue;
            };
            match reply {
                IoReply::Done { id: of, answer } if of == id => {
                    return answer.map(|a| *a).map_err(IoWorkerError::Refused);
                }
                IoReply::Working { bytes, of, .. } => {
                    until = Instant::now() + limit;
                    tell(bytes, of);
                }
                IoReply::Kept { result, .. } => self.kept = Some(result),
                IoReply::Done { .. } | IoReply::Touched => {}
            }
        }
    }

    /// Waits until the I/O worker reports a change. Returns false after the limit.
    ///
    /// # Errors
    /// The I/O worker cannot be read from.
    pub fn touched(&mut self, limit: Duration) -> Result<bool, IoWorkerError> {
        let until = Instant::now() + limit;
        loop {
            match self.reply(until, limit) {
                Ok(Some(IoReply::Touched)) => return Ok(true),
                Ok(_) => {}
                Err(IoWorkerError::Stalled(_)) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits for a copy to end and returns its result.
    ///
    /// # Errors
    /// The I/O worker cannot be read from, or does not report in time.
    pub fn kept(&mut self, limit: Duration) -> Result<Result<(), ActError>, IoWorkerError> {
        if let Some(result) = self.kept.take() {
            return Ok(result);
        }
        let until = Instant::now() + limit;
        loop {
            if let Some(IoReply::Kept { result, .. }) = self.reply(until, limit)? {
                return Ok(result);
            }
        }
    }

    /// Returns true if the I/O worker is running.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// PID of the I/O worker.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the I/O worker exit on its own, so that it writes its proof records. Returns false if it did not within
    /// the limit.
    pub fn end(mut self, limit: Duration) -> bool {
        drop(self.input.take());
        let until = Instant::now() + limit;
        // If it has nothing to write, it exits at once.
        let mut pause = Duration::from_micros(50);
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return true;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        false
    }

    fn reply(&mut self, until: Instant, limit: Duration) -> Result<Option<IoReply>, IoWorkerError> {
        if let Some(reply) = self.whole()? {
            return Ok(Some(reply));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(IoWorkerError::Stalled(limit.as_secs()));
        }
        let timeout = PollTimeout::try_from(left.min(Duration::from_secs(60)) + Duration::from_millis(1))
            .unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.output.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, timeout).map_err(std::io::Error::from)? == 0 {
            return Ok(None);
        }
        let mut chunk = [0u8; 65536];
        let n = self.output.read(&mut chunk)?;
        if n == 0 {
            return Err(IoWorkerError::Io(std::io::Error::other("the I/O worker ended")));
        }
        self.buffer.extend_from_slice(&chunk[..n]);
        Ok(None)
    }

    fn whole(&mut self) -> Result<Option<IoReply>, IoWorkerError> {
        let mut reply = match self.partly.take() {
            Some(reply) => reply,
            None => {
                let new = self.buffer.get(self.searched..).unwrap_or_default();
                let Some(at) = memchr::memchr(b'\n', new) else {
                    self.searched = self.buffer.len();
                    return Ok(None);
                };
                let line = self.first(self.searched + at + 1);
                self.searched = 0;
                serde_json::from_slice(&line).map_err(std::io::Error::other)?
            }
        };
        if let IoReply::Done { answer: Ok(answer), .. } = &mut reply
            && let IoAnswer::Lines { text, length, .. } = &mut **answer
        {
            if self.buffer.len() < *length {
                self.partly = Some(reply);
                return Ok(None);
            }
            *text = self.first(*length);
        }
        Ok(Some(reply))
    }

    fn first(&mut self, length: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(length);
        std::mem::replace(&mut self.buffer, rest)
    }
}

impl Drop for IoClient {
    fn drop(&mut self) {
        drop(self.input.take());
        // Its requests are answered or abandoned. If it hangs in the kernel, only a separate thread waits for it.
        let _ = self.child.kill();
        if matches!(self.child.try_wait(), Ok(None))
            && let Ok(pid) = i32::try_from(self.child.id())
        {
            let wait = move || nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None);
            let _ = std::thread::Builder::new().stack_size(64 << 10).spawn(wait);
        }
    }
}
