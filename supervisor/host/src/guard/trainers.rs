//! Trainer settings reported by the interpreters of runs, readable by other processes on this machine.
//!
//! A guard keeps them in memory for its attempt, and the supervisor keeps a copy for its whole term: between two
//! attempts, the trainer's save directory belongs to the run, too.

use super::standby::{TOLD, memory_of};
use crate::address::{self, SocketRole};
use crate::process::boottime_ms;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Write};
use supervise_core::id::RunId;

const MOST: u64 = 64 << 10;
const COPY: &str = "trainer-of-run";

/// A trainer started by a run of this user on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTrainer {
    pub run: RunId,
    /// When its supervisor learned it, in milliseconds since boot; 0: its guard runs without a supervisor.
    pub since: u64,
    pub told: String,
}

/// What the interpreters of an attempt reported about its trainer; `None`: nothing yet.
#[must_use]
pub fn told_of_trainer(guard: i32) -> Option<String> {
    read(guard, TOLD)
}

/// A supervisor's copy of the report, readable by other processes as long as this value exists.
#[derive(Debug)]
pub struct TrainerCopy {
    /// When it was made, in milliseconds since boot.
    pub since: u64,
    _memory: File,
}

impl TrainerCopy {
    /// Creates the copy.
    ///
    /// # Errors
    /// No memory, or no file descriptor.
    pub fn new(told: &str) -> io::Result<Self> {
        let since = boottime_ms();
        let mut memory = File::from(memfd_create(COPY, MFdFlags::MFD_CLOEXEC)?);
        memory.write_all(format!("{since}\n{told}").as_bytes())?;
        Ok(Self { since, _memory: memory })
    }
}

/// The trainers of this user's other runs on this machine, if their interpreters reported them.
#[must_use]
pub fn trainers_beside(own: Option<&RunId>) -> Vec<RunTrainer> {
    let others = address::runs().into_iter().filter(|run| Some(run) != own);
    others.filter_map(trainer_of).collect()
}

fn trainer_of(run: RunId) -> Option<RunTrainer> {
    let listens = |role| address::peer(&address::find(&run, role).ok()??.1);
    let (since, told) = match listens(SocketRole::Control) {
        Some(supervisor) => {
            let text = read(supervisor, COPY)?;
            let (since, told) = text.split_once('\n')?;
            (since.parse().ok()?, told.to_owned())
        }
        None => (0, told_of_trainer(listens(SocketRole::Guard)?)?),
    };
    Some(RunTrainer { run, since, told })
}

fn read(pid: i32, name: &str) -> Option<String> {
    let file = File::open(memory_of(pid, name)?).ok()?;
    let mut text = Vec::new();
    file.take(MOST).read_to_end(&mut text).ok()?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
}
