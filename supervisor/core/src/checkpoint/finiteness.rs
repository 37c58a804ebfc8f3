//! Model weights that are no finite numbers: what was found in a step, and what it means.
//!
//! Masks and buffers may hold infinities by design. So a step is judged by those before it: its weights are not finite where a tensor
//! is not that was finite in the last finite step of the run.

use crate::checkpoint::CkptId;
use crate::id::Step;
use serde::{Deserialize, Serialize};

/// Names of tensors that are kept for one step.
const NAMES: usize = 256;

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
    pub(crate) fn is_within(&self, others: &Self) -> bool {
        let all_known = |t: &Self| t.names.len() as u64 == t.count;
        let inside = || self.names.iter().all(|n| others.names.binary_search(n).is_ok());
        self.count == 0
            || (self.count, self.digest) == (others.count, others.digest)
            || all_known(self) && all_known(others) && inside()
    }

    /// Nothing is finite: no design leaves a model so.
    pub(crate) fn is_all(&self) -> bool {
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
