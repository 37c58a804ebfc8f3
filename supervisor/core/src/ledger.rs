//! The ledger of a run: its wall time since the first attempt by category, what failures cost, and how attempts
//! recovered.
//!
//! [`TimeLedger::note`] is called with each record and the resulting state. The time between two records belongs to
//! what the run was doing then. While workers train, that is known only at the next sign of progress, so until then the
//! time is kept *open*. Within a term the term's clock counts; between terms the wall clock, which never runs backwards
//! here. Milliseconds are integers and each is counted once, so the categories sum to the total exactly. Memory is
//! bounded.

mod cost;
mod parts;

pub use cost::{Cost, RecoveryTime};
pub use parts::{TimeBreakdown, TimeCategory, WaitFor};

use crate::event::scan::RuleKind;
use crate::event::{EventKind, TrainerPhase};
use crate::id::{AttemptNo, Ms, Step, Tick, WallMs};
use crate::journal::record::{ActKind, Decision, JournalRecord, RunOutcome, StartPoint};
use crate::spec::RunSpec;
use crate::state::{Attempt, RunMode, RunState};
use cost::{CostOwner, Costs};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

const COMEBACKS: usize = 256;
/// Reason code of an attempt that was stopped because it stalled.
const STALLED: &str = "stalled";
pub(crate) const HAND_BACK: &str = "hand_back";
const UNSEEN: &str = "unseen";

/// Steps that were trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StepTally {
    /// For the first time.
    pub new: u64,
    /// Repeated.
    pub again: u64,
    /// Steps that a later attempt had to train again.
    pub lost: u64,
}

/// What the run was doing after a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Doing {
    /// The category is known at once.
    Part(TimeCategory),
    /// The workers run, in this phase.
    Training(TrainerPhase),
    #[default]
    Nothing,
}

/// Training time whose category depends on what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct OpenSpan {
    /// Spent on the next step, up to the last sign of progress.
    step: u64,
    /// Since that sign.
    since: u64,
    /// Since a failure was seen; only counted as such if the training does not continue.
    doubt: u64,
    fails: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrainingEnd {
    Well,
    Stalled,
    Cut,
}

/// The ledger of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TimeLedger {
    began: Option<WallMs>,
    now: Tick,
    wall: WallMs,
    doing: Doing,
    parts: TimeBreakdown,
    open: OpenSpan,
    trained: StepTally,
    high: Option<Step>,
    step: Option<Step>,
    beats: u64,
    /// Newest step of the previous attempt, until it is known where the current one starts.
    before: Option<Step>,
    /// Code of the reason for which the attempt was stopped.
    why: Option<String>,
    costs: Costs,
    comeback: RecoveryTime,
    comebacks: VecDeque<RecoveryTime>,
}

impl TimeLedger {
    /// Takes in a record; `s` is the state after it.
    pub fn note(&mut self, s: &RunState, r: &JournalRecord) {
        let gone = self.gone(s, r);
        (self.now, self.wall) = (s.now, s.wall);
        let gone = match r {
            JournalRecord::Fact(e) => match &e.kind {
                EventKind::TimeGap { missing } => self.slept(gone, *missing),
                EventKind::TermStarted { living, .. } => {
                    let lives = s.attempt.as_ref().map(|a| a.no);
                    self.new_term(gone, lives.is_some() && living.as_ref().map(|l| l.attempt) == lives)
                }
                _ => gone,
            },
            _ => gone,
        };
        self.spend(gone);
        self.on_record(s, r);
        if let Some(a) = s.attempt.as_ref() {
            self.look(a, r);
        }
        // A running guard keeps its workers training until the new term decides about them.
        let begins = matches!(r, JournalRecord::Fact(e) if matches!(e.kind, EventKind::TermStarted { .. }));
        if !(begins && matches!(self.doing, Doing::Training(_))) {
            self.turn(s);
        }
    }

    /// Wall time by category, up to the newest record.
    #[must_use]
    pub fn parts(&self) -> TimeBreakdown {
        self.parts_if(TrainingEnd::Well)
    }

    fn parts_if(&self, end: TrainingEnd) -> TimeBreakdown {
        let mut parts = self.parts.clone();
        for (part, ms) in self.settled(self.open, end) {
            parts.add(part, ms);
        }
        parts
    }

    /// Wall time by category up to `wall`, assuming that nothing has changed since the newest record. `hangs`: the workers make
    /// no progress, and the time since the last sign of it is lost.
    #[must_use]
    pub fn parts_at(&self, wall: WallMs, hangs: bool) -> TimeBreakdown {
        let mut later = self.clone();
        let more = u64::try_from(wall.0.saturating_sub(self.wall.0)).unwrap_or_default();
        later.spend(self.fitting(more));
        later.parts_if(if hangs { TrainingEnd::Stalled } else { TrainingEnd::Well })
    }

    /// When the first attempt was launched; `None` if none was.
    #[must_use]
    pub fn began(&self) -> Option<WallMs> {
        self.began
    }

    /// Steps trained so far.
    #[must_use]
    pub fn trained(&self) -> StepTally {
        self.trained
    }

    /// Cost of failures by class. A failure that was not diagnosed is listed under the code of the reason that stopped
    /// the attempt.
    #[must_use]
    pub fn costs(&self) -> &BTreeMap<String, Cost> {
        &self.costs.by
    }

    /// How the current attempt recovered, or is recovering.
    #[must_use]
    pub fn comeback(&self) -> &RecoveryTime {
        &self.comeback
    }

    /// How attempts recovered, oldest first: the last 256, including the current one.
    pub fn comebacks(&self) -> impl Iterator<Item = &RecoveryTime> {
        let present = Some(&self.comeback).filter(|c| c.attempt > AttemptNo(0));
        self.comebacks.iter().chain(present)
    }

    fn gone(&self, s: &RunState, r: &JournalRecord) -> u64 {
        let begins = matches!(r, JournalRecord::Fact(e) if matches!(e.kind, EventKind::TermStarted { .. }));
        self.fitting(match begins {
            true => u64::try_from(s.wall.0.saturating_sub(self.wall.0)).unwrap_or_default(),
            false => s.now.since(self.now).0,
        })
    }

    /// Limits `ms` so that the sum cannot overflow; 0 before the first attempt.
    fn fitting(&self, ms: u64) -> u64 {
        let spent = self.parts.whole().0 + self.open.step + self.open.since + self.open.doubt;
        match self.began {
            Some(_) => ms.min(u64::MAX - spent),
            None => 0,
        }
    }

    /// Books the time that the machine slept and returns the rest.
    fn slept(&mut self, gone: u64, missing: Ms) -> u64 {
        let slept = missing.0.min(gone);
        self.book(TimeCategory::Unknown, slept);
        gone - slept
    }

    /// Books the time between two terms, unless the run continued as before. Returns the time that is still to be
    /// booked.
    fn new_term(&mut self, gone: u64, lives: bool) -> u64 {
        let over = matches!(
            self.doing,
            Doing::Part(TimeCategory::Stopped | TimeCategory::Waiting(WaitFor::Scheduler | WaitFor::Person))
        );
        if over || lives {
            return gone;
        }
        if matches!(self.doing, Doing::Training(_)) {
            self.close(TrainingEnd::Cut, false);
        }
        self.doing = Doing::Nothing;
        self.book(TimeCategory::Unknown, gone);
        0
    }

    fn spend(&mut self, ms: u64) {
        match self.doing {
            Doing::Part(part) => self.book(part, ms),
            Doing::Nothing => self.book(TimeCategory::Unknown, ms),
            Doing::Training(_) if self.open.fails => self.open.doubt += ms,
            Doing::Training(_) => self.open.since += ms,
        }
    }

    fn book(&mut self, part: TimeCategory, ms: u64) {
        let loads = matches!(self.doing, Doing::Training(_));
        self.parts.add(part, ms);
        if part.is_cost() {
            self.costs.charge(ms);
        }
        if !self.comeback.complete {
            self.comeback.add(part, ms, loads);
        }
    }

    fn on_record(&mut self, s: &RunState, r: &JournalRecord) {
        match r {
            JournalRecord::Decided { what, reasons, .. } => match what {
                Decision::Stop { .. } => {
                    self.ended(s, reasons.first().map(|reason| reason.code.as_ref()));
                }
                Decision::Diagnosed(d) => {
                    self.ended(s, None);
                    self.named(d.class.code());
                }
                Decision::StartFrom { order, care: true, .. } => {
                    // A new starting point: earlier steps are not repeated.
                    self.high = Some(order.from.step());
                    self.step = None;
                }
                Decision::Finish { outcome } => match outcome {
                    RunOutcome::Stopped | RunOutcome::Finished { .. } | RunOutcome::ScriptUnfinished { .. } => {
                        self.costs.blame = CostOwner::Nobody
                    }
                    _ => self.named_by_reason(),
                },
                _ => {}
            },
            JournalRecord::Intended { act, .. } => {
                if let ActKind::Launch(order) = &act.kind {
                    self.launch(s, order.attempt, &order.from);
                }
            }
            JournalRecord::Fact(_) | JournalRecord::Ignored { .. } => {}
        }
    }

    /// The training was stopped for this reason, or failed.
    fn ended(&mut self, s: &RunState, code: Option<&str>) {
        if !matches!(self.doing, Doing::Training(_)) {
            return;
        }
        let handed_back = s.requests.stop.as_ref().is_some_and(|w| w.hand_back);
        self.why = if handed_back { Some(HAND_BACK) } else { code }.map(str::to_owned);
        let end = if code == Some(STALLED) {
            TrainingEnd::Stalled
        } else {
            TrainingEnd::Cut
        };
        self.close(end, is_stopped(s));
        self.doing = Doing::Part(TimeCategory::Ending);
    }

    fn named(&mut self, class: &str) {
        self.costs.name(class);
        if self.comeback.after.is_none() {
            self.comeback.after = Some(class.to_owned());
        }
    }

    fn named_by_reason(&mut self) {
        if matches!(self.costs.blame, CostOwner::Pending(_)) {
            let why = self.why.take().unwrap_or_else(|| UNSEEN.to_owned());
            self.named(&why);
        }
    }

    fn launch(&mut self, s: &RunState, attempt: AttemptNo, from: &StartPoint) {
        self.began.get_or_insert(s.wall);
        self.named_by_reason();
        self.why = None;
        self.comeback.attempt = attempt;
        self.comeback.from = from.step();
        let before = self.step.take().or(self.before.take());
        match from {
            StartPoint::AsIs => self.before = before,
            StartPoint::Fresh | StartPoint::Step { .. } => self.lose(before, from.step()),
        }
        self.beats = 0;
    }

    /// Counts the steps by which the previous attempt was ahead of the start of this one.
    fn lose(&mut self, before: Option<Step>, from: Step) {
        let lost = before.unwrap_or_default().0.saturating_sub(from.0);
        self.trained.lost = self.trained.lost.saturating_add(lost);
        self.comeback.lost_steps = self.comeback.lost_steps.saturating_add(lost);
        self.costs.lose(lost);
    }

    /// Looks for signs of progress or failure in a record.
    fn look(&mut self, a: &Attempt, r: &JournalRecord) {
        let Doing::Training(phase) = self.doing else { return };
        let fails = match r {
            JournalRecord::Fact(e) => match &e.kind {
                EventKind::WorkerExited { status, .. } => !status.is_success(),
                EventKind::Sighted { means, .. } => matches!(means, RuleKind::Failure(_) | RuleKind::Exception),
                EventKind::GuardLost { .. } => true,
                _ => false,
            },
            _ => false,
        };
        let rose = a.training.step > self.step;
        let grows = matches!(
            r,
            JournalRecord::Decided {
                what: Decision::SaveGrows { .. },
                ..
            }
        );
        if rose || a.training.phase != phase || a.training.pace.beats > self.beats || grows {
            self.sign(phase);
        }
        self.open.fails |= fails;
        self.beats = self.beats.max(a.training.pace.beats);
        if let Some(step) = a.training.step.filter(|_| rose) {
            self.rise(a, step);
        }
    }

    /// Books the time since the last sign of progress on this phase.
    fn sign(&mut self, phase: TrainerPhase) {
        let ms = self.open.since + self.open.doubt;
        (self.open.since, self.open.doubt, self.open.fails) = (0, 0, false);
        match part_of(phase) {
            None => self.open.step += ms,
            Some(part) => self.book(part, ms),
        }
    }

    /// A step was printed: divides the time since the previous one among the steps between them.
    fn rise(&mut self, a: &Attempt, step: Step) {
        let from = match (&a.order.from, self.step) {
            (_, Some(before)) => before,
            (StartPoint::AsIs, None) => Step(step.0.saturating_sub(1)),
            (from, None) => Step(from.step().0.min(step.0.saturating_sub(1))),
        };
        if let Some(before) = self.before.take() {
            self.lose(Some(before), from);
        }
        let ms = std::mem::take(&mut self.open.step);
        let high = self.high.unwrap_or_default();
        let of = step.0 - from.0;
        let again = high.0.min(step.0).saturating_sub(from.0);
        let repeated = u128::from(ms) * u128::from(again) / u128::from(of.max(1));
        let repeated = u64::try_from(repeated).unwrap_or(ms);
        if !self.comeback.complete {
            self.comeback.first_step.0 = self.comeback.first_step.0.saturating_add(ms);
            self.comeback.complete = true;
        }
        self.book(TimeCategory::Repeated, repeated);
        self.book(TimeCategory::Productive, ms - repeated);
        self.trained.again = self.trained.again.saturating_add(again);
        self.trained.new = self.trained.new.saturating_add(of - again);
        if step > high {
            self.costs.blame = CostOwner::Nobody;
        }
        self.high = self.high.max(Some(step));
        self.step = Some(step);
    }

    /// Switches to what the state says the run is doing.
    fn turn(&mut self, s: &RunState) {
        let lives = s.live().filter(|a| a.launch.launched.is_some());
        let next = match &s.mode {
            RunMode::Idle => Doing::Nothing,
            RunMode::Fencing | RunMode::Stopping { .. } => Doing::Part(TimeCategory::Ending),
            RunMode::Choosing => Doing::Part(TimeCategory::Proving),
            RunMode::Arranging { .. } | RunMode::Launching { .. } => Doing::Part(TimeCategory::Launching),
            RunMode::Running | RunMode::Draining { .. } => match lives {
                Some(a) => Doing::Training(a.training.phase),
                None => Doing::Part(TimeCategory::Ending),
            },
            RunMode::Waiting { what, .. } => Doing::Part(TimeCategory::Waiting(WaitFor::of(what))),
            RunMode::Finished => Doing::Part(TimeCategory::after(s.outcome.as_ref())),
        };
        let trains = |doing| matches!(doing, Doing::Training(_));
        if trains(self.doing) && !trains(next) {
            let well = s
                .attempt
                .as_ref()
                .is_some_and(|a| a.end.first_failure.is_none() && !a.end.guard_lost);
            self.close(if well { TrainingEnd::Well } else { TrainingEnd::Cut }, is_stopped(s));
        }
        self.doing = next;
    }

    /// The training is over; `stopped`: by its operators.
    fn close(&mut self, end: TrainingEnd, stopped: bool) {
        self.costs.blame = match stopped {
            true => CostOwner::Nobody,
            false => CostOwner::Pending(Ms(0)),
        };
        let open = std::mem::take(&mut self.open);
        let (noticing, trained): (Vec<_>, Vec<_>) = self
            .settled(open, end)
            .into_iter()
            .partition(|(part, _)| *part == TimeCategory::Noticing);
        for (part, ms) in trained {
            self.book(part, ms);
        }
        // The detection time is the first part of the recovery.
        self.next_comeback();
        for (part, ms) in noticing {
            self.book(part, ms);
        }
    }

    fn next_comeback(&mut self) {
        let before = std::mem::take(&mut self.comeback);
        if before.attempt == AttemptNo(0) {
            return;
        }
        if self.comebacks.len() >= COMEBACKS {
            self.comebacks.pop_front();
        }
        self.comebacks.push_back(before);
    }

    /// Categories of the open time if the training ends in this way.
    fn settled(&self, open: OpenSpan, end: TrainingEnd) -> [(TimeCategory, u64); 3] {
        let Doing::Training(phase) = self.doing else {
            return [
                (TimeCategory::Unknown, open.step),
                (TimeCategory::Unknown, open.since),
                (TimeCategory::Unknown, open.doubt),
            ];
        };
        let step = match end {
            TrainingEnd::Well if self.step >= self.high => TimeCategory::Productive,
            _ => TimeCategory::Repeated,
        };
        let since = match end {
            TrainingEnd::Stalled => TimeCategory::Noticing,
            _ => part_of(phase).unwrap_or(step),
        };
        let doubt = match end {
            TrainingEnd::Well => since,
            _ => TimeCategory::Noticing,
        };
        [(step, open.step), (since, open.since), (doubt, open.doubt)]
    }
}

/// Number of GPUs that a run uses by its current specification, or of its workers if that does not say.
#[must_use]
pub fn devices(spec: &RunSpec) -> u32 {
    match u32::try_from(spec.gang.gpus.len()) {
        Ok(0) | Err(_) => spec.world.unwrap_or_default().max(spec.gang.workers),
        Ok(gpus) => gpus.saturating_mul(spec.gang.nodes),
    }
}

fn is_stopped(s: &RunState) -> bool {
    s.requests.stop.as_ref().is_some_and(|w| !w.hand_back)
}

fn part_of(phase: TrainerPhase) -> Option<TimeCategory> {
    match phase {
        TrainerPhase::Startup => Some(TimeCategory::Launching),
        TrainerPhase::Step | TrainerPhase::Validate => None,
        TrainerPhase::Save => Some(TimeCategory::Saving),
        TrainerPhase::Exit => Some(TimeCategory::Ending),
    }
}
