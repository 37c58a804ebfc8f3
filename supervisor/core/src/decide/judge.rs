//! Applies the policy to a failed attempt: what it costs, and whether another one follows.

use super::Deciding;
use crate::checkpoint::Verdict;
use crate::diagnosis::{AT_START, diagnose};
use crate::id::Step;
use crate::journal::reason::{Evidence, Reason};
use crate::journal::record::{Decision, Diagnosis, RunOutcome, StartPoint};
use crate::policy::{FailureContext, FailureResponse, PolicyRule, next, rule};
use crate::resume::last_step;
use crate::rulebook::failure_line::said_of;
use crate::rulebook::taxonomy::{Class, Family};
use crate::state::{Attempt, PastFailure};

impl Deciding<'_> {
    /// Charges a failed attempt. Returns false if the run ends or waits instead of launching.
    pub(super) fn judge(&mut self, a: &Attempt) -> bool {
        let lived = self.plain_progress(a);
        let advanced = self.note_advance();
        let progressed = self.s.progress.mark > a.launch.mark_before || lived || advanced.is_some();
        let d = a.end.diagnosis.clone().filter(|_| !a.end.guard_lost);
        let rule = d.as_ref().map(|d| self.rule_for(d));
        let case = d.as_ref().map(|d| self.case(a, d, progressed)).unwrap_or_default();
        let verdict = rule.as_ref().map_or(FailureResponse::GoOn, |r| next(r, &case));
        let step_backs = match a.end.spoilt {
            true => self.s.budget.step_backs.saturating_add(1),
            false => self.distrust(a, verdict, rule.as_ref()),
        };
        let spared = !progressed && rule.as_ref().is_some_and(|r| r.spared);
        let for_room = d.as_ref().is_some_and(|d| self.waits_for_room(d));
        let attempts = match (progressed, d.is_none() || spared || for_room) {
            (true, _) => 0,
            (false, true) => self.s.budget.charged,
            (false, false) => self.s.budget.charged.saturating_add(1),
        };
        let mut reasons = vec![Reason::new(
            "charged",
            match advanced {
                Some(step) => format!("the attempt came to step {step}, beyond those before: no retry is charged"),
                None => self.charge_words(a, progressed, lived, spared, attempts),
            },
        )];
        if let Some(key) = rule.as_ref().and_then(|r| r.changed.as_ref()) {
            let answer = rule
                .as_ref()
                .map_or(crate::journal::record::FailureAction::Relaunch, |r| r.answer)
                .word();
            let setting = format!("policy.{key}: {answer}");
            let text = format!("your policy answers {key} with {answer}");
            reasons.push(Reason::new("users_policy", text).with(Evidence::Setting(setting)));
        }
        if lived && self.s.budget.own_deaths > 0 {
            self.decided(Decision::Refilled, reasons.clone());
        }
        let charge = Decision::Charge {
            attempts,
            step_backs,
            spared,
        };
        self.decided(charge, reasons.clone());
        match (d, rule) {
            (Some(d), Some(rule)) if verdict == FailureResponse::End && !self.is_free_to_repeat(&d, &rule) => {
                self.end(&d, &rule, &case);
                false
            }
            (Some(d), _) if for_room => match self.pause_for_room() {
                Some(rest) => self.after_charge(reasons, rest),
                None => {
                    let times = self.s.disk.full;
                    let why = format!(
                        "the disk was full {times} times in a row, without a new step: {}",
                        d.text
                    );
                    self.give_up_on_space(why);
                    false
                }
            },
            (_, rule) => self.after_charge(reasons, rule.map_or(crate::id::Ms(0), |r| r.rest)),
        }
    }

    /// What would have followed an attempt that failed while it was only observed.
    pub(super) fn without_observe(&self, a: &Attempt) -> String {
        let d = a.end.diagnosis.clone().unwrap_or_else(|| self.find_cause(a));
        let progressed = self.s.progress.mark > a.launch.mark_before;
        let ends = next(&self.rule_for(&d), &self.case(a, &d, progressed)) == FailureResponse::End;
        let has_steps = self.s.disk.scan.as_ref().is_some_and(|scan| !scan.steps.is_empty());
        let then = match self.s.newest_whole() {
            _ if ends || self.spec.policy.failure.retries == 0 && !progressed => {
                "the run would have ended here".to_owned()
            }
            _ if !self.spec.policy.start.recovery => "it would have been restarted as it was written".to_owned(),
            Some(c) => format!("it would have been restarted from step {}", c.step),
            None if has_steps => "it would not have been restarted: no step is whole".to_owned(),
            None if self.spec.root.is_none() => "it would have been restarted".to_owned(),
            None => "it would have been restarted from scratch".to_owned(),
        };
        format!("without --observe, {then}")
    }

    pub(super) fn rule_for(&self, d: &Diagnosis) -> PolicyRule {
        let class = if d.at_start { AT_START.into() } else { d.class.clone() };
        let policy = &self.spec.policy;
        rule(&policy.failure.rules, &policy.failure.lines, &class, d.action)
    }

    /// The cause of an attempt's end, with the user's answer to such a failure.
    pub(super) fn find_cause(&self, a: &Attempt) -> Diagnosis {
        let mut d = diagnose(a);
        let answer = self.rule_for(&d).answer;
        d.answer = (answer != d.action).then_some(answer);
        d.advice = said_of(&self.spec.policy.failure.lines, &d.class, |line| line.advice.clone());
        d
    }

    /// Returns true if the command shows no steps and may fail in the same way again.
    fn is_free_to_repeat(&self, d: &Diagnosis, rule: &PolicyRule) -> bool {
        self.spec.root.is_none() && d.step.is_none() && rule.answer != crate::journal::record::FailureAction::Stop
    }

    /// A plain command shows progress by running for long enough.
    fn plain_progress(&self, a: &Attempt) -> bool {
        // What hung lived until it last got on.
        let hung = a.end.diagnosis.as_ref().is_some_and(|d| d.class.is_in(Family::Hang));
        let until = if hung { a.training.last_progress } else { self.s.now };
        self.spec.root.is_none()
            && a.launch
                .launched
                .is_some_and(|t| until.since(t) >= self.spec.policy.stall.minimum)
    }

    /// The step of the last attempt, if it is beyond all earlier ones in a run where none can be proven; recorded once.
    /// The first attempt shows nothing, because it may print the same steps each time.
    pub(super) fn note_advance(&mut self) -> Option<Step> {
        let before = self.s.progress.reached.filter(|_| self.spec.root.is_none())?;
        let step = self.s.attempt.as_ref()?.training.step.filter(|step| *step > before)?;
        let text = format!("step {step} is beyond those of all attempts before (step {before})");
        self.decided(Decision::Advanced { step }, vec![Reason::new("advanced", text)]);
        Some(step)
    }

    fn case(&self, a: &Attempt, d: &Diagnosis, progressed: bool) -> FailureContext {
        let from = match &a.order.from {
            StartPoint::Step { step, .. } => Some(*step),
            StartPoint::Fresh | StartPoint::AsIs => None,
        };
        let alike = |f: &&PastFailure| f.diagnosis.fingerprint == d.fingerprint;
        let before = self.s.budget.failures.iter().filter(alike);
        // After the training, one place is as good as another.
        let last_planned = last_step(&self.s, self.spec).filter(|_| self.spec.has_tail);
        let place = |d: &Diagnosis| d.step.map(|step| last_planned.map_or(step, |last| step.min(last)));
        let before: Vec<&PastFailure> = before.filter(|f| place(&f.diagnosis) == place(d)).collect();
        let same = before.len();
        let last = self.s.budget.failures.last().filter(alike);
        let may_step_back = self.s.budget.step_backs < self.spec.policy.failure.step_backs && self.has_older(from);
        // What follows the training does not fail because of the step that it ended with.
        let is_tail = self.spec.has_tail && last_step(&self.s, self.spec).is_some_and(|last| from >= Some(last));
        FailureContext {
            same: u32::try_from(same).unwrap_or(u32::MAX).saturating_add(1),
            resumed: from.is_some(),
            at_the_start: before.iter().any(|f| !f.trained),
            trained: a.trained(),
            progressed,
            stepped_back: last.is_some_and(|f| f.attempt.next() == a.no && f.diagnosis.step > d.step),
            may_step_back: may_step_back && !is_tail,
        }
    }

    fn has_older(&self, from: Option<Step>) -> bool {
        let steps = self.s.disk.scan.iter().flat_map(|scan| &scan.steps);
        let mut usable = steps.filter(|c| {
            c.verdict == Verdict::Whole && !c.husk && !c.id.0.is_absolute() && !self.s.disk.distrusted.contains(&c.id)
        });
        usable.any(|c| from.is_some_and(|f| c.step < f))
    }

    /// Excludes the resume point, because it failed to load or may be the cause. Returns the step-backs so far.
    fn distrust(&mut self, a: &Attempt, verdict: FailureResponse, rule: Option<&PolicyRule>) -> u32 {
        let StartPoint::Step { ckpt, .. } = &a.order.from else {
            return self.s.budget.step_backs;
        };
        let reason = match verdict {
            _ if !self.spec.policy.proof.is_on => return self.s.budget.step_backs,
            FailureResponse::FallBack if a.training.step.is_none() => Reason::new(
                "failed_to_load",
                format!("{ckpt} is whole by our proof, but the trainer could not load it"),
            ),
            FailureResponse::FallBack => Reason::new(
                "step_back",
                format!("{ckpt} is not resumed from again, as your policy says"),
            ),
            FailureResponse::Suspect => {
                let class = rule.map_or("", |r| r.class.code());
                let text = format!(
                    "the same failure ({class}) again before the first new step: {ckpt}, though whole, may be the cause, and an older step is tried"
                );
                Reason::new("suspected_checkpoint", text)
            }
            FailureResponse::GoOn | FailureResponse::End => return self.s.budget.step_backs,
        };
        self.decided(Decision::Distrust { ckpt: ckpt.clone() }, vec![reason]);
        self.s.budget.step_backs.saturating_add(1)
    }

    /// The run had ended until an operator checked it. Whoever restarts it may have repaired what kept checkpoints from
    /// loading.
    pub(super) fn trust_again(&mut self) {
        let ckpts = self.s.disk.distrusted.clone();
        if ckpts.is_empty() && !self.s.went_back {
            return;
        }
        let text = "the run was started again after its end: what failed before is tried again";
        self.decided(Decision::Trust { ckpts }, vec![Reason::new("tried_again", text)]);
    }

    fn charge_words(&self, a: &Attempt, progressed: bool, lived: bool, spared: bool, charged: u32) -> String {
        if progressed {
            return match lived {
                true => "the command lived for long: no retry is charged".to_owned(),
                false => "a new step was proven: no retry charged".to_owned(),
            };
        }
        if spared {
            return "it was ended from outside: no retry is charged".to_owned();
        }
        if a.end.diagnosis.as_ref().is_some_and(|d| self.waits_for_room(d)) && !a.end.guard_lost {
            return "the disk was full: no retry is charged".to_owned();
        }
        if self.s.disk.no_room && a.launch.launched.is_none() {
            return "it was not launched, as there was no room: no retry is charged".to_owned();
        }
        if a.end.guard_lost || a.end.diagnosis.is_none() {
            return match self.s.budget.own_deaths.saturating_add(u32::from(a.end.guard_lost)) {
                0 | 1 => "our own process died: no retry is charged".to_owned(),
                n => format!("our own process died, {n} times without a new step: no retry is charged"),
            };
        }
        format!(
            "the attempt proved no new step: {charged} in a row, retries {}",
            self.spec.policy.failure.retries
        )
    }

    /// Ends the run, because nothing it can do would help against the same root cause.
    fn end(&mut self, d: &Diagnosis, rule: &PolicyRule, case: &FailureContext) {
        if d.class == Class::SchedCancel && rule.changed.is_none() {
            let reason = Reason::new("cancelled", format!("somebody cancelled it: {}", d.text));
            return self.finish(RunOutcome::Stopped, vec![reason]);
        }
        let at = d
            .step
            .map_or_else(|| "before the first step".to_owned(), |s| format!("at step {s}"));
        let why = match case.same {
            _ if case.stepped_back => format!(
                "the same error from several checkpoints, so that none of them is its cause: {} ({}, {at})",
                d.text, d.class
            ),
            1 => format!("{} ({}, {at}): a restart cannot help", d.text, d.class),
            same => format!("the same error {same} times {at}: {} ({})", d.text, d.class),
        };
        let outcome = RunOutcome::Deterministic { why: why.clone() };
        self.finish(outcome, vec![Reason::new("deterministic", why)]);
    }
}
