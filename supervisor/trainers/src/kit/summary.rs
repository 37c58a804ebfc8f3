//! Summaries of steps of which nothing is known yet.

use std::borrow::Cow;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Finding, PinsHash, Resumability, Verdict};
use supervise_core::id::{Step, WallMs};

/// A step that was never noted: forgotten before, or not a step's name.
pub(crate) fn unknown_step(ckpt: &CkptId) -> CheckpointSummary {
    let mut summary = blank(ckpt.clone(), Step(0));
    summary.findings.push(Finding::error(
        "no_such_step",
        Verdict::Unknown,
        "no step of this name is known here",
    ));
    summary.resume = Resumability::Not {
        why: "there is no such step".into(),
    };
    summary
}

pub(crate) fn blank(id: CkptId, step: Step) -> CheckpointSummary {
    CheckpointSummary {
        id,
        step,
        layout: Cow::Borrowed("unknown"),
        verdict: Verdict::Unknown,
        proven: None,
        roles: Vec::new(),
        world: None,
        contents: Vec::new(),
        holds: BTreeMap::new(),
        resume: Resumability::Exact,
        reshard: None,
        part: None,
        pins: PinsHash::default(),
        bytes: 0,
        files: 0,
        newest: WallMs(0),
        saved_by: None,
        save: None,
        husk: false,
        unfamiliar: Vec::new(),
        other_owner: None,
        trainer_note: None,
        own_modules: Vec::new(),
        findings: Vec::new(),
    }
}
