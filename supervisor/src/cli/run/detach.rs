//! `supervise run --detach`: starts a supervisor in its own session, and waits until it works or ends.

use crate::control::{self, ControlReply, ControlRequest};
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare;
use crate::run_order::PreparedRun;
use crate::{printer, render};
use camino::Utf8PathBuf;
use serde_json::json;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use supervise_core::id::RunId;
use supervise_host::io_worker::{open_log, own_place};
use supervise_host::process::own_program;

/// How long a detached supervisor may take to answer.
const SHOWS_ITSELF: Duration = Duration::from_secs(60);
/// How long it must answer to count as working; one that ends earlier ended at once.
const GOES_ON: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);
/// Number of output lines shown if it ended at once.
const LINES: usize = 5;
/// Maximum number of bytes of its output in which they are looked for.
const TAIL: u64 = 64 << 10;

/// Starts this program again in its own session and waits until it works.
pub(super) fn detach(p: &PreparedRun, json: bool) -> Result<u8, CliError> {
    let at = |what: &str, e: std::io::Error| CliError::environment(format!("{what}: {e}"));
    let dir = prepare::state_dir()
        .ok_or_else(|| {
            CliError::environment("there is no place of this user's own for the log of a detached run")
                .hint("set XDG_STATE_HOME")
        })?
        .join("detached");
    own_place(&dir).map_err(|e| at(&format!("creating {dir}"), e))?;
    let log = dir.join(format!("{}.log", p.order.spec.run));
    let out = open_log(&log).map_err(|e| at(&format!("opening {log}"), e))?;
    let began = out.metadata().map_or(0, |m| m.len());
    let err = out.try_clone().map_err(|e| at(&format!("opening {log}"), e))?;
    let exe = std::env::current_exe().map_err(|e| at("our own program", e))?;
    let mut child = Command::new(own_program(&exe))
        .args(arguments(p))
        .stdin(given(p).map_err(|e| at("handing on what was learnt", e))?)
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(|e| at("starting the detached supervisor", e))?;
    match ended_at_once(&mut child, &p.order.spec.run) {
        Some(status) => ended(p, json, &log, began, status, child.id()),
        None => goes_on(p, json, &log, child.id()),
    }
}

/// Our own arguments, for a process that does not detach again.
fn arguments(p: &PreparedRun) -> Vec<std::ffi::OsString> {
    let mut args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    let end = args.iter().position(|a| a == "--").unwrap_or(args.len());
    if let Some(found) = args.iter().take(end).position(|a| a == "--detach") {
        args[found] = "--own-session".into();
        if p.order.spec.learnt.is_some() {
            args.insert(found, "--given".into());
        }
    }
    args
}

/// What was found out about a script, so that the new process does not run it again.
fn given(p: &PreparedRun) -> std::io::Result<Stdio> {
    let Some(learnt) = &p.order.spec.learnt else {
        return Ok(Stdio::null());
    };
    let mut memory = supervise_host::system::memory_file("learnt")?;
    memory.write_all(&serde_json::to_vec(learnt)?)?;
    memory.rewind()?;
    Ok(Stdio::from(memory))
}

/// Waits until the supervisor works; `Some`: it has ended.
fn ended_at_once(child: &mut Child, run: &RunId) -> Option<ExitStatus> {
    let until = Instant::now() + SHOWS_ITSELF;
    let mut works_since: Option<Instant> = None;
    while Instant::now() < until {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        // It answers once nothing can refuse the start any more.
        if works_since.is_none()
            && control::lives(run)
            && let Ok(Some(ControlReply::Status { .. })) = control::ask(run, &ControlRequest::Status, GOES_ON)
        {
            works_since = Some(Instant::now());
        }
        if works_since.is_some_and(|since| since.elapsed() >= GOES_ON) {
            return None;
        }
        std::thread::sleep(LOOK);
    }
    None
}

fn ended(
    p: &PreparedRun,
    json: bool,
    log: &Utf8PathBuf,
    began: u64,
    status: ExitStatus,
    pid: u32,
) -> Result<u8, CliError> {
    let code = status.code().and_then(|c| u8::try_from(c).ok());
    let code = code.unwrap_or(SuperviseExitCode::Internal.code());
    if json {
        said(p, log, pid, false, Some(code))?;
        return Ok(code);
    }
    for line in last_lines(log, began) {
        printer::err(&format!("{}\n", render::one_line(&line, 500)));
    }
    printer::err(&format!(
        "run {} has ended already, with exit code {code}; its output: {}\n",
        p.order.spec.run,
        render::terminal::shown(log.as_str())
    ));
    Ok(code)
}

fn goes_on(p: &PreparedRun, json: bool, log: &Utf8PathBuf, pid: u32) -> Result<u8, CliError> {
    if json {
        said(p, log, pid, true, None)?;
        return Ok(SuperviseExitCode::Finished.code());
    }
    let (run, log) = (&p.order.spec.run, render::terminal::shown(log.as_str()));
    printer::out(&format!(
        "run {run} goes on in the background, pid {pid}\n  output: {log}\n  supervise status {run}\n  supervise stop {run}\n"
    ));
    Ok(SuperviseExitCode::Finished.code())
}

fn said(p: &PreparedRun, log: &Utf8PathBuf, pid: u32, goes_on: bool, exit_code: Option<u8>) -> Result<(), CliError> {
    crate::cli::print_json(&json!({
        "version": 1,
        "run": p.order.spec.run,
        "run_dir": p.order.spec.run_dir,
        "pid": pid,
        "output": log,
        "goes_on": goes_on,
        "exit_code": exit_code,
    }))
}

/// The last lines that were written since.
fn last_lines(log: &Utf8PathBuf, began: u64) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(began.max(end.saturating_sub(TAIL))))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    lines.iter().skip(from).map(|l| (*l).to_owned()).collect()
}
