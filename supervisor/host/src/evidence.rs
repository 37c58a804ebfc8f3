//! `supervise __evidence`: what the machine shows of an attempt that failed or stands still, gathered before it is gone.
//!
//! A helper of its own: it reads `/proc`, the kernel's log and files on mounts that may hang, and nobody waits for it for long. What a
//! decision may need comes first, as one line on standard output ([`Facts`]); the files in `attempts/N/evidence/` are written
//! after that. When the attempt's last process is gone it is told how the attempt ended ([`AttemptEnd`]), and answers with the cause that the
//! logs tell ([`LogCause`]), a second line. Everything has a bound in time and size, and what could not be read says why.

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

/// The directory of an attempt's evidence, in the attempt's.
pub const DIRECTORY: &str = "evidence";
pub use error_files::error_file;
pub use flight::RECORDS;
/// Bytes of one file.
const FILE: usize = 1 << 20;
/// How far the helper gives way once nobody waits for it.
const NICE: i32 = 10;
/// A launch that was decided by its answer takes about as long as this.
const LAUNCH: Duration = Duration::from_millis(30);
/// The end of the attempt is waited for this long, for the list of its exits.
const END_MS: u16 = 20_000;
/// Its last process may take as long as this to end.
const GONE: Duration = Duration::from_secs(3600);

/// The evidence to gather.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceOrder {
    /// The attempt's directory.
    pub attempt: Utf8PathBuf,
    /// The run.
    pub run: RunId,
    /// Processes that are known to be the attempt's: the guard, the workers.
    pub known: Vec<ProcRef>,
    /// The workers, by id.
    pub workers: Vec<ProcRef>,
    /// Their command, secrets redacted.
    pub argv: Vec<String>,
    /// Time since the launch, in milliseconds.
    pub age_ms: u64,
    /// The checkpoint root.
    pub root: Option<Utf8PathBuf>,
    /// It stands still and lives: where it stands is told as well.
    pub still: bool,
    /// The job of Slurm it runs in.
    pub slurm_job: Option<String>,
    /// Places where Ray may keep the logs of this attempt.
    pub ray: Vec<Utf8PathBuf>,
    /// Values that are hidden wherever output is quoted.
    pub secrets: Vec<String>,
    /// The user's lines that tell a failure.
    #[serde(default)]
    pub rules: Vec<FailureLine>,
    /// All its processes are gone: only the logs are to be read.
    #[serde(default)]
    pub logs_alone: bool,
}

/// No process of the attempt is left: its logs are whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// The first end that was a failure, as a shell tells it.
    pub exit: Option<i32>,
}

/// Argument of a helper whose standard error is the kernel's log, to be read on from where it stands.
const LOGGED: &str = "--logged";

/// The helper, to be started: it reads an [`Order`], a line, and answers with [`Facts`], a line. When its input is closed the attempt has
/// ended. `log`: see [`kernel_log::from_now`].
#[must_use]
pub fn command(exe: &Path, log: Option<File>) -> Command {
    let mut command = Command::new(own_program(exe));
    command
        .arg0(exe)
        .arg("__evidence")
        .args(log.as_ref().map(|_| LOGGED))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    // Out of reach of the terminal's interrupt.
    command
        .stderr(log.map_or_else(Stdio::null, Stdio::from))
        .process_group(0);
    command
}

/// The helper itself. Returns the exit code.
#[must_use]
pub fn main(args: &[OsString]) -> i32 {
    // A supervisor that is killed waits for nobody, and whoever goes on with the run gathers its own.
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
    // The table of classes is made ready while the others are ended.
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
        // A program that is asked may hang: then the supervisor ends us.
        drop(writer.join());
    }
    0
}

/// Tells the supervisor something, a line. Whoever wanted it may be gone.
fn say<T: Serialize>(what: &T) {
    if let Ok(line) = wire::encode(what) {
        let mut output = io::stdout().lock();
        drop(output.write_all(&line).and_then(|()| output.flush()));
    }
}

/// Writes down what is for people. The next launch is in a hurry.
fn write_down(order: &EvidenceOrder, files: EvidenceFiles) {
    crate::process::give_way(NICE);
    std::thread::sleep(LAUNCH);
    write_all(order, files.into_iter().chain(later(order)));
}

fn write_all(order: &EvidenceOrder, files: impl IntoIterator<Item = (String, String)>) {
    let dir = order.attempt.join(DIRECTORY);
    for (name, text) in files {
        if write(&dir, &name, &text).is_err() {
            // The next file will not fare better.
            return;
        }
    }
}

/// The word that no process is left; `None` where nobody says so any more.
fn wait_for_gone(input: &mut BufReader<File>) -> Option<AttemptEnd> {
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

/// Evidence that is gone soon, and evidence that a decision may need.
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
        // A driver that does not answer takes as long as it is given.
        let gpus = std::thread::spawn(outside::gpus);
        stacks = stacks::text(order, &procs, &answering);
        files.push(("sockets.txt".to_owned(), stacks::sockets(order)));
        // The last lines tell by their times which rank fell silent first.
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
    // Their directory goes with the attempt.
    files.extend(outside::ray(order));
    let collectives = flight::look(order).map(|(found, text)| {
        files.push(("collectives.txt".to_owned(), text));
        found
    });
    // The last look: it ends them.
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

/// Evidence that stays for a while.
fn later(order: &EvidenceOrder) -> impl Iterator<Item = (String, String)> {
    let gpus = (!order.still).then(outside::gpus).into_iter().flatten();
    gpus.into_iter().chain(outside::slurm(order))
}

/// Writes a file of evidence, without its secrets.
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

/// Until nobody holds the other end of the input, or long enough.
fn wait_for_end(input: &mut BufReader<File>) {
    let mut fds = [PollFd::new(input.get_ref().as_fd(), PollFlags::POLLIN)];
    if poll(&mut fds, PollTimeout::from(END_MS)).is_ok_and(|n| n > 0) {
        drop(input.read(&mut [0]));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An order about these workers.
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
