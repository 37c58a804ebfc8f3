//! Replay: what each record does to the state.

use super::budget::FAILURES;
use super::{Attempt, EndCause, NotKept, RunMode, RunState, SchedulerJob, StopWish};
use crate::checkpoint::finiteness::{OddTensors, WeightsLook};
use crate::checkpoint::kind::whole_live;
use crate::checkpoint::{CheckpointSummary, CkptId, Depth, PinsHash};
use crate::event::scan::RuleKind;
use crate::event::{ActError, ActErrorKind, ActOutput, Event, EventKind, ScanReport};
use crate::id::{ActId, Tick, WallMs};
use crate::journal::record::{
    Act, ActKind, AfterStop, BACK_TO_FINITE, Decision, JournalRecord, LAST_FINITE, SaveRequestEnd, StartPoint,
};
use crate::observe::numbers::keep;
use crate::rulebook::taxonomy::Class;

impl RunState {
    /// Applies one record. It is total: no record is refused, and none panics.
    pub fn apply(&mut self, r: &JournalRecord) {
        match r {
            JournalRecord::Fact(e) => self.on_fact(e),
            JournalRecord::Decided { at, what, reasons } => {
                self.pass(*at);
                self.why.clone_from(reasons);
                self.on_decision(what, *at);
            }
            JournalRecord::Intended { at, act, .. } => {
                self.pass(*at);
                self.next_act = self.next_act.max(act.id.next());
                if act.kind.is_guarded() {
                    self.pending.insert(act.id, act.clone());
                }
                self.on_intent(act);
            }
            JournalRecord::Ignored { at, .. } => self.pass(*at),
        }
    }

    /// Advances the wall clock with a decision that is much later than the newest fact: timers leave no fact, and only
    /// facts have a wall clock.
    fn pass(&mut self, at: Tick) {
        let gone = i64::try_from(at.since(self.now).0).unwrap_or(i64::MAX);
        if self.wall != WallMs::default() {
            self.wall = WallMs(self.wall.0.saturating_add(gone));
        }
        self.now = at;
    }

    pub(super) fn enter(&mut self, mode: RunMode, at: Tick) {
        self.mode = mode;
        self.since = at;
    }

    fn on_fact(&mut self, e: &Event) {
        self.now = e.at;
        self.wall = e.wall;
        match &e.kind {
            EventKind::TermStarted { .. } => self.on_term(e),
            EventKind::ActDone { act, result } => self.on_act_done(e, *act, result.as_ref()),
            EventKind::Checkpoints(report) => {
                self.disk.scan_told = Some(0);
                self.on_scan(report.clone());
            }
            EventKind::CheckpointsChanged(diff) => {
                match self.disk.scan.take().and_then(|scan| scan.apply(diff)) {
                    Some(report) => {
                        let told = self.disk.scan_told.unwrap_or_default();
                        self.disk.scan_told = Some(told.saturating_add(1 + diff.len() as u64));
                        self.on_scan(report);
                    }
                    // The scan that it is a difference to was lost with its line: what is on disk is not known before the next one.
                    None => self.disk.scan_told = None,
                }
            }
            EventKind::TimeGap { missing } => {
                self.since = self.since.after(*missing);
                self.context.held_since = self.context.held_since.map(|at| at.after(*missing));
                if let Some(wish) = self.requests.stop.as_mut() {
                    wish.at = wish.at.after(*missing);
                }
                if let Some(a) = self.attempt.as_mut() {
                    a.training.last_progress = a.training.last_progress.after(*missing);
                    a.training.last_active = a.training.last_active.after(*missing);
                    a.training.pace.shift(*missing);
                    a.saves.shift(*missing);
                }
            }
            EventKind::IoStalled { what } => self.context.io_stalled = Some(what.clone()),
            EventKind::IoRecovered => {
                self.context.io_stalled = None;
                if let Some(a) = self.attempt.as_mut() {
                    a.training.pace.excused = Some(e.at);
                }
            }
            EventKind::JournalStalled { .. } => self.context.journal_stalled = true,
            EventKind::JournalRecovered => self.context.journal_stalled = false,
            EventKind::Operator(request) => self.on_request(request, e.at),
            EventKind::Allocation {
                job, restarts, ends, ..
            } => {
                self.context.allocation = Some(SchedulerJob {
                    job: job.clone(),
                    restarts: *restarts,
                    ends: *ends,
                });
            }
            EventKind::LeaseLost { by } => self.context.lease_lost = Some(by.clone()),
            EventKind::LeaseSilent { what } => self.context.lease_lost = Some(what.clone()),
            EventKind::Displaced { what } => {
                self.context.lease_lost = Some(what.clone());
                self.context.displaced = true;
            }
            EventKind::Rehearsed(rehearsal) => self.rehearsal = Some(rehearsal.clone()),
            EventKind::TrainerSeen(seen) => self.seen = Some(seen.clone()),
            EventKind::SaveAnswered { attempt, id, step } if self.attempts == *attempt => {
                self.on_save_answered(*id, *step, e.at);
            }
            _ => self.on_attempt_fact(e),
        }
    }

    fn on_scan(&mut self, report: ScanReport) {
        self.note_own(&report);
        self.note_spreads(&report);
        if self.live().is_none() && report.unreadable.is_none() && self.disk.settled.is_none() {
            self.disk.settled = Some(report.steps.iter().map(|c| c.id.clone()).collect());
        }
        let read = report
            .steps
            .iter()
            .filter(|c| c.is_proven(Depth::Full) && !c.id.0.is_absolute());
        self.disk.read = self.disk.read.max(read.map(|c| c.step).max());
        self.disk.scan = Some(report);
        self.disk.looked = true;
        self.note_saved();
    }

    /// The content of the only checkpoint belongs to the running attempt, unless it goes back.
    fn note_saved(&mut self) {
        let live = self
            .disk
            .scan
            .as_ref()
            .and_then(|r| whole_live(&r.steps))
            .map(|c| (c.step, c.id.clone()));
        if self.live().is_some()
            && let Some(a) = self.attempt.as_mut()
            && let Some(live) = live
            && a.training.saved.as_ref().is_none_or(|saved| saved.0 < live.0)
        {
            a.training.saved = Some(live);
        }
    }

    fn on_act_done(&mut self, e: &Event, act: ActId, result: Result<&ActOutput, &ActError>) {
        let done = self.pending.remove(&act).map(|a| a.kind);
        match result {
            Err(error)
                if matches!(
                    error.kind,
                    ActErrorKind::Held | ActErrorKind::GpuBusy | ActErrorKind::Limit
                ) =>
            {
                self.context.held_since.get_or_insert(e.at);
            }
            _ if matches!(done, Some(ActKind::Launch(_))) => self.context.held_since = None,
            _ => {}
        }
        if matches!(done, Some(ActKind::Launch(_) | ActKind::Arrange(_))) {
            self.disk.no_room = result.is_err_and(|error| error.kind == ActErrorKind::NoRoom);
            self.disk.full = self.disk.full.saturating_add(u32::from(self.disk.no_room));
        }
        if let Some(ActKind::Keep { ckpt, pins, .. }) = &done {
            return self.on_kept(ckpt, *pins, result);
        }
        if result.is_ok() && matches!(done, Some(ActKind::Arrange(_))) {
            self.disk.arranged = self.disk.arranged.saturating_add(1);
            self.disk.cutting = None;
        }
        if let (Ok(_), Some(ActKind::Arrange(edits))) = (result, &done) {
            self.note_arranged(edits);
        }
        if let Ok(ActOutput::Resharded(derived)) = result {
            self.note_derived(derived);
        }
        let Some(a) = self.attempt.as_mut() else { return };
        match (result, done) {
            (
                Ok(ActOutput::Launched {
                    guard, workers, argv, ..
                }),
                _,
            ) => {
                self.disk.watched = true;
                a.launch.guard = Some(*guard);
                a.launch.workers.clone_from(workers);
                a.launch.argv.clone_from(argv);
                a.launch.launched = Some(e.at);
                a.launch.launched_wall = Some(e.wall);
                a.training.last_progress = e.at;
                a.training.last_active = e.at;
                a.training.pace.began = e.at;
            }
            (Err(_), Some(ActKind::Launch(_))) => a.end.gone = true,
            (Err(error), Some(ActKind::RequestSave(order))) => {
                let why = error.what.clone();
                self.on_save_request_ended(order.id, &SaveRequestEnd::Failed { why }, e.at);
            }
            (Err(_), Some(ActKind::Prune(_))) => self.disk.prune_failed = self.progress.mark,
            (Ok(ActOutput::Pruned), Some(ActKind::Prune(gone))) => {
                if let Some(scan) = self.disk.scan.as_mut() {
                    // As text: to compare them part by part is what most of a long journal's prunes would take.
                    let went = |c: &CheckpointSummary| gone.iter().any(|id| id.0.as_str() == c.id.0.as_str());
                    scan.steps.retain(|c| !went(c));
                    for c in &mut scan.steps {
                        c.lose_roles(&gone);
                    }
                }
            }
            _ => {}
        }
    }

    fn on_kept(&mut self, ckpt: &CkptId, pins: PinsHash, result: Result<&ActOutput, &ActError>) {
        self.disk.keep_failed = result.err().map(|e| NotKept {
            ckpt: ckpt.clone(),
            pins,
            why: e.what.clone(),
        });
        self.disk.voided = match result {
            Err(e) if e.kind == ActErrorKind::Voided => self.disk.voided.saturating_add(1),
            Err(_) => self.disk.voided,
            Ok(_) => 0,
        };
    }

    fn on_attempt_fact(&mut self, e: &Event) {
        // What a fence killed counts for any attempt that was not seen to end.
        let fencing = self.mode == RunMode::Fencing;
        let held = self.requests.held.is_some();
        let Some(a) = self.attempt.as_mut() else {
            return;
        };
        match &e.kind {
            EventKind::WorkerExited {
                attempt,
                worker,
                status,
                lines,
                ..
            } if *attempt == a.no => {
                a.exits.insert(*worker, *status);
                if !status.is_success() && a.end.first_failure.is_none() {
                    a.end.first_failure = Some((*worker, *status));
                    a.end.failed_by_itself = a.end.ended_by_us.is_none();
                    if !a.is_stuck() {
                        a.end.lines.clone_from(lines);
                    }
                }
            }
            EventKind::TreeGone { attempt, unkillable } if *attempt == a.no || fencing => {
                a.end.gone = unkillable.is_empty();
                a.nodes.wait = None;
                a.end.unkillable.clone_from(unkillable);
            }
            EventKind::GuardLost { attempt } if *attempt == a.no => a.end.guard_lost = true,
            EventKind::Nodes { attempt, news } if *attempt == a.no => a.nodes.note(news),
            EventKind::Used { attempt, step, usage } if *attempt == a.no => a.training.creep.note(*step, e.at, usage),
            EventKind::Finite {
                attempt,
                ckpt,
                odd,
                tensors,
            } if *attempt == a.no => {
                a.note_finite(ckpt, *odd);
                self.on_weights(ckpt, *odd, tensors.as_ref());
            }
            EventKind::Evidence { attempt, facts } if *attempt == a.no => {
                a.end.evidence.get_or_insert_default().add(facts);
            }
            EventKind::Numbers { attempt, steps } if *attempt == a.no => {
                a.note_numbers(steps);
                self.progress.course.note(steps);
            }
            EventKind::Script { attempt, news } if *attempt == a.no => {
                a.note_script(news);
            }
            EventKind::Progress { attempt, .. } if *attempt == a.no => {
                if held {
                    a.excuse(e.at);
                }
                a.get_on(&mut self.clocks, e);
            }
            EventKind::Sighted {
                attempt,
                means,
                sighting,
            } if *attempt == a.no => {
                a.note_sighting(means, sighting, e.at);
                if let (RuleKind::Total, Some(n)) = (means, sighting.number) {
                    self.progress.total = Some(crate::id::Step(n));
                }
            }
            _ => {}
        }
    }

    fn on_weights(&mut self, ckpt: &CkptId, files: Option<u32>, tensors: Option<&OddTensors>) {
        let steps = self.disk.scan.iter().flat_map(|scan| &scan.steps);
        if let Some(step) = steps.filter(|c| c.id == *ckpt).map(|c| c.step).next() {
            self.note_weights(WeightsLook {
                ckpt: ckpt.clone(),
                step,
                files,
                tensors: tensors.cloned(),
            });
        }
    }

    fn on_intent(&mut self, act: &Act) {
        if let ActKind::RequestSave(order) = &act.kind {
            self.on_save_order(order);
        }
        if let ActKind::Arrange(edits) = &act.kind {
            self.disk.arranging = true;
            self.note_cutting(edits);
        }
        if let ActKind::Launch(order) = &act.kind {
            if self.attempt.as_ref().is_none_or(|a| a.term != self.term) {
                self.budget.barren_terms = self.budget.barren_terms.saturating_add(1);
            }
            // Steps above the start were moved aside; a step saved there again is a new one.
            let above: Vec<_> = self
                .disk
                .scan
                .iter()
                .flat_map(|r| &r.steps)
                .filter(|c| c.step > order.from.step())
                .collect();
            self.disk.distrusted.retain(|id| !above.iter().any(|c| c.id == *id));
            self.forget_weights_above(order.from.step());
            self.attempts = order.attempt;
            self.requests.roll_back = None;
            self.requests.let_go = None;
            self.disk.arranged = 0;
            self.disk.arranging = false;
            self.disk.settled = None;
            self.note_foreign();
            self.disk.spreads.begin_attempt(self.disk.scan.as_ref());
            if let Some(a) = &self.attempt {
                self.restarts = self.restarts.saturating_add(u32::from(!a.end.ended_run));
                keep(&mut self.progress.before, &a.training.numbers);
                self.progress.reached = self.progress.reached.max(a.training.step.filter(|_| !a.end.apart));
            }
            // What is trained again ends anew, and is checked at its end.
            if self.progress.finished > Some(order.from.step()) {
                self.progress.finished = None;
            }
            let mark_before = self.progress.mark;
            let mut attempt = Attempt::begin(order, self.term, self.now, mark_before);
            attempt.launch.save_every = self.interval_of(&order.from);
            self.attempt = Some(attempt);
        }
    }

    fn interval_of(&self, from: &StartPoint) -> Option<u64> {
        let StartPoint::Step { ckpt, .. } = from else {
            return None;
        };
        let step = self.disk.scan.as_ref()?.steps.iter().find(|c| c.id == *ckpt)?;
        step.trainer_note?.save_every
    }

    fn on_decision(&mut self, what: &Decision, at: Tick) {
        match what {
            Decision::Fence { .. } => self.enter(RunMode::Fencing, at),
            Decision::TakeOver { .. } => {
                if let Some(a) = self.attempt.as_mut() {
                    a.end.ended_by_us = None;
                }
                self.enter(RunMode::Running, at);
            }
            Decision::Run => self.enter(RunMode::Running, at),
            Decision::Choose => {
                self.disk.looked = false;
                self.enter(RunMode::Choosing, at);
            }
            Decision::StartFrom {
                order,
                edits,
                care,
                intent,
            } => {
                if *care {
                    self.take_into_care(order, edits, intent);
                }
                self.accept(&order.from);
                self.enter(RunMode::Arranging { order: order.clone() }, at);
            }
            Decision::Launch { order } => self.enter(RunMode::Launching { order: order.clone() }, at),
            Decision::Drain { until, then } => {
                let (until, then) = (*until, *then);
                self.enter(RunMode::Draining { until, then }, at);
            }
            Decision::Stop { then, gently } => {
                let why = self.why.first();
                let spoilt = why.is_some_and(|r| r.code == BACK_TO_FINITE);
                self.went_back |= spoilt;
                // The reason of a stop after a drain says why it stops now, and not why it stops.
                let wish = self.requests.stop.as_ref().filter(|_| *then == AfterStop::Stopped);
                if let Some(a) = self.attempt.as_mut() {
                    a.end.ended_by_us = wish.map(StopWish::cause).or(why.map(EndCause::of));
                    a.end.spoilt |= spoilt;
                    a.end.hopeless |= why.is_some_and(|r| r.code == LAST_FINITE);
                }
                let (then, gently) = (*then, *gently);
                self.enter(RunMode::Stopping { then, gently }, at);
            }
            Decision::Diagnosed(d) => {
                let is_full = d.class == Class::DiskFull;
                self.disk.doubt |= is_full;
                self.disk.full = self.disk.full.saturating_add(u32::from(is_full));
                if let Some(a) = self.attempt.as_mut() {
                    a.end.diagnosis = Some(d.clone());
                }
            }
            Decision::Charge {
                attempts,
                step_backs,
                spared,
            } => {
                self.budget.spared = self.budget.spared.saturating_add(u32::from(*spared));
                self.on_charge(*attempts, *step_backs);
            }
            Decision::Refilled => self.budget.own_deaths = 0,
            Decision::Advanced { step } => self.on_advance(*step),
            Decision::Distrust { ckpt } => {
                self.went_back |= self.why.first().is_some_and(|r| r.code == BACK_TO_FINITE);
                self.disk.distrusted.retain(|c| c != ckpt);
                self.disk.distrusted.push(ckpt.clone());
                if self.disk.distrusted.len() > FAILURES {
                    self.disk.distrusted.remove(0);
                }
            }
            Decision::Trust { ckpts } => {
                self.disk.distrusted.retain(|c| !ckpts.contains(c));
                self.went_back = false;
            }
            Decision::Wait { what, until } => {
                let (what, until) = (what.clone(), *until);
                self.enter(RunMode::Waiting { what, until }, at);
            }
            Decision::Mark { step } => self.on_mark(*step, at),
            Decision::SaveRequestEnded { id, how } => self.on_save_request_ended(*id, how, at),
            Decision::SaveGrows { .. } | Decision::WouldHave { .. } | Decision::Unwatched { .. } => {
                if let Some(a) = self.attempt.as_mut() {
                    a.note_pace(what, at);
                }
            }
            Decision::HandBack { by, until } => self.on_hand_back(by, *until, at),
            Decision::StopAfterSave | Decision::Suspect { .. } => {}
            Decision::Noticed { what, text } => {
                if let Some(a) = self.attempt.as_mut() {
                    a.output.noticed.insert(*what, text.clone());
                }
            }
            Decision::Finish { outcome } => {
                if *outcome == crate::journal::record::RunOutcome::Stopped {
                    self.budget.barren_terms = 0;
                }
                // A term without a launch counts like one without a new step.
                if *outcome == crate::journal::record::RunOutcome::OutOfTime && !self.has_launched() {
                    self.budget.barren_terms = self.budget.barren_terms.saturating_add(1);
                }
                if let crate::journal::record::RunOutcome::Finished { step }
                | crate::journal::record::RunOutcome::ScriptUnfinished { step, .. } = outcome
                {
                    self.progress.finished = *step;
                    self.progress.stopped_early =
                        self.why.iter().any(|r| r.code == crate::journal::record::STOPPED_EARLY);
                }
                // An operator cleared it, and it ended again.
                if *outcome != crate::journal::record::RunOutcome::Stopped {
                    self.requests.let_go = None;
                }
                self.outcome = Some(outcome.clone());
                self.enter(RunMode::Finished, at);
            }
        }
    }
}
