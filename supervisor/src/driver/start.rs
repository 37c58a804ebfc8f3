//! The start of a term: control socket, journals, lease, and then a running guard or orphans.

use super::allocation::AllocationWatch;
use super::ask::{call, cannot_start};
use super::guards::GuardLink;
use super::inputs::{Inputs, connect};
use super::io_workers::{IoPurpose, IoWorkerProcess, line};
use super::jobs::ExitWitness;
use super::journal::{JournalWriter, SharedLease, lease_dir};
use super::notify::Notifier;
use super::service::Service;
use super::{Driver, LAST_WORDS, RunFlags, Scans, Signals, TermEnd};
use crate::control;
use crate::error::CliError;
use crate::newer_journal::newer_journal;
use crate::printer::{self, Printer};
use crate::render::advice::next_step;
use crate::render::outcome::outcome_words;
use crate::run_order::RunOrder;
use camino::Utf8PathBuf;
use std::collections::{BTreeMap, VecDeque};
use std::process::Child;
use std::time::Duration;
use supervise_config::{redact_call, redact_words};
use supervise_core::event::{EventKind, LivingGuard};
use supervise_core::id::{Ms, Term, Tick};
use supervise_core::journal::record::RunOutcome;
use supervise_core::lease::{LeaseClaim, beat};
use supervise_core::resume::answered_again;
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;
use supervise_host::allocation::SlurmAllocation;
use supervise_host::guard::StandbyGuard;
use supervise_host::guard::nodes::FENCED_MS;
use supervise_host::guard::protocol::{FromGuard, GuardHello, ToGuard};
use supervise_host::io_worker::{IoAnswer, IoQuestion, LoadedRun, RunIdentity, TermStart, own_claim};
use supervise_host::process::{
    boot_id, boottime_ms, find_attempt_processes, host_name, is_alive, is_proc_our_own, own_ref,
};

/// A running guard answers within this.
const HELLO: Duration = Duration::from_secs(10);
/// The guard of a finished attempt exits within this, even if the log writer started late.
const GUARD_ENDS: Duration = Duration::from_millis(2500);
const GUARD_LOOK: Duration = Duration::from_millis(5);

/// Runs one term from start to end.
pub(super) async fn term(
    order: RunOrder,
    mut printer: Printer,
    flags: RunFlags,
    allocation: Option<SlurmAllocation>,
) -> Result<u8, CliError> {
    let exe = own_exe()?;
    let spec = order.spec.clone();
    if !is_proc_our_own() {
        return Err(CliError::environment(
            "/proc does not show the processes of this pid namespace: workers could neither be seen nor ended",
        )
        .hint("mount it where the namespace is made (unshare --mount-proc, bwrap --proc /proc)"));
    }
    let listener = match control::bind(&spec.run) {
        Ok(l) => l,
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
            return Err(CliError::already_running(&spec.run, &spec.command));
        }
        Err(e) => return Err(CliError::environment(format!("the control socket cannot be made: {e}"))),
    };
    // Orphans of a killed guard or keeper become our children, so that they are found by descent.
    if let Err(e) = supervise_host::system::adopt_orphans() {
        tracing::warn!("orphans of a killed guard will not come to this process: {e}");
    }
    let (mut inputs, internal) =
        connect(listener).map_err(|e| CliError::environment(format!("signals cannot be received: {e}")))?;
    let mut store = IoWorkerProcess::start(&exe, "journal").map_err(|e| cannot_start(&e))?;
    let work = IoWorkerProcess::start(&exe, "work").map_err(|e| cannot_start(&e))?;

    let identity = RunIdentity {
        run: spec.run.clone(),
        run_dir: spec.run_dir.clone(),
        root: spec.root.clone(),
    };
    let loaded = match call(
        &mut store,
        IoQuestion::Open(identity.clone()),
        &mut printer,
        &mut inputs,
    )
    .await?
    {
        IoAnswer::Loaded(l) => l,
        other => return Err(CliError::internal(format!("an unexpected answer: {other:?}"))),
    };
    for note in &loaded.notes {
        printer.note(note);
    }
    // The journal of a copied directory is about another run.
    if let Some(found) = loaded.newer.as_ref().filter(|_| !loaded.copied) {
        return Err(newer_journal(&spec.run_dir, found));
    }
    if !loaded.copied
        && let Some(code) = ended_before(&loaded.state, &spec, flags, &mut printer)
    {
        return Ok(code);
    }
    let taken = take_lease(&mut store, &order, identity, &mut printer, &mut inputs).await?;
    let term = taken.term;
    let loaded = current(*loaded, &taken, &mut printer);
    if let Some(found) = &loaded.newer {
        call(&mut store, IoQuestion::Release, &mut printer, &mut inputs).await?;
        return Err(newer_journal(&spec.run_dir, found));
    }
    if let Some(code) = ended_before(&loaded.state, &spec, flags, &mut printer) {
        call(&mut store, IoQuestion::Release, &mut printer, &mut inputs).await?;
        return Ok(code);
    }
    let (guard, hello) = living_guard(&spec.run, term).await?;
    let mut driver = Driver {
        state: loaded.state.clone(),
        ledger: loaded.ledger.clone(),
        spec: spec.clone(),
        exe,
        began: boottime_ms(),
        timers: BTreeMap::new(),
        signals: Signals::default(),
        internal,
        journal: JournalWriter::new(
            beat(lease_ttl(&order)),
            fence(&order).map(|ttl| SharedLease::new(ttl, lasting_here(&order), taken.looked)),
        ),
        journal_recorded: loaded.recorded.clone(),
        waiting: VecDeque::new(),
        store,
        work,
        scans: Scans::default(),
        guard,
        launch: super::acts::LaunchState::default(),
        standby: super::standby::StandbyState::default(),
        rehearsal: None,
        evidence: super::evidence::EvidenceState::default(),
        seen: super::seen::SeenState::default(),
        jobs: super::jobs::JobState::new(taken.key.clone()),
        allocation: AllocationWatch::new(allocation),
        gpus: super::gpus::GpuWatch::default(),
        service: Service::new(Tick(0)),
        notifier: Notifier::new(&order.settings.on_event),
        end: TermEnd::default(),
        order,
        printer,
    };
    driver.take_seen();
    driver.begin(term, &loaded, hello, &mut inputs).await?;
    driver.turn(&mut inputs).await;
    driver.end().await;
    Ok(driver.exit_code())
}

fn lease_ttl(order: &RunOrder) -> Ms {
    Ms(u64::try_from(order.settings.lease.ttl.as_millis()).unwrap_or(u64::MAX))
}

/// If other machines reach the checkpoint root, workers must not outlive the lease.
fn fence(order: &RunOrder) -> Option<Ms> {
    let reached = order.settings.multi_host && order.spec.root.is_some();
    reached.then(|| lease_ttl(order))
}

fn own_exe() -> Result<Utf8PathBuf, CliError> {
    let exe =
        std::env::current_exe().map_err(|e| CliError::environment(format!("our own program cannot be found: {e}")))?;
    Utf8PathBuf::from_path_buf(exe).map_err(|p| CliError::environment(format!("{} is not UTF-8", p.display())))
}

/// A run that ended with a failure that needs attention ends the same way again, without acting.
fn ended_before(state: &RunState, spec: &RunSpec, flags: RunFlags, printer: &mut Printer) -> Option<u8> {
    let outcome = answered_again(state, spec).filter(|_| !flags.again)?;
    let why = match outcome {
        RunOutcome::Deterministic { why } | RunOutcome::NoProof { why } | RunOutcome::GaveUp { why } => why.as_str(),
        _ => "",
    };
    printer.last_word(&format!("this run ended before ({}): {why}", outcome.word()));
    let way = next_step(outcome, state, &spec.run.0).unwrap_or_default();
    printer.last_word(&format!("nothing was started; {way}"));
    Some(outcome.exit_code())
}

/// How long what we leave behind may keep running after our last heartbeat.
fn lasting(order: &RunOrder) -> Ms {
    let policy = &order.spec.policy;
    let lasting = LeaseClaim::lasting(lease_ttl(order), policy.grace.orphan, policy.grace.save);
    match fence(order) {
        Some(ttl) => LeaseClaim::fenced(ttl, lasting),
        None => lasting,
    }
}

/// The same for this machine; nodes that are cut off need more time to end their ranks.
fn lasting_here(order: &RunOrder) -> Ms {
    let more = if order.spec.gang.nodes > 1 { FENCED_MS } else { 0 };
    Ms(lasting(order).0.saturating_sub(more))
}

async fn take_lease(
    store: &mut IoWorkerProcess,
    order: &RunOrder,
    identity: RunIdentity,
    printer: &mut Printer,
    inputs: &mut Inputs,
) -> Result<TermStart, CliError> {
    let claim = own_claim(lease_ttl(order), lasting(order), Term(0));
    let ask = IoQuestion::TakeLease {
        dir: lease_dir(&order.spec),
        claim: Box::new(claim),
        identity: Some(Box::new(identity)),
    };
    match call(store, ask, printer, inputs).await? {
        IoAnswer::Taken(taken) => Ok(*taken),
        IoAnswer::Held(who) => Err(CliError::lease_held(format!(
            "another supervisor holds the lease of this run: {who}"
        ))),
        other => Err(CliError::internal(format!("an unexpected answer: {other:?}"))),
    }
}

/// The state of the journals, now that no other process writes them.
fn current(loaded: LoadedRun, taken: &TermStart, printer: &mut Printer) -> LoadedRun {
    let anew = taken.anew.as_deref();
    for note in taken.notes.iter().chain(anew.iter().flat_map(|l| &l.notes)) {
        printer.note(note);
    }
    let mut loaded = anew.cloned().unwrap_or(loaded);
    // Under the root's previous name, processes of an earlier attempt carry another marker.
    if let Some(before) = &taken.before {
        loaded.recorded = find_attempt_processes(before, &loaded.recorded);
    }
    loaded
}

/// Connects to a running guard.
async fn living_guard(
    run: &supervise_core::id::RunId,
    term: Term,
) -> Result<(Option<GuardLink>, Option<Box<GuardHello>>), CliError> {
    let failed =
        |e: std::io::Error| CliError::environment(format!("the guard of an earlier term cannot be reached: {e}"));
    let Some(stream) = supervise_host::guard::find(run).map_err(failed)? else {
        return Ok((None, None));
    };
    let mut link = GuardLink::new(stream, Default::default(), own_ref()).map_err(failed)?;
    link.say(&ToGuard::Take { term });
    match tokio::time::timeout(HELLO, link.hear()).await {
        Ok(Some(FromGuard::Hello(hello))) => {
            link.attempt = hello.attempt;
            link.guard = hello.guard;
            (link.takes_devices, link.takes_lease) = (hello.takes_devices, hello.takes_lease);
            Ok((Some(link), Some(hello)))
        }
        // It exited meanwhile; anything it left is found as orphans.
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
        loaded: &LoadedRun,
        hello: Option<Box<GuardHello>>,
        inputs: &mut Inputs,
    ) -> Result<(), CliError> {
        self.tell_guard_of_lease();
        let begin = IoQuestion::Begin {
            run_dir: self.spec.run_dir.clone(),
            term,
            // Without what was seen of a trainer, which is in the journal: the location of the lease depends on the command alone.
            spec: Box::new(without_secrets(&self.order.spec)),
            lease_dir: lease_dir(&self.order.spec),
            registry: self.order.registry.clone(),
        };
        if hello.is_none() {
            // It loads while the disk works. If it cannot be started, the launch starts its own.
            self.standby.guard = self.guard_ahead(None).ok();
        }
        // Search for orphans while the disk works: the lease is held, so no other process starts anything meanwhile.
        let (run, recorded) = (self.spec.run.clone(), loaded.recorded.clone());
        let find = move || find_attempt_processes(&run, &recorded);
        let looking = hello.is_none().then(|| tokio::task::spawn_blocking(find.clone()));
        if let IoAnswer::Begun(ground) = call(&mut self.store, begin, &mut self.printer, inputs).await? {
            self.journal.ground = ground;
        }
        if self.store.is_a_replacement() {
            // The lease was taken by a worker that died.
            let ask = self.adoption(term);
            call(&mut self.store, ask, &mut self.printer, inputs).await?;
        }
        if let Some(copy) = &self.order.copy {
            let ask = IoQuestion::Attempt {
                dir: copy.dir.clone(),
                files: vec![(copy.name.clone(), copy.text.clone())],
            };
            call(&mut self.store, ask, &mut self.printer, inputs).await?;
        }
        self.tell_configuration(term);
        self.introduce();
        if hello.is_none() {
            self.first_answer(inputs).await?;
        }
        let orphans = match looking {
            // Without a thread, search here.
            Some(looking) => looking.await.unwrap_or_else(|_| find()),
            None => Vec::new(),
        };
        if hello.as_ref().is_some_and(|h| !h.gone) && loaded.state.context.config != self.spec.config_hash {
            self.printer.note(
                "the workers that live go on as they were launched: the configuration changed since, which counts from the next attempt on",
            );
        }
        let living = hello.as_ref().filter(|h| !h.gone).map(|h| LivingGuard {
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
            spread: self.spec.saves.spread(),
            living,
            orphans,
        });
        self.introduce_allocation();
        if let Some(hello) = hello {
            self.catch_up(*hello);
        }
        Ok(())
    }

    /// Feeds the events that the guard saw while no supervisor was connected.
    fn catch_up(&mut self, hello: GuardHello) {
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
            self.on_tree_gone(attempt, Vec::new(), ExitWitness::ByGuard);
        } else {
            self.follow_gpus();
        }
    }

    /// Writes the last records and the lease, unless that takes too long.
    async fn end(&mut self) {
        self.tell_manager();
        self.printer.finish(&self.state, &self.ledger, &self.spec);
        self.end_rehearsal().await;
        // Standby interpreters exit before this process does.
        let standby = self.standby.guard.take().map(StandbyGuard::dismiss);
        if let Some(link) = &mut self.guard {
            link.say(&ToGuard::Bye);
        }
        let now = self.now();
        let last = async {
            loop {
                self.flush();
                let refused = self.journal.retry_at.is_some();
                if self.journal.is_clean() || refused || self.store.has_ended() {
                    break;
                }
                let text = line(&mut self.store).await;
                if text.is_none() {
                    break;
                }
                self.on_store_line(text);
            }
            // The next holder of the lease must not meet a writer of ours.
            self.work.end().await;
            // The next holder must end what is left of an attempt, so do not mark the lease as released.
            if self.state.live().is_none() {
                self.store.ask(IoPurpose::Nothing, IoQuestion::Release, now);
            }
            while !self.store.is_idle() {
                let Some(text) = line(&mut self.store).await else { break };
                self.on_store_line(Some(text));
            }
        };
        // Do not wait for a hanging file system: the lease then ends with this process.
        let _ = tokio::time::timeout(LAST_WORDS, last).await;
        let _ = tokio::time::timeout(GUARD_ENDS, self.guard_ends()).await;
        if let Some(standby) = standby {
            let _ = tokio::time::timeout(GUARD_ENDS, has_ended(standby)).await;
        }
        self.end_evidence().await;
        self.work.abandon();
        self.store.abandon();
        self.last_telling().await;
        if let Some(why) = self.journal.unwritten() {
            let why = if why.is_empty() { "it does not answer" } else { why };
            let how = self
                .state
                .outcome
                .as_ref()
                .map_or_else(|| "ended".to_owned(), outcome_words);
            printer::last_note(&format!(
                "the journal could not be written ({why}): how this run ended is not in it, only here: {how}"
            ));
        }
    }

    /// Waits for the guard of the last attempt to write the end of the output, so that readers find it.
    async fn guard_ends(&self) {
        let guard = self.guard.as_ref().filter(|l| l.gone).map(|l| l.guard);
        while guard.is_some_and(is_alive) {
            tokio::time::sleep(GUARD_LOOK).await;
        }
    }
}

async fn has_ended(mut child: Child) {
    while matches!(child.try_wait(), Ok(None)) {
        tokio::time::sleep(GUARD_LOOK).await;
    }
}

/// The specification as written to disk: without values that may be secrets.
fn without_secrets(spec: &RunSpec) -> RunSpec {
    let mut shown = spec.clone();
    for (name, value) in &mut shown.env {
        *value = supervise_config::redact(name, value);
    }
    shown.command = redact_words(&shown.command);
    if let Some(learnt) = &mut shown.learnt {
        learnt.command = redact_call(&learnt.command);
        learnt.ahead = redact_words(&learnt.ahead);
        for (name, value) in &mut learnt.env {
            *value = supervise_config::redact(name, value);
        }
    }
    shown
}
