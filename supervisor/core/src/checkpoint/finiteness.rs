//! Non-finite model weights: what was found in a step, and what it means.
//!
//! Masks and buffers may contain infinities by design, so a step is compared with earlier ones: its weights are
//! non-finite if a tensor is that was finite in the last finite step of the run.

use crate::checkpoint::CkptId;
use crate::id::Step;
use serde::{Deserialize, Serialize};

/// Most names of tensors kept per step.
const NAMES: usize = 256;

/// Tensors of a step's model that contain non-finite values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OddTensors {
    /// Number of floating-point tensors that were checked.
    pub of: u64,
    /// How many of them are non-finite.
    pub count: u64,
    /// Hash over the names of the non-finite tensors.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub digest: u64,
    /// Hashes of their names, sorted; only the first ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl OddTensors {
    /// The given tensors out of `of` are non-finite.
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

    /// Returns true if all of them are among `others`. If not all names are known, the sets must be equal.
    pub(crate) fn is_within(&self, others: &Self) -> bool {
        let all_known = |t: &Self| t.names.len() as u64 == t.count;
        let inside = || self.names.iter().all(|n| others.names.binary_search(n).is_ok());
        self.count == 0
            || (self.count, self.digest) == (others.count, others.digest)
            || all_known(self) && all_known(others) && inside()
    }

    /// Returns true if no tensor is finite, which no design explains.
    pub(crate) fn is_all(&self) -> bool {
        self.count > 0 && self.count >= self.of
    }
}

/// A check of the weights of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsLook {
    pub ckpt: CkptId,
    pub step: Step,
    /// Number of files with non-finite values; `None`: the step could not be read.
    pub files: Option<u32>,
    /// Their tensors; `None`: the check did not tell them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensors: Option<OddTensors>,
}

/// What is known about a step's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finiteness {
    /// Finite, or non-finite only in the way earlier steps are.
    Finite,
    /// Non-finite.
    Odd,
    /// Not known, or an older step must be checked first.
    Unknown,
}

/// The newest step with finite weights, as far as the checks show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewestFinite {
    Found(Step, CkptId),
    /// This step must be checked first.
    After(CkptId),
    /// None of the steps on disk.
    None,
}
