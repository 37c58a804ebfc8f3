//! The meaning of AReaL's output lines. They begin with `(AReaL) DATE TIME LOGGER LEVEL: `, in worker logs with a
//! role in front.

use supervise_core::event::TrainerPhase;
use supervise_core::event::scan::{RuleKind, ScanRule};

/// Steps count from 1 here, as in AReaL's log: step N is finished when `global_step` is N-1. "Training completes!" is
/// not a rule: it is also printed after a failure.
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
        // The reward processes are the only part that AReaL 1.0.4 restarts in place.
        ScanRule::new(
            "areal.heals",
            r"ProcessPoolExecutor broken \(attempt \d+/\d+\)\. Attempting to recreate",
            RuleKind::Heals,
        ),
    ]
}
