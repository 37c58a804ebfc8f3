//! From the start of a term to running workers.

use super::Deciding;
use super::non_finite::LastWeights;
use super::rehearsal;
use super::words::mark_reason;
use crate::checkpoint::kind::{is_live, is_own};
use crate::checkpoint::{CheckpointSummary, Depth, Verdict};
use crate::decide::limits::limit_hint;
use crate::event::{ActError, ActErrorKind, ActOutput, LivingGuard, TimerKey};
use crate::id::{ActId, Ms, ProcRef, Step};
use crate::journal::reason::Reason;
use crate::journal::record::{
    ActKind, Decision, DiskEdit, LaunchOrder, RunOutcome, StartPoint, WaitCondition, WorldQuery,
};
use crate::resume::{ResumeChoice, choose, is_overrun, scan_width};
use crate::state::RunMode;

/// Terms in a row that launched without a new mark.
pub(super) const BARREN_TERMS: u32 = 3;
/// A new save is proven in the background after this time ...
const PROVE_AFTER: Ms = Ms::secs(1);
/// ... or at this interval if saves follow each other faster.
const PROVE_AGAIN: Ms = Ms::secs(5);
const ARRANGED: u32 = 3;
/// Delay before an unreadable step is scanned again.
const RETRY_SCAN: Ms = Ms::secs(5);
/// How long a low limit may keep the checkpoints from being read.
pub(super) const LIMIT_AT_A_READ: Ms = Ms::secs(60);
/// Reason code that names such a limit.
pub(super) const LIMIT: &str = "limit";

impl Deciding<'_> {
    pub(super) fn on_term_started(&mut self, living: Option<&LivingGuard>, orphans: &[ProcRef]) {
        let known = self.s.attempt.as_ref().filter(|a| !a.end.gone).map(|a| a.no);
        if let Some(l) = living.filter(|l| Some(l.attempt) == known) {
            let workers = match l.workers.len() {
                1 => "1 running worker".to_owned(),
                n => format!("{n} running workers"),
            };
            let text = format!("taking over attempt {} with {workers}", l.attempt);
            self.decided(
                Decision::TakeOver { attempt: l.attempt },
                vec![Reason::new("living_guard", text)],
            );
            self.watch();
            for (_, status) in &l.exits {
                self.on_worker_exited(*status);
            }
            return;
        }
        if living.is_some() || !orphans.is_empty() || known.is_some() {
            let text = match orphans.len() {
                0 => "an earlier attempt was not seen to end: making sure that nothing of it lives".to_owned(),
                n => format!("{n} processes of an earlier attempt live without a guard: they are ended first"),
            };
            let reasons = vec![Reason::new("earlier_attempt", text)];
            self.decided(Decision::Fence { attempt: known }, reasons.clone());
            self.act(ActKind::KillTree, reasons);
            self.wake(TimerKey::KillDue, super::stop::KILL_AGAIN);
            self.wake(TimerKey::StateDeadline, super::UNKILLABLE_LIMIT);
            return;
        }
        self.choose(vec![Reason::new("term_begins", "no earlier attempt lives")]);
    }

    pub(super) fn watch(&mut self) {
        if self.spec.root.is_some() {
            self.wake(TimerKey::ScanDue, Ms(0));
        }
        self.wake(TimerKey::StallCheck, Ms::secs(10));
        if self.s.progress.mark.is_some_and(|m| self.is_unproven(m)) {
            self.wake(TimerKey::ProveDue, PROVE_AFTER);
        }
        if rehearsal::is_due(&self.s, self.spec) {
            self.ask(WorldQuery::Rehearse);
        }
    }

    pub(super) fn on_checkpoints(&mut self) {
        self.note_mark();
        self.note_asked_save();
        if self.is_last_look() {
            return self.stopped(Vec::new());
        }
        if let Some(a) = self.looked_at() {
            return self.end_left_alone(&a, None);
        }
        match self.s.mode.clone() {
            RunMode::Choosing
            | RunMode::Waiting {
                what: WaitCondition::Readable,
                ..
            } => self.on_choice(),
            RunMode::Draining { then, .. } => self.on_scan_while_draining(then),
            RunMode::Running => {
                self.ask_for_finite_weights();
                self.warn_of_another_owner();
                self.warn_of_reported();
                self.on_scan_while_running();
            }
            _ => {}
        }
    }

    /// A whole step above the high-water mark is progress.
    fn note_mark(&mut self) {
        // Before the first launch after the run was adopted what is on disk is not ours; later, a step that appeared while no
        // attempt lived is not either.
        if self.s.requests.care.is_none() || self.s.care_is_unfinished() {
            return;
        }
        let settled = self.s.disk.settled.as_ref().filter(|_| self.s.live().is_none());
        let newest = self
            .s
            .newest_whole()
            .filter(|c| settled.is_none_or(|s| s.contains(&c.id)) && !self.s.is_cut_short(c))
            .map(|c| (c.step, c.proven, c.is_reported_only()));
        if let Some((step, Some(depth), is_reported)) = newest
            && self.s.progress.mark.is_none_or(|m| step > m)
            && !is_overrun(&self.s, self.spec, step)
        {
            // Saves that follow each other quickly must not put off the proof for ever.
            let is_waiting = self.s.progress.mark.is_some_and(|m| self.is_unproven(m));
            let reason = mark_reason(is_reported, format!("whole ({})", depth.word()));
            self.decided(Decision::Mark { step }, vec![reason]);
            if self.s.live().is_some() && depth < self.spec.policy.proof.depth && !is_waiting {
                self.wake(TimerKey::ProveDue, PROVE_AFTER);
            }
        }
    }

    fn is_unproven(&self, step: Step) -> bool {
        self.spec.policy.proof.depth > Depth::Structure && self.s.disk.read < Some(step)
    }

    /// A step that was proven in the background need not be read again when it is needed.
    pub(super) fn on_prove_due(&mut self) {
        if matches!(self.s.mode, RunMode::Running) {
            let whole = scan_width(&self.s, self.spec);
            self.ask(WorldQuery::Scan {
                depth: self.spec.policy.proof.depth,
                whole,
            });
            // What is saved meanwhile is proven with the next one.
            if self.s.progress.mark.is_some_and(|m| self.is_unproven(m)) {
                self.wake(TimerKey::ProveDue, PROVE_AGAIN);
            }
        }
    }

    pub(super) fn on_choice(&mut self) {
        self.leave_spoilt_steps();
        // A look while a step changes is no choice.
        let Some(scan) = self.s.disk.scan.clone().filter(|_| self.s.disk.cutting.is_none()) else {
            return;
        };
        // The unreadable step may be the last attempt's save, so charge the attempt only once that is known.
        if let ResumeChoice::Unreadable { reasons } = choose(&self.s, self.spec, &scan) {
            return self.wait_until_readable(reasons);
        }
        // A copy in progress may become the newest state: wait until it ends.
        if self.s.is_keeping() && !is_from_live(&choose(&self.s, self.spec, &scan)) {
            return;
        }
        if !self.settle() {
            return;
        }
        let mut choice = choose(&self.s, self.spec, &scan);
        if let ResumeChoice::Finished { step, .. } = &choice {
            match self.last_weights(*step) {
                LastWeights::Hold => {}
                LastWeights::Later => return,
                LastWeights::GoBack => choice = choose(&self.s, self.spec, &scan),
            }
        }
        match choice {
            ResumeChoice::Start {
                from,
                edits,
                lost,
                care,
                reasons,
            } => {
                let order = LaunchOrder {
                    attempt: self.s.attempts.next(),
                    from,
                    lost,
                    nodes: self.spec.gang.nodes,
                };
                self.start_from(order, edits, care, reasons);
            }
            ResumeChoice::Finished { step, reasons } => {
                if self.s.progress.mark.is_none_or(|m| m < step) {
                    let is_reported = self.s.newest_whole().is_some_and(CheckpointSummary::is_reported_only);
                    let reason = mark_reason(is_reported, format!("step {step} is whole"));
                    self.decided(Decision::Mark { step }, vec![reason]);
                }
                if self.prune_now() {
                    return;
                }
                self.finish(RunOutcome::Finished { step: Some(step) }, reasons);
            }
            ResumeChoice::Unreadable { reasons } => self.wait_until_readable(reasons),
            ResumeChoice::Refuse { outcome, reasons } => self.finish(outcome, reasons),
        }
    }

    fn start_from(&mut self, order: LaunchOrder, edits: Vec<DiskEdit>, care: bool, reasons: Vec<Reason>) {
        if let Some(wish) = &self.s.requests.stop {
            let text = format!("{} asked to stop", wish.by);
            return self.finish_as_wished(vec![Reason::new("stopped", text)]);
        }
        if self.waits_for_its_holder() {
            return;
        }
        if self.is_barren() {
            return;
        }
        if self.spec.saves.is_in_place() && !edits.is_empty() && self.s.disk.arranged >= ARRANGED {
            let why = "what was arranged in the checkpoint root does not stay: somebody else changes it".to_owned();
            return self.finish(
                RunOutcome::Stranger {
                    what: why.clone(),
                    step: None,
                },
                vec![Reason::new("not_arranged", why)],
            );
        }
        let what = Decision::StartFrom {
            order: order.clone(),
            edits: edits.clone(),
            care,
            intent: self.spec.resume.clone(),
        };
        self.decided(what, reasons.clone());
        if edits.is_empty() {
            self.launch(order, reasons);
        } else {
            self.act(ActKind::Arrange(edits), reasons);
        }
    }

    fn wait_until_readable(&mut self, mut reasons: Vec<Reason>) {
        if self.s.requests.stop.is_some() {
            return self.finish_as_wished(reasons);
        }
        let mut again = RETRY_SCAN;
        if !matches!(self.s.mode, RunMode::Waiting { .. }) {
            // It was just not read yet: no need to wait.
            if reasons.first().is_some_and(|r| r.code == "not_proven_yet") {
                again = Ms(0);
            }
            // Put the hint first.
            if let Some(hint) = reasons.iter().find_map(|r| limit_hint(&r.text)) {
                reasons.insert(0, Reason::new(LIMIT, hint));
            }
            let limit = patience_of(&reasons);
            let until = self.e.at.after(limit);
            let what = WaitCondition::Readable;
            self.decided(Decision::Wait { what, until }, reasons);
            self.wake(TimerKey::StateDeadline, limit);
        }
        self.wake(TimerKey::ScanDue, again);
    }

    /// Returns true, and ends the run, if too many terms proved nothing new. Only checked at the start of a term,
    /// because after a launch the retry budget counts.
    fn is_barren(&mut self) -> bool {
        if self.s.budget.barren_terms < BARREN_TERMS || self.s.has_launched() || self.note_advance().is_some() {
            return false;
        }
        let why = format!(
            "{BARREN_TERMS} terms in a row launched and proved no new step: the supervisor itself is being ended, or no save fits"
        );
        self.finish(
            RunOutcome::GaveUp { why: why.clone() },
            vec![Reason::new("barren_terms", why)],
        );
        true
    }

    fn launch(&mut self, order: LaunchOrder, reasons: Vec<Reason>) {
        self.decided(Decision::Launch { order: order.clone() }, reasons.clone());
        self.act(ActKind::Launch(Box::new(order)), reasons);
    }

    pub(super) fn on_act_done(&mut self, _act: ActId, result: Result<&ActOutput, &ActError>) {
        match (self.s.mode.clone(), result) {
            (RunMode::Arranging { order }, Ok(output)) => {
                let reason = Reason::new("arranged", "the checkpoint root is arranged for the resume");
                match self.s.requests.stop.clone() {
                    Some(_) => self.finish_as_wished(vec![reason]),
                    // A step that was put back or resharded is proven again in its new place.
                    None if self.spec.saves.is_in_place() || matches!(output, ActOutput::Resharded(_)) => {
                        self.choose(vec![reason])
                    }
                    None => self.launch(order, vec![reason]),
                }
            }
            (RunMode::Launching { order }, Ok(ActOutput::Launched { workers, .. })) => {
                let n = workers.len();
                let s = if n == 1 { "" } else { "s" };
                let text = format!("attempt {} runs with {n} worker{s}", order.attempt);
                self.decided(Decision::Run, vec![Reason::new("launched", text)]);
                self.watch();
                self.after_launch();
            }
            (RunMode::Arranging { .. }, Err(error)) if self.s.is_to_stop() => {
                self.stopped(vec![Reason::new("not_arranged", error.what.clone())]);
            }
            (RunMode::Arranging { .. } | RunMode::Launching { .. }, Err(error)) => self.on_start_failed(error),
            (RunMode::Choosing, Err(error)) if self.s.disk.cutting.is_some() => self.on_start_failed(error),
            // The user's number of steps was made true before the end, or a reshard has ended: look again.
            (RunMode::Choosing, _) => self.scan(),
            // Stopped while it was being launched, and nothing was.
            (RunMode::Stopping { .. }, Err(_)) if self.s.live().is_none() => self.on_tree_gone(&[]),
            _ => {}
        }
    }

    /// Handles the end of a copy of the live set. The copy is proven like any step. A choice in progress must know
    /// about it, so an earlier scan does not count.
    pub(super) fn on_kept(&mut self, done: bool) {
        match &self.s.mode {
            RunMode::Running if done => {
                self.scan();
                self.wake(TimerKey::ProveDue, PROVE_AFTER);
            }
            RunMode::Choosing => self.scan(),
            _ => {}
        }
    }

    fn after_launch(&mut self) {
        if self.s.live().is_none() {
            return self.find_out();
        }
        if let Some(wish) = self.s.requests.stop.clone().filter(|w| !w.after_save) {
            return self.wish_to_stop(&wish.by, false);
        }
        if let Some((_, status)) = self.s.attempt.as_ref().and_then(|a| a.end.first_failure) {
            self.on_worker_exited(status);
        }
    }

    pub(super) fn on_io_recovered(&mut self) {
        if matches!(
            &self.s.mode,
            RunMode::Choosing
                | RunMode::Waiting {
                    what: WaitCondition::Readable,
                    ..
                }
        ) {
            // The earlier query was dropped with the I/O worker.
            self.scan();
        }
    }

    fn on_start_failed(&mut self, error: &ActError) {
        let reason = Reason::new("start_failed", error.what.clone());
        if error.kind == ActErrorKind::NotWhole && self.leaves_what_was_to_be_cut(&reason) {
            return self.choose(vec![reason]);
        }
        match error.kind {
            ActErrorKind::Command | ActErrorKind::NotCut | ActErrorKind::NotWhole => {
                let outcome = RunOutcome::Deterministic {
                    why: error.what.clone(),
                };
                self.finish(outcome, vec![reason]);
            }
            ActErrorKind::NoRoom | ActErrorKind::Disk if !error.retryable => {
                self.finish(
                    RunOutcome::Environment {
                        why: error.what.clone(),
                    },
                    vec![reason],
                );
            }
            ActErrorKind::Held | ActErrorKind::GpuBusy => self.on_held(error, reason),
            ActErrorKind::GpuUnfit => {
                let why = error.what.clone();
                let reason = Reason::new("gpu_unfit", why.clone());
                self.finish(RunOutcome::Environment { why }, vec![reason]);
            }
            ActErrorKind::Limit => self.on_limit(error, reason),
            ActErrorKind::NoRoom => self.on_no_room(error, reason),
            ActErrorKind::Disk | ActErrorKind::Voided | ActErrorKind::Other | ActErrorKind::PinsChanged => {
                let charged = self.s.budget.charged.saturating_add(1);
                self.decided(
                    Decision::Charge {
                        attempts: charged,
                        step_backs: self.s.budget.step_backs,
                        spared: false,
                    },
                    vec![reason.clone()],
                );
                if self.after_charge(vec![reason.clone()], Ms(0)) {
                    self.choose(vec![reason]);
                }
            }
        }
    }

    pub(super) fn on_scan_due(&mut self) {
        match &self.s.mode {
            RunMode::Running => {
                self.scan();
                self.wake(TimerKey::ScanDue, self.spec.policy.scan_interval);
            }
            RunMode::Draining { .. } => self.scan(),
            RunMode::Waiting {
                what: WaitCondition::Readable,
                ..
            } => self.scan(),
            _ => {}
        }
    }

    pub(super) fn on_backoff_over(&mut self) {
        if self.ask_for_space() {
            return;
        }
        match &self.s.mode {
            RunMode::Waiting {
                what: WaitCondition::Backoff,
                ..
            } => self.choose(vec![Reason::new("backoff_over", "the pause is over")]),
            RunMode::Waiting {
                what: WaitCondition::ClusterFree,
                ..
            } => self.choose(vec![Reason::new("ask_again", "the cluster is asked again")]),
            RunMode::Waiting {
                what: WaitCondition::GpusFree,
                ..
            } => self.choose(vec![Reason::new("ask_again", "the GPUs are looked at again")]),
            _ => {}
        }
    }

    pub(super) fn on_io_stalled(&mut self) {
        if let RunMode::Draining { then, .. } = self.s.mode {
            let reason = Reason::new(
                "lane_stalled",
                "the file system does not answer: whether a save goes on cannot be seen",
            );
            self.stop(then, true, vec![reason]);
        }
    }

    /// Returns true if this attempt is saving: its newest step is not whole yet.
    pub(super) fn save_in_progress(&self) -> bool {
        let Some(scan) = &self.s.disk.scan else {
            return false;
        };
        if self.spec.saves.is_in_place() {
            // It is written in place: what was whole is not while a save goes on. Or each save has a directory of its own.
            let mark = self.s.progress.mark;
            let begun = |c: &CheckpointSummary| is_own(&c.id) && mark.is_none_or(|m| c.step > m);
            let mut written = scan.steps.iter().filter(|c| is_live(&c.id) || begun(c));
            return written.any(|c| c.verdict != Verdict::Whole);
        }
        let start = self.s.attempt.as_ref().map(|a| a.order.from.step());
        scan.saving.is_some()
            || scan.steps.first().is_some_and(|c| {
                (c.verdict == Verdict::Incomplete || c.verdict == Verdict::Whole && self.s.is_cut_short(c))
                    && !c.husk
                    && start.is_some_and(|s| c.step > s)
                    && self.s.progress.mark.is_none_or(|m| c.step > m)
            })
    }

    pub(super) fn resumed_from(&self) -> Option<crate::id::Step> {
        match &self.s.attempt.as_ref()?.order.from {
            StartPoint::Step { step, .. } => Some(*step),
            StartPoint::Fresh | StartPoint::AsIs => None,
        }
    }
}

/// Timeout for reading a step. A limit that is too low will not go away, so it is waited for less long.
pub(super) fn patience_of(reasons: &[Reason]) -> Ms {
    match limit_of(reasons) {
        Some(_) => LIMIT_AT_A_READ,
        None => super::CHOOSING_LIMIT,
    }
}

pub(super) fn limit_of(reasons: &[Reason]) -> Option<&str> {
    reasons.iter().find(|r| r.code == LIMIT).map(|r| r.text.as_str())
}

fn is_from_live(choice: &ResumeChoice) -> bool {
    matches!(choice, ResumeChoice::Start { from: StartPoint::Step { ckpt, .. }, .. } if is_live(ckpt))
}
