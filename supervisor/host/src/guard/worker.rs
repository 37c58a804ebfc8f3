//! A worker as the guard sees it: a process, its output pipe, and its exit status.

use crate::guard::lines::LineBuffer;
use crate::guard::protocol::WorkerOrder;
use crate::guard::tail::Tail;
use crate::process::spawn::{REFUSAL_LEN, SpawnError, SpawnStage, SpawnedProcess};
use camino::Utf8PathBuf;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use supervise_core::event::ExitStatus;
use supervise_core::id::{ProcRef, WorkerId};

pub(crate) const WORKERS_LIMIT: usize = 4096;

#[derive(Debug)]
pub(crate) struct WorkerProcess {
    pub(crate) id: WorkerId,
    pub(crate) proc: ProcRef,
    pub(crate) exit: Option<ExitStatus>,
    /// Open until its program runs or was refused.
    pub(crate) report: Option<File>,
    /// Open until no process can write to it any more.
    pub(crate) output: Option<File>,
    /// Keeps the pipe open for processes that may still be given it.
    spare: Option<OwnedFd>,
    pub(crate) lines: LineBuffer,
    pub(crate) tail: Tail,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PipeRead {
    Dry,
    Bytes(usize),
    Ended,
}

impl WorkerProcess {
    pub(crate) fn new(id: WorkerId, started: SpawnedProcess, output: OwnedFd) -> Self {
        let start = crate::process::proc_stat(started.pid).map_or(0, |s| s.start);
        Self {
            id,
            proc: ProcRef {
                pid: started.pid,
                start,
            },
            exit: None,
            report: Some(started.report.into()),
            output: Some(output.into()),
            spare: None,
            lines: LineBuffer::default(),
            tail: Tail::default(),
        }
    }

    pub(crate) fn check_report(&mut self) -> Option<SpawnError> {
        let mut bytes = [0_u8; REFUSAL_LEN];
        match self.report.as_mut()?.read(&mut bytes) {
            Ok(REFUSAL_LEN) => {
                self.report = None;
                Some(SpawnError::parse(bytes))
            }
            Err(e) if is_later(&e) => None,
            _ => {
                self.report = None;
                None
            }
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> PipeRead {
        let Some(pipe) = &mut self.output else {
            return PipeRead::Ended;
        };
        match pipe.read(buffer) {
            Ok(0) => self.close(),
            Ok(n) => PipeRead::Bytes(n),
            Err(e) if is_later(&e) => PipeRead::Dry,
            Err(_) => self.close(),
        }
    }

    /// The path at which one of our processes can write to the worker's output pipe. If a script has redirected all
    /// of its output and so closed the pipe, a new pipe replaces it.
    pub(crate) fn output_path(&mut self) -> Option<Utf8PathBuf> {
        if self.output.is_none() {
            let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).ok()?;
            (self.output, self.spare) = (Some(reader.into()), Some(writer));
        }
        let fd = self.output.as_ref()?.as_raw_fd();
        Some(format!("/proc/{}/fd/{fd}", std::process::id()).into())
    }

    pub(crate) fn close(&mut self) -> PipeRead {
        (self.output, self.spare) = (None, None);
        PipeRead::Ended
    }
}

fn is_later(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Message for a program that does not run, and whether the command is at fault.
pub(crate) fn refusal_words(id: WorkerId, order: &WorkerOrder, refusal: SpawnError) -> (String, bool) {
    let error = refusal.error();
    let name = order.argv.first().map_or("", String::as_str);
    match refusal.stage {
        SpawnStage::Execute => (format!("worker {id}: cannot execute {name}: {error}"), true),
        SpawnStage::Directory => (
            format!("worker {id}: cannot enter its directory {}: {error}", order.cwd),
            false,
        ),
        SpawnStage::Setup => (format!("worker {id}: cannot be set up: {error}"), false),
    }
}
