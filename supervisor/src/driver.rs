//! The event loop: turns inputs into events, lets the core decide, journals the records and performs the acts.
//!
//! One `select!` on a current-thread runtime. It touches only pipes, sockets, timers and `/proc`; every path under a user's mount
//! goes to an I/O worker. Records are applied as they are decided. *Safety* acts are performed at once, *guarded* acts once their
//! intent is durable.

mod acts;
mod allocation;
mod ask;
mod cluster;
mod creep;
mod evidence;
mod generation_copy;
mod gpus;
mod guards;
mod inputs;
mod internal;
mod io_workers;
mod jobs;
mod journal;
mod looks;
mod notify;
mod rehearsal;
mod requests;
mod save_requests;
mod secrets;
mod seen;
mod service;
mod standby;
mod start;

use crate::environment::wall;
use crate::error::CliError;
use crate::printer::Printer;
use crate::run_order::RunOrder;

use camino::Utf8PathBuf;
use guards::GuardLink;
use inputs::Inputs;
use internal::DriverMessage;
use io_workers::{IoPurpose, IoWorkerProcess};
use jobs::ExitWitness;
use journal::JournalWriter;
use notify::Notifier;
use rehearsal::Rehearsing;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use supervise_core::checkpoint::Depth;
use supervise_core::decide::decide;
use supervise_core::event::{ActError, Event, EventKind, OperatorRequest, ScanReport, TimerKey};
use supervise_core::id::{Ms, ProcRef, Tick};
use supervise_core::journal::record::{Act, ActKind, JournalRecord, RunOutcome, WorldQuery};
use supervise_core::ledger::TimeLedger;
use supervise_core::spec::RunSpec;
use supervise_core::state::{RunMode, RunState};
use supervise_host::allocation::SlurmAllocation;
use supervise_host::io_worker::{IoAnswer, IoQuestion};
use supervise_host::process::boottime_ms;
use tokio::sync::mpsc;

/// A timer that fires this late means that the machine slept or that this process was not scheduled.
const LATE: Ms = Ms(5_000);
/// How often times on the progress line are updated.
const REDRAW: Ms = Ms::secs(1);
/// How long a decided end waits for a journal that cannot be written.
const PATIENCE_AT_END: Ms = Ms::secs(5);
/// Time for the last records and the lease to reach the disk at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Longer than any term: keeps the sweeping thread alive, because a process limit may prevent a new one.
const FOR_GOOD: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Flags of the command line that apply to this start alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunFlags {
    /// Start even if the run ended with a failure that needs attention.
    pub again: bool,
}

/// Runs one term. Returns the exit code.
///
/// # Errors
/// Anything that prevents a term from starting.
pub fn run(
    order: RunOrder,
    printer: Printer,
    flags: RunFlags,
    allocation: Option<SlurmAllocation>,
) -> Result<u8, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(FOR_GOOD)
        .build()
        .map_err(|e| CliError::environment(format!("the event loop cannot be made: {e}")))?;
    let result = runtime.block_on(async {
        ask::a_thread().await?;
        start::term(order, printer, flags, allocation).await
    });
    // An I/O worker may hang in the kernel forever: do not wait for it.
    runtime.shutdown_timeout(Duration::from_millis(10));
    result
}

/// The only state of a term besides the core's.
struct Driver {
    state: RunState,
    ledger: TimeLedger,
    spec: RunSpec,
    order: RunOrder,
    printer: Printer,
    exe: Utf8PathBuf,
    began: u64,
    timers: BTreeMap<TimerKey, Tick>,
    signals: Signals,
    internal: mpsc::UnboundedSender<DriverMessage>,
    journal: JournalWriter,
    journal_recorded: Vec<ProcRef>,
    /// Guarded acts, each with the number of the record that intends it; performed once that record is durable.
    waiting: VecDeque<(u64, Act)>,
    store: IoWorkerProcess,
    work: IoWorkerProcess,
    scans: Scans,
    guard: Option<GuardLink>,
    launch: acts::LaunchState,
    standby: standby::StandbyState,
    rehearsal: Option<Rehearsing>,
    evidence: evidence::EvidenceState,
    seen: seen::SeenState,
    jobs: jobs::JobState,
    allocation: allocation::AllocationWatch,
    gpus: gpus::GpuWatch,
    service: service::Service,
    notifier: Notifier,
    end: TermEnd,
}

/// Scans of the checkpoint root, and the search for processes that are left.
#[derive(Debug, Default)]
struct Scans {
    /// A scan is in progress; the value is whether workers were running when it was requested.
    running: Option<bool>,
    again: Option<(Depth, u32)>,
    sweeping: bool,
}

/// How the term ends.
#[derive(Debug, Default)]
struct TermEnd {
    /// The decided outcome, and when the run ends with it even if the journal cannot be written.
    due: Option<(Tick, RunOutcome)>,
    outcome: Option<RunOutcome>,
}

/// Signals that requested a stop.
#[derive(Debug, Default)]
struct Signals {
    interrupts: u32,
    last: Option<i32>,
}

impl Driver {
    fn now(&self) -> Tick {
        Tick(boottime_ms().saturating_sub(self.began))
    }

    /// Feeds one event to the core and performs what it decides.
    fn feed(&mut self, kind: EventKind) {
        let kind = secrets::hidden(kind);
        let event = Event {
            at: self.now(),
            wall: wall(),
            entropy: entropy(),
            kind,
        };
        let decided = decide(&self.state, &self.spec, &event);
        let seq = self.journal.add(&decided.records, event.at, event.wall);
        for record in &decided.records {
            self.state.apply(record);
            self.ledger.note(&self.state, record);
            self.printer.record(record, &self.state, &self.spec);
            self.tell(record);
        }
        for record in &decided.records {
            if let JournalRecord::Intended { act, reasons, .. } = record {
                if let ActKind::Finish(outcome) = &act.kind {
                    self.end.due = Some((event.at.after(PATIENCE_AT_END), outcome.clone()));
                    self.last_words();
                }
                if act.kind.is_guarded() {
                    self.waiting.push_back((seq, act.clone()));
                } else if !self.is_looked_at_first(act, reasons) {
                    self.safety(act.clone());
                }
            }
        }
        for ask in decided.asks {
            self.ask(ask);
        }
        self.printer.progress(&self.state, &self.spec, &self.ledger);
        if self.state.is_to_stop() && self.state.mode != RunMode::Finished {
            self.drop_unbegun();
        }
    }

    fn ask(&mut self, ask: WorldQuery) {
        match ask {
            WorldQuery::WakeAt { key, at } => {
                self.timers.insert(key, at);
            }
            WorldQuery::Scan { depth, whole } => self.scan(depth, whole),
            WorldQuery::Rehearse => self.rehearse(),
            WorldQuery::Space => self.ask_for_space(),
            WorldQuery::Allocation => self.ask_scheduler(None),
            WorldQuery::Finite { ckpt } => self.ask_for_finite(ckpt),
            WorldQuery::SaveAnswer { attempt, id } => self.look_for_save_answer(attempt, id),
        }
    }

    /// Runs one scan at a time. While workers run, a later request waits for the current scan (which may be a long background
    /// proof); otherwise it replaces it.
    fn scan(&mut self, depth: Depth, whole: u32) {
        if self.spec.root.is_none() {
            let report = ScanReport {
                empty: true,
                ..ScanReport::default()
            };
            return self.feed(EventKind::Checkpoints(report));
        }
        let live = self.state.live().is_some();
        if let Some(asked_live) = self.scans.running {
            if asked_live && live && self.state.mode == RunMode::Running {
                // A quick scan requested after a proof does not replace the proof.
                let (deep, wide) = self.scans.again.unwrap_or((depth, whole));
                self.scans.again = Some((depth.max(deep), whole.max(wide)));
                return;
            }
            self.work.supersede_scans();
        }
        self.scans.again = None;
        self.scans.running = Some(live);
        let now = self.now();
        let thorough = !matches!(self.state.mode, RunMode::Running | RunMode::Draining { .. });
        if thorough {
            self.tell_own_steps();
        }
        let ask = IoQuestion::Scan { depth, whole, thorough };
        self.work.ask(IoPurpose::Scan, ask, now);
    }

    fn on_scanned(&mut self, answer: Result<IoAnswer, ActError>) {
        // A scan made while the attempt was running may lack its last save; a new one is requested when it is needed.
        if self.scans.running.take() == Some(true) && self.state.live().is_none() {
            return;
        }
        let report = match answer {
            Ok(IoAnswer::Scan(report)) => report,
            Ok(_) => return,
            Err(e) => ScanReport {
                unreadable: Some(e.what),
                ..ScanReport::default()
            },
        };
        self.feed(EventKind::Checkpoints(report));
        self.sample_disk();
        if let Some((depth, whole)) = self.scans.again.take() {
            self.scan(depth, whole);
        }
    }

    /// When the loop must wake up next.
    fn next_due(&self) -> Tick {
        let timers = self.timers.values().copied();
        let io_workers = [
            self.store.deadline(),
            self.work.deadline(),
            self.journal.retry_at,
            self.standby.at,
            self.service.due(),
            // Bump even when idle: a lease that is not renewed for its lifetime counts as lost.
            self.store.is_idle().then_some(self.journal.bump_at),
        ]
        .into_iter()
        .flatten();
        let now = self.now();
        let dead = [self.store.replaced_in(), self.work.replaced_in()];
        let looks = [self.store.looked_in(), self.work.looked_in()];
        let dead = dead.into_iter().chain(looks).flatten().map(|pause| now.after(pause));
        let finish = self.end.due.iter().map(|(at, _)| *at).chain(self.fence_due());
        let finish = finish.chain(self.evidence_due());
        let finish = finish.chain(self.sees().then(|| self.seen.due()));
        timers
            .chain(io_workers)
            .chain(dead)
            .chain(finish)
            .chain(self.printer.shows_times().then(|| now.after(REDRAW)))
            .min()
            .unwrap_or(now.after(Ms::secs(60)))
    }

    fn on_due(&mut self) {
        let now = self.now();
        let due: Vec<(TimerKey, Tick)> = self
            .timers
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(k, at)| (*k, *at))
            .collect();
        if let Some(late) = due
            .iter()
            .map(|(_, at)| now.since(*at))
            .max()
            .filter(|late| *late > LATE)
        {
            if let Some(link) = &mut self.guard {
                link.heard = link.heard.after(late);
            }
            self.journal.fence_later(now);
            self.feed(EventKind::TimeGap { missing: late });
        }
        for (key, _) in due {
            self.timers.remove(&key);
            self.feed(EventKind::Timer(key));
        }
        self.check_io_workers(now);
        self.check_guard(now);
        self.check_evidence(now);
        self.look_for_trainer(false);
        self.tell_of_a_wait(now);
        if self.printer.shows_times() {
            self.printer.progress(&self.state, &self.spec, &self.ledger);
        }
        if self.end.due.as_ref().is_some_and(|(at, _)| *at <= now) && self.end.outcome.is_none() {
            // The end changes nothing on disk; the next term finds out from there what this one could not write.
            self.end.outcome = self.end.due.take().map(|(_, outcome)| outcome);
        }
    }

    fn on_signal(&mut self, number: i32) {
        let by = supervise_core::event::signal_name(number);
        match number {
            libc::SIGHUP => {
                self.printer.note("the terminal is gone: going on detached");
                return;
            }
            libc::SIGUSR1 | libc::SIGUSR2 => return self.on_notice(number),
            libc::SIGINT => self.signals.interrupts += 1,
            _ => {}
        }
        let again = self.signals.last.is_some();
        self.signals.last = Some(number);
        if number == libc::SIGINT && self.signals.interrupts > 1 {
            self.feed(EventKind::Operator(OperatorRequest::StopNow { by }));
        } else if !again {
            let left = self.allocation.kill_wait().filter(|_| number == libc::SIGTERM);
            self.feed(EventKind::Operator(OperatorRequest::Stop {
                after_save: false,
                by,
                left,
            }));
        }
    }

    fn on_internal(&mut self, message: DriverMessage) {
        match message {
            DriverMessage::Swept { attempt, unkillable } => {
                self.scans.sweeping = false;
                let more = !unkillable.is_empty();
                self.on_tree_gone(attempt, unkillable, ExitWitness::BySweep);
                match more {
                    true => self.sweep(attempt),
                    false => self.tell_of_failed_launch(),
                }
            }
            DriverMessage::Note(text) => self.printer.note(&text),
            DriverMessage::Told(event, came) => self.on_told(&event, came),
            DriverMessage::Asking(attempt, input) => self.on_asking(attempt, input),
            DriverMessage::Evidence(attempt, facts) => self.on_evidence(attempt, facts.map(|f| *f)),
            DriverMessage::Logs(attempt, logs) => self.on_logs(attempt, logs.map(|l| *l)),
            DriverMessage::JobEnded { attempt, seen, said } => self.on_job_ended(attempt, seen, said),
            DriverMessage::NodesWait(attempt, what) => self.on_nodes_wait(attempt, what),
            DriverMessage::Cluster { act, order, said } => self.on_cluster(act, order, said),
            DriverMessage::Gpus {
                act,
                order,
                looks,
                said,
            } => self.on_gpus(act, order, looks, said),
            DriverMessage::Devices(pulses) => self.on_devices(pulses),
            DriverMessage::Slurm { act, order, said } => self.on_slurm(act, order, said),
            DriverMessage::Nodes { act, order, said } => self.on_nodes(act, order, said),
            DriverMessage::Allocation(said) => self.on_scheduler(*said),
            DriverMessage::Rehearsed(result) => self.on_rehearsed(result),
            DriverMessage::Asked(request, reply) => {
                let answer = self.obey(request);
                // The client may have disconnected.
                let _ = reply.send(answer);
            }
        }
    }

    /// Runs the loop until the run is over.
    async fn turn(&mut self, inputs: &mut Inputs) {
        while self.end.outcome.is_none() {
            self.flush();
            if self.may_be_made_ready() {
                // Send what was just requested first: preparing it must not delay the disk.
                tokio::task::yield_now().await;
                self.make_ready();
            }
            self.reap();
            self.stand_by();
            let sleep = Duration::from_millis(self.next_due().since(self.now()).0.max(1));
            tokio::select! {
                line = io_workers::line(&mut self.work) => self.on_work_line(line),
                line = io_workers::line(&mut self.store) => self.on_store_line(line),
                line = guards::line(&mut self.guard) => {
                    // Account for a pause before its messages are judged by the clocks.
                    self.on_due();
                    self.on_guard_line(line);
                }
                Some(message) = inputs.internal.recv() => self.on_internal(message),
                Some(number) = inputs.signals.recv() => self.on_signal(number),
                () = tokio::time::sleep(sleep) => {}
            }
            self.on_due();
            self.tell_manager();
        }
    }

    /// Reaps guards that exited; they are children of this process.
    fn reap(&mut self) {
        self.launch
            .children
            .retain_mut(|c| !matches!(c.try_wait(), Ok(Some(_))));
    }

    fn exit_code(&self) -> u8 {
        match (self.state.exit_code(), &self.end.outcome) {
            (Some(code), _) => code,
            (None, Some(outcome)) => outcome.exit_code(),
            (None, None) => 70,
        }
    }
}

/// Random bits for jitter, from the system-seeded keys of a hasher.
fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
