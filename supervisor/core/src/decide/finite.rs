//! Weights that are no numbers any more: the loss says so for several records in a row, and the newest step holds them. The run goes
//! back to the newest step that does not, once.

use super::Deciding;
use crate::checkpoint::{CkptId, Verdict};
use crate::id::Step;
use crate::policy::rule;
use crate::reason::Reason;
use crate::record::{Action, Ask, BACK_TO_FINITE, Decision, Notice, Then};
use crate::state::{Attempt, Mode};

/// Records in a row whose loss is no number.
const IN_A_ROW: u32 = 3;

/// The class whose row in the policy has to ask for it.
const CLASS: &str = "num.nan";

impl Deciding<'_> {
    /// A trainer that skips a bad batch prints one such record; one whose weights are spoilt prints no other any more.
    pub(super) fn ask_for_finite_weights(&mut self) {
        let lost = self.s.live().map_or(0, |a| a.lost);
        let Some((_, ckpt)) = self.steps_by_age().into_iter().next() else {
            return;
        };
        let known = |a: &Attempt| a.looked_at.iter().any(|(id, _)| *id == ckpt);
        if lost < IN_A_ROW || !self.may_go_back() || self.s.live().is_none_or(known) {
            return;
        }
        let text =
            format!("the loss is no finite number for {lost} records in a row: the numbers in {ckpt} are looked at");
        let reason = Reason::new(Notice::NotFiniteInARow.code(), text.clone());
        self.notice(Notice::NotFiniteInARow, text, reason);
        self.ask(Ask::Finite { ckpt });
    }

    /// The numbers of a step are known.
    pub(super) fn on_finite(&mut self, ckpt: &CkptId, odd: Option<u32>) {
        let steps = self.steps_by_age();
        let Some((step, _)) = steps.iter().find(|(_, id)| id == ckpt).cloned() else {
            return;
        };
        let Some(a) = self.s.live().filter(|a| a.lost >= IN_A_ROW) else {
            return;
        };
        match odd {
            // The next older one, until one is finite.
            Some(1..) => {
                let older = steps.iter().find(|(s, id)| *s < step && !is_odd(a, id));
                if let Some(ckpt) = older.map(|(_, id)| id.clone()) {
                    self.ask(Ask::Finite { ckpt });
                }
            }
            Some(0) if self.may_go_back() => {
                let newer = steps.iter().filter(|(s, _)| *s > step).map(|(_, id)| id);
                let Some(newest) = newer.into_iter().find(|id| is_odd(a, id)) else {
                    return;
                };
                let text = format!(
                    "the loss is no finite number, and {newest} holds such numbers as well: back to step {step}, the newest step whose numbers are finite (policy: {CLASS})"
                );
                self.stop(Then::Diagnose, false, vec![Reason::new(BACK_TO_FINITE, text)]);
            }
            // Nothing is known of it, or what was saved is sound.
            Some(0) | None => {}
        }
    }

    /// The attempt was ended because its weights are no numbers: nothing is resumed from that it saved after the newest finite step.
    pub(super) fn leave_spoilt_steps(&mut self) {
        let Some(a) = self.s.attempt.as_ref().filter(|a| a.spoilt) else {
            return;
        };
        let steps = self.steps_by_age();
        let is_finite = |id: &CkptId| a.looked_at.iter().any(|(l, odd)| l == id && *odd == Some(0));
        let Some(at) = steps.iter().position(|(_, id)| is_finite(id)) else {
            return;
        };
        for (_, ckpt) in steps.into_iter().take(at) {
            let text = format!("{ckpt} was saved while the weights were no numbers: it is not resumed from");
            let reason = Reason::new("not_finite_step", text);
            self.decided(Decision::Distrust { ckpt }, vec![reason]);
        }
    }

    /// The row of the policy asks for it, and it was not done before.
    fn may_go_back(&self) -> bool {
        let p = &self.spec.policy;
        let answer = rule(&p.rules, CLASS, crate::diagnosis::action(CLASS)).answer;
        let wanted = answer == Action::FallBack && p.recovery && p.prove && !p.observe;
        wanted && self.s.mode == Mode::Running && !self.s.went_back && self.s.step_backs < p.step_backs
    }

    /// Whole steps that may be resumed from, newest first.
    fn steps_by_age(&self) -> Vec<(Step, CkptId)> {
        let steps = self.s.scan.iter().flat_map(|scan| &scan.steps);
        let usable = steps.filter(|c| {
            c.verdict == Verdict::Whole && !c.husk && !c.id.0.is_absolute() && !self.s.distrusted.contains(&c.id)
        });
        let mut found: Vec<(Step, CkptId)> = usable.map(|c| (c.step, c.id.clone())).collect();
        found.sort_unstable_by_key(|(step, _)| std::cmp::Reverse(*step));
        found
    }
}

fn is_odd(a: &Attempt, ckpt: &CkptId) -> bool {
    a.looked_at
        .iter()
        .any(|(id, odd)| id == ckpt && odd.is_some_and(|n| n > 0))
}
