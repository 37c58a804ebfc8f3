//! A standby interpreter: its start and its messages.

use super::cold;
use crate::guard::setup::pipe;
use crate::process::kill::signal_process;
use crate::process::spawn::{CgroupFds, SpawnProgram, SpawnWiring, SpawnedProcess, start};
use crate::process::stat::proc_stat;
use crate::process::tree::list_descendants;
use crate::system::reap_child;
use nix::fcntl::{FcntlArg, fcntl};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use supervise_core::event::StandbyResult;
use supervise_core::id::ProcRef;

/// How long a standby interpreter may take to continue: it checks the files that matter, other processes may use the
/// CPU, and one that imports first finishes a module. Starting a new one would take longer.
pub(super) const GOES_WITHIN: Duration = Duration::from_secs(10);
/// CPU time within which an interpreter must report that it waits. One that does not would soon run the trainer;
/// until then it cannot write files.
const WAITS_WITHIN_CPU: Duration = Duration::from_millis(500);
const GONE_WITHIN: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(50);
const LINE: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct StandbyInterpreter {
    pub(super) argv: Vec<String>,
    pub(super) started: SpawnedProcess,
    /// Its file size limit, lifted once it has reported that it waits.
    files_limit: Rlimit,
    pub(super) output: OwnedFd,
    pub(super) channel: UnixStream,
    heard: Vec<u8>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StandbyMessage {
    Waits(bool),
    Ready(serde::de::IgnoredAny),
    Goes(bool),
    Cold(String),
    /// Trying again would have the same result.
    Unfit(String),
}

/// Why no message was received: none came in time, or it has exited or sent an invalid one.
pub(super) enum NoWord {
    Yet,
    Gone,
}

/// Sent after its answer came in time: until then, it runs nothing of the trainer.
#[derive(Debug, Serialize)]
struct RunOrder {
    run: bool,
    /// Forked for the workers of this process's Ray, as long as that runs.
    beside: Option<i32>,
}

#[derive(Debug, Serialize)]
struct GoOrder<'a> {
    argv: &'a [String],
    cwd: &'a str,
}

/// Starts an interpreter with this environment.
///
/// # Errors
/// No process or pipe can be created.
pub(super) fn start_one(argv: &[String], cwd: &str, env: &[(String, String)]) -> io::Result<StandbyInterpreter> {
    let program = SpawnProgram::new(argv, env, Some(cwd))?;
    let (output, writer) = pipe()?;
    let (channel, theirs) = UnixStream::pair()?;
    let wiring = SpawnWiring {
        input: theirs.as_fd(),
        output: writer.as_fd(),
        errors: writer.as_fd(),
        cgroup: None,
        dies_with_creator: true,
        gate: None,
    };
    // It inherits a file size limit of zero. We write no file meanwhile.
    let files_limit = getrlimit(Resource::Fsize);
    let none = Rlimit {
        current: Some(0),
        maximum: files_limit.maximum,
    };
    setrlimit(Resource::Fsize, none)?;
    let started = start(&program, &wiring);
    setrlimit(Resource::Fsize, files_limit)?;
    Ok(StandbyInterpreter {
        argv: argv.to_vec(),
        started: started?,
        files_limit,
        output,
        channel,
        heard: Vec::new(),
    })
}

pub(super) fn say(channel: &mut UnixStream, words: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(words)?;
    line.push(b'\n');
    channel.set_write_timeout(Some(GOES_WITHIN))?;
    channel.write_all(&line)
}

impl StandbyInterpreter {
    pub(super) fn may_speak(&self) -> bool {
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
        let a_second = ticks.and_then(|t| u64::try_from(t).ok()).unwrap_or(100);
        let most = u128::from(a_second) * WAITS_WITHIN_CPU.as_millis() / 1000;
        proc_stat(self.started.pid).is_some_and(|s| u128::from(s.cpu) < most)
    }

    pub(super) fn unlimit(&self) -> io::Result<()> {
        prlimit(Pid::from_raw(self.started.pid), Resource::Fsize, self.files_limit)?;
        Ok(())
    }

    /// Asks it to become this worker; an error says why it does not.
    pub(super) fn ask(
        &mut self,
        argv: &[String],
        cwd: &str,
        cgroup: Option<&CgroupFds<'_>>,
    ) -> Result<(), StandbyResult> {
        if let Some(place) = cgroup {
            let entrance = rustix::io::dup(place.entrance).map(File::from);
            let moved = entrance.map_err(io::Error::from);
            let moved = moved.and_then(|mut f| f.write_all(self.started.pid.to_string().as_bytes()));
            moved.map_err(|e| cold(format!("it cannot be moved into the cgroup: {e}")))?;
        }
        // If it has exited, it left a reason, which is read with the answer.
        let _ = say(&mut self.channel, &GoOrder { argv, cwd });
        Ok(())
    }

    pub(super) fn answer(&mut self, until: Instant) -> Result<(), StandbyResult> {
        loop {
            self.is_heard()
                .map_err(|why| StandbyResult::Cold { why, lasting: true })?;
            match self.word(until.min(Instant::now() + LOOK)) {
                Ok(StandbyMessage::Goes(true)) => return Ok(()),
                Ok(StandbyMessage::Ready(_)) => {}
                Ok(StandbyMessage::Cold(why)) => return Err(cold(why)),
                Ok(StandbyMessage::Unfit(why)) => return Err(StandbyResult::Cold { why, lasting: true }),
                Ok(other) => return Err(cold(format!("it said {other:?}"))),
                Err(NoWord::Yet) if Instant::now() < until => {}
                Err(NoWord::Yet) => return Err(cold("it gave no answer".to_owned())),
                Err(NoWord::Gone) => return Err(cold("it is gone".to_owned())),
            }
        }
    }

    /// Lets it run as the worker; without this message it runs nothing.
    pub(super) fn run(&mut self, beside: Option<i32>) -> Result<(), StandbyResult> {
        say(&mut self.channel, &RunOrder { run: true, beside }).map_err(|e| cold(format!("it is gone: {e}")))
    }

    /// Its output has no reader before it is a worker: if its imports print more than fits, it would block forever.
    fn is_heard(&self) -> Result<(), String> {
        let printed = rustix::io::ioctl_fionread(&self.output).unwrap_or(0);
        // Each write may start a new page of the pipe; half of its capacity is certain to fit.
        let fits = fcntl(&self.output, FcntlArg::F_GETPIPE_SZ).map_or(0, |size| size / 2);
        if u64::try_from(fits).is_ok_and(|fits| printed <= fits) {
            return Ok(());
        }
        Err(format!("its imports print more than {fits} bytes"))
    }

    pub(super) fn word(&mut self, until: Instant) -> Result<StandbyMessage, NoWord> {
        loop {
            if let Some(at) = self.heard.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=at).collect();
                return serde_json::from_slice(&line).map_err(|_| NoWord::Gone);
            }
            if self.heard.len() > LINE {
                return Err(NoWord::Gone);
            }
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Some(left.max(Duration::from_millis(1)));
            self.channel.set_read_timeout(timeout).map_err(|_| NoWord::Gone)?;
            let mut bytes = [0; 4096];
            match self.channel.read(&mut bytes) {
                Ok(n) if n > 0 => self.heard.extend_from_slice(bytes.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(NoWord::Yet),
                _ => return Err(NoWord::Gone),
            }
        }
    }

    /// Keeps it as long as this process runs; it gets no more messages.
    pub(super) fn keep(self) {
        let _ = (self.channel.into_raw_fd(), self.output.into_raw_fd());
    }

    /// Kills it. If it does not exit, the tree waits for it like for any descendant.
    pub(super) fn end(self) {
        let Some(ProcRef { pid, start }) = kill_all_of(self.started.pid) else {
            return;
        };
        let until = Instant::now() + GONE_WITHIN;
        while Instant::now() < until {
            reap_child(pid);
            if proc_stat(pid).is_none_or(|s| s.start != start) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Kills a process and its descendants; `None` if it has exited.
pub(super) fn kill_all_of(pid: i32) -> Option<ProcRef> {
    let top = proc_stat(pid)?.proc_ref();
    for below in list_descendants(pid) {
        let _ = signal_process(below, libc::SIGKILL);
    }
    let _ = signal_process(top, libc::SIGKILL);
    Some(top)
}
