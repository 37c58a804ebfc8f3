//! The simulated trainer: it starts, steps, saves as verl does, and fails where the script says.

use super::disk::dir;
use super::script::{Misdeed, Place, Truth};
use super::{Due, World};
use std::collections::BTreeSet;
use supervise_core::checkpoint::CkptId;
use supervise_core::event::scan::RuleKind;
use supervise_core::event::{Activity, EventKind, ExitStatus, LivingGuard, Sighting, TrackerState, TrainerPhase};
use supervise_core::id::{AttemptNo, ProcRef, Step, Tick, WorkerId};
use supervise_core::observe::creep::{ResourceUsage, WatchedResource};
use supervise_core::observe::numbers::{MetricValue, StepMetrics, StepNumbers};
use supervise_core::rulebook::taxonomy::Class;

/// The workers of one attempt, and their guard.
#[derive(Debug, Clone)]
pub(crate) struct Proc {
    pub(crate) attempt: AttemptNo,
    pub(crate) guard: ProcRef,
    pub(crate) guard_alive: bool,
    pub(crate) workers: Vec<ProcRef>,
    pub(crate) alive: BTreeSet<u32>,
    pub(crate) unheard: Vec<(WorkerId, ExitStatus)>,
    pub(crate) ended: u32,
    pub(crate) from: u64,
    pub(crate) printed: Option<u64>,
    /// Its own saves: the trainer forgets those of earlier attempts.
    pub(crate) saves: Vec<u64>,
    /// The request for a save in its file, and the last one that it answered, with the step.
    pub(crate) asked: Option<u64>,
    pub(crate) answered: Option<(u64, u64)>,
    /// It gets no further.
    pub(crate) stuck: bool,
    /// The processes that SIGKILL does not end were named.
    pub(crate) named: bool,
}

impl Proc {
    pub(crate) fn new(attempt: AttemptNo, guard: ProcRef, workers: Vec<ProcRef>, from: u64) -> Self {
        Self {
            attempt,
            guard,
            guard_alive: true,
            alive: (0..workers.len() as u32).collect(),
            workers,
            unheard: Vec::new(),
            ended: 0,
            from,
            printed: None,
            saves: Vec::new(),
            asked: None,
            answered: None,
            stuck: false,
            named: false,
        }
    }
}

/// The trainer's next act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tr {
    Up,
    Step(u64),
    Saved(u64),
    Busy,
    Term,
    Quit,
}

const WORK: Activity = Activity {
    cpu_ms: 1000,
    output: 100,
    over_ms: 1000,
    gpu: false,
    starved: false,
};

impl World {
    pub(crate) fn trainer(&mut self, attempt: AttemptNo, what: &Tr) {
        let Some(p) = self.proc.as_ref().filter(|p| p.attempt == attempt) else {
            return;
        };
        let stuck = p.stuck;
        match what {
            Tr::Term => self.all_end(ExitStatus::Signal(15)),
            Tr::Busy => self.busy(attempt),
            _ if stuck => {}
            Tr::Up => self.comes_up(attempt),
            Tr::Step(n) => self.step_done(attempt, *n),
            Tr::Saved(n) => self.save_done(attempt, *n),
            Tr::Quit => self.quits(attempt),
        }
    }

    /// The answer to a look at the weights of a step.
    pub(crate) fn weights(&mut self, attempt: AttemptNo, ckpt: CkptId) {
        if !self.is_alive() || self.io_hangs || self.habits.blind {
            return;
        }
        let step = ckpt.0.as_str().rsplit('_').next().and_then(|n| n.parse::<u64>().ok());
        let spoilt = self.habits.spoilt_from.filter(|_| !self.habits.mends || attempt.0 == 1);
        let odd = spoilt.filter(|from| step.is_some_and(|n| n >= *from));
        let odd = Some(u32::from(odd.is_some()));
        self.feed(EventKind::Finite {
            attempt,
            ckpt,
            odd,
            tensors: None,
        });
    }

    fn print_loss(&mut self, attempt: AttemptNo, n: u64) {
        let resumed = self.proc.as_ref().is_some_and(|p| p.from > 0);
        if !self.habits.losses || !self.proc.as_ref().is_some_and(|p| p.guard_alive) {
            return;
        }
        let scatter = [0.0, 0.03, -0.02, 0.01, -0.04][n as usize % 5];
        let jump = if resumed { self.habits.jumps as f64 } else { 0.0 };
        let loss = match self.habits.lost_from {
            Some(from) if n >= from && !(self.habits.mends && resumed) => f64::NAN,
            _ => 3.0 - n as f64 / 100.0 + scatter + jump,
        };
        let told = |of: f64| {
            let from = self.habits.falls_from?;
            Some(MetricValue(if n < from { of } else { 0.001 }))
        };
        let of = StepMetrics {
            loss: Some(MetricValue(loss)),
            entropy: told(0.5 + scatter),
            reward: told(0.2 + n as f64 / 100.0),
            ..StepMetrics::default()
        };
        let step = Some(Step(n));
        let steps = vec![StepNumbers { step, of }];
        self.feed(EventKind::Numbers { attempt, steps });
    }

    fn quits(&mut self, attempt: AttemptNo) {
        if self.habits.says_end {
            self.see(attempt, RuleKind::End, "end", None);
            self.progress(attempt, TrainerPhase::Exit, None);
        }
        if !self.habits.stays {
            self.all_end(ExitStatus::Code(self.habits.exit));
        }
    }

    fn comes_up(&mut self, attempt: AttemptNo) {
        let from = self.proc.as_ref().map_or(0, |p| p.from);
        if self.misdeed(attempt, Place::Start, from) {
            return;
        }
        if self.spec.root.is_none() {
            let from = self.s.progress.reached.filter(|_| self.habits.resumes_itself);
            return self.next_step(attempt, from.unwrap_or_default().0);
        }
        let rotten = self.disk.truth(&dir(from)) == Some(Truth::Rotten);
        if from > 0 && (rotten && self.load_fails(attempt) || self.misdeed(attempt, Place::Load(from), from)) {
            return;
        }
        if from > 0 && self.habits.shows_path {
            let path = format!("'resume_from_path': '/root-of-the-run/global_step_{from}',");
            self.see(attempt, RuleKind::ResumePath, &path, None);
        }
        if from > 0 {
            self.see(attempt, RuleKind::Resumed, "resumed", Some(from));
        }
        if self.habits.says_total {
            self.see(attempt, RuleKind::Total, "total", Some(self.habits.last));
        }
        let from = self.habits.goes_on_from.filter(|_| from > 0).unwrap_or(from);
        self.next_step(attempt, from);
    }

    fn load_fails(&mut self, attempt: AttemptNo) -> bool {
        self.see(
            attempt,
            RuleKind::Failure(Class::CkptCorrupt.into()),
            "ckpt.corrupt",
            None,
        );
        self.worker_fails(0, ExitStatus::Code(1));
        true
    }

    fn next_step(&mut self, attempt: AttemptNo, done: u64) {
        if done >= self.habits.last {
            self.soon(100, Due::Trainer(attempt, Tr::Quit));
        } else {
            self.soon(self.habits.step, Due::Trainer(attempt, Tr::Step(done + 1)));
        }
    }

    fn step_done(&mut self, attempt: AttemptNo, n: u64) {
        if self.misdeed(attempt, Place::Step(n), n) {
            return;
        }
        if self.habits.records && self.s.attempt.as_ref().is_some_and(|a| a.training.first.is_none()) {
            self.see(attempt, RuleKind::Step, "first_record", Some(n));
        }
        self.progress(attempt, TrainerPhase::Step, Some(n));
        self.print_loss(attempt, n);
        let saves = self.spec.cadence.every.is_some_and(|e| n.is_multiple_of(e))
            || self.spec.cadence.at_end && n >= self.habits.last;
        if (self.answers(n) || saves) && self.spec.root.is_some() {
            self.progress(attempt, TrainerPhase::Save, Some(n));
            self.write(n, Truth::Torn);
            self.soon(self.habits.save, Due::Trainer(attempt, Tr::Saved(n)));
        } else {
            self.next_step(attempt, n);
        }
    }

    /// A new request is answered at the step's end.
    fn answers(&mut self, n: u64) -> bool {
        let Some(p) = self.proc.as_mut() else { return false };
        let new = p.asked.filter(|id| p.answered.is_none_or(|(last, _)| last < *id));
        p.answered = new.map(|id| (id, n)).or(p.answered);
        new.is_some()
    }

    fn write(&mut self, n: u64, truth: Truth) {
        match self.spec.saves.is_in_place() {
            true if self.habits.own => self.disk.beside(n, truth),
            true => self.disk.overwrite(n, truth),
            false => self.disk.put(dir(n), n, truth),
        }
    }

    fn save_done(&mut self, attempt: AttemptNo, n: u64) {
        if self.misdeed(attempt, Place::Save(n), n) {
            return;
        }
        let whole = if self.habits.later_epoch {
            Truth::Degraded
        } else {
            Truth::Whole
        };
        self.write(n, whole);
        if self.spec.saves.is_steps() {
            self.disk.tracker = TrackerState::Step(Step(n));
        }
        let keep = self
            .spec
            .keep
            .map(|k| (k + self.spec.policy.retention.keep_raise) as usize);
        if let Some(p) = self.proc.as_mut() {
            p.saves.push(n);
            if let Some(keep) = keep
                && p.saves.len() > keep
            {
                let old = p.saves.remove(0);
                if self.disk.truth(&dir(old)).is_some() {
                    self.disk.put(dir(old), old, Truth::Husk);
                }
            }
        }
        self.progress(attempt, TrainerPhase::Step, Some(n));
        self.next_step(attempt, n);
    }

    /// `true`: something went wrong here.
    fn misdeed(&mut self, attempt: AttemptNo, place: Place, step: u64) -> bool {
        let Some(f) = self.faults.iter_mut().find(|f| f.place == place && f.times > 0) else {
            return false;
        };
        f.times = f.times.saturating_sub(u32::from(f.times != u32::MAX));
        match f.what.clone() {
            Misdeed::Exit { rank, status, class } => {
                if let Some(c) = class {
                    self.see(attempt, RuleKind::Failure(c.as_str().into()), &c, None);
                }
                self.worker_fails(rank, status);
            }
            Misdeed::Hang { busy } => {
                if self.habits.says_failed {
                    self.see(attempt, RuleKind::Failed, "Training failed with exception: x", None);
                }
                if let Some(p) = self.proc.as_mut() {
                    p.stuck = true;
                }
                if busy {
                    self.busy(attempt);
                }
            }
            Misdeed::Quit => self.all_end(ExitStatus::Code(0)),
            Misdeed::Forget { says } => {
                if says {
                    self.see(attempt, RuleKind::Scratch, "scratch", None);
                } else if self.habits.shows_path {
                    self.see(attempt, RuleKind::ResumePath, "'resume_from_path': None,", None);
                }
                let _ = step;
                self.next_step(attempt, 0);
            }
        }
        true
    }

    /// It says that a part of it is started again in place.
    pub(crate) fn heals(&mut self) {
        if let Some(attempt) = self.proc.as_ref().map(|p| p.attempt) {
            self.see(attempt, RuleKind::Heals, "heals.role", None);
        }
    }

    /// It hung, and goes on with its next step.
    pub(crate) fn gets_on(&mut self) {
        let all = |p: &&mut Proc| p.stuck && p.alive.len() == p.workers.len();
        let Some(p) = self.proc.as_mut().filter(all) else {
            return;
        };
        p.stuck = false;
        let (attempt, done) = (p.attempt, p.printed.unwrap_or(p.from));
        self.next_step(attempt, done);
    }

    fn busy(&mut self, attempt: AttemptNo) {
        let Some(p) = self.proc.as_ref().filter(|p| !p.alive.is_empty()) else {
            return;
        };
        let (phase, printed) = (
            self.s
                .attempt
                .as_ref()
                .map_or(TrainerPhase::Startup, |a| a.training.phase),
            p.printed,
        );
        self.progress(attempt, phase, printed);
        self.soon(10_000, Due::Trainer(attempt, Tr::Busy));
    }

    fn progress(&mut self, attempt: AttemptNo, phase: TrainerPhase, step: Option<u64>) {
        let Some(p) = self.proc.as_mut() else { return };
        p.printed = step.or(p.printed);
        if p.guard_alive {
            self.feed(EventKind::Progress {
                attempt,
                phase,
                step: step.map(Step),
                beats: 0,
                risen: 0,
                activity: WORK,
            });
            self.used(attempt);
        }
    }

    /// Samples as the driver takes them, at a step and after a save.
    fn used(&mut self, attempt: AttemptNo) {
        let Some(a) = self.s.live().filter(|a| a.no == attempt) else {
            return;
        };
        let (from, at) = (a.order.from.step(), Tick(self.now));
        let of = |what, steps: Step, pair: (u64, u64)| ResourceUsage {
            what,
            used: pair.0.saturating_mul(steps.0.saturating_sub(from.0)) << 20,
            of: pair.1 << 20,
        };
        let step = a.training.step.filter(|step| a.training.creep.is_due(*step, at));
        let leak = step.zip(self.habits.leaks);
        let saved = self
            .s
            .progress
            .mark
            .filter(|mark| *mark > from && a.training.creep.is_disk_due(*mark));
        let fill = saved.zip(self.habits.fills);
        let leak = leak.map(|(step, pair)| (step, of(WatchedResource::Memory, step, pair)));
        let fill = fill.map(|(step, pair)| (step, of(WatchedResource::Disk, step, pair)));
        for (step, usage) in leak.into_iter().chain(fill) {
            let usage = vec![usage];
            self.feed(EventKind::Used { attempt, step, usage });
        }
    }

    fn see(&mut self, attempt: AttemptNo, means: RuleKind, text: &str, number: Option<u64>) {
        if self.proc.as_ref().is_some_and(|p| p.guard_alive) {
            self.feed(EventKind::Sighted {
                attempt,
                means,
                sighting: Sighting {
                    rule: text.into(),
                    worker: WorkerId(0),
                    line: 10,
                    text: text.to_owned(),
                    number,
                    count: 1,
                },
            });
        }
    }

    /// One rank fails; the others wait for it until they are killed.
    pub(crate) fn worker_fails(&mut self, rank: u32, status: ExitStatus) {
        if let Some(p) = self.proc.as_mut() {
            p.stuck = true;
        }
        self.worker_ends(rank, status);
    }

    pub(crate) fn worker_ends(&mut self, rank: u32, status: ExitStatus) {
        let Some(p) = self.proc.as_mut() else { return };
        if !p.alive.remove(&rank) {
            return;
        }
        p.ended += 1;
        let (attempt, first, none_left) = (p.attempt, p.ended == 1, p.alive.is_empty());
        let heard = p.guard_alive && self.alive;
        if p.guard_alive && !self.alive {
            p.unheard.push((WorkerId(rank), status));
        }
        if heard {
            self.feed(EventKind::WorkerExited {
                attempt,
                worker: WorkerId(rank),
                status,
                first,
                lines: Vec::new(),
            });
        }
        if none_left {
            self.soon(50, Due::Gone(attempt));
        }
    }

    fn all_end(&mut self, status: ExitStatus) {
        let Some(p) = self.proc.as_mut() else { return };
        p.stuck = true;
        let alive: Vec<u32> = p.alive.iter().copied().collect();
        for rank in alive {
            self.worker_ends(rank, status);
        }
    }

    /// State that a new term finds: a living guard, or orphans.
    pub(crate) fn survivors(&mut self) -> (Option<LivingGuard>, Vec<ProcRef>) {
        let Some(p) = self.proc.as_mut() else {
            return (None, Vec::new());
        };
        let workers: Vec<ProcRef> = p
            .alive
            .iter()
            .filter_map(|n| p.workers.get(*n as usize).copied())
            .collect();
        if !p.guard_alive {
            return (None, workers);
        }
        let living = LivingGuard {
            attempt: p.attempt,
            guard: p.guard,
            workers,
            exits: std::mem::take(&mut p.unheard),
            step: p.printed.map(Step),
        };
        (Some(living), Vec::new())
    }
}
