//! Collects similar findings: the first few of each code are kept, the rest are counted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{Finding, Verdict};

/// Findings kept per code and verdict.
const KEPT: usize = 4;

#[derive(Default)]
pub(super) struct FindingCollector {
    by_code: BTreeMap<(Cow<'static, str>, Verdict), (Vec<Finding>, u64)>,
}

impl FindingCollector {
    pub(super) fn add(&mut self, finding: Finding) {
        let (kept, more) = self
            .by_code
            .entry((finding.code.clone(), finding.effect()))
            .or_default();
        if kept.len() < KEPT {
            kept.push(finding);
        } else {
            *more += 1;
        }
    }

    /// Returns the kept findings; the last of each code says how many more there are.
    pub(super) fn into_findings(self) -> Vec<Finding> {
        let mut out = Vec::new();
        for (mut kept, more) in self.by_code.into_values() {
            if let Some(last) = kept.last_mut().filter(|_| more > 0) {
                last.detail = format!("{} (and {more} more like it)", last.detail);
            }
            out.append(&mut kept);
        }
        out
    }
}
