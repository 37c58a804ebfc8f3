//! The meaning of AReaL's lines of output. They begin with `(AReaL) DATE TIME LOGGER LEVEL: `, in worker logs with a role before that.

use supervise_core::event::TrainerPhase;
use supervise_core::event::scan::{RuleKind, ScanRule};

/// The rules. A step counts from 1 here, as in AReaL's log: step N was done when `global_step` N-1 was. "Training completes!" is
/// no rule: it is printed after a failure as well.
pub(super) fn rules() -> Vec<ScanRule> {
    vec![
        ScanRule::new("areal.step", r"Train step (\d+)/(\d+) done\.", RuleKind::Step),
        ScanRule::new(
            "areal.resumed",
            r"Recovering from StepInfo\(epoch=\d+, epoch_step=\d+, global_step=(\d+)",
            RuleKind::Resumed,
        ),
        ScanRule::new(
            "areal.scratch",
            r"Resume info not found at|Failed to load recover info from|should not be a resumed experiment",
            RuleKind::Scratch,
        ),
        ScanRule::new("areal.failed", r"Training failed with exception: ", RuleKind::Failed),
        ScanRule::new(
            "areal.saved",
            r"Saved recover checkpoint to ",
            RuleKind::Enters(TrainerPhase::Save),
        ),
        // The processes that compute rewards, the one part that AReaL 1.0.4 starts again in place.
        ScanRule::new(
            "areal.heals",
            r"ProcessPoolExecutor broken \(attempt \d+/\d+\)\. Attempting to recreate",
            RuleKind::Heals,
        ),
    ]
}
