//! Metrics that the trainer prints: non-finite values, and steps that are trained twice.

use super::Deciding;
use crate::decide::equivalence::{Equivalence, compare};
use crate::id::Step;
use crate::journal::reason::Reason;
use crate::journal::record::{AfterStop, NoticeKind, RunOutcome};
use crate::observe::numbers::{MetricValue, TrainingMetric};
use crate::spec::policy::ResumeCheck;
use crate::state::{Attempt, EndCause, RunMode};

const ENOUGH: usize = 16;

impl Deciding<'_> {
    pub(super) fn on_numbers(&mut self) {
        self.look_for_odd_numbers();
        self.ask_for_finite_weights();
        self.compare_with_before();
        self.tell_of_collapse();
    }

    /// Leaves the judgement to the operator, because it depends on what is intended.
    fn tell_of_collapse(&mut self) {
        for c in self.s.progress.course.collapses() {
            let (what, name, before) = match c.what {
                TrainingMetric::Entropy => (NoticeKind::EntropyCollapse, "the entropy of the policy", "at first"),
                _ => (NoticeKind::RewardCollapse, "the reward", "at its best"),
            };
            let text = format!(
                "{name} has collapsed: {:.4} since step {}, {:.4} {before}; steps from before it may be worth keeping",
                c.now, c.since, c.before
            );
            self.notice(what, text.clone(), Reason::new(what.code(), text));
        }
    }

    /// Reports a non-finite loss or gradient once. It may pass.
    fn look_for_odd_numbers(&mut self) {
        let Some(a) = self.s.attempt.as_ref() else { return };
        let odd = |what: TrainingMetric| {
            let mut records = a.training.numbers.iter();
            records.find_map(|n| Some((n.step, what, n.of.get(what)?)).filter(|(.., v)| !v.is_finite()))
        };
        let found = odd(TrainingMetric::Loss).or_else(|| odd(TrainingMetric::GradNorm));
        let (at, what, value) = match found {
            Some((step, what, value)) => (step, what, MetricValue(value).to_string()),
            // Records without a step are not kept.
            None if a.training.lost > 0 => (None, TrainingMetric::Loss, "no finite number".to_owned()),
            None => return,
        };
        let at = at.map_or_else(String::new, |s| format!(" at step {s}"));
        let text = format!(
            "the {} is {value}{at}: what is saved from now on may be of no use; `supervise verify --finite` looks into a step",
            what.words()
        );
        let reason = Reason::new(NoticeKind::NotFinite.code(), text.clone());
        self.notice(NoticeKind::NotFinite, text, reason);
    }

    /// Compares once all steps trained before are trained again, or enough of them, or one of them jumped.
    fn compare_with_before(&mut self) {
        let Some((from, a)) = self.s.live().and_then(|a| Some((self.resumed_from()?, a))) else {
            return;
        };
        if a.output.noticed.keys().any(|n| n.is_comparison()) {
            return;
        }
        let again = |n: &&crate::observe::numbers::StepNumbers| n.step > Some(from);
        let now: Vec<_> = a.training.numbers.iter().filter(again).copied().collect();
        let Some(compared) = compare(&self.s.progress.before, &now) else {
            return;
        };
        if !is_over(&self.s.progress.before, a, &compared) {
            return;
        }
        let (what, text) = told(&compared, from);
        let reason = Reason::new(what.code(), text.clone());
        self.notice(what, text.clone(), reason.clone());
        let ends = what == NoticeKind::ResumeJump && self.spec.policy.resume_check == ResumeCheck::Stop;
        if ends && self.s.mode == RunMode::Running && !self.spec.policy.start.observe {
            self.stop(AfterStop::Diagnose, false, vec![reason]);
        }
    }

    /// Ends the run if the attempt was stopped because its metrics jumped, as the settings ask: an operator has to
    /// check it.
    pub(super) fn jumped(&mut self, a: &Attempt) -> bool {
        let Some(text) = a.output.noticed.get(&NoticeKind::ResumeJump) else {
            return false;
        };
        if self.spec.policy.resume_check != ResumeCheck::Stop || !matches!(a.end.ended_by_us, Some(EndCause::Jumped(_)))
        {
            return false;
        }
        let why = format!("{text}; the checkpoint and the trainer's settings are to be looked at (resume_check: stop)");
        let reason = Reason::new(NoticeKind::ResumeJump.code(), why.clone());
        self.finish(RunOutcome::Deterministic { why }, vec![reason]);
        true
    }
}

fn is_over(before: &[crate::observe::numbers::StepNumbers], a: &Attempt, compared: &Equivalence) -> bool {
    let last = before.iter().filter_map(|b| b.step).max();
    let caught_up = a.training.numbers.iter().filter_map(|n| n.step).max() >= last;
    match compared {
        Equivalence::Jump { .. } => true,
        Equivalence::Equal { steps } | Equivalence::Within { steps } | Equivalence::Unknown { steps } => {
            caught_up || *steps >= ENOUGH
        }
    }
}

fn told(compared: &Equivalence, from: Step) -> (NoticeKind, String) {
    let repeated = |steps: usize| match steps {
        1 => format!("the step after {from}, trained twice,"),
        n => format!("{n} steps after {from}, trained twice,"),
    };
    match compared {
        Equivalence::Equal { steps } => {
            let text = format!("equivalence: equal: {} printed the same numbers", repeated(*steps));
            (NoticeKind::ResumeEqual, text)
        }
        Equivalence::Within { steps } => {
            let text = format!(
                "equivalence: {} printed other numbers, within the run's own scatter from step to step",
                repeated(*steps)
            );
            (NoticeKind::ResumeWithin, text)
        }
        Equivalence::Unknown { steps } => {
            let text = format!(
                "equivalence: {} printed other numbers; too few steps are known to say whether that is the run's own scatter",
                repeated(*steps)
            );
            (NoticeKind::ResumeWithin, text)
        }
        Equivalence::Jump {
            what,
            step,
            before,
            now,
        } => {
            let text = format!(
                "equivalence: the {} of step {step} jumped: {now} now, {before} in the attempt before; what was resumed may not be what was saved",
                what.words()
            );
            (NoticeKind::ResumeJump, text)
        }
    }
}
