//! What the interpreters of runs told of their trainers, as others on this machine may read it.
//!
//! A guard keeps it in memory for its attempt, and the supervisor a copy for its whole term: between two attempts the directory that
//! the trainer saves into is the run's own as well.

use super::standby::{TOLD, memory_of};
use crate::address::{self, SocketRole};
use crate::process::boottime_ms;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Write};
use supervise_core::id::RunId;

/// Bytes that are read.
const MOST: u64 = 64 << 10;
/// Name of the memory in which a supervisor keeps its copy.
const COPY: &str = "trainer-of-run";

/// A trainer that a run of this user on this machine started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTrainer {
    /// The run.
    pub run: RunId,
    /// When its supervisor knew of it, in milliseconds of the boot's clock; 0: its guard lives without a supervisor.
    pub since: u64,
    /// What its interpreters told.
    pub told: String,
}

/// What the interpreters of an attempt told of its trainer; `None`: nothing yet.
#[must_use]
pub fn told_of_trainer(guard: i32) -> Option<String> {
    read(guard, TOLD)
}

/// A supervisor's copy of what was told, which others can read for as long as this lives.
#[derive(Debug)]
pub struct TrainerCopy {
    /// When it was made, in milliseconds of the boot's clock.
    pub since: u64,
    _memory: File,
}

impl TrainerCopy {
    /// Makes it.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub fn new(told: &str) -> io::Result<Self> {
        let since = boottime_ms();
        let mut memory = File::from(memfd_create(COPY, MFdFlags::MFD_CLOEXEC)?);
        memory.write_all(format!("{since}\n{told}").as_bytes())?;
        Ok(Self { since, _memory: memory })
    }
}

/// The trainers of this user's runs on this machine, but for this one, if their interpreters told of them.
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
