//! The end of an attempt: what ended it, what it costs, and whether another one follows.

use super::Deciding;
use super::non_finite::LastWeights;
use crate::checkpoint::Depth;
use crate::event::TimerKey;
use crate::event::scan::RuleKind;
use crate::id::{Ms, Step};
use crate::journal::reason::Reason;
use crate::journal::record::{Decision, Diagnosis, RunOutcome, STOPPED_EARLY, StartPoint, WaitCondition, WorldQuery};
use crate::policy::backoff::pause;
use crate::policy::broken_nodes::broken_node;
use crate::resume::save_interval;
use crate::resume::{last_step, last_step_done, scan_width};
use crate::rulebook::taxonomy::Family;
use crate::spec::script::ScriptNews;
use crate::state::{Attempt, RunMode};

/// Deaths of our own guards without a new mark.
const OWN_DEATHS: u32 = 20;
/// Attempts in a row that were ended from outside, without a new mark.
const SPARED: u32 = 20;

impl Deciding<'_> {
    /// Handles the exit of all workers: finds the cause, then scans the disk.
    pub(super) fn find_out(&mut self) {
        let Some(a) = self.s.attempt.clone() else {
            return;
        };
        if self.went_well(&a) {
            return self.after_success(&a);
        }
        if let Some(why) = a.output.script.as_ref().and_then(misconfigured) {
            let reason = Reason::new("script", why.clone());
            return self.finish(RunOutcome::Config { why }, vec![reason]);
        }
        if self.jumped(&a) || self.is_hopeless(&a) {
            return;
        }
        let mut d = self.find_cause(&a);
        d.node = broken_node(&a, &d, &self.spec.gang);
        let reason = diagnosed(&d);
        self.decided(Decision::Diagnosed(d), vec![reason.clone()]);
        if self.spec.policy.start.observe {
            return self.look_once_more(&a, reason);
        }
        self.choose(vec![reason]);
    }

    /// Returns true if the training finished: all workers say so or, if their exit code means nothing, the last planned
    /// step was done.
    fn went_well(&self, a: &Attempt) -> bool {
        let deaf = self.spec.saves.in_place().is_some_and(|l| l.exit_says_nothing);
        a.succeeded() || deaf && !a.end.guard_lost && self.is_done(a) || self.was_done(a)
    }

    fn is_done(&self, a: &Attempt) -> bool {
        last_step(&self.s, self.spec).is_some_and(|last| a.training.step >= Some(last))
    }

    fn after_success(&mut self, a: &Attempt) {
        let reason = ended_well(a);
        if self.spec.root.is_none() || self.is_left_alone() {
            return self.look_once_more(a, reason);
        }
        self.choose(vec![reason]);
    }

    fn is_left_alone(&self) -> bool {
        !self.spec.policy.start.recovery || self.spec.policy.start.observe
    }

    /// Scans once more before a run that we do not resume ends, because its last save may be younger than the last
    /// scan. A disk that does not answer soon does not delay the end.
    fn look_once_more(&mut self, a: &Attempt, reason: Reason) {
        let can_look =
            self.spec.root.is_some() && self.s.context.io_stalled.is_none() && !self.s.context.journal_stalled;
        if !can_look || a.term != self.s.term {
            return self.end_left_alone(a, None);
        }
        self.decided(Decision::Choose, vec![reason]);
        let whole = scan_width(&self.s, self.spec);
        self.ask(WorldQuery::Scan {
            depth: Depth::Structure,
            whole,
        });
        self.wake(TimerKey::StateDeadline, super::stop::LAST_LOOK);
    }

    /// The ended attempt of this term, if only the last scan of its checkpoints was awaited.
    pub(super) fn looked_at(&self) -> Option<Attempt> {
        let a = self.s.attempt.as_ref()?;
        let over = a.term == self.s.term && a.end.gone && !a.end.settled && a.launch.launched.is_some();
        let ends = self.spec.policy.start.observe || self.went_well(a);
        let waited = over && ends && self.is_left_alone() && self.s.mode == RunMode::Choosing;
        (waited && self.spec.root.is_some()).then(|| a.clone())
    }

    /// Ends a run that we do not resume; `looked`: why the last scan failed.
    pub(super) fn end_left_alone(&mut self, a: &Attempt, looked: Option<Reason>) {
        let well = self.went_well(a);
        let mut reasons = vec![if well {
            ended_well(a)
        } else {
            diagnosed(&self.find_cause(a))
        }];
        reasons.extend(looked);
        if well {
            let newest = self.s.newest_whole().map(|c| c.step);
            let last = last_step(&self.s, self.spec);
            let step = newest.filter(|n| last.is_some_and(|l| *n >= l) && self.s.progress.mark >= newest);
            return self.finish(RunOutcome::Finished { step }, reasons);
        }
        let what = self.without_observe(a);
        self.decided(Decision::WouldHave { what }, reasons.clone());
        let why = format!("observed only: the attempt ended ({})", reasons[0].text);
        self.finish(RunOutcome::GaveUp { why }, reasons);
    }

    /// Charges the attempt that ended, once. Returns false if the run ends or waits instead of launching.
    pub(super) fn settle(&mut self) -> bool {
        let Some(a) = self.s.attempt.clone().filter(|a| a.end.gone && !a.end.settled) else {
            return true;
        };
        if self.went_well(&a) {
            return self.settle_success(&a);
        }
        if a.end.diagnosis.is_none() && a.launch.launched.is_some() {
            let reason = if a.end.ended_by_us.is_some() {
                Reason::new("ended_by_us", "the last attempt was ended by us: no retry is charged")
            } else {
                // It ended between two terms and was not observed: no fault is known.
                Reason::new("ended_unseen", "the last attempt ended while no supervisor was running")
            };
            self.decided(
                Decision::Charge {
                    attempts: self.s.budget.charged,
                    step_backs: self.s.budget.step_backs,
                    spared: false,
                },
                vec![reason],
            );
            return true;
        }
        self.judge(&a)
    }

    /// Returns true if the run should launch at once. Otherwise it waits or has given up.
    pub(super) fn after_charge(&mut self, reasons: Vec<Reason>, rest: Ms) -> bool {
        if self.s.budget.charged > self.spec.policy.failure.retries {
            let n = self.s.budget.charged;
            let attempts = match n {
                1 => "the attempt".to_owned(),
                n => format!("{n} attempts in a row"),
            };
            let why = format!(
                "{attempts} made no progress (retries: {})",
                self.spec.policy.failure.retries
            );
            self.finish(
                RunOutcome::GaveUp { why: why.clone() },
                vec![Reason::new("budget", why)],
            );
            return false;
        }
        if self.s.budget.own_deaths > OWN_DEATHS {
            let why = format!(
                "our own processes died {} times without a new step: the trainer, or something else on this machine, kills the guard",
                self.s.budget.own_deaths
            );
            self.finish(
                RunOutcome::GaveUp { why: why.clone() },
                vec![Reason::new("own_deaths", why)],
            );
            return false;
        }
        if self.s.budget.spared > SPARED {
            let why = format!(
                "{} attempts in a row ended by failures that cost no retry, without a new step",
                self.s.budget.spared
            );
            self.finish(
                RunOutcome::GaveUp { why: why.clone() },
                vec![Reason::new("spared", why)],
            );
            return false;
        }
        if self.s.requests.stop.is_some() {
            return true;
        }
        // One death of our own is an accident, and costs nothing. A trainer that ends its own guard does so each time.
        let again = self.s.budget.own_deaths.max(self.s.budget.spared).saturating_sub(1);
        let wait = pause(
            &self.spec.policy.backoff,
            self.s.budget.charged.max(again),
            self.e.entropy,
        )
        .max(rest);
        if wait.0 == 0 {
            return true;
        }
        let until = self.e.at.after(wait);
        let mut reasons = reasons;
        let left = self.spec.policy.failure.retries.saturating_sub(self.s.budget.charged);
        let text = format!(
            "restarting in {:.1} s (attempt {}, retries left: {left})",
            wait.0 as f64 / 1000.0,
            self.s.attempts.0 + 1
        );
        reasons.insert(0, Reason::new("backoff", text));
        self.decided(
            Decision::Wait {
                what: WaitCondition::Backoff,
                until,
            },
            reasons,
        );
        self.wake(TimerKey::Backoff, wait);
        false
    }

    /// An attempt that resumed and succeeded without training a step, although nothing says that the run was over: some
    /// trainers train nothing if resumed at the end of an epoch.
    fn trained_nothing(&self, a: &Attempt) -> Option<String> {
        let StartPoint::Step { ckpt, step, .. } = &a.order.from else {
            return None;
        };
        let advanced = self.s.progress.mark > a.launch.mark_before || a.training.step.is_some_and(|s| s > *step);
        if advanced || a.output.ended || self.s.progress.finished == Some(*step) {
            return None;
        }
        Some(format!(
            "all workers exited with code 0, and the step did not advance past {ckpt}: resumed at the end of an epoch, a trainer may train nothing. Where the run is over, give the trainer {step} as its number of steps; else resume from an older step (--from N --again)"
        ))
    }

    /// Returns true if the trainer saves its last step. One that overwrites its checkpoint saves only at its interval.
    fn saves_last(&self, last: Step) -> bool {
        let c = &self.spec.cadence;
        self.spec.saves.is_steps() || c.at_end || c.every.is_some_and(|n| last.0.is_multiple_of(n.max(1)))
    }

    fn ends_with(&self, a: &Attempt, newest: Step) -> bool {
        match last_step(&self.s, self.spec) {
            None => self.trained_nothing(a).is_none(),
            Some(last) => {
                newest >= last || self.is_done(a) && !self.saves_last(last) || self.stopped_early(a, last).is_some()
            }
        }
    }

    /// Why the trainer ended its training before the last planned step, if it did so itself.
    fn stopped_early(&self, a: &Attempt, last: Step) -> Option<Reason> {
        let newest = self.s.newest_whole();
        let note = newest
            .filter(|c| c.step > a.order.from.step())
            .and_then(|c| c.trainer_note);
        let says_so = a.output.ended || note.is_some_and(|note| note.ends);
        // A save on demand ends the training as well, and is no end of it: its trainer was told to, or saved out of turn.
        let told = |means: &RuleKind| matches!(means, RuleKind::Failure(class) if class.is_in(Family::Sched));
        let out_of_turn =
            |step: Step| save_interval(&self.s, self.spec).is_some_and(|n| !step.0.is_multiple_of(n.max(1)));
        let on_demand = note.is_some_and(|note| note.ends) && newest.is_some_and(|c| out_of_turn(c.step));
        if on_demand || a.output.sightings.iter().any(|(means, _)| told(means)) {
            return None;
        }
        (self.spec.may_end_early && a.succeeded() && says_so).then(|| {
            let at = a.training.step.max(newest.map(|c| c.step)).unwrap_or_default();
            match newest {
                Some(newest) if at >= last => last_step_done(last, newest.step),
                None if at >= last => {
                    let text = format!("all {last} planned steps were done, and none was saved whole");
                    Reason::new("last_step_done", text)
                }
                _ => {
                    let text = format!(
                        "the trainer ended its training by itself at step {at} of {last}, as early stopping does"
                    );
                    Reason::new(STOPPED_EARLY, text)
                }
            }
        })
    }

    fn settle_success(&mut self, a: &Attempt) -> bool {
        let newest = self.s.newest_whole().map(|c| c.step);
        if let Some(step) = newest.filter(|n| self.ends_with(a, *n)) {
            match self.last_weights(step) {
                LastWeights::Hold => {}
                LastWeights::Later => return false,
                LastWeights::GoBack => return true,
            }
        }
        let charge = Decision::Charge {
            attempts: self.s.budget.charged,
            step_backs: self.s.budget.step_backs,
            spared: false,
        };
        let Some(last) = last_step(&self.s, self.spec) else {
            if let Some(text) = self.trained_nothing(a) {
                let reason = Reason::new("trained_nothing", text.clone());
                self.decided(Decision::Diagnosed(self.find_cause(a)), vec![reason.clone()]);
                self.decided(charge, vec![reason.clone()]);
                self.finish(RunOutcome::Deterministic { why: text }, vec![reason]);
                return false;
            }
            let reason = Reason::new(
                "unconfirmed",
                "all workers ended well; the last planned step is not known, so this end is not confirmed",
            );
            self.decided(charge, vec![reason.clone()]);
            let step = newest.filter(|s| self.s.progress.mark.is_some_and(|m| m >= *s));
            self.finish(RunOutcome::Finished { step }, vec![reason]);
            return false;
        };
        if newest.is_some_and(|n| n >= last) {
            return true;
        }
        if let Some(reason) = self.stopped_early(a, last) {
            self.decided(charge, vec![reason.clone()]);
            let step = newest.filter(|s| self.s.progress.mark.is_some_and(|m| m >= *s));
            self.finish(RunOutcome::Finished { step }, vec![reason]);
            return false;
        }
        if self.is_done(a) && !self.saves_last(last) {
            let at = newest.map_or_else(|| "nothing".to_owned(), |n| format!("step {n}"));
            let text = format!(
                "all {last} planned steps were done; the last one is not saved to recover from, the newest that is: {at}"
            );
            let reason = Reason::new("last_step_done", text);
            self.decided(charge, vec![reason.clone()]);
            let step = newest.filter(|s| self.s.progress.mark.is_some_and(|m| m >= *s));
            self.finish(RunOutcome::Finished { step }, vec![reason]);
            return false;
        }
        // A script may clean up before the last save was seen: there the good end of its call tells.
        let all_gone = newest.is_none() && self.s.progress.mark.is_some() && (self.is_done(a) || !a.called.is_empty());
        if a.succeeded() && (self.s.progress.mark >= Some(last) || all_gone) {
            let text = format!(
                "the training ended well, and step {last}, the last planned one, is not there any more: it was moved or deleted after the training"
            );
            let reason = Reason::new("moved_after_the_end", text);
            self.decided(charge, vec![reason.clone()]);
            let step = self.s.progress.mark;
            self.finish(RunOutcome::Finished { step }, vec![reason]);
            return false;
        }
        let at = match newest {
            Some(step) => format!("the newest whole step is {step}, not {last}"),
            None => format!("no step is whole; the last planned one is {last}"),
        };
        let text = match a.succeeded() {
            true => format!("all workers ended with exit code 0, but {at}"),
            false => format!("the trainer said that it is over, but {at}"),
        };
        let reason = Reason::new("early_success", text.clone());
        self.decided(Decision::Diagnosed(self.find_cause(a)), vec![reason.clone()]);
        if self.s.progress.mark > a.launch.mark_before {
            self.decided(charge, vec![reason]);
            return true;
        }
        self.decided(
            Decision::Charge {
                attempts: self.s.budget.charged.saturating_add(1),
                step_backs: self.s.budget.step_backs,
                spared: false,
            },
            vec![reason.clone()],
        );
        self.finish(RunOutcome::Deterministic { why: text }, vec![reason]);
        false
    }
}

fn ended_well(a: &Attempt) -> Reason {
    if a.succeeded() {
        return Reason::new("all_ended_well", "all workers ended with exit code 0");
    }
    match a.outstayed() {
        true => Reason::new("all_done", "the training was over when its processes were ended"),
        false => Reason::new(
            "all_done",
            "the last planned step was done; the exit code of this launcher says nothing",
        ),
    }
}

fn diagnosed(d: &Diagnosis) -> Reason {
    Reason::new("diagnosed", format!("{}: {}", d.class, d.text))
}

/// Why the script would do the same again, so that an operator has to change it.
fn misconfigured(news: &ScriptNews) -> Option<String> {
    match news {
        ScriptNews::Refused { why } => Some(why.clone()),
        ScriptNews::Unmarked { what } => Some(format!(
            "the script started the trainer past us, without our overrides ({what}); call python3 or torchrun by name, or put {{overrides}} into the command"
        )),
        ScriptNews::Spoilt { what } => Some(format!(
            "the launch script deletes what the run resumes from ({what}); take that out of the script: each launch runs it again"
        )),
        _ => None,
    }
}
