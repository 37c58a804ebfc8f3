//! Non-finite weights. While workers run: the loss is non-finite for several records in a row, and so are the weights
//! of the newest step. At the end: the last step is checked before the run counts as finished. The run falls back once
//! to the newest step with finite weights.

use super::Deciding;
use crate::checkpoint::CkptId;
use crate::checkpoint::finiteness::{Finiteness, NewestFinite};
use crate::diagnosis::diagnose;
use crate::id::Step;
use crate::journal::reason::Reason;
use crate::journal::record::{
    AfterStop, BACK_TO_FINITE, Decision, Diagnosis, FailureAction, LAST_FINITE, NoticeKind, RunOutcome, WaitCondition,
    WorldQuery,
};
use crate::policy::rule;
use crate::resume::retention::look_before_prune;
use crate::resume::{ResumeChoice, choose};
use crate::rulebook::taxonomy::Class;
use crate::state::{Attempt, RunMode};

const IN_A_ROW: u32 = 3;

/// The class whose policy rule has to ask for a fallback.
const CLASS: Class = Class::NumNan;

/// What the weights of the last step mean for the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastWeights {
    /// The run may end.
    Hold,
    /// They are being checked, or the run has ended otherwise.
    Later,
    /// The run falls back to an older step.
    GoBack,
}

impl Deciding<'_> {
    /// A trainer that skips a bad batch prints one such record; once its weights are non-finite, all further ones are.
    pub(super) fn ask_for_finite_weights(&mut self) {
        let lost = self.s.live().map_or(0, |a| a.training.lost);
        let Some((_, ckpt)) = self.s.sound_steps().into_iter().next() else {
            return;
        };
        let known = |a: &Attempt| a.training.looked_at.iter().any(|(id, _)| *id == ckpt);
        if lost < IN_A_ROW || !self.follows_weights() || self.s.live().is_none_or(known) {
            return;
        }
        let text = format!("the loss has not been finite for {lost} records in a row: checking the numbers in {ckpt}");
        let reason = Reason::new(NoticeKind::NotFiniteInARow.code(), text.clone());
        self.notice(NoticeKind::NotFiniteInARow, text, reason);
        self.ask(WorldQuery::Finite { ckpt });
    }

    /// Pruning waits until a newer step is known to be finite, and a non-finite step is compared with newer ones.
    pub(super) fn look_at_weights_before_prune(&mut self) {
        let odd = self.s.odd_steps();
        let newest = self.s.sound_steps().into_iter().next().map(|(_, ckpt)| ckpt);
        let after_odd = newest.filter(|ckpt| !odd.is_empty() && !self.s.was_looked_at(ckpt) && self.follows_weights());
        if let Some(ckpt) = after_odd.or_else(|| look_before_prune(&self.s, self.spec)) {
            self.ask(WorldQuery::Finite { ckpt });
        }
    }

    fn follows_weights(&self) -> bool {
        self.may_go_back() || self.guards_finite()
    }

    pub(super) fn on_finite(&mut self) {
        if self.is_choosing() {
            return self.on_choice();
        }
        // A scan with the same result leaves no record, so scan again now that the weights are known.
        if self.chooses() {
            return self.scan();
        }
        let Some(a) = self.s.live() else { return };
        let (is_lost, odd) = (a.training.lost >= IN_A_ROW, self.s.odd_steps());
        if let Some(ckpt) = odd.first() {
            let text = format!("{ckpt} holds numbers that are not finite");
            let reason = Reason::new(NoticeKind::OddWeights.code(), text.clone());
            self.notice(NoticeKind::OddWeights, text, reason);
        }
        if is_lost || !odd.is_empty() {
            match self.s.newest_finite() {
                // Check the next older step, until one is finite.
                NewestFinite::After(ckpt) if self.follows_weights() => return self.ask(WorldQuery::Finite { ckpt }),
                NewestFinite::Found(step, _) => self.leave_odd_weights(step, is_lost),
                NewestFinite::After(_) | NewestFinite::None => {}
            }
        }
        if self.s.mode == RunMode::Running {
            self.prune_now();
            self.look_at_weights_before_prune();
        }
    }

    /// Falls back to this step, or ends the attempt before it is deleted. If the loss is finite, two steps must be
    /// non-finite, because a buffer may contain an infinity for a while.
    fn leave_odd_weights(&mut self, finite: Step, is_lost: bool) {
        let odd = self.newer_odd(finite);
        let Some(newest) = odd.first().filter(|_| is_lost || odd.len() > 1) else {
            return;
        };
        let found = match is_lost {
            true => format!("the loss is not finite, and neither are numbers in {newest}"),
            false => format!(
                "the weights in the last {} steps, up to {newest}, are not finite",
                odd.len()
            ),
        };
        if !self.may_go_back() {
            return self.end_before_it_is_deleted(finite, &found);
        }
        let text = format!(
            "{found}: back to step {finite}, the newest step whose numbers are finite (policy: {})",
            CLASS.code()
        );
        self.stop(AfterStop::Diagnose, false, vec![Reason::new(BACK_TO_FINITE, text)]);
    }

    /// Returns true if the trainer itself deletes older steps and must be kept from deleting the last finite one.
    fn guards_finite(&self) -> bool {
        let p = &self.spec.policy;
        let keeps = self.spec.saves.is_steps() && self.spec.least_kept().is_some();
        keeps && p.recovers() && self.s.mode == RunMode::Running
    }

    /// Stops the attempt if the trainer would delete the newest finite step after one or two more saves.
    fn end_before_it_is_deleted(&mut self, finite: Step, found: &str) {
        if !self.guards_finite() {
            return;
        }
        let Some(a) = self.s.live().filter(|a| finite > a.order.from.step()) else {
            return;
        };
        let newer = self.s.sound_steps().iter().filter(|(step, _)| *step > finite).count();
        let trainers = self
            .spec
            .least_kept()
            .unwrap_or(u32::MAX)
            .saturating_add(self.spec.policy.retention.keep_raise);
        if newer.saturating_add(2) < trainers as usize {
            return;
        }
        let no = a.no;
        let text = format!(
            "{found}, and the trainer would soon delete step {finite}, the newest whose numbers are finite: attempt {no} is ended; to go on from there, `--from {finite} --again`"
        );
        self.stop(AfterStop::Diagnose, false, vec![Reason::new(LAST_FINITE, text)]);
    }

    /// Ends the run if the attempt was stopped for this reason.
    pub(super) fn is_hopeless(&mut self, a: &Attempt) -> bool {
        let Some(cause) = a.end.ended_by_us.as_ref().filter(|_| a.end.hopeless) else {
            return false;
        };
        self.end_as_lost(a, cause.words().to_owned());
        true
    }

    /// If the attempt was stopped because of non-finite weights, excludes its steps after the newest finite one.
    pub(super) fn leave_spoilt_steps(&mut self) {
        if self.s.attempt.as_ref().is_none_or(|a| !a.end.spoilt) {
            return;
        }
        let steps = self.s.sound_steps();
        let is_finite = |id: &CkptId| self.s.finiteness(id) == Finiteness::Finite;
        let Some(at) = steps.iter().position(|(_, id)| is_finite(id)) else {
            return;
        };
        for (_, ckpt) in steps.into_iter().take(at) {
            let text = format!("{ckpt} was saved while the weights were no numbers: it is not resumed from");
            let reason = Reason::new("not_finite_step", text);
            self.decided(Decision::Distrust { ckpt }, vec![reason]);
        }
    }

    /// Checks the weights of the step that a run would end with, because a non-finite model is not a finished training.
    pub(super) fn last_weights(&mut self, last: Step) -> LastWeights {
        let Some(ckpt) = self.checked_at_the_end(last) else {
            return LastWeights::Hold;
        };
        let known = self.s.finiteness(&ckpt);
        if known == Finiteness::Finite {
            return LastWeights::Hold;
        }
        if !self.s.was_looked_at(&ckpt) {
            self.ask(WorldQuery::Finite { ckpt });
            return LastWeights::Later;
        }
        match self.s.newest_finite() {
            NewestFinite::After(older) => {
                self.ask(WorldQuery::Finite { ckpt: older });
                LastWeights::Later
            }
            // It could not be read, so nothing is known.
            _ if known == Finiteness::Unknown => LastWeights::Hold,
            NewestFinite::Found(step, _) => self.go_back_at_the_end(&ckpt, Some(step)),
            NewestFinite::None => self.go_back_at_the_end(&ckpt, None),
        }
    }

    /// Returns true if the disk was scanned and the choice waits for something else.
    fn is_choosing(&self) -> bool {
        self.chooses() && self.s.disk.looked
    }

    fn chooses(&self) -> bool {
        matches!(
            &self.s.mode,
            RunMode::Choosing
                | RunMode::Waiting {
                    what: WaitCondition::Readable,
                    ..
                }
        )
    }

    /// The last step, if a choice has waited too long for its weights to be read.
    pub(super) fn unlooked_end(&self) -> Option<Step> {
        let scan = self.s.disk.scan.as_ref().filter(|_| self.is_choosing())?;
        let lasted = self.e.at.since(self.s.since);
        let choice = (lasted >= super::CHOOSING_LIMIT).then(|| choose(&self.s, self.spec, scan))?;
        match choice {
            ResumeChoice::Finished { step, .. } if self.s.requests.stop.is_none() => Some(step),
            _ => None,
        }
    }

    /// The weights of the last step were not read in time: reports that, and ends the run as its trainer did.
    pub(super) fn end_unlooked(&mut self, last: Step) {
        let text = "the weights of the last step could not be read in time: `supervise verify --finite` looks into it";
        self.finish(
            RunOutcome::Finished { step: Some(last) },
            vec![Reason::new("weights_not_read", text)],
        );
    }

    /// The last step, if this run saved it and its weights are checked.
    fn checked_at_the_end(&self, last: Step) -> Option<CkptId> {
        let p = &self.spec.policy;
        let checks = p.recovers() && self.spec.saves.is_steps();
        let (step, ckpt) = self.s.sound_steps().into_iter().next()?;
        // A run that is found finished was looked at when it ended.
        let is_ours = self.s.attempt.is_some() && self.s.progress.finished != Some(step);
        (checks && is_ours && step == last).then_some(ckpt)
    }

    fn go_back_at_the_end(&mut self, ckpt: &CkptId, finite: Option<Step>) -> LastWeights {
        let Some(a) = self.s.attempt.clone() else {
            return LastWeights::Hold;
        };
        let again = match self.s.went_back {
            true => "again, ",
            false => "",
        };
        let found = format!("{again}{ckpt} holds numbers that are not finite: the training is not finished");
        let (Some(step), true) = (finite, self.is_to_go_back()) else {
            let newest = match finite {
                Some(step) => format!(
                    "the newest step whose numbers are finite is {step}: to go on from there, `--from {step} --again`"
                ),
                None => "no step is there whose numbers are finite".to_owned(),
            };
            self.end_as_lost(&a, format!("{found}; {newest}"));
            return LastWeights::Later;
        };
        let text = format!(
            "{found}; back to step {step}, the newest step whose numbers are finite (policy: {})",
            CLASS.code()
        );
        self.diagnosed_as_lost(&a, &text, FailureAction::FallBack);
        let reason = Reason::new(BACK_TO_FINITE, text);
        let newer = self.s.sound_steps().into_iter().take_while(|(s, _)| *s > step);
        for (_, ckpt) in newer {
            self.decided(Decision::Distrust { ckpt }, vec![reason.clone()]);
        }
        let charge = Decision::Charge {
            attempts: self.s.budget.charged,
            step_backs: self.s.budget.step_backs.saturating_add(1),
            spared: false,
        };
        self.decided(charge, vec![reason]);
        LastWeights::GoBack
    }

    fn end_as_lost(&mut self, a: &Attempt, why: String) {
        self.diagnosed_as_lost(a, &why, FailureAction::Stop);
        // Charge it now, so that a start with `--from` does not judge it again.
        let charge = Decision::Charge {
            attempts: self.s.budget.charged,
            step_backs: self.s.budget.step_backs,
            spared: false,
        };
        let reasons = vec![Reason::new("not_finite_end", why.clone())];
        self.decided(charge, reasons.clone());
        self.finish(RunOutcome::Deterministic { why }, reasons);
    }

    fn diagnosed_as_lost(&mut self, a: &Attempt, text: &str, action: FailureAction) {
        let d = Diagnosis {
            class: CLASS.into(),
            action,
            text: text.to_owned(),
            at_start: false,
            ..diagnose(a)
        };
        self.decided(Decision::Diagnosed(d), vec![Reason::new("not_finite_end", text)]);
    }

    /// Returns true if the policy asks for a fallback and none was made yet.
    fn may_go_back(&self) -> bool {
        self.s.mode == RunMode::Running && self.is_to_go_back()
    }

    fn is_to_go_back(&self) -> bool {
        let p = &self.spec.policy;
        let class = CLASS.into();
        let answer = rule(
            &p.failure.rules,
            &p.failure.lines,
            &class,
            crate::diagnosis::action(&class),
        )
        .answer;
        let wanted = answer == FailureAction::FallBack && p.recovers();
        wanted && !self.s.went_back && self.s.budget.step_backs < p.failure.step_backs
    }

    fn newer_odd(&self, above: Step) -> Vec<CkptId> {
        let newer = self.s.sound_steps().into_iter().filter(|(step, _)| *step > above);
        newer
            .map(|(_, id)| id)
            .filter(|id| self.s.finiteness(id) == Finiteness::Odd)
            .collect()
    }
}
