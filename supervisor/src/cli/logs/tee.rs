//! `supervise run --tee`: a separate process shows the trainer's output between the lines of a run.
//!
//! The supervisor starts it, sends its order through standard input, and closes that when the run has ended; the process then shows
//! what is left and exits. Whatever happens to it, the training continues.

use super::{Follower, LOOK, next, shown_to};
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use supervise_core::id::RunId;
use supervise_host::process::own_program;

/// Time to show the rest of the output: its reader may be stopped.
const END: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct TeeOrder {
    run: RunId,
    attempts: Utf8PathBuf,
    /// The last attempt that has ended.
    after: u32,
    /// Values to hide. They are sent only through a pipe.
    secrets: Vec<String>,
}

#[derive(Debug)]
pub(in crate::cli) struct Tee(Child);

impl Tee {
    /// Starts it for the attempts after this one.
    ///
    /// # Errors
    /// It cannot be started.
    pub(in crate::cli) fn start(run: &RunId, attempts: Utf8PathBuf, after: u32) -> io::Result<Self> {
        let order = TeeOrder {
            run: run.clone(),
            attempts,
            after,
            secrets: supervise_config::known_secrets(),
        };
        let mut child = Command::new(own_program(&std::env::current_exe()?))
            .args(["logs", "--follow", "--new"])
            .stdin(Stdio::piped())
            // Ctrl-C stops the run, which may continue to print until it has ended.
            .process_group(0)
            .spawn()?;
        let line = serde_json::to_string(&order)? + "\n";
        if let Some(input) = &mut child.stdin {
            input.write_all(line.as_bytes())?;
        }
        Ok(Self(child))
    }

    /// Shows the rest of the output before the prompt appears.
    pub(in crate::cli) fn end(mut self) {
        drop(self.0.stdin.take());
        let began = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) {
            if began.elapsed() > END {
                let _ = self.0.kill();
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub(super) fn run() -> Result<u8, CliError> {
    let mut line = String::new();
    let mut input = io::stdin().lock();
    let read = input
        .read_line(&mut line)
        .and_then(|_| Ok(serde_json::from_slice::<TeeOrder>(line.as_bytes())?));
    let order = read.map_err(|e| CliError::usage(format!("--new is for `supervise run --tee`: {e}")))?;
    drop(input);
    supervise_config::know_values(&order.secrets);
    let ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ended);
    std::thread::spawn(move || {
        // Only the end of the input follows.
        let _ = io::stdin().read(&mut [0]);
        told.store(true, Ordering::Release);
    });
    let Some(first) = first(&order, &ended) else {
        return Ok(SuperviseExitCode::Finished.code());
    };
    let follower = Follower {
        json: false,
        raw: false,
        run: &order.run,
        attempts: &order.attempts,
        only: false,
        follow: true,
        quiet: true,
        tail: None,
        since: None,
        newest: 0,
        ended: Some(&ended),
    };
    shown_to(0, follower.all(first, 0, 0))
}

/// The first attempt to show, once it exists; `None`: the run ended without one.
fn first(order: &TeeOrder, ended: &AtomicBool) -> Option<u32> {
    loop {
        let over = ended.load(Ordering::Acquire);
        let found = next(&order.attempts, order.after);
        if found.is_some() || over {
            return found;
        }
        std::thread::sleep(LOOK);
    }
}
