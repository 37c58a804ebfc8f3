//! `supervise stop`: asks the supervisor, or, where only a guard lives, ends its workers.

mod jobs;

use super::target::{self, Seen};
use crate::control::{self, ControlReply, ControlRequest};
use crate::error::CliError;
use crate::exit::Exit;
use crate::prepare;
use crate::printer;
use crate::render::record::outcome_words;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use supervise_core::id::{Ms, ProcRef, Term};
use supervise_core::spec::Policy;
use supervise_host::guard::protocol::{FromGuard, ToGuard};
use supervise_host::guard::{self, protocol};
use supervise_host::lane::{Answer, LaneError, Question};
use supervise_host::process::{boot_id, find_attempt_processes, host_name, kill_until_gone, own_ref};

pub(super) const EXAMPLES: &str = "  supervise stop ppo.yaml
  supervise stop ppo.yaml --after-save      at the next proven step
  supervise stop 9f3c2a71d04be586 --now     without grace
";

/// What the journal's last words and the ends of processes take beyond every grace.
const BEYOND: Duration = Duration::from_secs(60);
/// Slurm gives the processes of a job time of its own.
const JOBS: Duration = Duration::from_secs(120);
/// How often it is looked whether the run ended.
const LOOK: Duration = Duration::from_millis(100);
/// The supervisor takes a wish within this.
const ANSWER: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Trainer YAML, checkpoint root, run directory or identity; none: the only run of this user
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// At the next proven step
    #[arg(long, conflicts_with = "now")]
    after_save: bool,
    /// Without grace
    #[arg(long)]
    now: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let seen = target::one(args.run.as_deref())?;
    if seen.alive.supervisor.alive {
        return ask(args, &seen);
    }
    if seen.alive.guard.alive {
        return take_over(args, &seen);
    }
    let left = find_attempt_processes(&seen.run, &seen.recorded);
    if left.is_empty() {
        if jobs::any(&seen)? {
            return orphans(&seen);
        }
        printer::out(&format!("run {}: nothing of it lives\n", seen.run));
        return Ok(Exit::Finished.code());
    }
    orphans(&seen)
}

fn ask(args: &Args, seen: &Seen) -> Result<u8, CliError> {
    let request = ControlRequest::Stop {
        after_save: args.after_save,
        now: args.now,
    };
    match control::ask(&seen.run, &request, ANSWER) {
        Ok(Some(ControlReply::Refused(why))) => {
            return Err(CliError::environment(format!("the supervisor refuses to stop: {why}")));
        }
        Ok(_) => {}
        Err(e) => {
            return Err(CliError::environment(format!(
                "the supervisor of run {}: {e}",
                seen.run
            )));
        }
    }
    if args.after_save {
        printer::out(&format!("run {}: stops at the next proven step\n", seen.run));
    }
    let limit = (!args.after_save).then(|| patience(seen));
    let began = Instant::now();
    let name = control::socket_name(&seen.run);
    while control::listens(&name) {
        if limit.is_some_and(|l| began.elapsed() > l) {
            return Err(CliError::environment(format!(
                "run {} has not ended after {} s",
                seen.run,
                began.elapsed().as_secs()
            ))
            .hint("`supervise status` tells what is waited for; --now gives no grace"));
        }
        std::thread::sleep(LOOK);
    }
    let after = target::look(&seen.run, seen.run_dir.as_deref());
    let words = after
        .state
        .as_ref()
        .and_then(|s| s.outcome.as_ref())
        .map_or_else(|| "ended".to_owned(), outcome_words);
    printer::out(&format!("run {}: {words}\n", seen.run));
    Ok(Exit::Finished.code())
}

/// A stop may take a save, then the workers' grace, then their killing.
fn patience(seen: &Seen) -> Duration {
    let default = Policy::default();
    let policy = seen.spec.as_ref().map_or(&default, |s| &s.policy);
    let jobs = if jobs::query(seen).is_some() {
        JOBS
    } else {
        Duration::ZERO
    };
    Duration::from_millis(policy.stop_grace.0.saturating_add(policy.save_grace.0)).saturating_add(BEYOND + jobs)
}

fn grace(args: &Args, seen: &Seen) -> Duration {
    let default = Policy::default();
    let policy = seen.spec.as_ref().map_or(&default, |s| &s.policy);
    if args.now {
        Duration::ZERO
    } else {
        Duration::from_millis(policy.stop_grace.0)
    }
}

/// Only a guard lives: this command takes its leash as a term of its own.
fn take_over(args: &Args, seen: &Seen) -> Result<u8, CliError> {
    let mut lease = Lease::take(seen)?;
    let failed = |e: io::Error| CliError::environment(format!("the guard of run {}: {e}", seen.run));
    let Some(stream) = guard::connect(&protocol::socket_name(&seen.run)).map_err(failed)? else {
        jobs::end(seen)?;
        printer::out(&format!("run {}: it has just ended\n", seen.run));
        return Ok(Exit::Finished.code());
    };
    let mut leash = Leash::new(stream).map_err(failed)?;
    let said = leash
        .say(&ToGuard::Take { term: lease.term })
        .and_then(|()| leash.hear_hello());
    if !said.map_err(failed)? {
        return Err(CliError::lease_held(format!(
            "the guard of run {} obeys another supervisor",
            seen.run
        )));
    }
    if !args.now {
        leash.say(&ToGuard::Signal { signal: libc::SIGTERM }).map_err(failed)?;
    }
    let mut gone = leash.wait_gone(grace(args, seen)).map_err(failed)?;
    if gone.is_none() {
        leash.say(&ToGuard::KillTree).map_err(failed)?;
        gone = leash.wait_gone(BEYOND).map_err(failed)?;
    }
    // It ends by itself with its tree; a leash that breaks now tells it the same.
    let _ = leash.say(&ToGuard::Bye);
    let jobs = jobs::end(seen);
    lease.release();
    jobs?;
    match gone {
        Some(left) if left.is_empty() => {
            printer::out(&format!(
                "run {}: no supervisor was there; its workers are ended\n",
                seen.run
            ));
            Ok(Exit::Finished.code())
        }
        Some(left) => Err(CliError::environment(format!(
            "SIGKILL does not end these processes: {}",
            pids(&left)
        ))),
        None => Err(CliError::environment(format!(
            "the guard of run {} did not end its workers",
            seen.run
        ))),
    }
}

fn pids(left: &[ProcRef]) -> String {
    left.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Neither supervisor nor guard: what they left is ended.
fn orphans(seen: &Seen) -> Result<u8, CliError> {
    let mut lease = Lease::take(seen)?;
    let left = kill_until_gone(|| find_attempt_processes(&seen.run, &seen.recorded), BEYOND);
    let jobs = jobs::end(seen);
    lease.release();
    jobs?;
    if left.is_empty() {
        printer::out(&format!("run {}: what its guard left behind is ended\n", seen.run));
        return Ok(Exit::Finished.code());
    }
    Err(CliError::environment(format!(
        "SIGKILL does not end these processes: {}",
        pids(&left)
    )))
}

/// A term of our own, so that nobody starts a supervisor meanwhile.
struct Lease {
    term: Term,
    lane: Option<supervise_host::lane::Client>,
}

impl Lease {
    fn take(seen: &Seen) -> Result<Self, CliError> {
        // The guard must be reachable while a file system hangs: no supervisor can begin a term there either.
        let alone = Self {
            term: Term(u32::MAX),
            lane: None,
        };
        let Some(dir) = seen.run_dir.as_deref() else {
            return Ok(alone);
        };
        let root = seen.spec.as_ref().and_then(|s| s.root.as_deref());
        let live = seen.spec.as_ref().and_then(|s| s.live.as_ref());
        let ask = Question::TakeLease {
            dir: prepare::lease_dir(root, live, dir),
            host: host_name(),
            boot: boot_id().unwrap_or_default(),
            proc: own_ref(),
            ttl: Ms::secs(60),
        };
        let mut lane = target::lane().map_err(|e| CliError::environment(e.to_string()))?;
        match lane.ask(ask, Duration::from_secs(90)) {
            Ok(Answer::Term(term)) => {
                let known = seen.state.as_ref().map_or(Term(0), |s| s.term);
                Ok(Self {
                    term: term.max(known.next()),
                    lane: Some(lane),
                })
            }
            Ok(Answer::Held(who)) => Err(CliError::lease_held(format!(
                "another supervisor holds the lease: {who}"
            ))),
            Ok(_) => Err(CliError::internal("the helper gave an unexpected answer")),
            Err(LaneError::Stalled(_)) => Ok(alone),
            Err(e) => Err(CliError::environment(e.to_string())),
        }
    }

    fn release(&mut self) {
        if let Some(lane) = &mut self.lane {
            // A lease that is not given back is found dead with this process.
            let _ = lane.ask(Question::Release, target::PATIENCE);
        }
    }
}

/// Our end of the guard's leash.
struct Leash {
    write: UnixStream,
    read: BufReader<UnixStream>,
    line: Vec<u8>,
}

impl Leash {
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
        self.write.write_all(&control::encode(message)?)
    }

    /// The next message; `None` where none comes in time.
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

    /// Whether the guard takes us for its supervisor.
    fn hear_hello(&mut self) -> io::Result<bool> {
        match self.hear(Instant::now() + ANSWER) {
            Ok(Some(FromGuard::Hello(_))) => Ok(true),
            Ok(_) => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Waits until the tree is gone; what could not be killed. `None` where it is still there.
    fn wait_gone(&mut self, limit: Duration) -> io::Result<Option<Vec<ProcRef>>> {
        let until = Instant::now() + limit;
        loop {
            match self.hear(until) {
                Ok(Some(FromGuard::TreeGone { unkillable })) => return Ok(Some(unkillable)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                // A guard that is gone takes its workers with it.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(Vec::new())),
                Err(e) => return Err(e),
            }
        }
    }
}
