//! One simulated run: its attempts train, save and fail at the drawn times until the last step is proven.

use crate::core_driver::CoreDriver;
use crate::draws::SeededDraws;
use crate::failures::failure_times;
use crate::plan::SimulationPlan;
use supervise_core::event::scan::RuleKind;
use supervise_core::event::{EventKind, ExitStatus, Sighting, TimerKey, TrainerPhase};
use supervise_core::id::{AttemptNo, Ms, WorkerId};
use supervise_core::journal::record::RunOutcome;
use supervise_core::ledger::{StepTally, TimeBreakdown};
use supervise_core::rulebook::taxonomy::Class;
use thiserror::Error;

const STREAM: u64 = 2;
const SIGKILL: i32 = 9;
const LAST_WORDS: &str = "process 1 terminated with signal SIGKILL";

/// What became of a simulated run.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedRun {
    /// Where the time went.
    pub parts: TimeBreakdown,
    pub trained: StepTally,
    /// Failures while workers were running.
    pub failures: u64,
    /// How often a person had to restart it.
    pub calls: u64,
    /// Whether the last step was proven in time.
    pub finished: bool,
    /// Events that the core decided about.
    pub events: u64,
}

/// The core did something that the simulated world does not know.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SimulationError {
    #[error("the simulated run waits for something that never happens ({mode})")]
    Stuck { mode: &'static str },
    #[error("the simulated run ended: {outcome}")]
    Ended { outcome: &'static str },
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptEnd {
    Failed,
    Done,
    /// The time is over.
    Limit,
}

/// Simulates a run.
///
/// # Errors
/// A bug here or in the core.
pub fn simulate(plan: &SimulationPlan, seed: u64) -> Result<SimulatedRun, SimulationError> {
    let mut run = Simulation {
        plan,
        core: CoreDriver::new(plan),
        failures: failure_times(&plan.failures, seed, plan.limit),
        next: 0,
        draws: SeededDraws::new(seed, STREAM),
        startup: plan.first_launch,
        failed: 0,
    };
    let (calls, finished) = run.play()?;
    let ledger = run.core.ledger();
    Ok(SimulatedRun {
        parts: ledger.parts_at(run.core.wall(), false),
        trained: ledger.trained(),
        failures: run.failed,
        calls,
        finished,
        events: run.core.events,
    })
}

struct Simulation<'a> {
    plan: &'a SimulationPlan,
    core: CoreDriver,
    failures: Vec<Ms>,
    /// The first failure that has not happened yet.
    next: usize,
    draws: SeededDraws,
    /// How long the next attempt takes until it trains.
    startup: Ms,
    failed: u64,
}

impl Simulation<'_> {
    /// Returns the calls of a person and whether the run finished.
    fn play(&mut self) -> Result<(u64, bool), SimulationError> {
        let mut calls = 0;
        self.core.start_term();
        loop {
            if let Some(outcome) = self.core.outcome.clone() {
                if matches!(outcome, RunOutcome::Finished { .. }) {
                    return Ok((calls, true));
                }
                if !outcome.needs_a_person() {
                    return Err(SimulationError::Ended {
                        outcome: outcome.word(),
                    });
                }
                calls += 1;
                if !self.wait(self.plan.person) {
                    return Ok((calls, false));
                }
                self.skip_failures();
                self.core.start_term();
                continue;
            }
            let Some(order) = self.core.launched.clone() else {
                self.wait_for_launch()?;
                continue;
            };
            match self.attempt(order.attempt, order.from.step().0) {
                AttemptEnd::Limit => return Ok((calls, false)),
                AttemptEnd::Done => self.exit(order.attempt, ExitStatus::Code(0)),
                AttemptEnd::Failed => {
                    self.failed += 1;
                    if !self.detect(order.attempt) {
                        return Ok((calls, false));
                    }
                    self.exit(order.attempt, ExitStatus::Signal(SIGKILL));
                }
            }
        }
    }

    fn wait_for_launch(&mut self) -> Result<(), SimulationError> {
        let mode = self.core.mode();
        let at = self.core.backoff.take().ok_or(SimulationError::Stuck { mode })?;
        self.core.now = self.core.now.max(at);
        // What breaks while nothing runs is replaced in the meantime.
        self.skip_failures();
        self.core.feed(EventKind::Timer(TimerKey::Backoff));
        Ok(())
    }

    /// Trains until a failure, the last step or the limit.
    fn attempt(&mut self, no: AttemptNo, from: u64) -> AttemptEnd {
        let plan = self.plan;
        if let Err(end) = self.advance(self.startup) {
            return end;
        }
        self.core.progress(no, TrainerPhase::Step, None);
        let mut step = from;
        let mut unproven: Option<(u64, u64)> = None;
        loop {
            let save = ((step / plan.every + 1) * plan.every).min(plan.steps);
            let began = self.core.now;
            if let Some((proven, at)) = unproven.take() {
                if let Err(end) = self.advance(Ms(at.saturating_sub(began))) {
                    return self.cut(no, step, began, end);
                }
                self.core.saved(proven, no);
            }
            let whole = (save - step) * plan.step.0;
            if let Err(end) = self.advance(Ms((began + whole).saturating_sub(self.core.now))) {
                return self.cut(no, step, began, end);
            }
            step = save;
            self.core.progress(no, TrainerPhase::Save, Some(step));
            let is_last = step == plan.steps;
            let stall = if is_last { plan.save } else { plan.stall };
            let proven = self.core.now + plan.save.0;
            if let Err(end) = self.advance(stall) {
                return end;
            }
            if is_last {
                self.core.saved(step, no);
                return AttemptEnd::Done;
            }
            self.core.progress(no, TrainerPhase::Step, Some(step));
            if proven <= self.core.now {
                self.core.saved(step, no);
            } else {
                unproven = Some((step, proven));
            }
        }
    }

    /// The training from `step` on, which began at `began`, is cut: the steps that were done count as printed.
    fn cut(&mut self, no: AttemptNo, step: u64, began: u64, end: AttemptEnd) -> AttemptEnd {
        let at = self.core.now;
        let done = (at - began) / self.plan.step.0;
        if done > 0 {
            // What was fed meanwhile cannot be fed before.
            self.core.now = self.core.last_fed().max(began + done * self.plan.step.0);
            self.core.progress(no, TrainerPhase::Step, Some(step + done));
            self.core.now = at;
        }
        end
    }

    /// Lets time pass; an error if the run fails or the time is over before.
    fn advance(&mut self, by: Ms) -> Result<(), AttemptEnd> {
        let until = self.core.now.saturating_add(by.0);
        let failure = self.failures.get(self.next).map_or(u64::MAX, |at| at.0);
        if failure < until.min(self.plan.limit.0) {
            self.next += 1;
            self.core.now = self.core.now.max(failure);
            return Err(AttemptEnd::Failed);
        }
        self.core.now = until.min(self.plan.limit.0);
        if until > self.plan.limit.0 {
            return Err(AttemptEnd::Limit);
        }
        Ok(())
    }

    /// Lets time pass in which nothing can fail; false if the time is over.
    fn wait(&mut self, by: Ms) -> bool {
        let until = self.core.now.saturating_add(by.0);
        self.core.now = until.min(self.plan.limit.0);
        until <= self.plan.limit.0
    }

    fn skip_failures(&mut self) {
        while self.failures.get(self.next).is_some_and(|at| at.0 <= self.core.now) {
            self.next += 1;
        }
    }

    /// The failure shows, and its detection takes a while. False if the time is over before.
    fn detect(&mut self, attempt: AttemptNo) -> bool {
        let plan = self.plan;
        self.startup = plan.launch;
        if self.draws.happens(plan.replaced) {
            self.startup.0 += plan.replace.0;
        }
        if self.draws.happens(plan.damaged) {
            self.core.disk.damage_newest();
        }
        if plan.detect.0 == 0 {
            return true;
        }
        self.core.feed(EventKind::Sighted {
            attempt,
            means: RuleKind::Failure(Class::KillUnknown.into()),
            sighting: Sighting {
                rule: LAST_WORDS.to_owned().into(),
                worker: WorkerId(0),
                line: 1,
                text: LAST_WORDS.to_owned(),
                number: None,
                count: 1,
            },
        });
        let is_in_time = self.wait(plan.detect);
        self.skip_failures();
        is_in_time
    }

    fn exit(&mut self, attempt: AttemptNo, status: ExitStatus) {
        self.core.launched = None;
        self.core.feed(EventKind::WorkerExited {
            attempt,
            worker: WorkerId(0),
            status,
            first: true,
            lines: Vec::new(),
        });
        self.core.feed(EventKind::TreeGone {
            attempt,
            unkillable: Vec::new(),
        });
    }
}
