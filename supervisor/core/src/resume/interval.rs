//! The save interval: a trainer that resumes may keep the one stored in its step, whatever its configuration says. Our
//! code in a trainer that can be asked to save makes it follow the configuration.

use crate::checkpoint::CheckpointSummary;
use crate::journal::reason::Reason;
use crate::spec::RunSpec;
use crate::state::RunState;

/// Steps between saves of the current attempt; `None`: it does not save between, or that is not known.
#[must_use]
pub fn save_interval(s: &RunState, spec: &RunSpec) -> Option<u64> {
    let every = spec.cadence.every?;
    let kept = s.attempt.as_ref().and_then(|a| a.launch.save_every);
    Some(kept.filter(|_| !spec.save_door).unwrap_or(every))
}

/// Reports that the step contains another interval than the configuration.
pub(crate) fn kept_interval(spec: &RunSpec, c: &CheckpointSummary) -> Option<Reason> {
    let (now, kept) = (spec.cadence.every?, c.trainer_note?.save_every?);
    let text = format!(
        "the trainer goes on saving every {kept} steps: a resume takes that number from {}, and not the {now} of the configuration",
        c.id
    );
    (now != kept && !spec.save_door).then(|| Reason::new("interval_kept", text))
}
