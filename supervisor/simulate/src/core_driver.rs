//! Drives the core: feeds it events, applies its records, and answers its acts and queries at once.

use crate::disk::SimulatedDisk;
use crate::plan::SimulationPlan;
use camino::Utf8Path;
use std::collections::{BTreeMap, VecDeque};
use supervise_core::checkpoint::Depth;
use supervise_core::decide::decide;
use supervise_core::event::{ActOutput, Activity, Event, EventKind, TimerKey, TrainerPhase};
use supervise_core::id::{AttemptNo, ProcRef, RunId, Step, Term, Tick, WallMs};
use supervise_core::journal::record::{Act, ActKind, JournalRecord, LaunchOrder, RunOutcome, WorldQuery};
use supervise_core::ledger::TimeLedger;
use supervise_core::spec::policy::Policy;
use supervise_core::spec::{GangSpec, Numbering, ResumeIntent, RunSpec, SaveCadence, SavePolicy, TrainerKind};
use supervise_core::state::RunState;

/// Steps kept on the simulated disk.
const KEPT: u32 = 3;
const BEGAN: i64 = 1_800_000_000_000;
const ROOM: u64 = 1 << 50;

/// The core, with a world that does what it is asked.
#[derive(Debug)]
pub(crate) struct CoreDriver {
    state: RunState,
    spec: RunSpec,
    ledger: TimeLedger,
    pub(crate) disk: SimulatedDisk,
    pub(crate) now: u64,
    queue: VecDeque<EventKind>,
    /// Replaces an earlier one that was not delivered.
    scan: Option<Depth>,
    pub(crate) backoff: Option<u64>,
    /// The order of the attempt that runs.
    pub(crate) launched: Option<LaunchOrder>,
    pub(crate) outcome: Option<RunOutcome>,
    pub(crate) term: u32,
    pub(crate) events: u64,
}

impl CoreDriver {
    pub(crate) fn new(plan: &SimulationPlan) -> Self {
        Self {
            state: RunState::default(),
            spec: spec(plan),
            ledger: TimeLedger::default(),
            disk: SimulatedDisk::default(),
            now: 0,
            queue: VecDeque::new(),
            scan: None,
            backoff: None,
            launched: None,
            outcome: None,
            term: 0,
            events: 0,
        }
    }

    pub(crate) fn start_term(&mut self) {
        self.term += 1;
        (self.outcome, self.backoff, self.launched) = (None, None, None);
        self.feed(EventKind::TermStarted {
            term: Term(self.term),
            boot: "simulated".into(),
            host: "simulated".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            config: 0,
            trainer_version: None,
            spread: BTreeMap::new(),
            living: None,
            orphans: Vec::new(),
        });
    }

    pub(crate) fn wall(&self) -> WallMs {
        WallMs(BEGAN.saturating_add_unsigned(self.now))
    }

    /// The moment of the newest event.
    pub(crate) fn last_fed(&self) -> u64 {
        self.state.now.0
    }

    pub(crate) fn ledger(&self) -> &TimeLedger {
        &self.ledger
    }

    pub(crate) fn mode(&self) -> &'static str {
        self.state.mode.word()
    }

    pub(crate) fn progress(&mut self, attempt: AttemptNo, phase: TrainerPhase, step: Option<u64>) {
        self.feed(EventKind::Progress {
            attempt,
            phase,
            step: step.map(Step),
            beats: 0,
            risen: 0,
            activity: Activity::default(),
        });
    }

    /// A new step can be resumed from.
    pub(crate) fn saved(&mut self, step: u64, by: AttemptNo) {
        let wall = self.wall();
        self.disk.put(step, wall, by);
        let report = self.disk.report(Depth::Full);
        self.feed(EventKind::Checkpoints(report));
    }

    /// Feeds an event, and what follows from it at this moment.
    pub(crate) fn feed(&mut self, kind: EventKind) {
        self.queue.push_back(kind);
        loop {
            let answer = || {
                self.scan
                    .take()
                    .map(|depth| EventKind::Checkpoints(self.disk.report(depth)))
            };
            let Some(kind) = self.queue.pop_front().or_else(answer) else {
                return;
            };
            self.decide(kind);
        }
    }

    fn decide(&mut self, kind: EventKind) {
        self.events += 1;
        let event = Event {
            at: Tick(self.now),
            wall: self.wall(),
            entropy: self.now.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            kind,
        };
        let out = decide(&self.state, &self.spec, &event);
        for record in out.records {
            self.state.apply(&record);
            self.ledger.note(&self.state, &record);
            if let JournalRecord::Intended { act, .. } = record {
                self.act(act);
            }
        }
        for query in out.asks {
            self.answer(query);
        }
    }

    fn act(&mut self, act: Act) {
        let output = match act.kind {
            ActKind::Launch(order) => {
                self.launched = Some(*order);
                let process = |pid| ProcRef { pid, start: 1 };
                ActOutput::Launched {
                    guard: process(1),
                    workers: vec![process(2)],
                    argv: Vec::new(),
                    ahead: None,
                }
            }
            ActKind::Prune(steps) => {
                self.disk.delete(&steps);
                ActOutput::Pruned
            }
            ActKind::Arrange(edits) => {
                edits.iter().for_each(|edit| self.disk.edit(edit));
                ActOutput::Done
            }
            ActKind::Finish(outcome) => {
                self.outcome = Some(outcome);
                ActOutput::Done
            }
            ActKind::Keep { .. }
            | ActKind::Signal { .. }
            | ActKind::KillTree
            | ActKind::Freeze
            | ActKind::Thaw
            | ActKind::RequestSave(_) => ActOutput::Done,
        };
        let result = Ok(output);
        self.queue.push_back(EventKind::ActDone { act: act.id, result });
    }

    fn answer(&mut self, query: WorldQuery) {
        match query {
            WorldQuery::Scan { depth, .. } => self.scan = Some(depth),
            WorldQuery::WakeAt {
                key: TimerKey::Backoff,
                at,
            } => self.backoff = Some(at.0),
            WorldQuery::Space => self.queue.push_back(EventKind::Space {
                free: Some(ROOM),
                files: None,
                works: None,
            }),
            WorldQuery::Finite { ckpt } => {
                if let Some(attempt) = self.state.attempt.as_ref().map(|a| a.no) {
                    self.queue.push_back(EventKind::Finite {
                        attempt,
                        ckpt,
                        odd: Some(0),
                        tensors: None,
                    });
                }
            }
            // Nothing here is slow, stalls or has a scheduler.
            WorldQuery::WakeAt { .. }
            | WorldQuery::Rehearse
            | WorldQuery::Allocation
            | WorldQuery::SaveAnswer { .. } => {}
        }
    }
}

fn spec(plan: &SimulationPlan) -> RunSpec {
    let root = Utf8Path::new("/simulated");
    RunSpec {
        run: RunId("simulated".into()),
        name: None,
        trainer: TrainerKind::new("simulated"),
        trainer_version: None,
        declared: None,
        config_hash: 0,
        root: Some(root.to_owned()),
        run_dir: root.join(".supervise"),
        config_file: None,
        command: Vec::new(),
        learnt: None,
        cwd: root.to_owned(),
        env: BTreeMap::new(),
        gang: GangSpec::driver(),
        cadence: SaveCadence {
            every: Some(plan.every),
            at_end: true,
        },
        last_step: Some(Step(plan.steps)),
        world: None,
        indivisible: Vec::new(),
        roles: Vec::new(),
        resume: ResumeIntent::Auto,
        keep: Some(KEPT),
        policy: Policy {
            backoff: plan.backoff.clone(),
            failure: plan.policy.clone(),
            ..Policy::default()
        },
        not_restored: Vec::new(),
        saves: SavePolicy::Steps,
        numbering: Numbering::Steps,
        may_end_early: false,
        has_tail: false,
        saves_at_stop: false,
        save_door: false,
    }
}
