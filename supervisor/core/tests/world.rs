//! A simulated world in virtual time: it answers what the core asks and does what the core intends.
//!
//! Workers, guard, disk, I/O worker, journal and operator are simulated; `decide`, `apply` and the journal's lines are
//! the real ones. After each record the invariants are checked, and at each new term the state is folded anew
//! from the journal's bytes and must be the one that was left.

pub(crate) mod acts;
pub(crate) mod disk;
pub(crate) mod options;
pub(crate) mod saves;
pub(crate) mod script;
pub(crate) mod trainer;
pub(crate) mod verbs;
pub(crate) mod watch;
pub(crate) mod words;

use disk::Disk;
use options::Habits;
use script::{Failing, Fault, Script, Verb};
use serde_json::Value;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CkptId, Depth};
use supervise_core::decide::decide;
use supervise_core::event::rehearsal::{Rehearsal, RehearsalResult};
use supervise_core::event::{ActErrorKind, Event, EventKind, TimerKey};
use supervise_core::id::{AttemptNo, Seq, Term, Tick, WallMs};
use supervise_core::journal;
use supervise_core::journal::record::{Act, JournalRecord, WorldQuery};
use supervise_core::spec::RunSpec;
use supervise_core::state::{RunMode, RunState};
use trainer::{Proc, Tr};
use watch::Watch;

/// A script without `end` is over so long after its last line.
const PATIENCE: u64 = 6 * 3_600_000;
/// A scan takes so long.
const SCAN: u64 = 200;
/// A rehearsal takes so long.
const REHEARSAL: u64 = 3_000;
/// An end that was decided waits so long for a journal that cannot be written.
const LAST_WORDS: u64 = 5_000;
/// The I/O worker's deadline.
const IO_DEADLINE: u64 = 5_000;

/// Something that is due at a moment.
#[derive(Debug, Clone)]
pub(crate) enum Due {
    Verb(Verb),
    Trainer(AttemptNo, Tr),
    Timer(TimerKey, u64),
    Scan(u64, Depth, u32),
    IoStalled,
    Space,
    Job,
    Finite(AttemptNo, CkptId),
    Rehearsed(Term),
    Done(Act),
    Killed(AttemptNo),
    Gone(AttemptNo),
    OrphanGrace(u64),
    /// An end that was decided in this term comes without the journal's help.
    LastWords(Term),
}

/// One record as it was written.
#[derive(Debug, Clone)]
pub(crate) struct Logged {
    pub(crate) at: u64,
    pub(crate) record: JournalRecord,
}

pub(crate) struct World {
    pub(crate) spec: RunSpec,
    pub(crate) habits: Habits,
    pub(crate) s: RunState,
    pub(crate) disk: Disk,
    pub(crate) now: u64,
    pub(crate) log: Vec<Logged>,
    /// The first invariant that did not hold.
    pub(crate) broken: Option<String>,
    faults: Vec<Fault>,
    failing: Vec<(Failing, ActErrorKind, bool, u32)>,
    queue: BTreeMap<(u64, u64), Due>,
    queued: u64,
    term_start: u64,
    alive: bool,
    boot: u32,
    timers: BTreeMap<TimerKey, u64>,
    scans: u64,
    /// The scan that reads every byte, while it is on its way.
    proving: Option<u64>,
    /// The weights of a step are being looked at.
    is_reading: bool,
    io_hangs: bool,
    journal_stalls: bool,
    deferred: Vec<Act>,
    /// Acts that an I/O worker was asked for and does not answer.
    stuck: Vec<Act>,
    journal: Vec<u8>,
    lines: u64,
    proc: Option<Proc>,
    leash: u64,
    unkillable_until: u64,
    guard_hangs: bool,
    rehearsal: RehearsalResult,
    /// Bytes that are free on the disk.
    pub(crate) free: u64,
    /// Files that may be made on it, where it counts them.
    pub(crate) files: Option<u64>,
    /// It refuses what is written, whatever is free.
    pub(crate) refuses: bool,
    /// The end of the scheduler's job.
    pub(crate) job_ends: Option<u64>,
    watch: Watch,
    until: Option<u64>,
}

impl World {
    pub(crate) fn new(script: Script) -> Self {
        let last = script.iter().map(|(at, _)| *at).max().unwrap_or_default();
        let mut w = Self {
            spec: options::spec(),
            habits: Habits::default(),
            s: RunState::default(),
            disk: Disk::default(),
            now: 0,
            log: Vec::new(),
            broken: None,
            faults: Vec::new(),
            failing: Vec::new(),
            queue: BTreeMap::new(),
            queued: 0,
            term_start: 0,
            alive: false,
            boot: 1,
            timers: BTreeMap::new(),
            scans: 0,
            proving: None,
            is_reading: false,
            io_hangs: false,
            journal_stalls: false,
            deferred: Vec::new(),
            stuck: Vec::new(),
            journal: Vec::new(),
            lines: 0,
            proc: None,
            leash: 0,
            unkillable_until: 0,
            guard_hangs: false,
            rehearsal: RehearsalResult::Taken,
            free: 1 << 40,
            files: None,
            refuses: false,
            job_ends: None,
            watch: Watch::default(),
            until: None,
        };
        for (at, verb) in script {
            if at == 0 {
                w.verb(&verb);
            } else {
                w.due(at, Due::Verb(verb));
            }
        }
        w.disk.begun = true;
        w.new_term(&[]);
        w.until.get_or_insert(last + PATIENCE);
        w
    }

    /// Runs until nothing more is due, the script's end, or a broken invariant.
    pub(crate) fn run(&mut self) {
        while self.broken.is_none() {
            let Some((&key, _)) = self.queue.iter().next() else {
                break;
            };
            if self.until.is_some_and(|u| key.0 > u) {
                break;
            }
            let Some(due) = self.queue.remove(&key) else { break };
            self.now = self.now.max(key.0);
            self.happen(due);
            self.check_clock();
        }
        self.check_fold();
    }

    /// Runs until a moment.
    pub(crate) fn run_until(&mut self, moment: u64) {
        let before = self.until.replace(moment);
        self.run();
        self.until = before;
        self.now = self.now.max(moment);
    }

    /// Workers live.
    pub(crate) fn has_workers(&self) -> bool {
        self.proc.as_ref().is_some_and(|p| !p.alive.is_empty())
    }

    /// A supervisor lives.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive
    }

    /// The run ended by itself: no supervisor lives, and it said how it ended.
    pub(crate) fn is_over(&self) -> bool {
        !self.alive && self.s.mode == RunMode::Finished
    }

    fn due(&mut self, at: u64, due: Due) {
        self.queued += 1;
        self.queue.insert((at.max(self.now), self.queued), due);
    }

    fn soon(&mut self, after: u64, due: Due) {
        self.due(self.now + after, due);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Verb(v) => self.verb(&v),
            Due::Trainer(attempt, what) => self.trainer(attempt, &what),
            Due::Timer(key, n) => {
                if self.alive && self.timers.get(&key) == Some(&n) {
                    self.timers.remove(&key);
                    self.feed(EventKind::Timer(key));
                }
            }
            Due::Scan(n, depth, whole) => {
                if self.alive && n == self.scans && !self.io_hangs {
                    self.proving = None;
                    self.feed(EventKind::Checkpoints(self.disk.scan(depth, whole)));
                }
            }
            Due::IoStalled => {
                if self.io_hangs && self.s.context.io_stalled.is_none() {
                    self.feed(EventKind::IoStalled {
                        what: "scan of the checkpoint root".to_owned(),
                    });
                }
            }
            Due::Space => {
                if self.alive && !self.io_hangs {
                    let (free, files, works) = (Some(self.free), self.files, Some(!self.refuses));
                    self.feed(EventKind::Space { free, files, works });
                }
            }
            Due::Job => {
                if self.alive {
                    self.job();
                }
            }
            Due::Finite(attempt, ckpt) => {
                self.is_reading = false;
                self.weights(attempt, ckpt);
            }
            Due::Rehearsed(term) => {
                if term != self.s.term {
                    return;
                }
                self.feed(EventKind::Rehearsed(Rehearsal {
                    term: self.s.term,
                    config: self.spec.config_hash,
                    version: self.spec.trainer_version.clone(),
                    result: self.rehearsal.clone(),
                }));
            }
            Due::Done(act) if self.io_hangs && acts::needs_the_io_worker(&act) => self.stuck.push(act),
            Due::Done(act) => self.carried_out(&act),
            Due::LastWords(term) => {
                if term == self.s.term && self.s.mode == RunMode::Finished {
                    self.supervisor_dies();
                }
            }
            Due::Killed(attempt) => self.killed(attempt),
            Due::Gone(attempt) => self.tree_gone(attempt),
            Due::OrphanGrace(leash) => {
                if leash == self.leash && self.proc.as_ref().is_some_and(|p| p.guard_alive) {
                    self.proc = None;
                }
            }
        }
    }

    /// One event through `decide`, `apply`, the journal and the checks; then acts and asks.
    pub(crate) fn feed(&mut self, kind: EventKind) {
        if !self.alive || self.broken.is_some() {
            return;
        }
        let e = Event {
            at: Tick(self.now - self.term_start),
            wall: WallMs(1_800_000_000_000 + self.now as i64),
            entropy: self.now.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.lines,
            kind,
        };
        let out = decide(&self.s, &self.spec, &e);
        let says = !out.records.is_empty();
        let mut acts = Vec::new();
        for r in out.records {
            if let JournalRecord::Intended { act, .. } = &r {
                acts.push(act.clone());
            }
            self.record(r);
        }
        let checked = self.watch.after_event(&self.s, &self.spec);
        self.note(checked);
        if says && (self.s.now, self.s.wall) != (e.at, e.wall) {
            self.note(Err("what was decided bears another time than its event".to_owned()));
        }
        for act in acts {
            self.perform(act);
        }
        for ask in out.asks {
            self.ask(&ask);
        }
        if self.s.is_to_stop() {
            self.drop_unbegun();
        }
    }

    fn record(&mut self, r: JournalRecord) {
        let checked = self.watch.before(&self.s, &self.spec, &self.disk, &r);
        self.note(checked);
        self.s.apply(&r);
        let checked = self
            .s
            .check_invariants(self.spec.policy.proof.is_on)
            .map_err(|b| b.to_string());
        self.note(checked);
        let checked = self.watch.after(&self.s, &r, self.now);
        self.note(checked);
        self.lines += 1;
        match journal::encode(Seq(self.lines), self.s.now, self.s.wall, &r) {
            Ok(bytes) => self.journal.extend(bytes),
            Err(e) => self.note(Err(format!("a record cannot be journaled: {e}"))),
        }
        // A scan is told as what it led to.
        let record = match (r, &self.s.disk.scan) {
            (JournalRecord::Fact(e), Some(scan)) if matches!(e.kind, EventKind::CheckpointsChanged(_)) => {
                JournalRecord::Fact(Event {
                    kind: EventKind::Checkpoints(scan.clone()),
                    ..e
                })
            }
            (r, _) => r,
        };
        // That the last step is finite is told nowhere else either.
        let is_told = !matches!(
            &record,
            JournalRecord::Fact(Event { kind: EventKind::Finite { odd: Some(0), .. }, .. }) if self.s.live().is_none()
        );
        if is_told {
            self.log.push(Logged { at: self.now, record });
        }
    }

    fn ask(&mut self, ask: &WorldQuery) {
        match ask {
            // While workers run, a look does not end a proof: it comes after it.
            WorldQuery::Scan { .. } if self.s.mode == RunMode::Running && self.proving == Some(self.scans) => {}
            WorldQuery::Scan { depth, whole } => {
                self.scans += 1;
                self.proving = (*depth == Depth::Full).then_some(self.scans);
                if self.io_hangs {
                    self.soon(IO_DEADLINE, Due::IoStalled);
                } else {
                    self.soon(SCAN, Due::Scan(self.scans, *depth, *whole));
                }
            }
            WorldQuery::Space => self.soon(0, Due::Space),
            WorldQuery::Allocation => self.soon(0, Due::Job),
            WorldQuery::Finite { ckpt } => {
                if let Some(attempt) = self.s.attempt.as_ref().map(|a| a.no).filter(|_| !self.is_reading) {
                    // At the end it was just read.
                    let takes = if self.s.live().is_some() { SCAN } else { 0 };
                    self.is_reading = true;
                    self.soon(takes, Due::Finite(attempt, ckpt.clone()));
                }
            }
            WorldQuery::SaveAnswer { attempt, id } => self.look_for_answer(*attempt, *id),
            WorldQuery::Rehearse => self.soon(REHEARSAL, Due::Rehearsed(self.s.term)),
            WorldQuery::WakeAt { key, at } => {
                self.queued += 1;
                let n = self.queued;
                self.timers.insert(*key, n);
                self.due(self.term_start.saturating_add(at.0), Due::Timer(*key, n));
            }
        }
    }

    fn note(&mut self, checked: Result<(), String>) {
        if let Err(what) = checked
            && self.broken.is_none()
        {
            self.broken = Some(format!("at {} ms: {what}", self.now));
        }
    }

    fn check_clock(&mut self) {
        if self.alive && !self.io_hangs && !self.journal_stalls {
            let checked = self.watch.clock(&self.s, &self.spec, self.now);
            self.note(checked);
        }
    }

    /// The journal's bytes fold to the state that lives.
    fn check_fold(&mut self) {
        let read = journal::read(&self.journal);
        let mut folded = RunState::default();
        let records: Vec<_> = read.lines.iter().flat_map(|(_, records)| records).collect();
        if !records.iter().copied().eq(read_by_parts(&self.journal).iter()) {
            self.note(Err(
                "a line says something else where it is read by its parts".to_owned()
            ));
        }
        for r in &records {
            folded.apply(r);
        }
        if records.len() as u64 != self.lines || !read.damaged.is_empty() {
            self.note(Err("a record did not survive the journal".to_owned()));
        }
        let kept: Option<RunState> = serde_json::to_vec(&folded)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        if kept.as_ref() != Some(&folded) {
            self.note(Err("the state does not survive a snapshot".to_owned()));
        }
        if folded != self.s {
            self.note(Err(
                "the journal folds to another state than the one that lives".to_owned()
            ));
        }
        self.s = folded;
    }

    fn new_term(&mut self, options: &[String]) {
        self.supervisor_dies();
        self.check_fold();
        if self.s.term.0 > 0 {
            // Flags of one command line.
            self.spec.policy.start.fresh = false;
            self.spec.policy.start.from = None;
            self.spec.policy.start.allow_fresh = false;
        }
        let checked = options::apply(&mut self.spec, &mut self.habits, options);
        self.note(checked);
        self.alive = true;
        self.leash += 1;
        self.term_start = self.now;
        let (living, orphans) = self.survivors();
        let term = Term(self.s.term.0 + 1);
        let waits = living.as_ref().is_some_and(|l| l.workers.is_empty());
        self.feed(EventKind::TermStarted {
            term,
            boot: format!("boot-{}", self.boot),
            host: "node-1".to_owned(),
            version: "0.1.0".to_owned(),
            config: self.spec.config_hash,
            trainer_version: self.spec.trainer_version.clone(),
            living,
            spread: self.spec.saves.spread(),
            orphans,
        });
        if let Some(p) = self.proc.as_ref().filter(|_| waits) {
            let attempt = p.attempt;
            self.soon(50, Due::Gone(attempt));
        }
    }

    fn supervisor_dies(&mut self) {
        if !self.alive {
            return;
        }
        self.alive = false;
        // Its helper dies with it: in the middle of what it was at, at worst.
        if let Some(cut) = self.s.disk.cutting.clone() {
            self.disk.half_cut(&cut.ckpt);
        }
        self.timers.clear();
        self.deferred.clear();
        self.stuck.clear();
        self.scans += 1;
        self.leash += 1;
        let grace = self.spec.policy.grace.orphan.0;
        self.soon(grace, Due::OrphanGrace(self.leash));
    }
}

/// The records of a journal by what its lines say in JSON: the way that reads every version.
fn read_by_parts(journal: &[u8]) -> Vec<JournalRecord> {
    let lines = journal.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    let bodies = lines
        .filter_map(|line| journal::bodies(line).ok())
        .flat_map(|(_, bodies)| bodies);
    bodies
        .filter_map(|body| serde_json::from_value(Value::Object([body].into_iter().collect())).ok())
        .collect()
}
