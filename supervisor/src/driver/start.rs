//! The beginning of a term: control socket, journals, lease, the living guard or the orphans.

use super::acts::redacted;
use super::guards::GuardLink;
use super::journal::Book;
use super::lanes::{Lane, Tag, line};
use super::wires::connect;
use super::{Driver, LAST_WORDS, RunFlags, Signals};
use crate::control;
use crate::error::CliError;
use crate::prepare::Prepared;
use crate::printer::Printer;
use camino::Utf8PathBuf;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use supervise_core::event::{EventKind, Living};
use supervise_core::id::{Ms, Term, Tick};
use supervise_core::record::Outcome;
use supervise_core::spec::RunSpec;
use supervise_core::state::State;
use supervise_host::guard::protocol::{FromGuard, Hello, ToGuard, socket_name};
use supervise_host::lane::{Answer, Identity, LaneReply, Loaded, Question};
use supervise_host::process::{boot_id, boottime_ms, find_attempt_processes, host_name, is_alive, own_ref};

/// While an answer is waited for, signals are looked at this often.
const LOOK: Duration = Duration::from_millis(100);
/// That something is waited for is said after this.
const SAY_AFTER: Duration = Duration::from_secs(3);
/// A guard that lives answers within this.
const HELLO: Duration = Duration::from_secs(10);

/// Runs one term from its beginning to its end.
pub(super) async fn term(prepared: Prepared, mut printer: Printer, flags: RunFlags) -> Result<u8, CliError> {
    let exe = own_exe()?;
    let spec = prepared.spec.clone();
    let listener = match control::bind(&spec.run) {
        Ok(l) => l,
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
            return Err(CliError::lease_held(format!(
                "another supervisor of this run lives on this machine (run {})",
                spec.run
            )));
        }
        Err(e) => return Err(CliError::environment(format!("the control socket cannot be made: {e}"))),
    };
    // Orphans of a guard that was killed come to us, where they are found by descent.
    if let Err(e) = nix::sys::prctl::set_child_subreaper(true) {
        tracing::warn!("orphans of a killed guard will not come to this process: {e}");
    }
    let (mut wires, internal) =
        connect(listener).map_err(|e| CliError::environment(format!("signals cannot be received: {e}")))?;
    let at_start = |e: std::io::Error| CliError::environment(format!("a helper cannot be started: {e}"));
    let mut store = Lane::start(&exe, "journal").map_err(at_start)?;
    let work = Lane::start(&exe, "work").map_err(at_start)?;

    let identity = Identity {
        run: spec.run.clone(),
        run_dir: spec.run_dir.clone(),
        root: spec.root.clone(),
    };
    let loaded = match call(&mut store, Question::Open(identity), &mut printer, &mut wires.signals).await? {
        Answer::Loaded(l) => l,
        other => return Err(CliError::internal(format!("an unexpected answer: {other:?}"))),
    };
    for note in &loaded.notes {
        printer.note(note);
    }
    if let Some(code) = ended_before(&loaded.state, &spec, flags, &mut printer) {
        return Ok(code);
    }
    let term = take_lease(&mut store, &prepared, &mut printer, &mut wires.signals).await?;
    let (guard, hello) = living_guard(&spec.run, term).await?;
    let mut driver = Driver {
        state: loaded.state.clone(),
        spec: spec.clone(),
        exe,
        began: boottime_ms(),
        timers: BTreeMap::new(),
        book: Book::new(Ms(lease_ttl(&prepared).0 / 4)),
        store,
        work,
        guard,
        children: Vec::new(),
        standby: None,
        standby_at: None,
        waiting: VecDeque::new(),
        scanning: None,
        scan_again: None,
        sweeping: false,
        ending_job: false,
        told: BTreeSet::new(),
        key: loaded.key.clone(),
        rehearsal: None,
        failed_launch: None,
        finish_due: None,
        book_recorded: loaded.recorded.clone(),
        internal,
        signals: Signals::default(),
        over: None,
        prepared,
        printer,
    };
    driver.begin(term, &loaded, hello, &mut wires.signals).await?;
    driver.turn(&mut wires).await;
    driver.end().await;
    Ok(driver.exit_code())
}

fn lease_ttl(prepared: &Prepared) -> Ms {
    Ms(u64::try_from(prepared.settings.lease.ttl.as_millis()).unwrap_or(u64::MAX))
}

/// The lease stands where the checkpoints are: that is what it protects.
pub(super) fn lease_dir(spec: &RunSpec) -> Utf8PathBuf {
    crate::prepare::lease_dir(spec.root.as_deref(), spec.live.as_ref(), &spec.run_dir)
}

fn own_exe() -> Result<Utf8PathBuf, CliError> {
    let exe =
        std::env::current_exe().map_err(|e| CliError::environment(format!("our own program cannot be found: {e}")))?;
    Utf8PathBuf::from_path_buf(exe).map_err(|p| CliError::environment(format!("{} is not UTF-8", p.display())))
}

/// A journal that ended with an outcome that needs a person answers the same again, without acting.
fn ended_before(state: &State, spec: &RunSpec, flags: RunFlags, printer: &mut Printer) -> Option<u8> {
    let outcome = state.outcome.as_ref()?;
    let needs_a_person = matches!(
        outcome,
        Outcome::Deterministic { .. } | Outcome::NoProof { .. } | Outcome::GaveUp { .. }
    );
    if flags.again || !needs_a_person || state.mode != supervise_core::state::Mode::Finished {
        return None;
    }
    // Another question gets another answer: a start that was refused is asked for in another way.
    let p = &spec.policy;
    let asks_anew = p.from.is_some() || p.fresh || p.allow_fresh || spec.config_hash != state.config;
    if matches!(outcome, Outcome::NoProof { .. }) && asks_anew {
        return None;
    }
    let why = match outcome {
        Outcome::Deterministic { why } | Outcome::NoProof { why } | Outcome::GaveUp { why } => why.as_str(),
        _ => "",
    };
    printer.note(&format!("this run ended before ({}): {why}", outcome.word()));
    let hint = match outcome {
        Outcome::NoProof { .. } => {
            "nothing was started; `supervise checkpoints` shows every step. Then: `--from N`, `--fresh`, or `--again` after mending"
        }
        _ => "nothing was started; after mending the cause, say `supervise run --again …`",
    };
    printer.note(hint);
    Some(outcome.exit_code())
}

/// Asks a lane and waits, saying so while it takes long. An interrupt ends the waiting.
async fn call(
    lane: &mut Lane,
    ask: Question,
    printer: &mut Printer,
    signals: &mut tokio::sync::mpsc::UnboundedReceiver<i32>,
) -> Result<Answer, CliError> {
    let what = match &ask {
        Question::TakeLease { .. } => "waiting for the lease: its holder on another machine may still live",
        _ => "waiting: the file system of the run directory does not answer",
    };
    lane.ask(Tag::Setup, ask, Tick(0));
    let mut waited = Duration::ZERO;
    loop {
        match tokio::time::timeout(LOOK, line(lane)).await {
            Ok(None) => return Err(CliError::internal("the helper that reads files ended".to_owned())),
            Ok(Some(text)) => {
                let Ok(reply) = serde_json::from_str::<LaneReply>(&text) else {
                    continue;
                };
                if let Some((_, answer)) = lane.take(reply, Tick(0)) {
                    return answer.map_err(|e| CliError::environment(e.what));
                }
            }
            Err(_) => waited += LOOK,
        }
        if let Some(number) = interrupted(signals) {
            let name = supervise_core::event::signal_name(number);
            return Err(CliError::environment(format!(
                "{name} came while waiting; nothing was started"
            )));
        }
        if waited >= SAY_AFTER && waited - SAY_AFTER < LOOK {
            printer.note(what);
        }
    }
}

/// A signal that asks for an end, if one came. A hang-up does not.
fn interrupted(signals: &mut tokio::sync::mpsc::UnboundedReceiver<i32>) -> Option<i32> {
    std::iter::from_fn(|| signals.try_recv().ok()).find(|number| *number != libc::SIGHUP)
}

async fn take_lease(
    store: &mut Lane,
    prepared: &Prepared,
    printer: &mut Printer,
    signals: &mut tokio::sync::mpsc::UnboundedReceiver<i32>,
) -> Result<Term, CliError> {
    let spec = &prepared.spec;
    let dir = lease_dir(spec);
    let boot = boot_id().map_err(|e| CliError::environment(format!("the boot id cannot be read: {e}")))?;
    let ttl = lease_ttl(prepared);
    let ask = Question::TakeLease {
        dir,
        host: host_name(),
        boot,
        proc: own_ref(),
        ttl,
    };
    match call(store, ask, printer, signals).await? {
        Answer::Term(term) => Ok(term),
        Answer::Held(who) => Err(CliError::lease_held(format!(
            "another supervisor holds the lease of this run: {who}"
        ))),
        other => Err(CliError::internal(format!("an unexpected answer: {other:?}"))),
    }
}

/// Takes the leash of a living guard.
async fn living_guard(
    run: &supervise_core::id::RunId,
    term: Term,
) -> Result<(Option<GuardLink>, Option<Box<Hello>>), CliError> {
    let failed =
        |e: std::io::Error| CliError::environment(format!("the guard of an earlier term cannot be reached: {e}"));
    let Some(stream) = supervise_host::guard::connect(&socket_name(run)).map_err(failed)? else {
        return Ok((None, None));
    };
    let mut link = GuardLink::new(stream, Default::default(), own_ref()).map_err(failed)?;
    link.say(&ToGuard::Take { term });
    match tokio::time::timeout(HELLO, link.hear()).await {
        Ok(Some(FromGuard::Hello(hello))) => {
            link.attempt = hello.attempt;
            link.guard = hello.guard;
            Ok((Some(link), Some(hello)))
        }
        // It ended while we asked: what it left is found as orphans.
        Ok(_) => Ok((None, None)),
        Err(_) => Err(CliError::environment(
            "the guard of an earlier term lives but does not answer".to_owned(),
        )),
    }
}

impl Driver {
    async fn begin(
        &mut self,
        term: Term,
        loaded: &Loaded,
        hello: Option<Box<Hello>>,
        signals: &mut tokio::sync::mpsc::UnboundedReceiver<i32>,
    ) -> Result<(), CliError> {
        let begin = Question::Begin {
            run_dir: self.spec.run_dir.clone(),
            term,
            spec: Box::new(without_secrets(&self.spec)),
            registry: self.prepared.registry.clone(),
        };
        call(&mut self.store, begin, &mut self.printer, signals).await?;
        if let Some(copy) = &self.prepared.copy {
            let ask = Question::Attempt {
                dir: copy.dir.clone(),
                files: vec![(copy.name.clone(), copy.text.clone())],
            };
            call(&mut self.store, ask, &mut self.printer, signals).await?;
        }
        let now = self.now();
        self.work
            .ask(Tag::Setup, Question::Spec(Box::new(self.spec.clone())), now);
        if self.spec.root.is_some() {
            self.work.ask(Tag::Setup, Question::Watch, now);
        }
        let orphans = match &hello {
            Some(_) => Vec::new(),
            None => find_attempt_processes(&self.spec.run, &loaded.recorded),
        };
        let living = hello.as_ref().filter(|h| !h.gone).map(|h| Living {
            attempt: h.attempt,
            guard: h.guard,
            workers: h.workers.iter().map(|w| w.proc).filter(|p| is_alive(*p)).collect(),
            exits: h
                .workers
                .iter()
                .enumerate()
                .filter_map(|(n, w)| Some((supervise_core::id::WorkerId(u32::try_from(n).ok()?), w.exit?)))
                .collect(),
            step: h.step,
        });
        self.feed(EventKind::TermStarted {
            term,
            boot: boot_id().unwrap_or_default(),
            host: host_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: self.spec.config_hash,
            trainer_version: self.spec.trainer_version.clone(),
            living,
            orphans,
        });
        if let Some(hello) = hello {
            self.catch_up(*hello);
        }
        Ok(())
    }

    /// What the guard saw while nobody listened.
    fn catch_up(&mut self, hello: Hello) {
        let attempt = hello.attempt;
        for (means, sighting) in hello.sightings {
            self.feed(EventKind::Sighted {
                attempt,
                means,
                sighting,
            });
        }
        if hello.gone {
            if let Some(link) = &mut self.guard {
                link.gone = true;
                link.say(&ToGuard::Bye);
            }
            self.on_tree_gone(attempt, Vec::new());
        }
    }

    /// The last records and the lease reach the disk, or not in time.
    async fn end(&mut self) {
        self.printer.finish(&self.state, &self.spec);
        self.end_rehearsal().await;
        if let Some(link) = &self.guard {
            link.say(&ToGuard::Bye);
        }
        let now = self.now();
        let last = async {
            loop {
                self.flush();
                if self.book.is_clean() {
                    break;
                }
                let text = line(&mut self.store).await;
                if text.is_none() {
                    break;
                }
                self.on_store_line(text);
            }
            // Whoever takes the lease next finds nothing of ours that still writes.
            self.work.end().await;
            self.store.ask(Tag::Nothing, Question::Release, now);
            while !self.store.is_idle() {
                let Some(text) = line(&mut self.store).await else { break };
                self.on_store_line(Some(text));
            }
        };
        // A file system that hangs must not keep us: the lease is then known by our process being gone.
        let _ = tokio::time::timeout(LAST_WORDS, last).await;
    }
}

/// The specification as it is written to disk: without values that may be secrets.
fn without_secrets(spec: &RunSpec) -> RunSpec {
    let mut shown = spec.clone();
    for (name, value) in &mut shown.env {
        *value = supervise_config::redact(name, value);
    }
    shown.command = redacted(&shown.command);
    if let Some(learnt) = &mut shown.learnt {
        learnt.ahead = redacted(&learnt.ahead);
    }
    shown
}
