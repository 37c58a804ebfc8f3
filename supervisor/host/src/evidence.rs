//! `supervise __evidence`: collects what the machine shows of an attempt that failed or stalled, before it is gone.
//!
//! A separate helper, because it reads `/proc`, the kernel log and files on mounts that may hang; the supervisor does
//! not wait for it for long. What a decision may need comes first, as one line on standard output ([`MachineFacts`]);
//! then the files in `attempts/N/evidence/` are written. When the attempt's last process has exited, the helper is
//! told how the attempt ended ([`CompletedAttempt`]) and answers with a second line, the cause according to the logs
//! ([`LogCause`]). Everything is bounded in time and size, and what could not be read includes the reason.

mod dumps;
mod endings;
mod error_files;
mod exits;
mod flight;
mod logs;
mod outside;
pub(crate) use outside::said;
mod memory_disk;
mod stacks;
mod tails;

use crate::kernel_log;
use crate::process::own_program;
use crate::process::spawn::take_standard;
use crate::wire;
use camino::{Utf8Path, Utf8PathBuf};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use supervise_config::redact_lines;
use supervise_core::diagnosis::LogReader;
use supervise_core::id::{ProcRef, RunId};
use supervise_core::observe::machine::MachineFacts;
use supervise_core::rulebook::failure_line::FailureLine;

/// Name of the evidence directory in an attempt's directory.
pub const DIRECTORY: &str = "evidence";
pub use error_files::error_file;
pub use flight::RECORDS;
const FILE: usize = 1 << 20;
const NICE: i32 = 10;
const LAUNCH: Duration = Duration::from_millis(30);
/// How long it waits for the end of the attempt, for the list of exits.
const END_MS: u16 = 20_000;
const GONE: Duration = Duration::from_secs(3600);

/// What evidence to collect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceOrder {
    pub attempt: Utf8PathBuf,
    pub run: RunId,
    /// Processes known to belong to the attempt: the guard, the workers.
    pub known: Vec<ProcRef>,
    pub workers: Vec<ProcRef>,
    pub argv: Vec<String>,
    /// Time since the launch, in milliseconds.
    pub age_ms: u64,
    pub root: Option<Utf8PathBuf>,
    /// The attempt is running but stalled: collect stacks as well.
    pub still: bool,
    pub slurm_job: Option<String>,
    /// Directories where Ray may keep this attempt's logs.
    pub ray: Vec<Utf8PathBuf>,
    /// Values redacted in quoted output.
    pub secrets: Vec<String>,
    /// The user's own patterns for failures.
    #[serde(default)]
    pub rules: Vec<FailureLine>,
    /// All its processes have exited: only read the logs.
    #[serde(default)]
    pub logs_alone: bool,
}

/// No process of the attempt is left, so its logs are complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedAttempt {
    /// The first failing exit status, as a shell reports it.
    pub exit: Option<i32>,
}

/// Argument of a helper whose standard error is the kernel log, opened at the launch.
const LOGGED: &str = "--logged";

/// The helper's command. It reads an [`EvidenceOrder`] as a line and answers with a line of [`MachineFacts`]. Closing
/// its input means that the attempt has ended. `log`: see [`kernel_log::from_now`].
#[must_use]
pub fn command(exe: &Path, log: Option<File>) -> Command {
    let mut command = Command::new(own_program(exe));
    command
        .arg0(exe)
        .arg("__evidence")
        .args(log.as_ref().map(|_| LOGGED))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
        .stderr(log.map_or_else(Stdio::null, Stdio::from))
        .process_group(0);
    command
}

/// Runs the helper. Returns the exit code.
#[must_use]
pub fn main(args: &[OsString]) -> i32 {
    // If the supervisor is killed, its successor collects its own evidence.
    if prctl::set_pdeathsig(Signal::SIGKILL).is_err() {
        return 1;
    }
    let log = args.iter().any(|a| a == LOGGED).then(|| take_standard(2));
    let log = log.and_then(Result::ok).map(File::from);
    let mut line = String::new();
    let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else {
        return 1;
    };
    let mut input = BufReader::new(File::from(stdin));
    let Ok(Ok(order)) = input
        .read_line(&mut line)
        .map(|_| serde_json::from_slice::<EvidenceOrder>(line.as_bytes()))
    else {
        return 1;
    };
    supervise_config::know_values(&order.secrets);
    // The failure classes are compiled while the processes are still being stopped.
    let reader = std::thread::spawn({
        let rules = order.rules.clone();
        move || LogReader::new(&rules)
    });
    let writer = (!order.logs_alone).then(|| {
        let (facts, files) = gather(&order, log);
        say(&facts);
        let order = order.clone();
        std::thread::spawn(move || write_down(&order, files))
    });
    if let Some(ended) = wait_for_gone(&mut input) {
        say(&logs::cause(&order, ended, reader.join().ok().and_then(Result::ok)));
    }
    wait_for_end(&mut input);
    if let Some(writer) = writer {
        let text = exits::when_written(&order);
        let tails = if order.still { Vec::new() } else { tails::files(&order) };
        let exits = text.map(|text| ("exits.json".to_owned(), text));
        write_all(&order, exits.into_iter().chain(tails));
        // An external program may hang: then the supervisor kills us.
        drop(writer.join());
    }
    0
}

fn say<T: Serialize>(what: &T) {
    if let Ok(line) = wire::encode(what) {
        let mut output = io::stdout().lock();
        drop(output.write_all(&line).and_then(|()| output.flush()));
    }
}

/// Writes the files for the operator, with low priority: the next launch needs the machine.
fn write_down(order: &EvidenceOrder, files: EvidenceFiles) {
    crate::process::give_way(NICE);
    std::thread::sleep(LAUNCH);
    write_all(order, files.into_iter().chain(later(order)));
}

fn write_all(order: &EvidenceOrder, files: impl IntoIterator<Item = (String, String)>) {
    let dir = order.attempt.join(DIRECTORY);
    for (name, text) in files {
        if write(&dir, &name, &text).is_err() {
            // The next file would fail, too.
            return;
        }
    }
}

/// Waits for the message that no process is left; `None` if it cannot come any more.
fn wait_for_gone(input: &mut BufReader<File>) -> Option<CompletedAttempt> {
    // It may have come with the order.
    if input.buffer().is_empty() {
        let mut fds = [PollFd::new(input.get_ref().as_fd(), PollFlags::POLLIN)];
        let ms = PollTimeout::try_from(GONE).unwrap_or(PollTimeout::MAX);
        poll(&mut fds, ms).ok().filter(|n| *n > 0)?;
    }
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

type EvidenceFiles = Vec<(String, String)>;

/// Collects evidence that will soon be gone, or that a decision may need.
fn gather(order: &EvidenceOrder, log: Option<File>) -> (MachineFacts, EvidenceFiles) {
    let mut files = EvidenceFiles::new();
    let procs = if order.still {
        stacks::processes(order)
    } else {
        Vec::new()
    };
    let answering = dumps::answering(&procs);
    let mut stacks = String::new();
    if order.still {
        // A hanging GPU driver takes all the time it is given.
        let gpus = std::thread::spawn(outside::gpus);
        stacks = stacks::text(order, &procs, &answering);
        files.push(("sockets.txt".to_owned(), stacks::sockets(order)));
        // The times of the last lines show which rank went silent first.
        files.extend(tails::files(order));
        files.extend(gpus.join().ok().flatten());
    }
    let log = kernel_log::read(log, order.age_ms);
    let known = tails::known(order);
    let lines = log
        .as_deref()
        .map(|log| supervise_core::observe::machine::facts(log, |pid| known.contains(&pid)));
    files.push((
        "kernel.txt".to_owned(),
        kernel_log::text(&log, lines.as_deref().unwrap_or_default()),
    ));
    let room = memory_disk::look(order.root.as_deref());
    files.push(("memory.txt".to_owned(), room.text()));
    // Their directory is deleted with the attempt.
    files.extend(outside::ray(order));
    let collectives = flight::look(order).map(|(found, text)| {
        files.push(("collectives.txt".to_owned(), text));
        found
    });
    // Comes last, because it ends the processes.
    let dumps = dumps::take(order, &procs, &answering);
    if order.still {
        let text = [dumps.stacks.table(), stacks, dumps.text].concat();
        files.push(("stacks.txt".to_owned(), text));
    }
    let endings = endings::read(order);
    if !endings.is_empty() {
        files.push(("exceptions.txt".to_owned(), endings::text(&endings)));
    }
    let facts = MachineFacts {
        endings,
        stacks: Some(dumps.stacks).filter(|s| !s.groups.is_empty()),
        collectives,
        lines: lines.unwrap_or_default(),
        unread: log.err().or_else(kernel_log::other_numbers),
        shm: room.shm,
        disk: room.disk,
        memory: room.memory,
        logs: None,
    };
    (facts, files)
}

fn later(order: &EvidenceOrder) -> impl Iterator<Item = (String, String)> {
    let gpus = (!order.still).then(outside::gpus).into_iter().flatten();
    gpus.into_iter().chain(outside::slurm(order))
}

fn write(dir: &Utf8Path, name: &str, text: &str) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut safe = redact_lines(text.lines()).join("\n");
    safe.push('\n');
    let bytes = safe.as_bytes();
    options
        .open(dir.join(name))?
        .write_all(bytes.get(..bytes.len().min(FILE)).unwrap_or_default())
}

fn wait_for_end(input: &mut BufReader<File>) {
    let mut fds = [PollFd::new(input.get_ref().as_fd(), PollFlags::POLLIN)];
    if poll(&mut fds, PollTimeout::from(END_MS)).is_ok_and(|n| n > 0) {
        drop(input.read(&mut [0]));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn order(attempt: Utf8PathBuf, workers: Vec<ProcRef>) -> EvidenceOrder {
        EvidenceOrder {
            attempt,
            run: RunId("x".into()),
            known: workers.clone(),
            workers,
            argv: Vec::new(),
            age_ms: 0,
            root: None,
            still: true,
            slurm_job: None,
            ray: Vec::new(),
            secrets: Vec::new(),
            rules: Vec::new(),
            logs_alone: false,
        }
    }
}
