//! The choice with proof switched off, to demonstrate what happens without it.

use super::{ResumeChoice, is_elsewhere, start};
use crate::checkpoint::CheckpointSummary;
use crate::checkpoint::kind::is_live;
use crate::event::ScanReport;
use crate::id::Step;
use crate::journal::reason::Reason;
use crate::journal::record::StartPoint;
use crate::spec::RunSpec;

/// Takes the highest number, as any restart loop would.
pub(super) fn unproven(spec: &RunSpec, scan: &ScanReport, care: bool) -> ResumeChoice {
    let reason = |text: String| vec![Reason::new("proof_off", text)];
    // A trainer with only one checkpoint loads what is there.
    let would_load = |c: &CheckpointSummary| spec.saves.is_steps() || is_live(&c.id);
    match scan
        .steps
        .iter()
        .find(|c| !c.husk && !is_elsewhere(&c.id) && would_load(c))
    {
        Some(c) => {
            if last_is(spec, c.step) {
                return ResumeChoice::Finished {
                    step: c.step,
                    reasons: reason(format!("{} has the last planned number", c.id)),
                };
            }
            let load = c
                .contents
                .iter()
                .filter(|k| k.as_str() != "hf_model")
                .cloned()
                .collect();
            let from = StartPoint::Step {
                ckpt: c.id.clone(),
                step: c.step,
                pins: c.pins,
                load,
                roles: c.holds.clone(),
            };
            start(
                from,
                Vec::new(),
                Vec::new(),
                care,
                reason(format!("{} has the highest number; proof is switched off", c.id)),
            )
        }
        None => start(
            StartPoint::Fresh,
            Vec::new(),
            Vec::new(),
            care,
            reason("no step is there; proof is switched off".into()),
        ),
    }
}

fn last_is(spec: &RunSpec, step: Step) -> bool {
    spec.last_step.is_some_and(|l| step >= l)
}
