//! Step directories whose names have leading zeros.

use super::names;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Finding, Resumability, Verdict};
use supervise_core::id::Step;

/// A directory that `Trainer` would read as a step although it never writes such a name: its content is not
/// inspected.
pub(crate) fn padded(ckpt: &CkptId, step: Step) -> CheckpointSummary {
    let right = names::step_dir(step);
    let detail = format!(
        "{ckpt} has leading zeros: Trainer would take it for step {step}, and never writes such a name; rename it to {right} to resume from it, or move it out of the output directory"
    );
    let mut summary = crate::kit::blank(ckpt.clone(), step);
    summary.resume = Resumability::Not { why: detail.clone() };
    summary
        .findings
        .push(Finding::error("padded_name", Verdict::Unknown, detail));
    summary
}
