//! Model weights that are no finite numbers: what was found in a step, and what it means.
//!
//! Masks and buffers may hold infinities by design. So a step is judged by those before it: its weights are not finite where a tensor
//! is not that was finite in the last finite step of the run.

use crate::checkpoint::{CheckpointSummary, CkptId, Verdict};
use crate::id::Step;
use crate::numbers::StepNumbers;
use crate::state::State;
use serde::{Deserialize, Serialize};

/// Names of tensors that are kept for one step.
const NAMES: usize = 256;
/// Looks that are kept for one run.
const LOOKS: usize = 64;

/// Tensors of a step's model that hold numbers which are not finite.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OddTensors {
    /// Tensors of floating-point numbers that were looked at.
    pub of: u64,
    /// How many of them are not finite.
    pub count: u64,
    /// Hash over the names of those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub digest: u64,
    /// Hashes of their names, sorted: the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl OddTensors {
    /// Of so many tensors, these are not finite.
    #[must_use]
    pub fn new(of: u64, mut names: Vec<u32>) -> Self {
        names.sort_unstable();
        // FNV-1a.
        let mix = |hash: u64, name: &u32| (hash ^ u64::from(*name)).wrapping_mul(0x0000_0100_0000_01b3);
        let digest = names.iter().fold(0xcbf2_9ce4_8422_2325, mix);
        let count = names.len() as u64;
        names.truncate(NAMES);
        Self {
            of,
            count,
            digest: if count > 0 { digest } else { 0 },
            names,
        }
    }

    /// Each of them is one of the others. Where not all names are known, only equal ones are.
    fn is_within(&self, others: &Self) -> bool {
        let all_known = |t: &Self| t.names.len() as u64 == t.count;
        let inside = || self.names.iter().all(|n| others.names.binary_search(n).is_ok());
        self.count == 0
            || (self.count, self.digest) == (others.count, others.digest)
            || all_known(self) && all_known(others) && inside()
    }

    /// Nothing is finite: no design leaves a model so.
    fn is_all(&self) -> bool {
        self.count > 0 && self.count >= self.of
    }
}

/// A look at the weights of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsLook {
    /// The step's directory.
    pub ckpt: CkptId,
    /// The step.
    pub step: Step,
    /// Files that hold numbers which are not finite; `None`: it could not be read.
    pub files: Option<u32>,
    /// Their tensors; `None`: the look did not tell them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensors: Option<OddTensors>,
}

/// What is known of a step's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finiteness {
    /// They are finite, or as far from it as in the steps before.
    Finite,
    /// They are not.
    Odd,
    /// Nothing is known, or a look at an older step has to tell.
    Unknown,
}

/// The newest step whose weights are finite, as far as looks tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewestFinite {
    /// This one.
    Found(Step, CkptId),
    /// That is known once this one is looked at.
    After(CkptId),
    /// None of those that are there.
    None,
}

impl State {
    /// Keeps a look. The first one stays: others are compared with it.
    pub(crate) fn note_weights(&mut self, look: WeightsLook) {
        self.weights.retain(|l| l.ckpt != look.ckpt);
        self.weights.push(look);
        self.weights.sort_by_key(|l| l.step);
        if self.weights.len() > LOOKS {
            self.weights.remove(1);
        }
    }

    /// What was saved above a step that is resumed from goes aside: what is saved there again is looked at anew.
    pub(crate) fn forget_weights_above(&mut self, step: Step) {
        self.weights.retain(|l| l.step <= step);
    }

    /// What is known of the weights of a step.
    #[must_use]
    pub fn finiteness(&self, ckpt: &CkptId) -> Finiteness {
        let nothing = OddTensors::default();
        let mut base: Option<&OddTensors> = None;
        for look in &self.weights {
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
                (Some(_), Some(odd), None) if !odd.is_all() => {
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

    /// The weights of a step are not finite, or may not be: nothing that is older is deleted because of it.
    #[must_use]
    pub fn is_doubtful(&self, c: &CheckpointSummary) -> bool {
        match self.finiteness(&c.id) {
            Finiteness::Finite => false,
            Finiteness::Odd => true,
            Finiteness::Unknown => self.is_suspected(c.step),
        }
    }

    /// Looks from the newest step down.
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

    /// Its weights were looked at, whether or not that told anything.
    #[must_use]
    pub fn was_looked_at(&self, ckpt: &CkptId) -> bool {
        self.weights.iter().any(|l| l.ckpt == *ckpt)
    }

    /// Whole steps that may be resumed from, newest first.
    #[must_use]
    pub fn sound_steps(&self) -> Vec<(Step, CkptId)> {
        let steps = self.scan.iter().flat_map(|scan| &scan.steps);
        let usable = steps.filter(|c| {
            c.verdict == Verdict::Whole && !c.husk && !c.id.0.is_absolute() && !self.distrusted.contains(&c.id)
        });
        let mut found: Vec<(Step, CkptId)> = usable.map(|c| (c.step, c.id.clone())).collect();
        found.sort_unstable_by_key(|(step, _)| std::cmp::Reverse(*step));
        found
    }

    fn has_unseen_below(&self, step: Step) -> bool {
        let below = |(s, id): &(Step, CkptId)| *s < step && !self.was_looked_at(id);
        self.sound_steps().iter().any(below)
    }

    /// The attempt printed numbers that are not finite, and no loss behind the step shows that its weights are sound.
    fn is_suspected(&self, saved: Step) -> bool {
        let Some(a) = &self.attempt else { return false };
        let from = a.order.from.step();
        let is_finite = |n: &&StepNumbers| n.of.loss.is_some_and(|loss| loss.0.is_finite());
        let earlier = self.before.iter().filter(|n| n.step <= Some(from));
        let sound = earlier.chain(&a.numbers).filter(is_finite).filter_map(|n| n.step).max();
        if sound > Some(saved) {
            return false;
        }
        let is_odd = |n: &StepNumbers| [n.of.loss, n.of.grad_norm].iter().flatten().any(|r| !r.0.is_finite());
        let printed = a.numbers.iter().any(|n| n.step >= sound && is_odd(n));
        // Records without a step are only counted.
        printed || a.lost > 0 && saved > from
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
        let mut s = State::default();
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
