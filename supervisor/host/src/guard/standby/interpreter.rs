//! One interpreter that waits: its start, what it is told, and what it says.

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

/// An interpreter that waits needs a moment to look at the files that count, and more where others have the processors; one that imports is in the
/// middle of a module. A new one would take longer.
pub(super) const GOES_WITHIN: Duration = Duration::from_secs(10);
/// The interpreter says that it waits before anything else. One that does not would run the trainer itself, soon: until then it can
/// write no file.
const WAITS_WITHIN_CPU: Duration = Duration::from_millis(500);
/// A process that was killed is gone within this.
const GONE_WITHIN: Duration = Duration::from_millis(500);
/// Its output is looked at this often while it is waited for.
const LOOK: Duration = Duration::from_millis(50);
/// Longest line of an interpreter.
const LINE: usize = 64 << 10;

/// An interpreter that waits.
#[derive(Debug)]
pub(super) struct StandbyInterpreter {
    pub(super) argv: Vec<String>,
    pub(super) started: SpawnedProcess,
    /// Its limit for files, which it has not before it said that it waits.
    files_limit: Rlimit,
    pub(super) output: OwnedFd,
    pub(super) channel: UnixStream,
    heard: Vec<u8>,
}

/// A word of an interpreter.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StandbyMessage {
    Waits(bool),
    /// All is imported.
    Ready(serde::de::IgnoredAny),
    Goes(bool),
    Cold(String),
    /// The same would come of it again.
    Unfit(String),
}

/// No word of an interpreter: none came in time, or it is gone, or it speaks another language.
pub(super) enum NoWord {
    Yet,
    Gone,
}

/// Its answer came in time: until it hears this, it runs nothing of the trainer.
#[derive(Debug, Serialize)]
struct RunOrder {
    run: bool,
    /// It is forked for what this process's Ray starts, as long as that lives.
    beside: Option<i32>,
}

#[derive(Debug, Serialize)]
struct GoOrder<'a> {
    argv: &'a [String],
    cwd: &'a str,
}

/// Starts one with this environment.
///
/// # Errors
/// No process or pipe can be made.
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
    // It inherits that it can write no file. Nothing is written here meanwhile.
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
    /// It has not used the time yet in which it would have spoken.
    pub(super) fn may_speak(&self) -> bool {
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
        let a_second = ticks.and_then(|t| u64::try_from(t).ok()).unwrap_or(100);
        let most = u128::from(a_second) * WAITS_WITHIN_CPU.as_millis() / 1000;
        proc_stat(self.started.pid).is_some_and(|s| u128::from(s.cpu) < most)
    }

    /// It may write files as if it had just been started.
    pub(super) fn unlimit(&self) -> io::Result<()> {
        prlimit(Pid::from_raw(self.started.pid), Resource::Fsize, self.files_limit)?;
        Ok(())
    }

    /// Asks it to go on as this worker; an error says why it does not.
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
        // One that is gone left its reason: it is read with the answer.
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

    /// The word that it runs as the worker; one that does not take it runs nothing.
    pub(super) fn run(&mut self, beside: Option<i32>) -> Result<(), StandbyResult> {
        say(&mut self.channel, &RunOrder { run: true, beside }).map_err(|e| cold(format!("it is gone: {e}")))
    }

    /// Nobody reads its output before it is a worker: one whose imports print more than fits would wait for ever.
    fn is_heard(&self) -> Result<(), String> {
        let printed = rustix::io::ioctl_fionread(&self.output).unwrap_or(0);
        // Each piece may begin a page of the pipe: half of what it holds is sure to fit.
        let fits = fcntl(&self.output, FcntlArg::F_GETPIPE_SZ).map_or(0, |size| size / 2);
        if u64::try_from(fits).is_ok_and(|fits| printed <= fits) {
            return Ok(());
        }
        Err(format!("its imports print more than {fits} bytes"))
    }

    /// Its next word until then.
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

    /// It lives as long as this process, which keeps its channel, and hears nothing more.
    pub(super) fn keep(self) {
        let _ = (self.channel.into_raw_fd(), self.output.into_raw_fd());
    }

    /// Kills it. One that lasts is a descendant like others: the tree is not gone before it is.
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

/// Kills a process and what descends from it; `None` if it is gone.
pub(super) fn kill_all_of(pid: i32) -> Option<ProcRef> {
    let top = proc_stat(pid)?.proc_ref();
    for below in list_descendants(pid) {
        let _ = signal_process(below, libc::SIGKILL);
    }
    let _ = signal_process(top, libc::SIGKILL);
    Some(top)
}
