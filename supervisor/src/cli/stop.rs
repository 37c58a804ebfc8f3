//! `supervise stop`: asks the supervisor to stop or, if only a guard is running, ends its workers.

pub(super) mod jobs;
pub(super) mod outcome;
mod standing;

use super::remote_request;
use super::target::{self, RunInfo};
use crate::control::{self, ControlReply, ControlRequest};
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer;
use crate::render::outcome::outcome_words;
use crate::render::terminal;
use standing::{left_lines, named};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use supervise_core::id::{Ms, ProcRef, Term};
use supervise_core::journal::record::RunOutcome;
use supervise_core::spec::RunSpec;
use supervise_core::spec::policy::Policy;
use supervise_core::state::RunMode;
use supervise_host::guard;
use supervise_host::guard::protocol::{FromGuard, GuardHello, ToGuard};
use supervise_host::io_worker::{IoAnswer, IoQuestion, IoWorkerError, lease_dir, own_claim};
use supervise_host::process::cgroup::{CgroupLeaf, leaves_of_run};
use supervise_host::process::{LeftoverProcess, end_run, find_attempt_processes, host_name};

pub(super) const EXAMPLES: &str = "  supervise stop ppo.yaml
  supervise stop ppo.yaml --after-save      at the next proven step
  supervise stop 9f3c2a71d04be586 --now     kill immediately
  supervise stop ppo.yaml --timeout 5m      69 if it has not ended by then
  supervise stop ppo.yaml --json | jq .exit_code
";

/// Time for the last journal records and process exits, beyond all grace periods.
const BEYOND: Duration = Duration::from_secs(60);
/// Time for Slurm to end the processes of a job.
const JOBS: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);
/// Killed processes disappear within this time after the run ended.
const MOMENT: Duration = Duration::from_secs(2);
/// The supervisor or guard accepts a request within this.
const ANSWER: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: the only run]
    ///
    /// Without it, the only run of this user on this machine.
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Stop at the next proven step
    #[arg(long, conflicts_with = "now")]
    after_save: bool,
    /// Kill immediately, without a grace period
    #[arg(long)]
    now: bool,
    /// Give up waiting after this long (exit code 69)
    ///
    /// Lists the processes that are still running; the stop request stays in effect. If no supervisor is running, this command ends the
    /// workers itself, and the time counts from their SIGKILL. Default: the run's grace periods plus one minute; with --after-save, no
    /// limit.
    #[arg(long, value_name = "DURATION", value_parser = supervise_config::settings::parse_duration)]
    timeout: Option<Duration>,
    /// Print JSON: run, action, outcome and the run's exit code
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::to_act_on(args.run.as_deref())?;
    if seen.alive.supervisor.alive {
        return ask(args, &seen);
    }
    if seen.alive.guard.alive {
        return take_over(args, &seen);
    }
    if seen.elsewhere.is_some() {
        return ask_away(args, &seen);
    }
    let left = find_attempt_processes(&seen.run, &seen.recorded);
    if left.is_empty() {
        if jobs::any(&seen)? {
            return orphans(args, &seen);
        }
        // A killed guard leaves an empty cgroup.
        leaves_of_run(&seen.run).iter().for_each(CgroupLeaf::remove);
        if let (None, Some(problem)) = (&seen.state, &seen.problem) {
            return Err(CliError::environment(format!(
                "nothing of it runs on this machine; its state is not known: {problem}"
            ))
            .hint("ask again when its run directory can be read"));
        }
        let has_ended = seen.state.as_ref().is_none_or(|s| s.mode == RunMode::Finished);
        if !has_ended {
            let mut lease = StopLease::take(&seen)?;
            write_down(&seen, &mut lease);
            lease.release();
        }
        let code = told(args, &seen, "nothing of it lives")?;
        return match starts_again(&seen) {
            Some(e) => Err(e),
            None => Ok(code),
        };
    }
    orphans(args, &seen)
}

/// The error for a job that waits in the scheduler and would resume the run when it starts.
fn starts_again(seen: &RunInfo) -> Option<CliError> {
    let job = &seen.state.as_ref()?.context.allocation.as_ref()?.job;
    let state = supervise_host::slurm::waiting(job, crate::environment::own())?;
    let text = format!(
        "job {job} of Slurm's is {state}, and goes on with run {} when it begins",
        seen.run
    );
    Some(CliError::environment(text).hint(format!("`scancel {job}` takes it out of the queue")))
}

/// Prints what was done, and how the run ended with which exit code.
fn told(args: &Args, seen: &RunInfo, done: &str) -> Result<u8, CliError> {
    let after = target::look(&seen.run, seen.run_dir.as_deref());
    let state = after.state.as_ref();
    let outcome = state.and_then(|s| s.outcome.as_ref());
    let code = state.and_then(supervise_core::state::RunState::exit_code);
    if args.json {
        super::print_json(&serde_json::json!({
            "version": 1,
            "run": seen.run,
            "done": done,
            "outcome": outcome.map(RunOutcome::word),
            "why": outcome.map(outcome_words),
            "exit_code": code,
        }))?;
        return Ok(SuperviseExitCode::Finished.code());
    }
    let how = match (outcome, code) {
        (Some(outcome), Some(code)) => format!("{} (exit code {code})", outcome_words(outcome)),
        _ => String::new(),
    };
    let words = match (done, how.as_str()) {
        ("", "") => "ended".to_owned(),
        ("", how) => how.to_owned(),
        (done, "") => done.to_owned(),
        (done, how) => format!("{done}; it ended before: {how}"),
    };
    super::print(&format!("run {}: {}\n", seen.run, terminal::shown(&words)))?;
    Ok(SuperviseExitCode::Finished.code())
}

/// Asks a supervisor on another machine or in a container.
fn ask_away(args: &Args, seen: &RunInfo) -> Result<u8, CliError> {
    let by = format!("supervise stop on {}", host_name());
    let has_ended = |now: &RunInfo| now.state.as_ref().is_some_and(|s| s.mode == RunMode::Finished);
    let after = remote_request::ask(("stop", seen), request(args, Some(by)), limit(args, seen), has_ended)?;
    told(args, &after, "")
}

fn request(args: &Args, by: Option<String>) -> ControlRequest {
    ControlRequest::Stop {
        after_save: args.after_save,
        now: args.now,
        by,
    }
}

/// How long to wait for the end; `None`: without limit.
fn limit(args: &Args, seen: &RunInfo) -> Option<Duration> {
    args.timeout.or_else(|| (!args.after_save).then(|| patience(seen)))
}

fn ask(args: &Args, seen: &RunInfo) -> Result<u8, CliError> {
    let (request, limit) = (request(args, None), limit(args, seen));
    let began = Instant::now();
    match control::ask(&seen.run, &request, limit.map_or(ANSWER, |l| l.min(ANSWER))) {
        Ok(Some(ControlReply::Refused(why))) => {
            return Err(CliError::environment(format!("the supervisor refuses to stop: {why}")));
        }
        Ok(_) => {}
        Err(e) => {
            let text = format!("the supervisor of run {}: {e}", seen.run);
            return Err(named(CliError::environment(text), seen)
                .hint("the wish waits for it: the run is stopped when its supervisor goes on"));
        }
    }
    if args.after_save && !args.json {
        printer::out(&format!("run {}: stops at the next proven step\n", seen.run));
    }
    while control::lives(&seen.run) {
        if limit.is_some_and(|l| began.elapsed() > l) {
            let text = format!("run {} did not stop within {} s", seen.run, began.elapsed().as_secs());
            return Err(named(CliError::environment(text), seen).hint(
                "the stop request stays in effect: `supervise status` shows what it waits for; --now kills immediately",
            ));
        }
        std::thread::sleep(LOOK);
    }
    let after = target::look(&seen.run, seen.run_dir.as_deref());
    let outcome = after.state.as_ref().and_then(|s| s.outcome.as_ref());
    let mut left = Vec::new();
    if matches!(outcome, Some(RunOutcome::Environment { .. })) {
        // Killed processes may take a moment to disappear.
        let until = Instant::now() + MOMENT;
        left = left_lines(&after);
        while !left.is_empty() && Instant::now() < until {
            std::thread::sleep(LOOK);
            left = left_lines(&after);
        }
    }
    if left.is_empty() {
        return told(args, seen, "");
    }
    let how = outcome.map(outcome_words).unwrap_or_default();
    Err(CliError::environment(format!("run {} ended but left processes behind: {how}", seen.run)).with_lines(left))
}

/// A stop may take a save, then the workers' grace period, then their kill.
fn patience(seen: &RunInfo) -> Duration {
    let default = Policy::default();
    let policy = seen.spec.as_ref().map_or(&default, |s| &s.policy);
    let jobs = if jobs::query(seen).is_some() {
        JOBS
    } else {
        Duration::ZERO
    };
    Duration::from_millis(policy.grace.save.0).saturating_add(last_grace(seen) + BEYOND + jobs)
}

fn last_grace(seen: &RunInfo) -> Duration {
    let grace = seen
        .spec
        .as_ref()
        .map_or(Policy::default().grace.stop, RunSpec::last_grace);
    Duration::from_millis(grace.0)
}

fn grace(args: &Args, seen: &RunInfo) -> Duration {
    match args.now {
        true => Duration::ZERO,
        false => last_grace(seen),
    }
}

/// Only a guard is running: connects to it as a term of its own and ends the workers.
fn take_over(args: &Args, seen: &RunInfo) -> Result<u8, CliError> {
    let mut lease = StopLease::take(seen)?;
    let failed = |e: io::Error| {
        named(
            CliError::environment(format!("the guard of run {}: {e}", seen.run)),
            seen,
        )
    };
    let Some(stream) = guard::find(&seen.run).map_err(failed)? else {
        jobs::end(seen, args.json)?;
        return told(args, seen, "it has just ended");
    };
    let mut guard = GuardConnection::new(stream).map_err(failed)?;
    let said = guard
        .say(&ToGuard::Take { term: lease.term })
        .and_then(|()| guard.hear_hello());
    let Some(hello) = said.map_err(failed)? else {
        return Err(CliError::lease_held(format!(
            "the guard of run {} obeys another supervisor",
            seen.run
        )));
    };
    // The guard sends no further message about workers that exited before.
    let mut gone = hello.gone.then(Vec::new);
    if gone.is_none() && !args.now {
        guard.say(&ToGuard::Signal { signal: libc::SIGTERM }).map_err(failed)?;
    }
    if gone.is_none() {
        gone = guard.wait_gone(grace(args, seen)).map_err(failed)?;
    }
    if gone.is_none() {
        guard.say(&ToGuard::KillTree).map_err(failed)?;
        gone = guard.wait_gone(args.timeout.unwrap_or(BEYOND)).map_err(failed)?;
    }
    // It exits with its tree; closing the connection tells it the same.
    let _ = guard.say(&ToGuard::Bye);
    let jobs = jobs::end(seen, args.json);
    if jobs.is_ok() && gone.as_ref().is_some_and(Vec::is_empty) {
        write_down(seen, &mut lease);
    }
    lease.release();
    jobs?;
    match gone {
        Some(left) if left.is_empty() => told(args, seen, "no supervisor was running; its workers are ended"),
        Some(left) => Err(undead(&left)),
        None => {
            let text = format!("the guard of run {} did not end its workers", seen.run);
            Err(named(CliError::environment(text), seen))
        }
    }
}

/// Writes the outcome into the journal; prints a note if that fails.
fn write_down(seen: &RunInfo, lease: &mut StopLease) {
    if let Err(why) = outcome::record(seen, lease) {
        printer::note(&format!(
            "that run {} was stopped is not in its journal: {why}",
            seen.run
        ));
    }
}

fn undead(left: &[ProcRef]) -> CliError {
    let pids: Vec<String> = left.iter().map(ToString::to_string).collect();
    let living = left.iter().filter_map(|p| LeftoverProcess::of(*p));
    CliError::environment(format!(
        "these processes survive SIGKILL (uninterruptible I/O): {}",
        pids.join(", ")
    ))
    .with_lines(living.map(|p| terminal::line(&p.to_string()).into_owned()))
}

/// Without supervisor and guard: ends the processes that they left.
fn orphans(args: &Args, seen: &RunInfo) -> Result<u8, CliError> {
    let mut lease = StopLease::take(seen)?;
    let left = end_run(
        &seen.run,
        || find_attempt_processes(&seen.run, &seen.recorded),
        args.timeout.unwrap_or(BEYOND),
    );
    let jobs = jobs::end(seen, args.json);
    if jobs.is_ok() && left.is_empty() {
        write_down(seen, &mut lease);
    }
    lease.release();
    jobs?;
    if left.is_empty() {
        return told(args, seen, "what its guard left behind is ended");
    }
    Err(undead(&left))
}

/// How long to wait for a lease holder that cannot be seen and does not publish a time to live.
const SILENT: Ms = Ms::secs(60);

/// A term of this command, so that no supervisor starts meanwhile.
pub(super) struct StopLease {
    term: Term,
    io_worker: Option<supervise_host::io_worker::IoClient>,
}

impl StopLease {
    pub(super) fn take(seen: &RunInfo) -> Result<Self, CliError> {
        // The guard must be reachable while a file system hangs: no supervisor can start a term there either.
        let alone = Self {
            term: Term(u32::MAX),
            io_worker: None,
        };
        let Some(dir) = seen.run_dir.as_deref() else {
            return Ok(alone);
        };
        seen.may_act()?;
        let known = seen.state.as_ref().map_or(Term(0), |s| s.term);
        let ask = IoQuestion::TakeLease {
            dir: lease_dir(seen.spec.as_ref(), dir),
            claim: Box::new(own_claim(SILENT, SILENT, known)),
            identity: None,
        };
        let mut io_worker = target::io_worker().map_err(|e| CliError::environment(e.to_string()))?;
        match io_worker.ask(ask, Duration::from_secs(90)) {
            Ok(IoAnswer::Term(term)) => Ok(Self {
                term,
                io_worker: Some(io_worker),
            }),
            Ok(IoAnswer::Held(who)) => Err(CliError::lease_held(format!(
                "another supervisor holds the lease: {who}"
            ))),
            Ok(_) => Err(CliError::internal("I/O worker: unexpected answer")),
            Err(IoWorkerError::Stalled(_)) => Ok(alone),
            Err(e) => Err(CliError::environment(e.to_string())),
        }
    }

    /// Returns true if no other process can start a term; false if the file system did not answer in time.
    pub(super) fn is_held(&self) -> bool {
        self.io_worker.is_some()
    }

    pub(super) fn release(&mut self) {
        if let Some(io_worker) = &mut self.io_worker {
            // A lease that is not released ends with this process.
            let _ = io_worker.ask(IoQuestion::Release, target::PATIENCE);
        }
    }
}

/// This end of the guard connection.
struct GuardConnection {
    write: UnixStream,
    read: BufReader<UnixStream>,
    line: Vec<u8>,
}

impl GuardConnection {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(ANSWER))?;
        Ok(Self {
            read: BufReader::new(stream.try_clone()?),
            write: stream,
            line: Vec::new(),
        })
    }

    fn say(&mut self, message: &ToGuard) -> io::Result<()> {
        self.write.write_all(&supervise_host::wire::encode(message)?)
    }

    /// The next message; `None` if none arrives in time.
    fn hear(&mut self, until: Instant) -> io::Result<Option<FromGuard>> {
        loop {
            let left = until
                .saturating_duration_since(Instant::now())
                .max(Duration::from_millis(1));
            self.read.get_ref().set_read_timeout(Some(left))?;
            match self.read.read_until(b'\n', &mut self.line) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) if self.line.ends_with(b"\n") => {
                    let message = serde_json::from_slice(&self.line)?;
                    self.line.clear();
                    return Ok(Some(message));
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// The guard's greeting; `None`: it does not accept this process as its supervisor.
    fn hear_hello(&mut self) -> io::Result<Option<Box<GuardHello>>> {
        match self.hear(Instant::now() + ANSWER) {
            Ok(Some(FromGuard::Hello(hello))) => Ok(Some(hello)),
            Ok(None) => Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")),
            Ok(_) => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Waits until the tree exited, and returns what could not be killed; `None` if it is still running.
    fn wait_gone(&mut self, limit: Duration) -> io::Result<Option<Vec<ProcRef>>> {
        let until = Instant::now() + limit;
        loop {
            match self.hear(until) {
                Ok(Some(FromGuard::TreeGone { unkillable })) => return Ok(Some(unkillable)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                // A guard that exits takes its workers with it.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(Vec::new())),
                Err(e) => return Err(e),
            }
        }
    }
}
