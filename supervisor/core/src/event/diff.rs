//! A scan as the difference to the previous one: steps that appeared, changed or disappeared.
//!
//! A new step mostly repeats the one next to it (layout, roles, findings), so only the fields that differ are written.
//! A difference names the scan it belongs to: applied to another one it fails rather than giving a scan that never
//! existed.

mod fields;

pub use fields::RawFields;

use crate::checkpoint::{CheckpointSummary, CkptId};
use crate::event::{ScanReport, TrackerState};
use crate::id::Step;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Changes from one scan to the next.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ScanDiff {
    /// Checksum of the scan that this is the difference to.
    pub since: u32,
    /// Steps that have disappeared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub went: Vec<CkptId>,
    /// Steps whose summary changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<StepDiff>,
    /// New steps, by position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub came: Vec<StepDiff>,
    /// The trainer's pointer, if it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracker: Option<TrackerState>,
    /// Everything else, if it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<ScanRest>,
}

/// One step as the difference to a known one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepDiff {
    /// The step it is compared with: itself, or the one that a new step resembles; `None`: the first step of that scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<CkptId>,
    /// Position of a new step among all steps; 0: the first.
    #[serde(default, skip_serializing_if = "is_first")]
    pub at: usize,
    /// Fields that differ, named as in the summary.
    pub now: RawFields,
    /// Fields that it does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

/// What a scan says besides its steps and the pointer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRest {
    /// As in the report.
    pub unreadable: Option<String>,
    /// As in the report.
    pub remarks: Vec<String>,
    /// As in the report.
    pub empty: bool,
    /// As in the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saving: Option<Step>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first(place: &usize) -> bool {
    *place == 0
}

impl ScanDiff {
    /// The difference between two scans; `None` if it cannot be expressed or is not worth it.
    #[must_use]
    pub fn between(old: &ScanReport, new: &ScanReport) -> Option<Self> {
        let was = places(&old.steps)?;
        let is = places(&new.steps)?;
        let first = old.steps.first()?;
        let mut out = Self {
            since: old.mark(),
            went: gone(old, &is),
            ..Self::default()
        };
        let mut last = None;
        for (at, step) in new.steps.iter().enumerate() {
            match was.get(&step.id) {
                Some(place) => {
                    // Steps that stay must keep their order.
                    if last.is_some_and(|last| last > *place) {
                        return None;
                    }
                    last = Some(*place);
                    let before = old.steps.get(*place)?;
                    if before != step {
                        out.changed
                            .push(StepDiff::between(before, step, (*place > 0).then_some(&step.id), 0)?);
                    }
                }
                None => out.came.push(StepDiff::between(first, step, None, at)?),
            }
        }
        out.tracker = (old.tracker != new.tracker).then(|| new.tracker.clone());
        let rest = |r: &ScanReport| ScanRest {
            unreadable: r.unreadable.clone(),
            remarks: r.remarks.clone(),
            empty: r.empty,
            saving: r.saving,
        };
        out.rest = Some(rest(new)).filter(|now| *now != rest(old));
        Some(out)
    }

    /// Number of steps it mentions, as a measure of its size.
    #[must_use]
    pub fn len(&self) -> usize {
        self.went.len() + self.changed.len() + self.came.len()
    }

    /// Returns true if no step differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn places(steps: &[CheckpointSummary]) -> Option<BTreeMap<&CkptId, usize>> {
    let places: BTreeMap<&CkptId, usize> = steps.iter().enumerate().map(|(n, c)| (&c.id, n)).collect();
    (places.len() == steps.len()).then_some(places)
}

fn gone(old: &ScanReport, is: &BTreeMap<&CkptId, usize>) -> Vec<CkptId> {
    let gone = old.steps.iter().filter(|c| !is.contains_key(&c.id));
    gone.map(|c| c.id.clone()).collect()
}

fn fields(step: &CheckpointSummary) -> Option<Map<String, Value>> {
    match serde_json::to_value(step) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

impl StepDiff {
    fn between(old: &CheckpointSummary, new: &CheckpointSummary, like: Option<&CkptId>, at: usize) -> Option<Self> {
        let (was, mut now) = (fields(old)?, fields(new)?);
        let without = was.keys().filter(|k| !now.contains_key(*k)).cloned().collect();
        now.retain(|k, v| was.get(k) != Some(v));
        Some(Self {
            like: like.cloned(),
            at,
            now: RawFields::new(&now)?,
            without,
        })
    }

    fn of(&self, like: &CheckpointSummary) -> Option<CheckpointSummary> {
        let mut out = like.clone();
        self.patch(&mut out)?;
        Some(out)
    }

    /// Applies the differing fields to a summary; `None` if they do not fit one.
    fn patch(&self, c: &mut CheckpointSummary) -> Option<()> {
        for name in &self.without {
            fields::leave_out(c, name, &self.now)?;
        }
        self.now.put(c)
    }
}

impl ScanReport {
    /// Applies a difference; `None` if it belongs to another scan.
    #[must_use]
    pub fn apply(mut self, d: &ScanDiff) -> Option<Self> {
        if self.mark() != d.since {
            return None;
        }
        let place = |id: &CkptId| self.steps.iter().position(|c| c.id.0.as_str() == id.0.as_str());
        let like = |s: &StepDiff| s.like.as_ref().map_or(Some(0), place);
        let told = |s: &StepDiff| Some((s.at, s.of(self.steps.get(like(s)?)?)?));
        let came: Vec<(usize, CheckpointSummary)> = d.came.iter().map(told).collect::<Option<_>>()?;
        let changed: Vec<usize> = d.changed.iter().map(like).collect::<Option<_>>()?;
        let mut went: Vec<usize> = d.went.iter().filter_map(place).collect();
        for (place, step) in changed.into_iter().zip(&d.changed) {
            step.patch(self.steps.get_mut(place)?)?;
        }
        went.sort_unstable();
        went.dedup();
        for place in went.into_iter().rev() {
            self.steps.remove(place);
        }
        let mut next = 0;
        for (at, step) in came {
            if at < next || at > self.steps.len() {
                return None;
            }
            self.steps.insert(at, step);
            next = at + 1;
        }
        if let Some(tracker) = &d.tracker {
            self.tracker.clone_from(tracker);
        }
        if let Some(rest) = d.rest.clone() {
            self.unreadable = rest.unreadable;
            self.remarks = rest.remarks;
            self.empty = rest.empty;
            self.saving = rest.saving;
        }
        Some(self)
    }

    /// A checksum that identifies this scan. A step's pins stand for its files.
    fn mark(&self) -> u32 {
        let mut told = Sum::new();
        for c in &self.steps {
            let numbers = [c.step.0, c.pins.0, c.findings.len() as u64].map(u64::to_le_bytes);
            let kinds = [c.verdict as u8, c.proven.map_or(0, |d| 1 + d as u8)];
            told.add(c.id.0.as_str().as_bytes());
            told.add(numbers.as_flattened());
            told.add(&kinds);
        }
        told.end()
    }
}

/// A checksum over many short pieces, batched and without heap allocation: reading a journal computes one for each scan
/// in it.
struct Sum {
    sum: crc32fast::Hasher,
    bytes: [u8; 2048],
    len: usize,
}

impl Sum {
    fn new() -> Self {
        Self {
            sum: crc32fast::Hasher::new(),
            bytes: [0; 2048],
            len: 0,
        }
    }

    fn add(&mut self, more: &[u8]) {
        let end = self.len + more.len();
        match self.bytes.get_mut(self.len..end) {
            Some(place) => {
                place.copy_from_slice(more);
                self.len = end;
            }
            None => {
                self.flush();
                self.sum.update(more);
            }
        }
    }

    fn flush(&mut self) {
        self.sum.update(self.bytes.get(..self.len).unwrap_or_default());
        self.len = 0;
    }

    fn end(mut self) -> u32 {
        self.flush();
        self.sum.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_pieces_is_that_of_the_whole() {
        let whole: Vec<u8> = (0..=u8::MAX).cycle().take(9000).collect();
        for size in [1, 7, 2047, 2048, 2049, 5000] {
            let mut sum = Sum::new();
            whole.chunks(size).for_each(|piece| sum.add(piece));
            assert_eq!(sum.end(), crc32fast::hash(&whole), "pieces of {size}");
        }
    }
}
