//! What checks of weights show about steps, together with the metrics that the trainer printed.

use super::RunState;
use crate::checkpoint::finiteness::{Finiteness, NewestFinite, OddTensors, WeightsLook};
use crate::checkpoint::{CheckpointSummary, CkptId, Verdict};
use crate::id::Step;
use crate::observe::numbers::StepNumbers;

const LOOKS: usize = 64;

impl RunState {
    /// Keeps a check. The first one is never dropped, because others are compared with it.
    pub(crate) fn note_weights(&mut self, look: WeightsLook) {
        self.progress.weights.retain(|l| l.ckpt != look.ckpt);
        self.progress.weights.push(look);
        self.progress.weights.sort_by_key(|l| l.step);
        if self.progress.weights.len() > LOOKS {
            self.progress.weights.remove(1);
        }
    }

    /// Forgets checks of steps above a resume point: those steps are moved aside, and new saves must be checked again.
    pub(crate) fn forget_weights_above(&mut self, step: Step) {
        self.progress.weights.retain(|l| l.step <= step);
    }

    /// What is known about the weights of a step.
    #[must_use]
    pub fn finiteness(&self, ckpt: &CkptId) -> Finiteness {
        let nothing = OddTensors::default();
        let mut base: Option<&OddTensors> = None;
        for look in &self.progress.weights {
            let found = match (look.files, &look.tensors, base) {
                (None, ..) => Finiteness::Unknown,
                (Some(0), ..) => {
                    base = Some(&nothing);
                    Finiteness::Finite
                }
                (Some(_), Some(odd), Some(before)) if odd.is_within(before) => {
                    base = Some(odd);
                    Finiteness::Finite
                }
                (Some(_), Some(odd), None) if !odd.is_all() && !self.is_suspected(look.step) => {
                    if self.has_unseen_below(look.step) {
                        Finiteness::Unknown
                    } else {
                        base = Some(odd);
                        Finiteness::Finite
                    }
                }
                (Some(_), ..) => Finiteness::Odd,
            };
            if look.ckpt == *ckpt {
                return found;
            }
        }
        Finiteness::Unknown
    }

    /// Returns true if the weights of a step are or may be non-finite, so that it is no reason to delete older ones.
    #[must_use]
    pub fn is_doubtful(&self, c: &CheckpointSummary) -> bool {
        match self.finiteness(&c.id) {
            Finiteness::Finite => false,
            Finiteness::Odd => true,
            Finiteness::Unknown => self.is_suspected(c.step),
        }
    }

    /// Searches from the newest step down.
    #[must_use]
    pub fn newest_finite(&self) -> NewestFinite {
        for (step, ckpt) in self.sound_steps() {
            match self.finiteness(&ckpt) {
                Finiteness::Finite => return NewestFinite::Found(step, ckpt),
                Finiteness::Unknown if !self.was_looked_at(&ckpt) => return NewestFinite::After(ckpt),
                Finiteness::Unknown | Finiteness::Odd => {}
            }
        }
        NewestFinite::None
    }

    /// Whole steps whose weights are known to be non-finite, newest first.
    #[must_use]
    pub fn odd_steps(&self) -> Vec<CkptId> {
        let is_odd = |id: &CkptId| self.finiteness(id) == Finiteness::Odd;
        let steps = self.sound_steps().into_iter().map(|(_, id)| id);
        steps.filter(is_odd).collect()
    }

    /// Returns true if its weights were checked, even without a result.
    #[must_use]
    pub fn was_looked_at(&self, ckpt: &CkptId) -> bool {
        self.progress.weights.iter().any(|l| l.ckpt == *ckpt)
    }

    /// Whole steps that may be resumed from, newest first.
    #[must_use]
    pub fn sound_steps(&self) -> Vec<(Step, CkptId)> {
        let steps = self.disk.scan.iter().flat_map(|scan| &scan.steps);
        let usable = steps.filter(|c| {
            c.verdict == Verdict::Whole && !c.husk && !c.id.0.is_absolute() && !self.disk.distrusted.contains(&c.id)
        });
        let mut found: Vec<(Step, CkptId)> = usable.map(|c| (c.step, c.id.clone())).collect();
        found.sort_unstable_by_key(|(step, _)| std::cmp::Reverse(*step));
        found
    }

    fn has_unseen_below(&self, step: Step) -> bool {
        let below = |(s, id): &(Step, CkptId)| *s < step && !self.was_looked_at(id);
        self.sound_steps().iter().any(below)
    }

    /// Returns true if the attempt printed non-finite values and no later loss shows that the step's weights are
    /// finite.
    fn is_suspected(&self, saved: Step) -> bool {
        let Some(a) = &self.attempt else { return false };
        let from = a.order.from.step();
        let is_finite = |n: &&StepNumbers| n.of.loss.is_some_and(|loss| loss.0.is_finite());
        let earlier = self.progress.before.iter().filter(|n| n.step <= Some(from));
        let sound = earlier
            .chain(&a.training.numbers)
            .filter(is_finite)
            .filter_map(|n| n.step)
            .max();
        if sound > Some(saved) {
            return false;
        }
        let is_odd = |n: &StepNumbers| [n.of.loss, n.of.grad_norm].iter().flatten().any(|r| !r.0.is_finite());
        let printed = a.training.numbers.iter().any(|n| n.step >= sound && is_odd(n));
        // Records without a step are only counted.
        printed || a.training.lost > 0 && saved > from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(step: u64, of: u64, odd: &[u32]) -> WeightsLook {
        WeightsLook {
            ckpt: CkptId(format!("global_step_{step}").into()),
            step: Step(step),
            files: Some(u32::from(!odd.is_empty())),
            tensors: Some(OddTensors::new(of, odd.to_vec())),
        }
    }

    fn judged(looks: &[WeightsLook]) -> Vec<Finiteness> {
        let mut s = RunState::default();
        for l in looks {
            s.note_weights(l.clone());
        }
        looks.iter().map(|l| s.finiteness(&l.ckpt)).collect()
    }

    #[test]
    fn infinities_that_were_there_before_are_by_design() {
        use Finiteness::{Finite, Odd};
        let found = judged(&[
            look(2, 10, &[7]),
            look(4, 10, &[7]),
            look(6, 10, &[7, 8]),
            look(8, 10, &[7]),
        ]);
        assert_eq!(found, [Finite, Finite, Odd, Finite]);
    }

    #[test]
    fn a_tensor_that_became_finite_has_to_stay_so() {
        use Finiteness::{Finite, Odd};
        let found = judged(&[look(2, 10, &[7, 8]), look(4, 10, &[7]), look(6, 10, &[7, 8])]);
        assert_eq!(found, [Finite, Finite, Odd]);
    }

    #[test]
    fn a_model_without_a_finite_tensor_is_no_design() {
        let all: Vec<u32> = (0..1000).collect();
        let found = judged(&[look(2, 1000, &all), look(4, 1000, &all)]);
        assert_eq!(found, [Finiteness::Odd, Finiteness::Odd]);
    }

    #[test]
    fn many_names_are_compared_by_their_hash() {
        let some: Vec<u32> = (0..600).collect();
        let others: Vec<u32> = (1..601).collect();
        let found = judged(&[look(2, 1000, &some), look(4, 1000, &some), look(6, 1000, &others)]);
        assert_eq!(found, [Finiteness::Finite, Finiteness::Finite, Finiteness::Odd]);
    }
}
