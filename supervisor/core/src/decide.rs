//! Decisions: what to record and what to query, given state, specification and one event.
//!
//! Nothing is mutated here. Each decision is applied to a scratch copy of the state as it is written, so that later
//! decisions on the same event see it; the caller applies the records to the real state.

mod attempt_end;
mod blocked_launch;
mod creep;
pub mod danger;
mod done;
pub mod equivalence;
mod hold;
mod journaling;
mod judge;
pub mod limits;
mod metrics;
mod non_finite;
mod operator_requests;
mod preemption;
mod rehearsal;
mod reshard;
mod resume_check;
mod running;
pub mod save_requests;
mod space;
mod stale;
mod stall;
pub mod stall_limits;
mod start;
mod stop;
mod words;

use crate::checkpoint::{CheckpointSummary, Depth, Verdict};
use crate::event::diff::ScanDiff;
use crate::event::{Activity, Event, EventKind, OperatorRequest, TimerKey, TrainerPhase};
use crate::id::{Ms, Tick};
use crate::journal::reason::Reason;
use crate::journal::record::{
    Act, ActKind, AfterStop, DecideOutput, Decision, JournalRecord, ONLY_OBSERVED, RunOutcome, WaitCondition,
    WorldQuery,
};
use crate::resume::{needed_depth, scan_width};
use crate::spec::RunSpec;
use crate::state::{RunMode, RunState};
use journaling::{is_step, worth_recording};
use std::borrow::Cow;
use words::{event_word, span_words};

/// How long to wait for a disk that does not answer while a start is chosen.
const CHOOSING_LIMIT: Ms = Ms::secs(1800);
/// A scan is recorded in full once its differences have mentioned each step this often.
const WHOLE_AFTER: u64 = 128;
/// Interval at which work without a new step is recorded.
const ACTIVITY_EVERY: Ms = Ms::secs(15);
/// How long to wait for unkillable processes.
const UNKILLABLE_LIMIT: Ms = Ms::secs(1800);
/// The same after a requested stop. They are named then.
const UNKILLABLE_AT_A_STOP: Ms = Ms::secs(15);
/// How long to wait after a requested kill for the process tree, and its jobs with a scheduler, to disappear.
const GONE_AT_A_STOP: Ms = Ms::secs(150);

/// Decides about one event, without any mutation.
#[must_use]
pub fn decide(s: &RunState, spec: &RunSpec, e: &Event) -> DecideOutput {
    let shown = shown(s, spec, e);
    let mut d = Deciding {
        s: Cow::Borrowed(s),
        spec,
        e: shown.as_ref().unwrap_or(e),
        out: DecideOutput::default(),
    };
    d.event();
    d.on_growth(e);
    d.follow_saves();
    d.out
}

/// The scan without the step that is just being saved, while workers run: its files change between scans, and nothing
/// is decided about it before it is whole. Only the fact that a save is running is kept, unless the trainer itself
/// announced it.
fn shown(s: &RunState, spec: &RunSpec, e: &Event) -> Option<Event> {
    let EventKind::Checkpoints(report) = &e.kind else {
        return None;
    };
    let a = s
        .live()
        .filter(|_| s.mode == RunMode::Running && spec.saves.is_steps())?;
    let known = |c: &CheckpointSummary| s.disk.scan.iter().flat_map(|scan| &scan.steps).any(|k| k.id == c.id);
    let above = a.order.from.step().max(s.progress.mark.unwrap_or_default());
    let first = report.steps.first()?;
    let begun = first.verdict == Verdict::Incomplete && !first.husk && first.step > above && !known(first);
    begun.then(|| {
        let mut report = report.clone();
        report.steps.remove(0);
        report.saving = (a.training.phase != TrainerPhase::Save).then_some(first.step);
        Event {
            kind: EventKind::Checkpoints(report),
            ..e.clone()
        }
    })
}

/// A decision in progress, with a state that sees each record as it is written. The state is copied at the first
/// record, since most events have none.
struct Deciding<'a> {
    s: Cow<'a, RunState>,
    spec: &'a RunSpec,
    e: &'a Event,
    out: DecideOutput,
}

impl Deciding<'_> {
    fn push(&mut self, r: JournalRecord) {
        self.s.to_mut().apply(&r);
        self.out.records.push(r);
    }

    fn decided(&mut self, what: Decision, reasons: Vec<Reason>) {
        let at = self.e.at;
        self.push(JournalRecord::Decided { at, what, reasons });
    }

    fn act(&mut self, kind: ActKind, reasons: Vec<Reason>) {
        let attempt = match &kind {
            ActKind::Launch(order) => Some(order.attempt),
            _ => self.s.attempt.as_ref().map(|a| a.no),
        };
        let act = Act {
            id: self.s.next_act,
            term: self.s.term,
            attempt,
            kind,
        };
        let at = self.e.at;
        self.push(JournalRecord::Intended { at, act, reasons });
    }

    fn ask(&mut self, ask: WorldQuery) {
        self.out.asks.push(ask);
    }

    fn wake(&mut self, key: TimerKey, after: Ms) {
        let at = self.e.at.after(after);
        self.ask(WorldQuery::WakeAt { key, at });
    }

    fn ignore(&mut self, what: &str, why: &str) {
        let at = self.e.at;
        self.push(JournalRecord::Ignored {
            at,
            what: what.to_owned(),
            why: why.to_owned(),
        });
    }

    fn finish(&mut self, outcome: RunOutcome, mut reasons: Vec<Reason>) {
        let outcome = self.with_the_script(outcome);
        if self.spec.policy.start.observe && outcome.needs_a_person() {
            let text = "the run was only observed: the next start acts as if this one had not failed";
            reasons.push(Reason::new(ONLY_OBSERVED, text));
        }
        self.decided(
            Decision::Finish {
                outcome: outcome.clone(),
            },
            reasons.clone(),
        );
        self.act(ActKind::Finish(outcome), reasons);
    }

    fn choose(&mut self, reasons: Vec<Reason>) {
        // Without a journal nothing is launched that could save: a wish to stop at the next save is fulfilled, too.
        if self.s.is_to_stop() || self.s.context.journal_stalled && self.s.requests.stop.is_some() {
            return self.stopped(reasons);
        }
        if self.s.context.journal_stalled {
            let until = Tick(u64::MAX);
            let reason = Reason::new(
                "journal_unwritable",
                "the journal cannot be written: nothing new is started",
            );
            self.decided(
                Decision::Wait {
                    what: WaitCondition::JournalWritable,
                    until,
                },
                vec![reason],
            );
            return;
        }
        self.decided(Decision::Choose, reasons);
        if !self.ends_a_reshard() {
            self.scan();
        }
        self.wake(TimerKey::StateDeadline, CHOOSING_LIMIT);
    }

    fn scan(&mut self) {
        // While workers run, read only names, sizes and directories, so as not to slow down a healthy run.
        let depth = match self.s.live() {
            Some(_) => Depth::Structure,
            None => needed_depth(&self.s, self.spec),
        };
        let whole = scan_width(&self.s, self.spec);
        self.ask(WorldQuery::Scan { depth, whole });
    }

    fn event(&mut self) {
        let e = self.e;
        if self.s.mode == RunMode::Finished && !matches!(e.kind, EventKind::TermStarted { .. }) {
            return self.after_the_end(&e.kind);
        }
        if let EventKind::Looked { attempt, look } = &e.kind {
            return self.on_look(*attempt, look);
        }
        if !worth_recording(&self.s, &e.kind, e.at) {
            return self.quiet(&e.kind);
        }
        let stale = stale::stale(&self.s, &e.kind);
        if let Some((what, why)) = stale {
            return self.ignore(&what, &why);
        }
        let ended = matches!(e.kind, EventKind::TermStarted { .. })
            && self.s.outcome.as_ref().is_some_and(RunOutcome::needs_a_person);
        let keeps = matches!(&e.kind, EventKind::ActDone { act, .. } if self.s.pending.get(act).is_some_and(is_keep));
        self.push(JournalRecord::Fact(as_recorded(&self.s, e)));
        match &e.kind {
            EventKind::ActDone { result, .. } if keeps => self.on_kept(result.is_ok()),
            EventKind::TermStarted { living, orphans, .. } => {
                if ended {
                    self.trust_again();
                }
                self.on_term_started(living.as_ref(), orphans);
            }
            EventKind::ActDone { act, result } => self.on_act_done(*act, result.as_ref()),
            EventKind::WorkerExited { status, .. } => self.on_worker_exited(*status),
            EventKind::TreeGone { unkillable, .. } => self.on_tree_gone(unkillable),
            EventKind::GuardLost { .. } => self.on_guard_lost(),
            EventKind::Used { .. } => self.on_used(),
            EventKind::Finite { .. } => self.on_finite(),
            EventKind::Progress { .. } => self.on_progress(),
            EventKind::Sighted { means, sighting, .. } => self.on_sighted(means, sighting),
            EventKind::Numbers { .. } => self.on_numbers(),
            EventKind::Script { news, .. } => self.on_script(news),
            EventKind::Checkpoints(_) | EventKind::CheckpointsChanged(_) => self.on_checkpoints(),
            EventKind::Timer(key) => self.on_timer(*key),
            EventKind::Operator(request) => self.on_operator(request),
            EventKind::Allocation { left, .. } => self.on_allocation(*left),
            EventKind::LeaseLost { by } => {
                let text = format!("another process is at work here: {by}");
                self.on_lease_lost(by, Reason::new("lease_lost", text));
            }
            EventKind::LeaseSilent { what } => {
                let text =
                    format!("{what}: a supervisor on another machine may take it, so that the workers are ended");
                self.on_lease_lost(what, Reason::new("lease_silent", text));
            }
            EventKind::Displaced { what } => {
                let text = format!("{what}: what is there now may be another run's, so this one ends");
                self.on_lease_lost(what, Reason::new("displaced", text));
            }
            EventKind::JournalRecovered => self.on_journal_recovered(),
            EventKind::IoStalled { .. } => self.on_io_stalled(),
            EventKind::IoRecovered => self.on_io_recovered(),
            // A failed rehearsal is no reason to stop a running attempt.
            EventKind::TimeGap { .. }
            | EventKind::Looked { .. }
            | EventKind::Nodes { .. }
            | EventKind::Space { .. }
            | EventKind::JournalStalled { .. }
            | EventKind::Rehearsed(_)
            | EventKind::TrainerSeen(_)
            | EventKind::Told { .. }
            | EventKind::Evidence { .. }
            | EventKind::SaveAnswered { .. }
            | EventKind::Collected { .. } => {}
        }
    }

    /// A finished run stays finished: further events are recorded if they are news.
    fn after_the_end(&mut self, kind: &EventKind) {
        if !matches!(
            kind,
            EventKind::Timer(_)
                | EventKind::Progress { .. }
                | EventKind::Looked { .. }
                | EventKind::Checkpoints(_)
                | EventKind::Space { .. }
                | EventKind::Allocation { .. }
        ) {
            self.ignore(event_word(kind), "the run has ended");
        }
    }

    /// Timers and unchanged scans are not recorded, only what they lead to.
    fn quiet(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Timer(key) => self.on_timer(*key),
            EventKind::Checkpoints(_) => self.on_checkpoints(),
            EventKind::Space { free, files, works } => self.on_space(*free, *files, *works),
            EventKind::Allocation { left, .. } => self.on_allocation(*left),
            _ => {}
        }
    }

    fn on_journal_recovered(&mut self) {
        if matches!(
            &self.s.mode,
            RunMode::Waiting {
                what: WaitCondition::JournalWritable,
                ..
            }
        ) {
            self.choose(vec![Reason::new(
                "journal_recovered",
                "the journal can be written again",
            )]);
        }
    }

    fn on_lease_lost(&mut self, by: &str, reason: Reason) {
        let reasons = vec![reason];
        // Stop workers that are running or being started first. What a fence or SIGKILL could not kill is for the new
        // holder to fence.
        match self.s.mode {
            RunMode::Launching { .. } | RunMode::Running | RunMode::Draining { .. } | RunMode::Stopping { .. }
                if self.s.live().is_some() =>
            {
                self.stop(AfterStop::LeaseLost, false, reasons);
            }
            _ => self.finish(RunOutcome::LeaseHeld { by: by.to_owned() }, reasons),
        }
    }

    fn on_operator(&mut self, request: &OperatorRequest) {
        match request {
            OperatorRequest::Stop {
                after_save: true, by, ..
            } => {
                let reason = Reason::new("stop_after_save", format!("{by} asked to stop at the next proven step"));
                self.decided(Decision::StopAfterSave, vec![reason]);
                // If nothing is running and nothing may be launched, there will be no save.
                if let RunMode::Waiting {
                    what: WaitCondition::JournalWritable | WaitCondition::Unheld,
                    ..
                } = self.s.mode
                {
                    self.stopped(Vec::new());
                }
            }
            OperatorRequest::Stop {
                after_save: false, by, ..
            } => self.wish_to_stop(by, false),
            OperatorRequest::HandBack { by, left } => self.hand_back(by, *left),
            OperatorRequest::StopNow { by } => self.wish_to_stop(by, true),
            OperatorRequest::Save { .. } => self.on_save_wish(),
            OperatorRequest::Hold { .. } => {}
            OperatorRequest::Resume { by, .. } => self.on_resume(by),
            OperatorRequest::RollBack { by, to } => self.on_roll_back(by, *to),
            OperatorRequest::Unhold { by } => self.on_unhold(by),
        }
    }

    fn on_timer(&mut self, key: TimerKey) {
        match key {
            TimerKey::Backoff => self.on_backoff_over(),
            TimerKey::KillDue => self.on_kill_due(),
            TimerKey::DrainDue => self.on_drain_due(),
            TimerKey::ScanDue => self.on_scan_due(),
            TimerKey::ProveDue => self.on_prove_due(),
            TimerKey::StallCheck => self.on_stall_check(),
            TimerKey::StateDeadline => self.on_state_deadline(),
            TimerKey::AllocationEnd => self.ask(WorldQuery::Allocation),
            TimerKey::SaveRequest => self.on_save_timer(),
        }
    }

    fn on_state_deadline(&mut self) {
        if self.is_last_look() {
            return self.stopped(Vec::new());
        }
        if matches!(self.s.mode, RunMode::Arranging { .. }) && self.s.is_to_stop() {
            let text = "a change to the checkpoint root did not finish in time; the next start will check its result";
            return self.stopped(vec![Reason::new("not_arranged", text)]);
        }
        if let Some(last) = self.unlooked_end() {
            return self.end_unlooked(last);
        }
        if let Some(a) = self.looked_at() {
            let reason = Reason::new("not_looked", "the checkpoints could not be looked at again in time");
            return self.end_left_alone(&a, Some(reason));
        }
        // A wish is given its time from where it came.
        let wish = self
            .s
            .requests
            .stop
            .as_ref()
            .filter(|_| self.s.is_to_stop())
            .map(|w| w.at);
        let lasted = self.e.at.since(self.s.since.max(wish.unwrap_or_default()));
        let at_a_stop = |short, long| if wish.is_some() { short } else { long };
        let (limit, why) = match &self.s.mode {
            RunMode::Choosing => (CHOOSING_LIMIT, "the checkpoint root did not answer"),
            RunMode::Fencing | RunMode::Stopping { gently: false, .. } => (
                at_a_stop(GONE_AT_A_STOP, UNKILLABLE_LIMIT),
                "processes of an attempt could not be ended",
            ),
            // The grace period is followed by a kill, which starts another wait.
            RunMode::Stopping { gently: true, .. } => (
                Ms(UNKILLABLE_LIMIT.0.saturating_add(self.spec.policy.grace.stop.0)),
                "processes of an attempt could not be ended",
            ),
            RunMode::Waiting {
                what: WaitCondition::Readable,
                ..
            } => (start::patience_of(&self.s.why), "a newer step could not be read"),
            RunMode::Waiting {
                what: WaitCondition::TreeGone,
                ..
            } => (
                at_a_stop(UNKILLABLE_AT_A_STOP, UNKILLABLE_LIMIT),
                "processes in uninterruptible sleep could not be ended",
            ),
            _ => return,
        };
        if lasted < limit {
            self.wake(TimerKey::StateDeadline, Ms(limit.0 - lasted.0));
        } else {
            let limit = start::limit_of(&self.s.why).map(|l| format!(": {l}"));
            let named = limit.unwrap_or_else(|| self.left_words());
            let why = format!("{why} for {}{named}", span_words(lasted));
            self.finish(
                RunOutcome::Environment { why: why.clone() },
                vec![Reason::new("deadline", why)],
            );
        }
    }
}

fn is_keep(act: &Act) -> bool {
    matches!(act.kind, ActKind::Keep { .. })
}

/// An event as recorded in the journal. A scan is recorded as the difference to the last one, but in full at the start
/// of a term, every now and then, and if that is shorter. A lost line costs what was known of the disk until the next
/// full one, and full ones cost little.
fn as_recorded(s: &RunState, e: &Event) -> Event {
    let kind = match &e.kind {
        EventKind::Checkpoints(report) => s.disk.scan.as_ref().and_then(|last| {
            let room = WHOLE_AFTER.saturating_mul(1 + last.steps.len() as u64);
            s.disk.scan_told.filter(|told| *told < room)?;
            let diff = ScanDiff::between(last, report).filter(|d| d.len() <= report.steps.len())?;
            Some(EventKind::CheckpointsChanged(diff))
        }),
        EventKind::Progress {
            attempt,
            phase,
            step,
            beats,
            risen,
            ..
        } => is_step(s, *phase, *step, *beats).then(|| EventKind::Progress {
            attempt: *attempt,
            phase: *phase,
            step: *step,
            beats: *beats,
            // As a rule it is one more than was known.
            risen: if s
                .live()
                .is_some_and(|a| *risen > a.training.pace.steps.saturating_add(1))
            {
                *risen
            } else {
                0
            },
            activity: Activity::default(),
        }),
        _ => None,
    };
    Event {
        at: e.at,
        wall: e.wall,
        entropy: 0,
        kind: kind.unwrap_or_else(|| e.kind.clone()),
    }
}
