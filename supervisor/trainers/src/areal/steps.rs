//! The live set and its generations, folded from file facts.

use crate::adapter::{Expectation, StepTracker};
use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use supervise_checkpoint::{Earlier, FileReport, Marks, Need};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, FileFact, PinsHash};
use supervise_core::event::Tracker;
use supervise_core::id::Step;

/// The sets under one root.
#[derive(Debug)]
pub(super) struct ArealSteps {
    #[expect(dead_code, reason = "used by the judgement")]
    expect: Expectation,
}

impl ArealSteps {
    /// Nothing noted yet.
    pub(super) fn new(expect: Expectation) -> Self {
        Self { expect }
    }
}

impl StepTracker for ArealSteps {
    fn note(&mut self, _fact: &FileFact) {}

    fn steps(&self) -> Vec<(CkptId, Step)> {
        Vec::new()
    }

    fn needs(&self, _ckpt: &CkptId, _depth: Depth) -> Vec<Need> {
        Vec::new()
    }

    fn judge(
        &mut self,
        ckpt: &CkptId,
        _depth: Depth,
        _reports: &BTreeMap<Utf8PathBuf, FileReport>,
    ) -> CheckpointSummary {
        crate::verl::unknown_step(ckpt)
    }

    fn marks(&self, _ckpt: &CkptId, _reports: &BTreeMap<Utf8PathBuf, FileReport>) -> Marks {
        Marks::default()
    }

    fn remember(&mut self, _earlier: Vec<Earlier>) {}

    fn pins(&self, _ckpt: &CkptId) -> Option<PinsHash> {
        None
    }

    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    fn forget(&mut self, _ckpt: &CkptId) {}

    fn tracker_file(&self) -> &'static str {
        ""
    }

    fn read_tracker(&self, _bytes: Option<&[u8]>) -> Tracker {
        Tracker::Missing
    }
}
