//! The fold of a term's beginning: what of the terms before it still counts.

use super::{RunMode, RunState};
use crate::event::{Event, EventKind};
use crate::journal::record::RunOutcome;
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
        if !self.boot.is_empty() && self.boot != *boot {
            self.doubt = true;
        }
        boot.clone_into(&mut self.boot);
        if self.config != *config {
            // A changed configuration may be the fix: old failures say nothing about it.
            self.failures.clear();
            self.charged = 0;
            self.forget_steps();
            // It may plan more steps than were printed before, and print other numbers.
            self.total = None;
            if let Some(seen) = &mut self.seen {
                seen.last_step = None;
            }
            self.before.clear();
            self.course = CollapseTracker::default();
            if let Some(a) = self.attempt.as_mut() {
                a.numbers.clear();
            }
        }
        self.config = *config;
        self.spreads.begin_term(spread);
        if trainer_version.is_some() {
            self.trainer_before = self.trainer_version.take();
            self.trainer_version.clone_from(trainer_version);
        }
        self.after_an_end();
        self.scan_told = None;
        self.stop = None;
        self.allocation = None;
        self.lease_lost = None;
        self.displaced = false;
        self.held_since = None;
        (self.full, self.no_room) = (0, false);
        self.journal_stalled = false;
        self.io_stalled = None;
        self.pending.clear();
        // Nobody saw what happened to the files since the term before.
        self.watched = false;
        self.put_back = false;
        self.immovable.clear();
        self.enter(RunMode::Idle, e.at);
        if let Some(a) = self.attempt.as_mut() {
            a.last_progress = e.at;
            a.last_active = e.at;
            a.pace.restart(e.at);
            a.creep.restart();
            if let Some(l) = living.as_ref().filter(|l| l.attempt == a.no) {
                self.watched = true;
                a.guard = Some(l.guard);
                if a.launched.is_none() {
                    a.workers.clone_from(&l.workers);
                }
                a.launched = Some(e.at);
                a.launched_wall = a.launched_wall.or(Some(e.wall));
                a.step = a.step.max(l.step);
                for (worker, status) in &l.exits {
                    a.exits.insert(*worker, *status);
                    if !status.is_success() && a.first_failure.is_none() {
                        a.first_failure = Some((*worker, *status));
                    }
                }
            }
        }
    }

    /// A term after a run that gave up is a person's wish to try again: it begins with a fresh budget.
    fn after_an_end(&mut self) {
        let ended = self.outcome.take();
        if let Some(
            RunOutcome::Finished { .. }
            | RunOutcome::ScriptUnfinished { .. }
            | RunOutcome::Stopped
            | RunOutcome::OutOfTime,
        ) = ended
            && let Some(a) = self.attempt.as_mut()
        {
            // How it ended was said then; what the configuration asks for now is no reason to judge it again.
            a.settled = true;
        }
        if ended.is_some_and(|outcome| outcome.needs_a_person()) {
            self.failures.clear();
            self.forget_steps();
            self.charged = 0;
            self.step_backs = 0;
            self.spared = 0;
            self.own_deaths = 0;
            self.barren_terms = 0;
        }
    }
}
