//! The ledger of a run: its wall time since the first attempt, split without rest; what failures cost; how attempts came back.
//!
//! A fold over the records beside the state: [`Ledger::note`] is called with each record and the state that it led to. The time
//! between two records belongs to what was going on then. While workers train, that is known only at the next sign of
//! progress: until then the time is held *open*. Within a term the term's clock counts, between terms the wall clock, never backwards. Milliseconds are
//! integers and each is counted once: the parts sum to the whole exactly. Memory is bounded.

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
/// Code of the reason for which an attempt is ended that does not get on.
const STALLED: &str = "stalled";
const HAND_BACK: &str = "hand_back";
const UNSEEN: &str = "unseen";

/// Steps that were trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StepTally {
    /// For the first time.
    pub new: u64,
    /// Again.
    pub again: u64,
    /// Steps that the next attempt had to train again.
    pub lost: u64,
}

/// Activity of the run after a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Doing {
    /// Something that is known at once.
    Part(TimeCategory),
    /// The workers run, in this phase.
    Training(TrainerPhase),
    /// Nothing is known.
    #[default]
    Nothing,
}

/// Time of a training whose part is told by what comes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct OpenSpan {
    /// Spent on the next step, up to the last sign of progress.
    step: u64,
    /// Since then.
    since: u64,
    /// Since a failure was sighted, if the training does not go on.
    doubt: u64,
    /// One was.
    fails: bool,
}

/// How a training ended.
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
    /// Highest step that was ever printed.
    high: Option<Step>,
    /// The newest step of the present attempt.
    step: Option<Step>,
    /// Signs of progress within its phase.
    beats: u64,
    /// The newest step of the attempt before, where it is not known yet from where this one goes on.
    before: Option<Step>,
    /// Code of the reason for which the attempt was ended.
    why: Option<String>,
    costs: Costs,
    comeback: RecoveryTime,
    comebacks: VecDeque<RecoveryTime>,
}

impl TimeLedger {
    /// Takes a record in; `s` is the state after it.
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
        // A guard that lives on keeps its workers at it until it is decided upon.
        let begins = matches!(r, JournalRecord::Fact(e) if matches!(e.kind, EventKind::TermStarted { .. }));
        if !(begins && matches!(self.doing, Doing::Training(_))) {
            self.turn(s);
        }
    }

    /// Wall time by part, up to the newest record.
    #[must_use]
    pub fn parts(&self) -> TimeBreakdown {
        let mut parts = self.parts.clone();
        for (part, ms) in self.settled(self.open, TrainingEnd::Well) {
            parts.add(part, ms);
        }
        parts
    }

    /// Wall time by part up to a moment after the newest record, while what went on then goes on.
    #[must_use]
    pub fn parts_at(&self, wall: WallMs) -> TimeBreakdown {
        let mut later = self.clone();
        let more = u64::try_from(wall.0.saturating_sub(self.wall.0)).unwrap_or_default();
        later.spend(self.fitting(more));
        later.parts()
    }

    /// When the first attempt was launched; `None`: none was.
    #[must_use]
    pub fn began(&self) -> Option<WallMs> {
        self.began
    }

    /// Steps that were trained.
    #[must_use]
    pub fn trained(&self) -> StepTally {
        self.trained
    }

    /// Cost of failures by class; one that was ended without a diagnosis stands under the code of the reason for which it was ended.
    #[must_use]
    pub fn costs(&self) -> &BTreeMap<String, Cost> {
        &self.costs.by
    }

    /// How the present attempt came back, or is on its way.
    #[must_use]
    pub fn comeback(&self) -> &RecoveryTime {
        &self.comeback
    }

    /// How attempts came back, oldest first: the last 256, the present one included.
    pub fn comebacks(&self) -> impl Iterator<Item = &RecoveryTime> {
        let present = Some(&self.comeback).filter(|c| c.attempt > AttemptNo(0));
        self.comebacks.iter().chain(present)
    }

    /// Time since the record before.
    fn gone(&self, s: &RunState, r: &JournalRecord) -> u64 {
        let begins = matches!(r, JournalRecord::Fact(e) if matches!(e.kind, EventKind::TermStarted { .. }));
        self.fitting(match begins {
            true => u64::try_from(s.wall.0.saturating_sub(self.wall.0)).unwrap_or_default(),
            false => s.now.since(self.now).0,
        })
    }

    /// No more than can be counted; nothing before the first attempt.
    fn fitting(&self, ms: u64) -> u64 {
        let spent = self.parts.whole().0 + self.open.step + self.open.since + self.open.doubt;
        match self.began {
            Some(_) => ms.min(u64::MAX - spent),
            None => 0,
        }
    }

    /// Part of the time was slept; the rest.
    fn slept(&mut self, gone: u64, missing: Ms) -> u64 {
        let slept = missing.0.min(gone);
        self.book(TimeCategory::Unknown, slept);
        gone - slept
    }

    /// The time since the last record of the term before, where it went on as before: the rest.
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
                    // Another beginning: what was trained before it is not trained again.
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

    /// The training was ended for this reason, or ended by itself, and not well.
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

    /// No diagnosis was made.
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

    /// The attempt before came further than this one starts from.
    fn lose(&mut self, before: Option<Step>, from: Step) {
        let lost = before.unwrap_or_default().0.saturating_sub(from.0);
        self.trained.lost = self.trained.lost.saturating_add(lost);
        self.comeback.lost_steps = self.comeback.lost_steps.saturating_add(lost);
        self.costs.lose(lost);
    }

    /// Signs of progress.
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

    /// The training got on: what was spent since the last sign was spent on this phase.
    fn sign(&mut self, phase: TrainerPhase) {
        let ms = self.open.since + self.open.doubt;
        (self.open.since, self.open.doubt, self.open.fails) = (0, 0, false);
        match part_of(phase) {
            None => self.open.step += ms,
            Some(part) => self.book(part, ms),
        }
    }

    /// A step was printed: the time since the one before is divided among the steps between them.
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

    /// Turns to the activity that the state tells.
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

    /// The training is over; `stopped`: by its people.
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
        // The time until the failure was noticed is the first part of the way back from it.
        self.next_comeback();
        for (part, ms) in noticing {
            self.book(part, ms);
        }
    }

    /// The way back from here on.
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

    /// Parts that an open time belongs to if the training ends so.
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

/// GPUs that a run uses, by its present specification; the number of its workers where that does not tell.
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
