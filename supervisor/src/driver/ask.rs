//! Questions to I/O workers while a term starts: waits for each answer, replaces a dead worker, and obeys a stop request.

use super::inputs::Inputs;
use super::io_workers::{IoPurpose, IoWorkerProcess, line};
use super::{Driver, DriverMessage};
use crate::control::{ControlReply, ControlRequest};
use crate::error::{CliError, ErrorKind};
use crate::journal_progress::JournalProgress;
use crate::printer::Printer;
use std::time::Duration;
use supervise_core::id::{Ms, Tick};
use supervise_host::io_worker::{IoAnswer, IoQuestion, IoReply};
use supervise_host::process::limit_hint;

/// How often to check for signals while waiting.
const LOOK: Duration = Duration::from_millis(100);
/// How long to wait before a message says so.
const SAY_AFTER: Duration = Duration::from_secs(3);
/// If no I/O worker can be started for this long, give up.
const GIVEN_UP: Ms = Ms::secs(20);

/// Asks an I/O worker and waits, with a message if it takes long. A stop request ends the wait. If the I/O worker dies, another one
/// gets the question: every question of a start can be repeated.
pub(super) async fn call(
    io_worker: &mut IoWorkerProcess,
    ask: IoQuestion,
    printer: &mut Printer,
    inputs: &mut Inputs,
) -> Result<IoAnswer, CliError> {
    let what = match &ask {
        IoQuestion::TakeLease { .. } => {
            "waiting for the lease: its holder, or what it left behind, cannot be seen from this machine or container and may still live; it is taken once nothing was heard of it for lease.ttl, and for as long as its guard may wait (grace.orphan and grace.save)"
        }
        _ => "waiting: the file system of the run directory does not answer",
    };
    let mut reading = match &ask {
        IoQuestion::Open(id) => Some(JournalProgress::new(&id.run_dir)),
        _ => None,
    };
    io_worker.ask(IoPurpose::Setup, ask.clone(), Tick(0));
    let mut waited = Duration::ZERO;
    loop {
        match tokio::time::timeout(LOOK, line(io_worker)).await {
            Ok(Some(text)) => {
                let Ok(reply) = serde_json::from_slice::<IoReply>(text.as_bytes()) else {
                    continue;
                };
                if let IoReply::Working { bytes, of, .. } = reply {
                    // Reading that progresses is slow; it is not a file system that does not answer.
                    if let Some(text) = reading.as_mut().and_then(|r| r.far(bytes, of)) {
                        printer.note(&text);
                    }
                    waited = Duration::ZERO;
                }
                if let Some((_, answer)) = io_worker.take(reply, Tick(0)) {
                    return answer.map_err(|e| refused(e.what));
                }
            }
            Ok(None) => {}
            Err(_) => waited += LOOK,
        }
        if let Some(why) = io_worker.is_hopeless() {
            return Err(dies_again(&why));
        }
        io_worker.give_up_if_stopped();
        if io_worker.replaced_in() == Some(Ms(0)) && replace(io_worker)? {
            io_worker.ask(IoPurpose::Setup, ask.clone(), Tick(0));
        }
        if let Some(end) = told_to_end(inputs) {
            return Err(end);
        }
        if waited >= SAY_AFTER && waited - SAY_AFTER < LOOK {
            printer.note(what);
        }
    }
}

pub(super) fn cannot_start(e: &std::io::Error) -> CliError {
    refused(format!("an I/O worker cannot be started: {e}"))
}

/// An environment error that names the limit.
fn refused(what: String) -> CliError {
    let hint = limit_hint(&what);
    let error = CliError::environment(what);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The error for I/O workers that die one after the other.
fn dies_again(why: &str) -> CliError {
    let hint = "a limit on processes, threads or memory ends a helper like this: see `ulimit -a`, a cgroup's pids.max and memory.max, and the kernel's log";
    CliError::environment(format!("{why} several times in a row; nothing was started")).hint(hint)
}

/// Creates the one thread for blocking work, because a later stop may be unable to create it.
///
/// # Errors
/// No thread can be created.
pub(super) async fn a_thread() -> Result<(), CliError> {
    let none = |e: &dyn std::fmt::Display| refused(format!("no thread can be started: {e}"));
    // The runtime panics if it cannot create a thread, so try it first.
    let tried = std::thread::Builder::new().spawn(|| ()).map_err(|e| none(&e))?;
    let _ = tried.join();
    // The trial thread may still count for a moment.
    let made = std::panic::catch_unwind(|| tokio::task::spawn_blocking(|| ()));
    let made = made.map_err(|_| none(&std::io::Error::from_raw_os_error(libc::EAGAIN)))?;
    let _ = made.await;
    Ok(())
}

/// Replaces a dead I/O worker. Returns false if none can be started now.
///
/// # Errors
/// None could be started for long.
fn replace(io_worker: &mut IoWorkerProcess) -> Result<bool, CliError> {
    match io_worker.replace() {
        Ok(_) => Ok(true),
        Err(e) if io_worker.is_gone_for(GIVEN_UP) => Err(cannot_start(&e)),
        Err(_) => Ok(false),
    }
}

/// Why a term ends before it began, if a stop was requested. A hang-up is no such request.
fn told_to_end(inputs: &mut Inputs) -> Option<CliError> {
    let signal = std::iter::from_fn(|| inputs.signals.try_recv().ok()).find(|number| *number != libc::SIGHUP);
    if let Some(number) = signal {
        return Some(CliError::interrupted(number));
    }
    while let Ok(message) = inputs.internal.try_recv() {
        let DriverMessage::Asked(request, reply) = message else {
            continue;
        };
        let stops = matches!(request, ControlRequest::Stop { .. });
        let answer = match stops {
            true => ControlReply::Done,
            false => ControlReply::Refused("the supervisor is still starting; try again in a moment".to_owned()),
        };
        // The client may have disconnected.
        let _ = reply.send(answer);
        if stops {
            let text = "`supervise stop` came before anything was started";
            return Some(CliError::new(ErrorKind::Stopped, text));
        }
    }
    None
}

impl Driver {
    /// Waits for the first answer of the work I/O worker. If it is slow, its answer is handled later; if the machine lets none run,
    /// nothing is started. Not needed if workers are already running.
    ///
    /// # Errors
    /// None can be started, each dies, or a stop was requested.
    pub(super) async fn first_answer(&mut self, inputs: &mut Inputs) -> Result<(), CliError> {
        loop {
            let heard = tokio::time::timeout(LOOK, line(&mut self.work)).await;
            if let Ok(Some(text)) = heard {
                if let Ok(reply) = serde_json::from_slice::<IoReply>(text.as_bytes()) {
                    let now = self.now();
                    self.work.take(reply, now);
                }
                return Ok(());
            }
            if !self.work.has_ended() {
                return Ok(());
            }
            if let Some(why) = self.work.is_hopeless() {
                return Err(dies_again(&why));
            }
            if self.work.replaced_in() == Some(Ms(0)) && replace(&mut self.work)? {
                self.introduce();
            }
            if let Some(end) = told_to_end(inputs) {
                return Err(end);
            }
        }
    }
}
