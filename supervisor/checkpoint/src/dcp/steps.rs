//! Adam's step counts, one per parameter.
//!
//! All counts of one save agree (a parameter that was frozen for a while has a lower one), so they reveal files from different saves.

use super::{StorageRange, StoredValue};
use crate::dtype::Dtype;
use crate::source::FileReader;
use crate::torch::TorchInspection;
use std::collections::{BTreeMap, BTreeSet};
use supervise_core::checkpoint::Finding;

/// The most optimizers, and different counts of one.
const GROUPS: usize = 16;
const COUNTS: usize = 16;
/// Longest optimizer name, in bytes.
const NAME: usize = 200;

/// Step counts by optimizer name: the part of a value's name before `state`.
#[derive(Default)]
pub(super) struct OptimizerSteps {
    by_group: BTreeMap<String, BTreeSet<u64>>,
}

impl OptimizerSteps {
    pub(super) fn look(
        &mut self,
        part: &StorageRange,
        file: &FileReader<'_>,
        found: &TorchInspection,
    ) -> Result<(), Box<Finding>> {
        if part.what == StoredValue::Bytes && part.fqn.len() <= NAME {
            // A whole optimizer, saved as one value.
            found
                .facts
                .optimizer_steps
                .iter()
                .for_each(|n| self.note(&part.fqn, *n));
            return Ok(());
        }
        let (StoredValue::Tensor { shape, .. }, Some(group)) = (&part.what, group(&part.fqn)) else {
            return Ok(());
        };
        let Some(tensor) = found.tensors.first().filter(|_| shape.iter().all(|n| *n == 1)) else {
            return Ok(());
        };
        let (Some(dtype), Some(key)) = (tensor.dtype, tensor.storage.as_deref()) else {
            return Ok(());
        };
        let is_data = |what: &str| what.split_once("/data/").is_some_and(|(_, k)| k == key);
        let Some(data) = found.plan.extents.iter().find(|e| is_data(&e.what)) else {
            return Ok(());
        };
        let at = tensor.offset.saturating_mul(dtype.size());
        if at.saturating_add(dtype.size()) > data.len {
            return Ok(());
        }
        let bytes = file.bytes(data.off.saturating_add(at), dtype.size() as usize)?;
        if let Some(count) = count(dtype, &bytes) {
            self.note(group, count);
        }
        Ok(())
    }

    fn note(&mut self, group: &str, count: u64) {
        if self.by_group.len() >= GROUPS && !self.by_group.contains_key(group) {
            return;
        }
        let counts = self.by_group.entry(group.to_owned()).or_default();
        counts.insert(count);
        if counts.len() > COUNTS {
            counts.pop_first();
        }
    }

    pub(super) fn into_groups(self) -> BTreeMap<String, Vec<u64>> {
        let groups = self.by_group.into_iter();
        groups
            .map(|(name, counts)| (name, counts.into_iter().collect()))
            .collect()
    }
}

/// The optimizer of the step count with this name.
fn group(fqn: &str) -> Option<&str> {
    let (owner, last) = fqn.rsplit_once('.')?;
    if last != "step" {
        return None;
    }
    let at = if owner.starts_with("state.") || owner == "state" {
        0
    } else {
        owner.find(".state.")?
    };
    owner.get(..at).filter(|g| g.len() <= NAME)
}

fn count(dtype: Dtype, bytes: &[u8]) -> Option<u64> {
    let bits = crate::raw::le(bytes, 0, dtype.size() as usize);
    let float = match dtype {
        Dtype::F32 => f64::from(f32::from_bits(bits as u32)),
        Dtype::F64 => f64::from_bits(bits),
        Dtype::I64 | Dtype::I32 => return Some(bits).filter(|n| *n <= 1 << 53),
        _ => return None,
    };
    (float.is_finite() && float >= 0.0 && float.fract() == 0.0 && float <= 9e15).then_some(float as u64)
}
