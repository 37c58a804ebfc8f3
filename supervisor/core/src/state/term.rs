//! Replay of a term's start: what still counts from earlier terms.

use super::{RunMode, RunState};
use crate::event::{Event, EventKind};
use crate::journal::record::{ONLY_OBSERVED, RunOutcome};
use crate::observe::collapse::CollapseTracker;

impl RunState {
    pub(super) fn on_term(&mut self, e: &Event) {
        let EventKind::TermStarted {
            term,
            boot,
            config,
            trainer_version,
            spread,
            living,
            ..
        } = &e.kind
        else {
            return;
        };
        self.term = *term;
        if !self.context.boot.is_empty() && self.context.boot != *boot {
            self.disk.doubt = true;
        }
        boot.clone_into(&mut self.context.boot);
        if self.context.config != *config {
            // A changed configuration may be the fix: old failures say nothing about it.
            self.budget.failures.clear();
            self.budget.charged = 0;
            self.forget_steps();
            // It may plan more steps than were printed before, and print other numbers.
            self.progress.total = None;
            if let Some(seen) = &mut self.seen {
                seen.last_step = None;
            }
            self.progress.before.clear();
            self.progress.course = CollapseTracker::default();
            if let Some(a) = self.attempt.as_mut() {
                a.training.numbers.clear();
            }
        }
        self.context.config = *config;
        self.disk.spreads.begin_term(spread);
        if trainer_version.is_some() {
            self.context.trainer_before = self.context.trainer_version.take();
            self.context.trainer_version.clone_from(trainer_version);
        }
        self.after_an_end();
        self.disk.scan_told = None;
        self.requests.stop = None;
        self.context.allocation = None;
        self.context.lease_lost = None;
        self.context.displaced = false;
        self.context.held_since = None;
        (self.disk.full, self.disk.no_room) = (0, false);
        self.context.journal_stalled = false;
        self.context.io_stalled = None;
        self.pending.clear();
        // Nobody saw what happened to the files since the term before.
        self.disk.watched = false;
        self.disk.put_back = false;
        self.disk.immovable.clear();
        self.enter(RunMode::Idle, e.at);
        if let Some(a) = self.attempt.as_mut() {
            a.saves.restart(a.training.last_progress, e.at);
            a.training.last_progress = e.at;
            a.training.last_active = e.at;
            a.training.pace.restart(e.at);
            a.training.creep.restart();
            if let Some(l) = living.as_ref().filter(|l| l.attempt == a.no) {
                self.disk.watched = true;
                a.launch.guard = Some(l.guard);
                if a.launch.launched.is_none() {
                    a.launch.workers.clone_from(&l.workers);
                }
                a.launch.launched = Some(e.at);
                a.launch.launched_wall = a.launch.launched_wall.or(Some(e.wall));
                a.training.step = a.training.step.max(l.step);
                for (worker, status) in &l.exits {
                    a.exits.insert(*worker, *status);
                    if !status.is_success() && a.end.first_failure.is_none() {
                        a.end.first_failure = Some((*worker, *status));
                    }
                }
            }
        }
    }

    /// A new term after a run that gave up is the operator's request to retry, so it starts with a full budget.
    fn after_an_end(&mut self) {
        let is_observed = self.why.iter().any(|r| r.code == ONLY_OBSERVED);
        let ended = self.outcome.take();
        if let Some(a) = self.attempt.as_mut().filter(|_| ended.is_some()) {
            a.end.ended_run = true;
            // An attempt that was only observed is not charged.
            a.end.settled |= is_observed;
        }
        if let Some(
            RunOutcome::Finished { .. }
            | RunOutcome::ScriptUnfinished { .. }
            | RunOutcome::Stopped
            | RunOutcome::OutOfTime,
        ) = ended
            && let Some(a) = self.attempt.as_mut()
        {
            // How it ended was said then; what the configuration asks for now is no reason to judge it again.
            a.end.settled = true;
        }
        if ended.is_some_and(|outcome| outcome.needs_a_person()) {
            self.budget.failures.clear();
            self.forget_steps();
            self.budget.charged = 0;
            self.budget.step_backs = 0;
            self.budget.spared = 0;
            self.budget.own_deaths = 0;
            self.budget.barren_terms = 0;
        }
    }
}
