//! `supervise __rehearse`: ends everything it started when it exits, and exits when its input is closed.

use super::{ASKED, RehearsalOutput, RehearsalTrial, carry_out, printed};
use crate::printer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use supervise_host::process::give_way;
use supervise_host::process::own_program;
use supervise_host::wire;

/// Nice value: beside a training it uses only idle processor time.
const NICE: i32 = 19;
/// Longest answer, in bytes: all output, with every character escaped at worst.
const ANSWER: u64 = 32 << 20;

/// What a helper does. It contains an environment, so it is sent only through a pipe.
#[derive(Serialize, Deserialize)]
pub enum RehearsalJob {
    /// Tries a relaunch; the answer is a `RehearsalResult`.
    Try(RehearsalTrial),
    /// The same at low priority, beside a training.
    TryBeside(RehearsalTrial),
    /// Runs the interpreter with these arguments; the answer is a `RehearsalOutput` or an error.
    Print(RehearsalTrial, Vec<String>),
}

/// The command of a helper: it reads a [`RehearsalJob`] from its input, which stays open as long as the answer is wanted.
#[must_use]
pub fn command(exe: &Path) -> Command {
    let mut command = Command::new(own_program(exe));
    command
        .arg0(exe)
        .arg("__rehearse")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    // Out of reach of the terminal's interrupt: it ends what it started.
    command.stderr(Stdio::null()).process_group(0);
    command
}

/// Runs a job while the user waits.
///
/// # Errors
/// As text: the helper could not be started, or exited without an answer.
pub(super) fn done<T: DeserializeOwned>(job: &RehearsalJob) -> Result<T, String> {
    let failed = |e: io::Error| format!("the helper cannot be asked: {e}");
    let mut helper = std::env::current_exe()
        .and_then(|exe| command(&exe).spawn())
        .map_err(failed)?;
    let mut text = Vec::new();
    let asked = match (helper.stdin.take(), helper.stdout.take()) {
        (Some(mut input), Some(output)) => wire::encode(job)
            .map_err(Into::into)
            .and_then(|order| input.write_all(&order))
            .and_then(|()| output.take(ANSWER).read_to_end(&mut text)),
        _ => Ok(0),
    };
    let ended = helper.wait();
    asked.and(ended).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|e| failed(e.into()))
}

/// Runs as the helper. Returns the exit code.
#[must_use]
pub fn helper() -> i32 {
    let mut line = String::new();
    let mut input = io::stdin().lock();
    let Ok(Ok(job)) = input
        .read_line(&mut line)
        .map(|_| serde_json::from_slice(line.as_bytes()))
    else {
        // The parent exited.
        return 1;
    };
    let stdin = io::stdin();
    let stop = Some(stdin.as_fd());
    let answer = match job {
        RehearsalJob::Try(trial) => serde_json::to_string(&carry_out(&trial, stop)),
        RehearsalJob::TryBeside(trial) => {
            give_way(NICE);
            serde_json::to_string(&carry_out(&trial, stop))
        }
        RehearsalJob::Print(trial, words) => {
            let said: Result<RehearsalOutput, String> = printed(&trial, &trial.argv, &words, ASKED, stop);
            serde_json::to_string(&said)
        }
    };
    match answer {
        // The parent may have exited.
        Ok(text) => drop(printer::out_bytes(text.as_bytes())),
        Err(_) => return 1,
    }
    0
}
